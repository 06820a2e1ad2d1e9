/* What the coordinator says and what it is told: the session's events. Session thread. */
#include "agent/core_internal.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/codec/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MIN_MS 200
#define RETRY_MAX_MS 600000
#define LEASE_STEPS_MAX 10000000

void core_say(struct core *core, const struct wire_message *message)
{
    enum status status = session_send(core->session, message);
    if (status)
        log_debug(CORE_LOG, "%s not sent: %s", wire_type_name(message->type), status_text(status));
}

void core_order(struct core *core, struct worker_mail *mail)
{
    enum status status = mail ? worker_post(core->worker, mail) : STATUS_NO_MEMORY;
    if (!status)
        return;
    log_warn(CORE_LOG, "the training thread takes no orders: %s", status_text(status));
    worker_mail_free(mail);
    session_end(core->session, END_INTERNAL, "the agent's training thread is far behind");
}

/* --- stalls ----------------------------------------------------------------------------------- */

void core_note_asked(struct core *core)
{
    if (core->asked_us == 0)
        core->asked_us = clock_monotonic_us();
}

/* After a message or frame was dealt with. Most outages begin between two transfers, which then
 * have nothing to say of them; but a question stays without an answer. */
static void note_heard(struct core *core)
{
    int64_t now_us = clock_monotonic_us();
    if (core->asked_us > 0 && now_us - core->asked_us > GOODPUT_STALL_US)
        goodput_stalled(&core->up, now_us - core->asked_us, now_us);
    bool request_is_out = core->wanted && !core->preparing && !core->retry_pending;
    core->asked_us = request_is_out ? now_us : 0;
}

/* --- asking for work -------------------------------------------------------------------------- */

void core_ask(struct core *core)
{
    if (!core->wanted || core->preparing || core->retry_pending ||
        session_state(core->session) != SESSION_OPEN)
        return;
    core_choose(core);
    struct wire_message message = {
        .type = WIRE_request,
        .request = {.nonce = core->nonce, .steps = core->choice.steps, .k = core->choice.k}};
    core_say(core, &message);
    core_note_asked(core);
}

static void on_ask_timer(uv_timer_t *timer)
{
    struct core *core = timer->data;
    core->retry_pending = false;
    core_ask(core);
}

void core_ask_later(struct core *core, uint64_t wait_ms)
{
    core->retry_pending = true;
    uv_timer_start(&core->ask_timer, on_ask_timer, wait_ms, 0);
}

static void take_wait(struct core *core, const struct wire_wait *wait)
{
    if (!core->wanted || wait->nonce != core->nonce)
        return;
    log_debug(CORE_LOG, "no work now: %s", wait->reason);
    core_set_state(core, "waiting", wait->reason);
    uint64_t wait_ms = wait->retry_after_ms;
    core_ask_later(core, wait_ms < RETRY_MIN_MS   ? RETRY_MIN_MS
                         : wait_ms > RETRY_MAX_MS ? RETRY_MAX_MS
                                                  : wait_ms);
}

static bool lease_is_sane(const struct wire_lease *lease)
{
    bool trains = strcmp(lease->kind, "train") == 0;
    return (trains || strcmp(lease->kind, "evaluate") == 0) && lease->steps > 0 &&
           lease->steps <= LEASE_STEPS_MAX && lease->k <= CODEC_K_MAX && (!trains || lease->k > 0);
}

static void take_lease(struct core *core, const struct wire_lease *lease)
{
    if (!core->wanted || lease->nonce != core->nonce)
        return; /* an answer to an older question */
    if (!lease_is_sane(lease)) {
        session_end(core->session, END_PROTOCOL_ERROR, "a lease's kind, steps or k is impossible");
        return;
    }
    if (!core->job_loaded || strcmp(lease->job, core->job) != 0) {
        log_debug(CORE_LOG, "lease %s is for a job that is not loaded", lease->lease);
        return; /* the same nonce gets the same lease once it is */
    }
    struct worker_mail *mail = calloc(1, sizeof *mail);
    if (mail) {
        mail->mail.type = WORKER_LEASE;
        mail->lease = *lease;
        core->wanted = false;
        core->fleet_step_ms = lease->fleet_step_ms;
        core->active = lease->active;
        core->delta_bytes = lease->delta_bytes;
        log_info(CORE_LOG, "lease %s: %s, %llu steps from version %llu", lease->lease, lease->kind,
                 (unsigned long long)lease->steps, (unsigned long long)lease->base);
    }
    core_order(core, mail);
}

void core_tell_have(struct core *core, const char *job, uint64_t version, uint64_t hash)
{
    struct wire_message message = {.type = WIRE_have, .have = {.version = version, .hash = hash}};
    text_copy(message.have.job, sizeof message.have.job, job);
    core_say(core, &message);
}

/* --- deltas coming down ----------------------------------------------------------------------- */

static void take_delta(struct core *core, const struct wire_delta *delta)
{
    /* Whatever coder the job uses, every parameter as fp32 is the most. */
    struct codec_format largest = {.values = CODEC_FP32};
    uint64_t bytes_max = codec_bytes_max(core->parameters, largest);
    struct error err = {0};
    if (deltas_announce(&core->deltas, delta, bytes_max, &err))
        session_end(core->session, END_PROTOCOL_ERROR, err.text);
    goodput_begin(&core->down, clock_monotonic_us());
}

