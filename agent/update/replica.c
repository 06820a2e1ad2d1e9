/* The replica's arithmetic. Runs on the training thread. Surprising decision: the residual is not
 * stored when keep_unsent is on; it is recomputed from w, x and the unanswered payloads when a
 * payload is made, so that no rounding error can pile up in a vector that nobody trains with. */
#include "agent/update/replica.h"

#include "common/base/buffer.h"
#include "common/base/bytes.h"
#include "common/codec/codec.h"

#include <stdlib.h>
#include <string.h>

struct in_flight {
    char lease[REPLICA_LEASE_BYTES];
    struct shared *payload;
    bool answered;
    uint64_t version; /* answered: leaves once w has reached this version */
};

struct replica {
    struct replica_settings settings;
    bool loaded;
    uint64_t version, hash;
    float *w, *x;
    float *e; /* scratch with keep_unsent, else the residual between leases */
    struct in_flight in_flight[REPLICA_IN_FLIGHT_MAX];
    size_t in_flight_count;
};

enum status replica_create(const struct replica_settings *settings, struct replica **ret,
                           struct error *err)
{
    size_t bytes;
    if (settings->n == 0 || !size_mul(settings->n, sizeof(float), &bytes))
        return error_set(err, STATUS_INVALID, "a replica of %llu parameters is not possible",
                         (unsigned long long)settings->n);

    struct replica *replica = calloc(1, sizeof *replica);
    if (!replica)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a replica");
    replica->settings = *settings;
    replica->w = calloc(1, bytes);
    replica->x = calloc(1, bytes);
    replica->e = calloc(1, bytes);
    if (!replica->w || !replica->x || !replica->e) {
        replica_free(replica);
        return error_set(err, STATUS_NO_MEMORY,
                         "no memory for a replica of %llu parameters (%zu MB)",
                         (unsigned long long)settings->n, 3 * (bytes / 1000000));
    }
    *ret = replica;
    return STATUS_OK;
}

static void forget_in_flight(struct replica *replica)
{
    for (size_t i = 0; i < replica->in_flight_count; i++)
        shared_unref(replica->in_flight[i].payload);
    replica->in_flight_count = 0;
}

void replica_free(struct replica *replica)
{
    if (!replica)
        return;
    forget_in_flight(replica);
    free(replica->w);
    free(replica->x);
    free(replica->e);
    free(replica);
}

float *replica_load_target(struct replica *replica)
{
    replica_unload(replica);
    return replica->w;
}

void replica_loaded(struct replica *replica, uint64_t version, uint64_t hash)
{
    size_t bytes = replica->settings.n * sizeof(float);
    memcpy(replica->x, replica->w, bytes);
    memset(replica->e, 0, bytes);
    forget_in_flight(replica);
    replica->version = version;
    replica->hash = hash;
    replica->loaded = true;
}

void replica_unload(struct replica *replica)
{
    forget_in_flight(replica);
    replica->loaded = false;
    replica->version = 0;
    replica->hash = 0;
}

bool replica_is_loaded(const struct replica *replica)
{
    return replica->loaded;
}

const float *replica_w(const struct replica *replica)
{
    return replica->w;
}

float *replica_x(struct replica *replica)
{
    return replica->x;
}

uint64_t replica_version(const struct replica *replica)
{
    return replica->version;
}

uint64_t replica_hash(const struct replica *replica)
{
    return replica->hash;
}

size_t replica_in_flight(const struct replica *replica)
{
    return replica->in_flight_count;
}

/* Payloads here passed codec_check before (own encoder, or a merge): failure is impossible short of
 * memory corruption, and then the next hash tells. */
static void add_payload(const struct replica *replica, const struct shared *payload, float factor,
                        float *target)
{
    enum status status = codec_decode_add(shared_data(payload), shared_bytes(payload), factor,
                                          target, replica->settings.n, NULL);
    (void)status;
}

/* Drops the local copies of every answered update that w already contains. */
static void settle(struct replica *replica)
{
    size_t kept = 0;
    for (size_t i = 0; i < replica->in_flight_count; i++) {
        struct in_flight *item = &replica->in_flight[i];
        if (item->answered && item->version <= replica->version) {
            if (replica->settings.keep_unsent)
                add_payload(replica, item->payload, 1.0f, replica->x);
            shared_unref(item->payload);
        } else {
            replica->in_flight[kept++] = *item;
        }
    }
    replica->in_flight_count = kept;
}

