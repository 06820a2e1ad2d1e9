/* Updates on their way up: to the outbox on disk, offered, sent, answered. Session thread; the disk
 * is written on libuv's worker threads, so that a slow disk holds up neither training nor the
 * session. Surprising decision: when the outbox cannot be written the update is sent all the same;
 * only a crash before its answer would lose it. */
#include "agent/core_internal.h"

#include "agent/session/outbox.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_PATIENCE_US (30 * 1000000ll)

struct saving {
    uv_work_t work;
    struct core *core;
    struct wire_offer offer;
    struct shared *payload;
    char outbox[PATH_BYTES];
    enum status status;
    struct error err;
};

static void offer(struct core *core, const struct upload *upload)
{
    if (!upload->ready || session_state(core->session) != SESSION_OPEN)
        return;
    struct wire_message message = {.type = WIRE_offer, .offer = upload->offer};
    core_say(core, &message);
    core_note_asked(core);
    core->answers_due_us = clock_monotonic_us() + ANSWER_PATIENCE_US;
}

void core_offer_all(struct core *core)
{
    uploads_rewind(&core->uploads);
    for (size_t i = 0; i < core->uploads.count; i++)
        offer(core, &core->uploads.items[i]);
}

static void note_waiting(struct core *core)
{
    struct status_fields *fields = status_board_lock(core->board);
    fields->updates_waiting = core->uploads.count;
    status_board_unlock(core->board);
}

/* --- the outbox ------------------------------------------------------------------------------- */

static void take_saved(void *user, const struct wire_offer *saved, struct shared *payload)
{
    struct core *core = user;
    struct upload *upload;
    if (uploads_add(&core->uploads, saved, payload, &upload)) {
        shared_unref(payload);
        return;
    }
    upload->ready = true;
}

enum status core_open_outbox(struct core *core, struct error *err)
{
    if (path_format(core->outbox, "%s/outbox", core->settings.config->state_dir))
        return error_set(err, STATUS_TOO_LARGE, "the state directory's path is too long");
    size_t damaged = 0;
    enum status status = outbox_open(core->outbox, err);
    if (!status)
        status = outbox_load(core->outbox, take_saved, core, &damaged, err);
    if (status)
        return status;
    if (damaged > 0)
        log_warn(CORE_LOG, "%zu updates in %s were not whole and are gone", damaged, core->outbox);
    if (core->uploads.count > 0)
        log_info(CORE_LOG, "%zu updates of an earlier run wait to be sent", core->uploads.count);
    note_waiting(core);
    return STATUS_OK;
}

/* On one of libuv's threads. */
static void save(uv_work_t *work)
{
    struct saving *saving = work->data;
    saving->status = outbox_save(saving->outbox, &saving->offer, saving->payload, &saving->err);
}

static void on_saved(uv_work_t *work, int cancelled)
{
    (void)cancelled;
    struct saving *saving = work->data;
    struct core *core = saving->core;
    if (saving->status) {
        log_warn(CORE_LOG, "%s; it would be lost if the agent stopped now", saving->err.text);
        core_note_trouble(core, saving->err.text);
    }
    struct upload *upload = uploads_find(&core->uploads, saving->offer.lease);
    if (upload) {
        upload->ready = true;
        offer(core, upload);
    } else {
        outbox_remove(core->outbox, saving->offer.lease);
    }
    shared_unref(saving->payload);
    free(saving);
}

static void begin_saving(struct core *core, struct upload *upload)
{
    struct saving *saving = calloc(1, sizeof *saving);
    if (saving) {
        *saving = (struct saving){.work.data = saving,
                                  .core = core,
                                  .offer = upload->offer,
                                  .payload = shared_ref(upload->payload)};
        text_copy(saving->outbox, sizeof saving->outbox, core->outbox);
    }
    if (saving && uv_queue_work(&core->loop, &saving->work, save, on_saved) == 0)
        return;
    if (saving)
        shared_unref(saving->payload);
    free(saving);
    upload->ready = true;
    offer(core, upload);
}

void core_take_update(struct core *core, struct core_mail *mail)
{
    struct wire_offer made = {
        .base = mail->base, .steps = mail->step, .samples = mail->samples, .loss = mail->loss};
    text_copy(made.lease, sizeof made.lease, mail->lease);
    text_copy(made.job, sizeof made.job, mail->job);
    struct upload *upload;
    size_t bytes = shared_bytes(mail->payload);
    if (uploads_add(&core->uploads, &made, mail->payload, &upload)) {
        log_error(CORE_LOG, "too many updates wait for an answer; one is dropped");
        return;
    }
    mail->payload = NULL;
    log_info(CORE_LOG, "update of lease %s: %llu steps, loss %.4f, %zu bytes (1/%.0f of the model)",
             mail->lease, (unsigned long long)mail->step, mail->loss, bytes,
             4.0 * (double)core->parameters / (double)bytes);
    note_waiting(core);
    begin_saving(core, upload);
}

