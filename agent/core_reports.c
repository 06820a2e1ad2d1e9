/* What the training and the download thread report. Session thread. */
#include "agent/core_internal.h"

#include "common/base/bytes.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOST_JOB_RETRY_MS 10000
#define LOAD_ERROR_RETRY_MS 60000

static void take_fetched(struct core *core, const struct core_mail *mail)
{
    struct worker_mail *order = mail->is_replica || mail->order ? calloc(1, sizeof *order) : NULL;
    if (order && mail->is_replica) {
        order->mail.type = WORKER_REPLICA;
        text_copy(order->replica.job, sizeof order->replica.job, mail->job);
        text_copy(order->replica.path, sizeof order->replica.path, mail->path);
    } else if (order) {
        order->mail.type = WORKER_JOB;
        order->job = *mail->order;
    }
    core_order(core, order);
}

/* Reports about downloads nobody wants any more carry an old generation. */
static bool is_current(const struct core *core, const struct core_mail *mail)
{
    return mail->generation == fetcher_generation(core->fetcher);
}

static void take_fetch_failure(struct core *core, const struct core_mail *mail)
{
    log_error(CORE_LOG, "%s", mail->text);
    core_note_trouble(core, mail->text);
    core_set_state(core, "waiting", mail->text);
    core->preparing = core->replica_coming = false;
    if (!mail->is_replica)
        core->job[0] = '\0';
    core_ask_later(core, LOST_JOB_RETRY_MS);
}

static void take_loaded(struct core *core, const struct core_mail *mail)
{
    bool failed = mail->mail.type == CORE_LOAD_ERROR;
    if (strcmp(mail->job, core->job) != 0 && core->preparing)
        return; /* another job is wanted by now */
    text_copy(core->job, sizeof core->job, failed ? "" : mail->job);
    core->job_loaded = !failed;
    core->have_job[0] = '\0';
    core->have_version = core->have_hash = 0;
    if (failed) {
        log_error(CORE_LOG, "job %s cannot be done here: %s", mail->job, mail->text);
        core_note_trouble(core, mail->text);
        core_set_state(core, "waiting", mail->text);
        fetcher_cancel(core->fetcher);
        core->preparing = core->replica_coming = false;
        core_ask_later(core, LOAD_ERROR_RETRY_MS);
    } else if (!core->replica_coming) {
        core->preparing = false;
        core_ask(core);
    }
}

static void take_have(struct core *core, const struct core_mail *mail)
{
    bool lost = mail->version == 0 && mail->text[0];
    text_copy(core->have_job, sizeof core->have_job, lost ? "" : mail->job);
    core->have_version = mail->version;
    core->have_hash = mail->hash;
    core->preparing = core->replica_coming = false;
    if (lost) {
        log_warn(CORE_LOG, "the model here is not usable and will be fetched again: %s",
                 mail->text);
        core_note_trouble(core, mail->text);
    } else {
        log_info(CORE_LOG, "model loaded: version %llu, hash %016llx",
                 (unsigned long long)mail->version, (unsigned long long)mail->hash);
    }
    core_tell_have(core, mail->job, mail->version, mail->hash);
    core_ask(core);
}

static void take_merged(struct core *core, const struct core_mail *mail)
{
    log_debug(CORE_LOG, "version %llu merged", (unsigned long long)mail->version);
    struct status_fields *fields = status_board_lock(core->board);
    fields->version = mail->version;
    status_board_unlock(core->board);
}

static void take_progress(struct core *core, const struct core_mail *mail)
{
    struct status_fields *fields = status_board_lock(core->board);
    fields->version = mail->version;
    text_copy(fields->lease, sizeof fields->lease, mail->lease);
    fields->step = mail->step;
    fields->steps = mail->steps;
    fields->loss = mail->loss;
    fields->samples_per_s = mail->samples_per_s;
    fields->utilisation_percent = 100.0 * mail->utilisation;
    fields->steps_done = mail->steps_done;
    fields->samples_trained = mail->samples_done;
    status_board_unlock(core->board);
    core->step_ms = mail->step_ms;
    core->overhead_ms = mail->overhead_ms;
    struct wire_message message = {.type = WIRE_progress};
    struct wire_progress *progress = &message.progress;
    text_copy(progress->lease, sizeof progress->lease, mail->lease);
    progress->step = mail->step;
    progress->step_ms = mail->step_ms;
    progress->utilisation = mail->utilisation;
    progress->loss = mail->loss;
    progress->samples_per_s = mail->samples_per_s;
    progress->rtt_ms = session_rtt_ms(core->session);
    progress->version = mail->version;
    if (session_state(core->session) == SESSION_OPEN)
        core_say(core, &message);
}

static void take_evaluation(struct core *core, const struct core_mail *mail)
{
    struct wire_message message = {.type = WIRE_evaluation};
    struct wire_evaluation *evaluation = &message.evaluation;
    text_copy(evaluation->lease, sizeof evaluation->lease, mail->lease);
    text_copy(evaluation->job, sizeof evaluation->job, mail->job);
    evaluation->version = mail->version;
    evaluation->loss = mail->loss;
    evaluation->accuracy = mail->accuracy;
    evaluation->samples = mail->samples;
    log_info(CORE_LOG, "version %llu on held-out data: loss %.4f, accuracy %.4f",
             (unsigned long long)mail->version, mail->loss, mail->accuracy);
    core_say(core, &message);
}

static void take_want(struct core *core)
{
    core->wanted = true;
    core->nonce++;
    core_ask(core);
}

void core_take_report(struct core *core, struct core_mail *mail)
{
    switch ((enum core_mail_type)mail->mail.type) {
    case CORE_WANT:
        take_want(core);
        break;
    case CORE_LOADED:
    case CORE_LOAD_ERROR:
        take_loaded(core, mail);
        break;
    case CORE_HAVE:
        if (strcmp(mail->job, core->job) == 0)
            take_have(core, mail);
        break;
    case CORE_MERGED:
        if (strcmp(mail->job, core->job) == 0)
            take_merged(core, mail);
        break;
    case CORE_STATE:
        if (session_state(core->session) == SESSION_OPEN && !core->preparing)
            core_set_state(core, mail->text, "");
        break;
    case CORE_PROGRESS:
        take_progress(core, mail);
        break;
    case CORE_UPDATE:
        core_take_update(core, mail);
        break;
    case CORE_EVALUATION:
        take_evaluation(core, mail);
        break;
    case CORE_FETCHED:
        if (is_current(core, mail))
            take_fetched(core, mail);
        break;
    case CORE_FETCH_TROUBLE:
        if (is_current(core, mail)) {
            log_warn(CORE_LOG, "%s; trying again", mail->text);
            core_note_trouble(core, mail->text);
            core_set_state(core, "downloading", mail->text);
        }
        break;
    case CORE_FETCH_FAILED:
        if (is_current(core, mail))
            take_fetch_failure(core, mail);
        break;
    }
    core_mail_free(mail);
}