enum status replica_merge(struct replica *replica, const void *delta, size_t delta_bytes,
                          uint64_t version, uint64_t hash, struct error *err)
{
    uint64_t n = replica->settings.n;
    if (!replica->loaded || version > replica->version + 1)
        return error_set(err, STATUS_STATE,
                         "delta to version %llu does not follow our version %llu",
                         (unsigned long long)version, (unsigned long long)replica->version);
    if (version <= replica->version)
        return error_set(err, STATUS_STALE, "delta to version %llu is merged already",
                         (unsigned long long)version);

    if (codec_decode_add(delta, delta_bytes, 1.0f, replica->w, n, err)) {
        replica_unload(replica);
        return STATUS_CORRUPT;
    }
    uint64_t got = codec_hash(replica->w, n);
    if (got != hash) {
        replica_unload(replica);
        return error_set(
            err, STATUS_CORRUPT, "hash of version %llu is %016llx here, %016llx was published",
            (unsigned long long)version, (unsigned long long)got, (unsigned long long)hash);
    }
    if (codec_decode_add(delta, delta_bytes, 1.0f, replica->x, n, err)) {
        replica_unload(replica);
        return STATUS_CORRUPT;
    }
    replica->version = version;
    replica->hash = hash;
    settle(replica);
    return STATUS_OK;
}

/* e = w - x - sum of the unanswered payloads. */
static void compute_residual(struct replica *replica)
{
    for (uint64_t i = 0; i < replica->settings.n; i++)
        replica->e[i] = replica->w[i] - replica->x[i];
    for (size_t i = 0; i < replica->in_flight_count; i++)
        add_payload(replica, replica->in_flight[i].payload, -1.0f, replica->e);
}

void replica_begin_lease(struct replica *replica)
{
    uint64_t n = replica->settings.n;
    if (!replica->settings.keep_unsent) {
        memcpy(replica->x, replica->w, n * sizeof(float));
        return;
    }
    float forget = (float)(1.0 - replica->settings.residual_decay);
    if (forget <= 0.0f)
        return;
    compute_residual(replica);
    for (uint64_t i = 0; i < n; i++)
        replica->x[i] += forget * replica->e[i];
}

static enum status encode(struct replica *replica, uint32_t k, struct shared **ret,
                          struct error *err)
{
    uint64_t n = replica->settings.n;
    struct buffer buffer;
    buffer_init(&buffer, codec_bytes_max(n, k));
    enum status status = codec_encode(replica->e, n, k, &buffer);
    if (status) {
        buffer_done(&buffer);
        return error_set(err, status, "cannot encode the update: %s", status_text(status));
    }
    uint8_t *data;
    size_t bytes;
    buffer_take(&buffer, &data, &bytes);
    struct shared *payload = shared_create_take(data, bytes);
    if (!payload) {
        free(data);
        return error_set(err, STATUS_NO_MEMORY, "no memory for an update of %zu bytes", bytes);
    }
    *ret = payload;
    return STATUS_OK;
}

enum status replica_end_lease(struct replica *replica, const char *lease, uint32_t k,
                              struct shared **ret_payload, struct error *err)
{
    uint64_t n = replica->settings.n;
    if (replica->in_flight_count == REPLICA_IN_FLIGHT_MAX)
        return error_set(err, STATUS_BUSY, "%d updates wait for an answer", REPLICA_IN_FLIGHT_MAX);

    if (replica->settings.keep_unsent) {
        compute_residual(replica);
    } else {
        float decay = (float)replica->settings.residual_decay;
        for (uint64_t i = 0; i < n; i++)
            replica->e[i] = decay * replica->e[i] + (replica->w[i] - replica->x[i]);
    }

    struct shared *payload = NULL;
    enum status status = encode(replica, k, &payload, err);
    if (status)
        return status;
    struct in_flight *item = &replica->in_flight[replica->in_flight_count++];
    *item = (struct in_flight){.payload = shared_ref(payload)};
    text_copy(item->lease, sizeof item->lease, lease);
    *ret_payload = payload;
    return STATUS_OK;
}

void replica_answer(struct replica *replica, const char *lease, enum replica_verdict verdict,
                    uint64_t version)
{
    for (size_t i = 0; i < replica->in_flight_count; i++) {
        struct in_flight *item = &replica->in_flight[i];
        if (strcmp(item->lease, lease) != 0 || item->answered)
            continue;
        item->answered = true;
        item->version = verdict == REPLICA_APPLIED ? version : 0;
        break;
    }
    settle(replica);
}
