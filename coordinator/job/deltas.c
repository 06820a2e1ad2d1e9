/* The newest deltas of a job, for agents that are a little behind. Bounded by the size of one
 * replica: an agent further behind than that takes a snapshot. The core's thread. */
#include "coordinator/job/job_internal.h"

static void drop_oldest(struct delta_ring *ring)
{
    struct kept_delta *oldest = &ring->items[ring->first];
    ring->bytes -= shared_bytes(oldest->bytes);
    ring->base_hash = oldest->hash;
    shared_unref(oldest->bytes);
    oldest->bytes = NULL;
    ring->first = (ring->first + 1) % DELTAS_COUNT_MAX;
    ring->count--;
}

enum status delta_ring_add(struct delta_ring *ring, struct shared *bytes, uint64_t hash,
                           uint64_t bytes_max)
{
    if (!bytes)
        return STATUS_NO_MEMORY;
    while (ring->count == DELTAS_COUNT_MAX ||
           (ring->count && ring->bytes + shared_bytes(bytes) > bytes_max))
        drop_oldest(ring);
    ring->items[(ring->first + ring->count) % DELTAS_COUNT_MAX] =
        (struct kept_delta){.bytes = bytes, .hash = hash};
    ring->count++;
    ring->bytes += shared_bytes(bytes);
    return STATUS_OK;
}

void delta_ring_done(struct delta_ring *ring)
{
    while (ring->count)
        drop_oldest(ring);
}

struct shared *job_delta(const struct job *job, uint64_t version, uint64_t *ret_hash)
{
    const struct delta_ring *ring = &job->deltas;
    uint64_t now = job_version(job);
    if (version > now || version + ring->count <= now)
        return NULL;
    uint32_t index = (uint32_t)(version - 1 - (now - ring->count));
    const struct kept_delta *kept = &ring->items[(ring->first + index) % DELTAS_COUNT_MAX];
    *ret_hash = kept->hash;
    return kept->bytes;
}

uint64_t job_replay_bytes(const struct job *job, uint64_t version)
{
    uint64_t bytes = 0, hash, now = job_version(job);
    if (version > now || version + job->deltas.count < now)
        return UINT64_MAX;
    while (version < now)
        bytes += shared_bytes(job_delta(job, ++version, &hash));
    return bytes;
}

bool job_can_replay(const struct job *job, uint64_t version, uint64_t hash)
{
    uint64_t now = job_version(job);
    uint64_t oldest = now - job->deltas.count;
    if (version > now || version < oldest)
        return false;
    if (version == oldest)
        return hash == (job->deltas.count ? job->deltas.base_hash : job_hash(job));
    uint64_t known;
    return job_delta(job, version, &known) && known == hash;
}