static void take_frame(void *user, const struct frame *frame)
{
    struct core *core = user;
    struct error err = {0};
    if (deltas_frame(&core->deltas, frame, &err)) {
        session_end(core->session, END_PROTOCOL_ERROR, err.text);
        return;
    }
    goodput_add(&core->down, frame->payload_bytes, clock_monotonic_us());
    struct delta_in *delta;
    while ((delta = deltas_take(&core->deltas))) {
        struct worker_mail *mail =
            strcmp(delta->announced.job, core->job) == 0 ? calloc(1, sizeof *mail) : NULL;
        if (!mail) {
            delta_in_free(delta);
            continue;
        }
        mail->mail.type = WORKER_DELTA;
        mail->delta = delta;
        if (delta->announced.version == core->have_version + 1) {
            core->have_version = delta->announced.version;
            core->have_hash = delta->announced.hash;
        }
        core_order(core, mail);
    }
    if (core->deltas.count == 0)
        goodput_end(&core->down, false, clock_monotonic_us());
    note_heard(core);
}

/* --- the session's events --------------------------------------------------------------------- */

static void describe(void *user, struct wire_hello *hello)
{
    struct core *core = user;
    text_copy(hello->agent_version, sizeof hello->agent_version, RAVEN_VERSION);
    text_copy(hello->label, sizeof hello->label, core->settings.config->label);
    text_copy(hello->cpu, sizeof hello->cpu, core->machine.cpu);
    hello->threads = core->threads;
    hello->memory_bytes = core->machine.memory_bytes;
    text_copy(hello->backend, sizeof hello->backend, "cpu");
    text_copy(hello->codecs, sizeof hello->codecs, CODEC_NAME);
    text_copy(hello->have_job, sizeof hello->have_job, core->have_job);
    hello->have_version = core->have_version;
    hello->have_hash = core->have_hash;
    hello->part_bytes = deltas_part_bytes(&core->deltas, core->have_job, core->have_version);
}

static void on_welcome(void *user, const struct wire_welcome *welcome)
{
    struct core *core = user;
    text_copy(core->token, sizeof core->token, welcome->download_token);
    text_copy(core->volunteer, sizeof core->volunteer, welcome->volunteer);
    if (core->settings.invite) {
        core->outcome.enrolled = true;
        text_copy(core->outcome.volunteer, sizeof core->outcome.volunteer, welcome->volunteer);
        session_stop(core->session);
        return;
    }
    log_info(CORE_LOG, "connected to %s as %s (session %s)", core->base_url, welcome->volunteer,
             welcome->session);
    struct status_fields *fields = status_board_lock(core->board);
    text_copy(fields->volunteer, sizeof fields->volunteer, welcome->volunteer);
    status_board_unlock(core->board);
    core_set_state(core, core->have_job[0] ? "training" : "waiting", "");
    int64_t now_us = clock_monotonic_us();
    if (core->lost_us > 0 && now_us - core->lost_us > GOODPUT_STALL_US)
        goodput_stalled(&core->up, now_us - core->lost_us, now_us);
    core->lost_us = 0;
    core_offer_all(core);
    core->retry_pending = false;
    uv_timer_stop(&core->ask_timer);
    core_ask(core);
}

static void on_message(void *user, const struct wire_message *message)
{
    struct core *core = user;
    switch (message->type) {
    case WIRE_wait:
        take_wait(core, &message->wait);
        break;
    case WIRE_job:
        core_take_job(core, &message->job);
        break;
    case WIRE_snapshot:
        core_take_snapshot(core, &message->snapshot);
        break;
    case WIRE_lease:
        take_lease(core, &message->lease);
        break;
    case WIRE_want:
        core_take_want(core, &message->want);
        break;
    case WIRE_ack:
        core_take_ack(core, &message->ack);
        break;
    case WIRE_result:
        core_take_result(core, &message->result);
        break;
    case WIRE_delta:
        take_delta(core, &message->delta);
        break;
    case WIRE_cancel:
        core_take_cancel(core, &message->cancel);
        break;
    default:
        break;
    }
    note_heard(core);
}

static void on_lost(void *user, enum end_reason reason, const char *text, int64_t retry_ms)
{
    struct core *core = user;
    explicit_bzero(core->token, sizeof core->token);
    deltas_interrupted(&core->deltas);
    goodput_end(&core->down, true, clock_monotonic_us());
    core_uploads_lost(core);
    if (core->lost_us == 0)
        core->lost_us = core->asked_us > 0 ? core->asked_us : clock_monotonic_us();
    core->asked_us = 0;
    core_forget_preparation(core);
    core->outcome.reason = reason;
    text_copy(core->outcome.text, sizeof core->outcome.text, text);
    if (core->settings.invite)
        return;
    log_warn(CORE_LOG, "no connection to %s: %s; next attempt in %.1f s", core->base_url, text,
             (double)retry_ms / 1000.0);
    core_note_trouble(core, text);
    core_set_state(core, "connecting", text);
}

static void on_stopped(void *user, enum end_reason reason, const char *text)
{
    struct core *core = user;
    if (reason != END_AGENT_STOPPED && !core->outcome.enrolled) {
        core->outcome.refused = !end_reason_may_reconnect(reason);
        core->outcome.reason = reason;
        text_copy(core->outcome.text, sizeof core->outcome.text, text);
    }
    core_finish(core);
}

const struct session_events core_session_events = {
    .describe = describe,
    .welcome = on_welcome,
    .message = on_message,
    .frame = take_frame,
    .next_frame = core_next_frame,
    .lost = on_lost,
    .stopped = on_stopped,
};
