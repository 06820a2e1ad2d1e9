/* The core's life: start, the one loop, stop. All state of jobs and sessions belongs to the loop's
 * thread; other threads post messages. The loop also ticks once a second. A tick is never skipped
 * by a busy mailbox: messages are taken one at a time and the clock is read between them. */
#include "coordinator/core.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/core_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_US 100000
#define TICKS_PER_SECOND 10
#define ALIVE_US 5000000
#define RETRY_US 1000

enum status core_mail(struct core *core, int type, struct mail *mail)
{
    if (!mail)
        return STATUS_NO_MEMORY;
    mail->type = type;
    enum status status = mailbox_post(core->box, mail);
    if (status)
        free(mail);
    return status;
}

void *core_mail_make(size_t bytes)
{
    void *mail;
    while (!(mail = calloc(1, bytes)))
        clock_sleep_us(RETRY_US);
    return mail;
}

void core_mail_surely(struct core *core, int type, struct mail *mail)
{
    enum status status;
    mail->type = type;
    while ((status = mailbox_post(core->box, mail)) == STATUS_BUSY)
        clock_sleep_us(RETRY_US);
    if (status) /* closed: the core has ended */
        free(mail);
}

void core_event(struct core *core, const char *type, const char *severity, const char *subject,
                const char *format, ...)
{
    struct mail_event *mail = calloc(1, sizeof *mail);
    if (!mail)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(mail->event.text, sizeof mail->event.text, format, arguments);
    va_end(arguments);
    text_copy(mail->event.type, sizeof mail->event.type, type);
    text_copy(mail->event.severity, sizeof mail->event.severity, severity);
    text_copy(mail->event.subject, sizeof mail->event.subject, subject);
    mail->event.at_ms = clock_wall_ms();
    log_line(strcmp(severity, "info") == 0 ? LOG_INFO : LOG_WARN, "core", "%s %s: %s", type,
             subject, mail->event.text);
    if (store_post_event(core->store, &mail->event))
        log_warn("core", "the event queue is full; an event is only in this log");
    if (core_mail(core, MAIL_EVENT, &mail->mail))
        log_warn("core", "the mailbox is full; an event is not shown live");
}

static void handle_mail(struct core *core, struct mail *mail)
{
    struct mail_message *message = (struct mail_message *)mail;
    struct mail_frame *frame = (struct mail_frame *)mail;
    struct session *session;
    switch ((enum mail_type)mail->type) {
    case MAIL_STOP:
        core->stopping = true;
        break;
    case MAIL_CALL:
        core_call_run(core, (struct call *)mail);
        return; /* reference-counted */
    case MAIL_EVENT:
        core_live_event(core, &((struct mail_event *)mail)->event);
        break;
    case MAIL_DURABLE:
        core_durable(core, (struct mail_durable *)mail);
        break;
    case MAIL_ENROLLED:
        core_agent_enrolled(core, (struct mail_enrolled *)mail);
        break;
    case MAIL_AGENT_OPENED:
        core_agent_opened(core, (struct mail_opened *)mail);
        break;
    case MAIL_AGENT_MESSAGE:
        session = session_by_peer(core, message->peer);
        if (session)
            core_agent_message(core, session, &message->message);
        break;
    case MAIL_AGENT_FRAME:
        session = session_by_peer(core, frame->peer);
        if (session && session->volunteer)
            core_agent_frame(core, session, frame);
        break;
    case MAIL_AGENT_CLOSED:
        core_agent_closed(core, (struct mail_closed *)mail);
        break;
    }
    free(mail);
}

static void *loop(void *context)
{
    struct core *core = context;
    int64_t next_tick_us = clock_monotonic_us();
    unsigned tick = 0;
    for (;;) {
        int64_t now_us = clock_monotonic_us();
        atomic_store(&core->alive_us, now_us);
        if (now_us >= next_tick_us) {
            if (tick++ % TICKS_PER_SECOND == 0) {
                core_jobs_tick(core, now_us);
                core_live_tick(core);
                core_spread_tick(core);
            }
            core_deltas_tick(core);
            next_tick_us += TICK_US;
            if (next_tick_us < now_us)
                next_tick_us = now_us + TICK_US;
        }
        int wait_ms = (int)((next_tick_us - clock_monotonic_us()) / 1000) + 1;
        struct mail *mail = mailbox_take(core->box, wait_ms < 1 ? 1 : wait_ms);
        if (mail)
            handle_mail(core, mail);
        else if (core->stopping)
            return NULL;
    }
}

