/* What connected agents do: requests, leases, progress, uploads, evaluations, deltas. An upload
 * belongs to the volunteer, not to the session, so that it resumes at the byte after a reconnect.
 * The loop's thread. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/tensorfile/replica_file.h"
#include "coordinator/core_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UPLOAD_RESTARTS_MAX 3u
#define ACK_EVERY_BYTES (256u * 1024)

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

/* --- bringing a replica up to date ------------------------------------------------------------ */

static void send_job(struct core *core, struct session *session, struct live_job *live)
{
    if (strcmp(session->job, live->id) == 0)
        return;
    struct wire_message *message = calloc(1, sizeof *message);
    if (!message)
        return;
    message->type = WIRE_job;
    text_copy(message->job.job, sizeof message->job.job, live->id);
    text_copy(message->job.spec, sizeof message->job.spec, live->spec);
    text_copy(message->job.artifacts, sizeof message->job.artifacts, live->artifacts);
    message->job.blocks = job_blocks(live->job);
    message->job.parameters = job_parameters(live->job);
    message->job.layout = job_layout(live->job);
    hub_send(core->hub, session->peer, message);
    free(message);
    text_copy(session->job, sizeof session->job, live->id);
    session->synced = false;
}

void core_send_delta(struct core *core, struct session *session, struct live_job *live,
                     uint64_t version)
{
    struct wire_message message = {.type = WIRE_delta};
    struct shared *bytes = job_delta(live->job, version, &message.delta.hash);
    if (!bytes) {
        session->synced = false;
        return;
    }
    message.delta.stream = ++session->last_stream;
    text_copy(message.delta.job, sizeof message.delta.job, live->id);
    message.delta.version = version;
    message.delta.bytes = shared_bytes(bytes);
    session->sent_version = version;
    hub_send(core->hub, session->peer, &message);
    hub_send_stream(core->hub, session->peer, FRAME_DELTA, session->last_stream, bytes);
}

static void send_snapshot(struct core *core, struct session *session, struct live_job *live)
{
    struct wire_message message = {.type = WIRE_snapshot};
    text_copy(message.snapshot.job, sizeof message.snapshot.job, live->id);
    message.snapshot.version = job_version(live->job);
    message.snapshot.hash = job_hash(live->job);
    message.snapshot.bytes = REPLICA_HEADER_BYTES + 4 * job_parameters(live->job);
    snprintf(message.snapshot.path, sizeof message.snapshot.path, "/v1/jobs/%s/replica", live->id);
    hub_send(core->hub, session->peer, &message);
}

/* True when the session's replica is, or by the deltas just queued will be, up to date. */
static bool sync_session(struct core *core, struct session *session, struct live_job *live)
{
    if (session->synced)
        return true;
    if (strcmp(session->have_job, live->id) != 0 ||
        !job_can_replay(live->job, session->have_version, session->have_hash))
        return false;
    session->synced = true;
    session->sent_version = session->have_version;
    for (uint64_t version = session->have_version + 1; version <= job_version(live->job); version++)
        core_send_delta(core, session, live, version);
    return session->synced;
}

static void handle_have(struct core *core, struct session *session, const struct wire_have *have)
{
    text_copy(session->have_job, sizeof session->have_job, have->job);
    session->have_version = have->version;
    session->have_hash = have->hash;
    session->synced = false;
    struct live_job *live = live_job_find(core, have->job);
    if (live && !live->finished_us && strcmp(session->job, live->id) == 0 &&
        !sync_session(core, session, live))
        send_snapshot(core, session, live);
}

/* --- leases ------------------------------------------------------------------------------------
 */

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
    wire->k = job_spec_of(live->job)->update.k_per_chunk;
    wire->samples_position = lease->samples_position;
    wire->deadline_ms = (uint64_t)((lease->deadline_us - clock_monotonic_us()) / 1000);
    hub_send(core->hub, session->peer, &message);
}

