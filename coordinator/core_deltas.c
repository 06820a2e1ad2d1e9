/* The model on its way down: what brings a replica up to date, deltas or a snapshot. The loop's
 * thread. Surprising decision: deltas are queued only while little waits for that agent's link, so
 * a slow agent costs no memory and is not cut off; one so far behind that the deltas together
 * would be larger than a replica takes a snapshot instead. */
#include "common/base/bytes.h"
#include "common/tensorfile/replica_file.h"
#include "coordinator/core_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLAY_PART 8 /* a kept replica is offered while its deltas are at most 1/8 of its size */
#define QUEUED_BYTES_MAX (1024u * 1024) /* or one delta */

void core_send_job(struct core *core, struct session *session, struct live_job *live)
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

static void send_delta(struct core *core, struct session *session, struct live_job *live,
                       uint64_t version)
{
    struct wire_message message = {.type = WIRE_delta};
    struct shared *bytes = job_delta(live->job, version, &message.delta.hash);
    if (!bytes) {
        session->synced = false;
        return;
    }
    bool continues = session->part_bytes > 0 && version == session->have_version + 1 &&
                     session->part_bytes < shared_bytes(bytes);
    message.delta.from = continues ? session->part_bytes : 0;
    session->part_bytes = 0;
    message.delta.stream = ++session->last_stream;
    text_copy(message.delta.job, sizeof message.delta.job, live->id);
    message.delta.version = version;
    message.delta.bytes = shared_bytes(bytes);
    session->sent_version = version;
    hub_send(core->hub, session->peer, &message);
    hub_send_stream(core->hub, session->peer, FRAME_DELTA, session->last_stream, bytes,
                    message.delta.from);
}

void core_send_deltas(struct core *core, struct session *session, struct live_job *live)
{
    while (session->synced && session->sent_version < job_version(live->job) &&
           hub_queued_bytes(core->hub, session->peer) < QUEUED_BYTES_MAX)
        send_delta(core, session, live, session->sent_version + 1);
    if (!session->synced)
        core_send_snapshot(core, session, live);
}

void core_forget_replicas(struct live_job *live)
{
    for (size_t i = 0; i < REPLICAS_KEPT; i++)
        shared_unref(live->replicas[i].bytes);
    memset(live->replicas, 0, sizeof live->replicas);
}

static struct shared *write_replica(const struct live_job *live)
{
    uint64_t n = job_parameters(live->job);
    struct replica_header header = {.n = n,
                                    .version = job_version(live->job),
                                    .layout = job_layout(live->job),
                                    .hash = job_hash(live->job)};
    size_t bytes = REPLICA_HEADER_BYTES + (size_t)n * sizeof(float);
    uint8_t *data = malloc(bytes);
    if (!data)
        return NULL;
    replica_header_write(&header, data);
    memcpy(data + REPLICA_HEADER_BYTES, job_replica(live->job), (size_t)n * sizeof(float));
    return shared_create_take(data, bytes);
}

const struct kept_replica *core_replica(struct live_job *live, uint64_t wanted)
{
    struct kept_replica *kept = live->replicas;
    for (size_t i = 0; i < REPLICAS_KEPT; i++)
        if (kept[i].bytes && kept[i].version == wanted &&
            job_can_replay(live->job, kept[i].version, kept[i].hash))
            return &kept[i];
    if (kept[0].bytes &&
        job_replay_bytes(live->job, kept[0].version) <= shared_bytes(kept[0].bytes) / REPLAY_PART)
        return &kept[0];
    struct shared *bytes = write_replica(live);
    if (!bytes)
        return NULL;
    shared_unref(kept[REPLICAS_KEPT - 1].bytes);
    memmove(kept + 1, kept, (REPLICAS_KEPT - 1) * sizeof *kept);
    kept[0] = (struct kept_replica){bytes, job_version(live->job), job_hash(live->job)};
    return kept;
}

void core_send_snapshot(struct core *core, struct session *session, struct live_job *live)
{
    struct wire_message message = {.type = WIRE_snapshot};
    const struct kept_replica *replica = core_replica(live, session->offered_version);
    if (!replica)
        return; /* out of memory: the agent asks again */
    session->offered_version = replica->version;
    text_copy(message.snapshot.job, sizeof message.snapshot.job, live->id);
    message.snapshot.version = replica->version;
    message.snapshot.hash = replica->hash;
    message.snapshot.bytes = REPLICA_HEADER_BYTES + 4 * job_parameters(live->job);
    snprintf(message.snapshot.path, sizeof message.snapshot.path, "/v1/jobs/%s/replica", live->id);
    hub_send(core->hub, session->peer, &message);
}

bool core_sync_session(struct core *core, struct session *session, struct live_job *live)
{
    if (session->synced)
        return true;
    if (strcmp(session->have_job, live->id) != 0 ||
        !job_can_replay(live->job, session->have_version, session->have_hash))
        return false;
    session->synced = true;
    session->sent_version = session->have_version;
    core_send_deltas(core, session, live);
    return session->synced;
}

void core_take_have(struct core *core, struct session *session, const struct wire_have *have)
{
    text_copy(session->have_job, sizeof session->have_job, have->job);
    session->have_version = have->version;
    session->have_hash = have->hash;
    session->part_bytes = 0;
    session->synced = false;
    struct live_job *live = live_job_find(core, have->job);
    if (live && !live->finished_us && strcmp(session->job, live->id) == 0 &&
        !core_sync_session(core, session, live))
        core_send_snapshot(core, session, live);
}

void core_deltas_tick(struct core *core)
{
    for (struct session *session = core->sessions; session; session = session->next) {
        struct live_job *live = session->synced ? live_job_find(core, session->job) : NULL;
        if (live && !live->finished_us)
            core_send_deltas(core, session, live);
    }
}