static void load_volunteer(void *context, const struct store_volunteer *row)
{
    struct core *core = context;
    if (core_volunteer_add(core, row))
        log_error("core", "no memory for volunteer %s", row->id);
}

static void load_job(void *context, const struct store_job *job)
{
    struct core *core = context;
    struct error err = {0};
    if (live_job_start(core, job, &err) == STATUS_OK)
        return;
    log_error("core", "job %s stays stopped: %s", job->id, err.text);
    core_event(core, "job.failed", "error", job->id, "%s", err.text);
    if (store_post_job_state(core->store, job->id, "failed", err.text, clock_wall_ms()))
        log_error("core", "the state of %s could not be queued", job->id);
}

static enum status start_parts(struct core *core, struct error *err)
{
    enum status status = store_volunteers_load(core->store, load_volunteer, core, err);
    if (status == STATUS_OK)
        status = store_jobs_load(core->store, load_job, core, err);
    if (status == STATUS_OK)
        status = hub_start(&core->hub_options, &core->hub, err);
    if (status)
        return status;
    if (pthread_create(&core->thread, NULL, loop, core) != 0)
        return error_set(err, STATUS_SYSTEM, "the core's thread cannot be started");
    core->thread_started = true;
    return STATUS_OK;
}

enum status core_start(const struct core_options *options, struct core **ret, struct error *err)
{
    struct core *core = calloc(1, sizeof *core);
    if (!core)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the core");
    core->store = options->store;
    core->auth = options->auth;
    core->mirrors = options->mirrors;
    core->viewer_allowed = options->viewer_allowed;
    core->viewer_context = options->viewer_context;
    core->hub_options = options->hub;
    core->hub_options.callbacks = core_hub_callbacks(core);
    core->ledger_segment_bytes = options->ledger_segment_bytes;
    core->events = json_array();
    atomic_store(&core->alive_us, clock_monotonic_us());
    enum status status = mailbox_create(MAIL_COUNT_MAX, &core->box);
    if (status)
        error_set(err, status, "the core's mailbox cannot be made");
    else if (!text_copy(core->jobs_dir, sizeof core->jobs_dir, options->jobs_dir))
        status = error_set(err, STATUS_TOO_LARGE, "the path %s is too long", options->jobs_dir);
    else
        status = file_make_dirs(core->jobs_dir, 0700, err);
    if (status == STATUS_OK)
        status = core_uploads_open(core, options->uploads_dir, err);
    if (status == STATUS_OK)
        status = timers_check(&core->hub_options.timers, err);
    if (status == STATUS_OK)
        status = start_parts(core, err);
    if (status) {
        core_stop(core);
        return status;
    }
    *ret = core;
    return STATUS_OK;
}

static void free_state(struct core *core)
{
    while (core->jobs)
        live_job_free(core, core->jobs);
    while (core->sessions) {
        struct session *session = core->sessions;
        core->sessions = session->next;
        free(session);
    }
    while (core->volunteers) {
        struct volunteer *volunteer = core->volunteers;
        core->volunteers = volunteer->next;
        volunteer_rewind_uploads(volunteer);
        free(volunteer);
    }
    json_decref(core->events);
    json_decref(core->published);
}

void core_stop(struct core *core)
{
    if (!core)
        return;
    if (core->hub)
        hub_drain(core->hub, 2000); /* the loop may still speak to it */
    if (core->thread_started) {
        core_mail_surely(core, MAIL_STOP, core_mail_make(sizeof(struct mail)));
        pthread_join(core->thread, NULL);
    }
    for (struct live_job *live = core->jobs; live; live = live->next) {
        struct error err = {0};
        if (live->job && !live->finished_us && job_snapshot(live->job, &err) && err.text[0])
            log_warn("core", "no closing snapshot of %s: %s", live->id, err.text);
    }
    free_state(core);
    hub_stop(core->hub, 0);
    if (core->box) {
        struct mail *mail;
        mailbox_close(core->box);
        while ((mail = mailbox_take(core->box, 0)))
            free(mail);
        mailbox_free(core->box);
    }
    free(core);
}

struct hub *core_hub(struct core *core)
{
    return core->hub;
}

bool core_is_alive(struct core *core)
{
    return clock_monotonic_us() - atomic_load(&core->alive_us) < ALIVE_US;
}