static void handle_request(struct core *core, struct session *session, uint64_t nonce)
{
    struct live_job *live = live_job_choose(core, session);
    if (!live) {
        send_wait(core, session, nonce, "no job is running", WAIT_NO_JOB_MS);
        return;
    }
    send_job(core, session, live);
    if (!sync_session(core, session, live)) {
        send_snapshot(core, session, live);
        return;
    }
    struct job_lease lease;
    const char *reason = "the coordinator is out of memory";
    if (job_grant(live->job, session->volunteer->id, nonce, clock_monotonic_us(), &lease,
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

/* --- uploads -------------------------------------------------------------------------------------
 */

static struct upload *upload_find(struct volunteer *volunteer, uint64_t stream)
{
    for (size_t i = 0; i < UPLOADS_MAX; i++)
        if (stream != 0 && volunteer->uploads[i].stream == stream)
            return &volunteer->uploads[i];
    return NULL;
}

static void upload_free(struct upload *upload)
{
    free(upload->data);
    memset(upload, 0, sizeof *upload);
}

static struct upload *upload_begin(struct volunteer *volunteer, const struct wire_offer *offer)
{
    struct upload *upload = upload_find(volunteer, offer->stream);
    if (upload && strcmp(upload->lease, offer->lease) == 0 && upload->bytes == offer->bytes &&
        memcmp(upload->sha256, offer->sha256, SHA256_BYTES) == 0)
        return upload;
    for (size_t i = 0; i < UPLOADS_MAX && !upload; i++)
        if (volunteer->uploads[i].stream == 0)
            upload = &volunteer->uploads[i];
    if (!upload)
        upload = &volunteer->uploads[0];
    upload_free(upload);
    upload->data = malloc((size_t)offer->bytes);
    if (!upload->data)
        return NULL;
    upload->stream = (uint32_t)offer->stream;
    text_copy(upload->lease, sizeof upload->lease, offer->lease);
    text_copy(upload->job, sizeof upload->job, offer->job);
    upload->base = offer->base;
    upload->samples = offer->samples;
    upload->loss = offer->loss;
    upload->bytes = offer->bytes;
    memcpy(upload->sha256, offer->sha256, SHA256_BYTES);
    return upload;
}

static void send_want(struct core *core, struct session *session, const struct upload *upload)
{
    struct wire_message message = {.type = WIRE_want};
    message.want.stream = upload->stream;
    message.want.from = upload->received;
    hub_send(core->hub, session->peer, &message);
}

static void handle_offer(struct core *core, struct session *session, const struct wire_offer *offer)
{
    struct live_job *live = live_job_find(core, offer->job);
    if (offer->stream == 0 || offer->stream > UINT32_MAX) {
        hub_close(core->hub, session->peer, END_PROTOCOL_ERROR,
                  "offer.stream is outside 1 … 4294967295", 0);
        return;
    }
    if (!live) {
        core_send_result(core, session, offer->lease, VERDICT_REFUSED, REASON_JOB_ENDED, 0);
        return;
    }
    struct job_answer answer =
        job_examine_offer(live->job, session->volunteer->id, offer->lease, offer->bytes);
    if (answer.verdict == VERDICT_NONE && live->finished_us) {
        answer.verdict = VERDICT_REFUSED;
        answer.reason = REASON_JOB_ENDED;
    }
    if (answer.verdict != VERDICT_NONE) {
        core_send_result(core, session, offer->lease, answer.verdict, answer.reason,
                         answer.version);
        return;
    }
    if (answer.pending)
        return;
    struct upload *upload = upload_begin(session->volunteer, offer);
    if (upload)
        send_want(core, session, upload);
    else
        hub_close(core->hub, session->peer, END_INTERNAL, "out of memory", 10000);
}

static void finish_upload(struct core *core, struct session *session, struct upload *upload)
{
    uint8_t sha256[SHA256_BYTES];
    sha256_of(upload->data, upload->bytes, sha256);
    struct live_job *live = live_job_find(core, upload->job);
    if (memcmp(sha256, upload->sha256, SHA256_BYTES) != 0) {
        upload->received = 0;
        if (++upload->restarts <= UPLOAD_RESTARTS_MAX) {
            send_want(core, session, upload);
            return;
        }
        core_send_result(core, session, upload->lease, VERDICT_REFUSED, REASON_CHECKSUM, 0);
    } else if (!live || live->finished_us) {
        core_send_result(core, session, upload->lease, VERDICT_REFUSED, REASON_JOB_ENDED, 0);
    } else {
        struct error err = {0};
        struct shared *payload = shared_create_take(upload->data, upload->bytes);
        upload->data = NULL;
        if (!payload || job_submit(live->job, session->volunteer->id, upload->lease, upload->base,
                                   upload->samples, upload->loss, payload, &err))
            core_event(core, "update.failed", "error", live->id, "%s",
                       err.text[0] ? err.text : "out of memory");
        shared_unref(payload);
    }
    upload_free(upload);
}

void core_agent_frame(struct core *core, struct session *session, const struct mail_frame *frame)
{
    struct upload *upload = upload_find(session->volunteer, frame->stream);
    if (!upload || frame->offset < upload->received)
        return; /* answered already, or sent again after a reconnect */
    if (frame->offset > upload->received) {
        send_want(core, session, upload);
        return;
    }
    if (frame->bytes > upload->bytes - upload->received) {
        hub_close(core->hub, session->peer, END_PROTOCOL_ERROR, "more bytes than offered", 0);
        return;
    }
    memcpy(upload->data + upload->received, frame->payload, frame->bytes);
    uint64_t before = upload->received;
    upload->received += frame->bytes;
    if (upload->received == upload->bytes) {
        finish_upload(core, session, upload);
    } else if (before / ACK_EVERY_BYTES != upload->received / ACK_EVERY_BYTES) {
        struct wire_message ack = {.type = WIRE_ack};
        ack.ack.stream = upload->stream;
        ack.ack.received = upload->received;
        hub_send(core->hub, session->peer, &ack);
    }
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
        handle_request(core, session, message->request.nonce);
        break;
    case WIRE_have:
        handle_have(core, session, &message->have);
        break;
    case WIRE_progress:
        handle_progress(core, session, &message->progress);
        break;
    case WIRE_evaluation:
        handle_evaluation(core, session, &message->evaluation);
        break;
    case WIRE_offer:
        handle_offer(core, session, &message->offer);
        break;
    default:
        break; /* bye: the hub closes */
    }
}
