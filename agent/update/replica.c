/* The replica's arithmetic. Runs on the training thread. Surprising decision: the residual is not
 * stored when keep_unsent is on; the encoder computes it from w, x and the unanswered payloads as
 * it goes, so that no rounding error can pile up in a vector that nobody trains with, and making an
 * update writes to no vector at all. */
#include "agent/update/replica.h"

#include "common/base/buffer.h"
#include "common/base/bytes.h"
#include "common/base/large.h"
#include "common/codec/codec.h"

#include <stdlib.h>
#include <string.h>

struct in_flight {
    char lease[REPLICA_LEASE_BYTES];
    struct shared *bytes;
    struct codec_payload payload; /* of these bytes */
    bool answered;
    uint64_t version; /* answered: leaves once w has reached this version */
};

struct replica {
    struct replica_settings settings;
    bool loaded;
    uint64_t version, hash;
    float *w, *x;
    float *e; /* the residual between leases; scratch with keep_unsent; NULL if not needed */
    struct codec_encoder *encoder;
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
    replica->w = large_alloc(bytes);
    replica->x = large_alloc(bytes);
    bool wants_e = !settings->keep_unsent || settings->residual_decay < 1.0;
    if (wants_e)
        replica->e = large_alloc(bytes);
    if (!replica->w || !replica->x || (wants_e && !replica->e) ||
        codec_encoder_create(settings->pool, &replica->encoder)) {
        replica_free(replica);
        return error_set(err, STATUS_NO_MEMORY,
                         "no memory for a replica of %llu parameters (%zu MB)",
                         (unsigned long long)settings->n, (2 + wants_e) * (bytes / 1000000));
    }
    *ret = replica;
    return STATUS_OK;
}

static void forget_in_flight(struct replica *replica)
{
    for (size_t i = 0; i < replica->in_flight_count; i++)
        shared_unref(replica->in_flight[i].bytes);
    replica->in_flight_count = 0;
}

void replica_free(struct replica *replica)
{
    if (!replica)
        return;
    forget_in_flight(replica);
    size_t bytes = (size_t)replica->settings.n * sizeof(float);
    large_free(replica->w, bytes);
    large_free(replica->x, bytes);
    large_free(replica->e, bytes);
    codec_encoder_free(replica->encoder);
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
    if (replica->e)
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

/* Drops the local copies of every answered update that w already contains. */
static void settle(struct replica *replica)
{
    size_t kept = 0;
    for (size_t i = 0; i < replica->in_flight_count; i++) {
        struct in_flight *item = &replica->in_flight[i];
        if (item->answered && item->version <= replica->version) {
            if (replica->settings.keep_unsent)
                codec_add(&item->payload, 1.0f, replica->x, replica->settings.pool);
            shared_unref(item->bytes);
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

    struct pool *pool = replica->settings.pool;
    struct codec_payload payload;
    if (codec_open(delta, delta_bytes, n, pool, &payload, err)) {
        replica_unload(replica);
        return STATUS_CORRUPT;
    }
    codec_add(&payload, 1.0f, replica->w, pool);
    uint64_t got = codec_hash(replica->w, n);
    if (got != hash) {
        replica_unload(replica);
        return error_set(
            err, STATUS_CORRUPT, "hash of version %llu is %016llx here, %016llx was published",
            (unsigned long long)version, (unsigned long long)got, (unsigned long long)hash);
    }
    codec_add(&payload, 1.0f, replica->x, pool);
    replica->version = version;
    replica->hash = hash;
    settle(replica);
    return STATUS_OK;
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
    for (uint64_t i = 0; i < n; i++)
        replica->e[i] = replica->w[i] - replica->x[i];
    for (size_t i = 0; i < replica->in_flight_count; i++)
        codec_add(&replica->in_flight[i].payload, -1.0f, replica->e, replica->settings.pool);
    for (uint64_t i = 0; i < n; i++)
        replica->x[i] += forget * replica->e[i];
}

/* e = w - x - sum of the unanswered payloads, or decay · e + (w - x) without keep_unsent. */
static enum status encode(struct replica *replica, uint32_t k, struct buffer *ret,
                          struct error *err)
{
    const struct codec_payload *unanswered[REPLICA_IN_FLIGHT_MAX];
    for (size_t i = 0; i < replica->in_flight_count; i++)
        unanswered[i] = &replica->in_flight[i].payload;
    struct codec_source source = {.plus = replica->w, .minus = replica->x};
    if (replica->settings.keep_unsent) {
        source.subtract = unanswered;
        source.subtract_count = replica->in_flight_count;
    } else {
        source.residual = replica->e;
        source.decay = (float)replica->settings.residual_decay;
    }
    struct codec_format format = {replica->settings.values, k};
    return codec_encode(replica->encoder, &source, replica->settings.n, format, ret, err);
}

enum status replica_end_lease(struct replica *replica, const char *lease, uint32_t k,
                              struct shared **ret_payload, struct error *err)
{
    if (replica->in_flight_count == REPLICA_IN_FLIGHT_MAX)
        return error_set(err, STATUS_BUSY, "%d updates wait for an answer", REPLICA_IN_FLIGHT_MAX);
    uint64_t n = replica->settings.n;
    struct buffer buffer;
    buffer_init(&buffer, codec_bytes_max(n, (struct codec_format){replica->settings.values, k}));
    enum status status = encode(replica, k, &buffer, err);
    struct shared *bytes = NULL;
    if (!status) {
        bytes = shared_create(buffer.data, buffer.bytes);
        if (!bytes)
            status = error_set(err, STATUS_NO_MEMORY, "no memory for an update of %zu bytes",
                               buffer.bytes);
    }
    buffer_done(&buffer);
    struct in_flight *item = &replica->in_flight[replica->in_flight_count];
    if (!status)
        status = codec_open(shared_data(bytes), shared_bytes(bytes), n, replica->settings.pool,
                            &item->payload, err);
    if (status) {
        shared_unref(bytes);
        return status;
    }
    item->bytes = shared_ref(bytes);
    item->answered = false;
    item->version = 0;
    text_copy(item->lease, sizeof item->lease, lease);
    replica->in_flight_count++;
    *ret_payload = bytes;
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
