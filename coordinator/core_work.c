/* What connected agents do: requests, leases, progress, choices, evaluations. The loop's thread. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "coordinator/core_internal.h"

#include <math.h>
#include <string.h>

#define LEASE_TIMES 4 /* what a lease should take, until it counts as lost */

static void send_wait(struct core *core, struct session *session, uint64_t nonce,
                      const char *reason, uint64_t retry_after_ms)
{
    struct wire_message message = {.type = WIRE_wait};
    message.wait.nonce = nonce;
    message.wait.retry_after_ms = retry_after_ms;
    text_copy(message.wait.reason, sizeof message.wait.reason, reason);
    hub_send(core->hub, session->peer, &message);
}

void core_send_result(struct core *core, struct session *session, const char *lease,
                      enum verdict verdict, enum verdict_reason reason, uint64_t version)
{
    struct wire_message message = {.type = WIRE_result};
    text_copy(message.result.lease, sizeof message.result.lease, lease);
    text_copy(message.result.verdict, sizeof message.result.verdict, verdict_word(verdict));
    text_copy(message.result.reason, sizeof message.result.reason, verdict_reason_text(reason));
    message.result.version = version;
    hub_send(core->hub, session->peer, &message);
}

/* --- leases ------------------------------------------------------------------------------------
 */

/* A step of the fastest agent on this job; 0 while none is known. */
static double fastest_step_ms(const struct core *core, const struct live_job *live)
{
    double fastest = 0;
    for (const struct session *session = core->sessions; session; session = session->next)
        if (session->step_ms > 0 && strcmp(session->job, live->id) == 0 &&
            (fastest == 0 || session->step_ms < fastest))
            fastest = session->step_ms;
    return fastest;
}

static void send_lease(struct core *core, struct session *session, const struct live_job *live,
                       const struct job_lease *lease)
{
    struct wire_message message = {.type = WIRE_lease};
    struct wire_lease *wire = &message.lease;
    text_copy(wire->lease, sizeof wire->lease, lease->id);
    text_copy(wire->job, sizeof wire->job, live->id);
    text_copy(wire->kind, sizeof wire->kind, lease->evaluates ? "evaluate" : "train");
    wire->nonce = lease->nonce;
    wire->base = lease->base;
    wire->block_first = lease->block_first;
    wire->block_count = lease->block_count;
    wire->seed = lease->seed;
    wire->steps = lease->steps;
    wire->k = lease->k;
    wire->samples_position = lease->samples_position;
    int64_t left_us = lease->deadline_us - clock_monotonic_us();
    wire->deadline_ms = left_us > 0 ? (uint64_t)left_us / 1000 : 1;
    wire->fleet_step_ms = fastest_step_ms(core, live);
    wire->active = job_active_volunteers(live->job);
    uint64_t hash;
    const struct shared *delta = job_delta(live->job, job_version(live->job), &hash);
    wire->delta_bytes = delta ? shared_bytes(delta) : 0;
    hub_send(core->hub, session->peer, &message);
}

/* How long this session's lease may show no progress: measured pace and link, never less than what
 * the session's own timers need to find out that it is gone. */
static int64_t patience_us(const struct core *core, const struct session *session)
{
    double ms = (double)core->hub_options.timers.lease_ms;
    double expected_ms = session->choice.compute_ms + session->choice.transfer_ms;
    if (isfinite(expected_ms) && expected_ms < 1e8 && LEASE_TIMES * expected_ms > ms)
        ms = LEASE_TIMES * expected_ms;
    return (int64_t)(ms * 1e3);
}

static void handle_request(struct core *core, struct session *session,
                           const struct wire_request *request)
{
    uint64_t nonce = request->nonce;
    struct live_job *live = live_job_choose(core, session);
    if (!live) {
        send_wait(core, session, nonce, "no job is running", WAIT_NO_JOB_MS);
        return;
    }
    core_send_job(core, session, live);
    if (!core_sync_session(core, session, live)) {
        core_send_snapshot(core, session, live);
        return;
    }
    struct job_wish wish = {.nonce = nonce,
                            .steps = request->steps,
                            .k = request->k,
                            .patience_us = patience_us(core, session)};
    struct job_lease lease;
    const char *reason = "the coordinator is out of memory";
    if (job_grant(live->job, session->volunteer->id, &wish, clock_monotonic_us(), &lease,
                  &reason)) {
        send_wait(core, session, nonce, reason, WAIT_NO_LEASE_MS);
        return;
    }
    send_lease(core, session, live, &lease);
    live_job_lease_row(core, live, &lease, "granted");
}

static void handle_progress(struct core *core, struct session *session,
                            const struct wire_progress *progress)
{
    int64_t now_us = clock_monotonic_us();
    session->progress_us = now_us;
    session->samples_per_s = progress->samples_per_s >= 0 ? progress->samples_per_s : 0;
    session->rtt_ms = progress->rtt_ms;
    session->step_ms = progress->step_ms;
    session->utilisation = progress->utilisation;
    if (progress->step > 0)
        session->loss = progress->loss;
    for (struct live_job *live = core->jobs; live; live = live->next)
        if (!live->finished_us)
            job_progress(live->job, progress->lease, session->volunteer->id, progress->step,
                         now_us);
}

static void handle_evaluation(struct core *core, struct session *session,
                              const struct wire_evaluation *evaluation)
{
    struct live_job *live = live_job_find(core, evaluation->job);
    int64_t wall_ms = clock_wall_ms();
    if (!live || live->finished_us ||
        !job_evaluated(live->job, session->volunteer->id, evaluation->lease, evaluation->version,
                       evaluation->loss, evaluation->accuracy, wall_ms))
        return;
    struct job_figures figures;
    job_read_figures(live->job, &figures);
    struct store_point point = {.at_ms = wall_ms,
                                .version = evaluation->version,
                                .samples = figures.samples,
                                .loss = evaluation->loss,
                                .loss_smoothed = (double)NAN,
                                .held_out = true,
                                .accuracy = evaluation->accuracy};
    text_copy(point.job, sizeof point.job, live->id);
    if (store_post_point(core->store, &point))
        core_event(core, "store.full", "error", live->id, "an evaluation is not kept");
}

void core_agent_message(struct core *core, struct session *session,
                        const struct wire_message *message)
{
    if (message->type == WIRE_hello) {
        core_agent_hello(core, session, &message->hello);
        return;
    }
    if (!session->volunteer)
        return;
    switch (message->type) {
    case WIRE_request:
        handle_request(core, session, &message->request);
        break;
    case WIRE_have:
        core_take_have(core, session, &message->have);
        break;
    case WIRE_choice:
        session->choice = message->choice;
        break;
    case WIRE_progress:
        handle_progress(core, session, &message->progress);
        break;
    case WIRE_evaluation:
        handle_evaluation(core, session, &message->evaluation);
        break;
    case WIRE_offer:
        core_take_offer(core, session, &message->offer);
        break;
    default:
        break; /* bye: the hub closes */
    }
}