/* --- sending ---------------------------------------------------------------------------------- */

void core_take_want(struct core *core, const struct wire_want *want)
{
    enum status status =
        uploads_want(&core->uploads, want->stream, want->from, clock_monotonic_us());
    if (status == STATUS_INVALID)
        session_end(core->session, END_PROTOCOL_ERROR, "want.from lies behind the update's end");
    else if (!status)
        session_wake(core->session);
}

size_t core_next_frame(void *user, size_t payload_bytes_max, uint64_t window_bytes, uint8_t *ret)
{
    struct core *core = user;
    int64_t now_us = clock_monotonic_us();
    size_t bytes = uploads_next_frame(&core->uploads, payload_bytes_max, window_bytes, now_us, ret);
    if (bytes > 0) {
        goodput_begin(&core->up, now_us);
        core->answers_due_us = now_us + ANSWER_PATIENCE_US;
    }
    return bytes;
}

void core_take_ack(struct core *core, const struct wire_ack *ack)
{
    int64_t now_us = clock_monotonic_us();
    uint64_t news = uploads_ack(&core->uploads, ack->stream, ack->received, now_us);
    if (news == 0)
        return;
    goodput_add(&core->up, news, now_us);
    if (uploads_unacked_bytes(&core->uploads) == 0 && !uploads_have_data(&core->uploads))
        goodput_end(&core->up, false, now_us);
    session_set_goodput(core->session, core->up.bytes_per_s);
}

static void count_verdict(struct core *core, const char *verdict)
{
    struct status_fields *fields = status_board_lock(core->board);
    if (strcmp(verdict, "applied") == 0)
        fields->updates_applied++;
    else if (strcmp(verdict, "stale") == 0)
        fields->updates_stale++;
    else
        fields->updates_refused++;
    status_board_unlock(core->board);
}

void core_take_result(struct core *core, const struct wire_result *result)
{
    struct upload upload;
    if (!uploads_answer(&core->uploads, result->lease, &upload))
        return; /* answered before: results may come twice */
    shared_unref(upload.payload);
    outbox_remove(core->outbox, result->lease);
    count_verdict(core, result->verdict);
    note_waiting(core);
    if (uploads_unacked_bytes(&core->uploads) == 0)
        goodput_end(&core->up, false, clock_monotonic_us());
    if (strcmp(result->verdict, "applied") == 0)
        log_info(CORE_LOG, "update of lease %s applied in version %llu", result->lease,
                 (unsigned long long)result->version);
    else
        log_warn(CORE_LOG, "update of lease %s %s: %s", result->lease, result->verdict,
                 result->reason);
    struct worker_mail *mail = calloc(1, sizeof *mail);
    if (mail) {
        mail->mail.type = WORKER_ANSWER;
        mail->answer = *result;
    }
    core_order(core, mail);
}

/* --- time ------------------------------------------------------------------------------------- */

/* Everything that was sent waits for its ack longer than the path can be quiet: the far end of this
 * connection takes bytes and does nothing with them. */
static bool is_stalled(const struct core *core, int64_t now_us)
{
    if (uploads_unacked_bytes(&core->uploads) == 0)
        return false;
    double patience_ms = (double)session_stall_ms(core->session);
    double usual_ms = 20.0 * session_rtt_ms(core->session);
    if (usual_ms > patience_ms)
        patience_ms = usual_ms;
    return (double)(now_us - core->uploads.progress_us) / 1e3 > patience_ms;
}

void core_uploads_tick(struct core *core)
{
    int64_t now_us = clock_monotonic_us();
    if (core->uploads.count == 0 || session_state(core->session) != SESSION_OPEN)
        return;
    if (is_stalled(core, now_us)) {
        session_end(core->session, END_STALLED, end_reason_text(END_STALLED));
        return;
    }
    /* An answer that does not come is asked for again; the coordinator knows each lease. */
    if (uploads_have_data(&core->uploads) || now_us <= core->answers_due_us)
        return;
    for (size_t i = 0; i < core->uploads.count; i++)
        offer(core, &core->uploads.items[i]);
}

void core_uploads_lost(struct core *core)
{
    goodput_end(&core->up, true, clock_monotonic_us());
    uploads_rewind(&core->uploads);
}
