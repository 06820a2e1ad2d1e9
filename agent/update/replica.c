/* The replica's arithmetic. Surprising decision: the residual is not stored when keep_unsent is on;
 * the encoder computes it from w, x and the unanswered payloads as it goes, so that no rounding
 * error can pile up in a vector that nobody trains with, and making an update writes to no vector
 * at all. Locks: `lock` for the lists and figures; w_lock for w (and the encoder); x_lock for x
 * while an update is being made. The flags packing and settling keep those two apart. */
#include "agent/update/replica.h"

#include "common/base/buffer.h"
#include "common/base/bytes.h"
#include "common/base/large.h"
#include "common/codec/codec.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MERGED_MAX 64 /* deltas in w that x lacks; then merging waits */

struct in_flight {
    char lease[REPLICA_LEASE_BYTES];
    struct shared *bytes;
    struct codec_payload payload; /* of these bytes */
    bool answered;
    uint64_t version; /* answered: leaves once x has reached this version */
};

struct merged {
    struct shared *bytes;
    struct codec_payload payload;
};

struct replica {
    struct replica_settings settings;
    float *w, *x;
    float *e; /* the residual between leases; scratch with keep_unsent; NULL if not needed */
    struct codec_encoder *encoder;
    pthread_mutex_t w_lock;
    pthread_rwlock_t x_lock;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    bool loaded, packing, settling;
    uint64_t version, x_version, hash;
    struct in_flight in_flight[REPLICA_IN_FLIGHT_MAX];
    size_t in_flight_count;
    struct merged merged[MERGED_MAX];
    size_t merged_count;
};

static void take(const struct replica *replica)
{
    pthread_mutex_lock((pthread_mutex_t *)&replica->lock);
}

static void give(const struct replica *replica)
{
    pthread_mutex_unlock((pthread_mutex_t *)&replica->lock);
}

static void init_locks(struct replica *replica)
{
    pthread_rwlockattr_t writers_first;
    pthread_rwlockattr_init(&writers_first);
    pthread_rwlockattr_setkind_np(&writers_first, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&replica->x_lock, &writers_first);
    pthread_rwlockattr_destroy(&writers_first);
    pthread_mutex_init(&replica->w_lock, NULL);
    pthread_mutex_init(&replica->lock, NULL);
    pthread_cond_init(&replica->changed, NULL);
}

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
    init_locks(replica);
    replica->w = large_alloc(bytes);
    replica->x = large_alloc(bytes);
    bool wants_e = !settings->keep_unsent || settings->residual_decay < 1.0;
    if (wants_e)
        replica->e = large_alloc(bytes);
    if (!replica->w || !replica->x || (wants_e && !replica->e) ||
        codec_encoder_create(NULL, &replica->encoder)) {
        replica_free(replica);
        return error_set(err, STATUS_NO_MEMORY,
                         "no memory for a replica of %llu parameters (%zu MB)",
                         (unsigned long long)settings->n, (2 + wants_e) * (bytes / 1000000));
    }
    *ret = replica;
    return STATUS_OK;
}

static void forget_lists(struct replica *replica)
{
    for (size_t i = 0; i < replica->in_flight_count; i++)
        shared_unref(replica->in_flight[i].bytes);
    for (size_t i = 0; i < replica->merged_count; i++)
        shared_unref(replica->merged[i].bytes);
    replica->in_flight_count = replica->merged_count = 0;
}

void replica_free(struct replica *replica)
{
    if (!replica)
        return;
    forget_lists(replica);
    size_t bytes = (size_t)replica->settings.n * sizeof(float);
    large_free(replica->w, bytes);
    large_free(replica->x, bytes);
    large_free(replica->e, bytes);
    codec_encoder_free(replica->encoder);
    pthread_cond_destroy(&replica->changed);
    pthread_mutex_destroy(&replica->lock);
    pthread_mutex_destroy(&replica->w_lock);
    pthread_rwlock_destroy(&replica->x_lock);
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
    take(replica);
    forget_lists(replica);
    replica->version = replica->x_version = version;
    replica->hash = hash;
    replica->loaded = true;
    give(replica);
}

void replica_unload(struct replica *replica)
{
    take(replica);
    forget_lists(replica);
    replica->loaded = false;
    replica->version = replica->x_version = replica->hash = 0;
    give(replica);
}

/* --- figures ---------------------------------------------------------------------------------- */

bool replica_is_loaded(const struct replica *replica)
{
    take(replica);
    bool loaded = replica->loaded;
    give(replica);
    return loaded;
}

static uint64_t read_figure(const struct replica *replica, const uint64_t *figure)
{
    take(replica);
    uint64_t value = *figure;
    give(replica);
    return value;
}

uint64_t replica_version(const struct replica *replica)
{
    return read_figure(replica, &replica->version);
}

uint64_t replica_x_version(const struct replica *replica)
{
    return read_figure(replica, &replica->x_version);
}

uint64_t replica_hash(const struct replica *replica)
{
    return read_figure(replica, &replica->hash);
}

size_t replica_in_flight(const struct replica *replica)
{
    take(replica);
    size_t count = replica->in_flight_count;
    give(replica);
    return count;
}

const float *replica_hold_w(struct replica *replica)
{
    pthread_mutex_lock(&replica->w_lock);
    return replica->w;
}

void replica_release_w(struct replica *replica)
{
    pthread_mutex_unlock(&replica->w_lock);
}

/* --- x ---------------------------------------------------------------------------------------- */

float *replica_x(struct replica *replica)
{
    return replica->x;
}

void replica_x_begin_write(struct replica *replica)
{
    pthread_rwlock_wrlock(&replica->x_lock);
}

void replica_x_end_write(struct replica *replica)
{
    pthread_rwlock_unlock(&replica->x_lock);
}

static void begin_read(void *user)
{
    pthread_rwlock_rdlock(&((struct replica *)user)->x_lock);
}

static void end_read(void *user)
{
    pthread_rwlock_unlock(&((struct replica *)user)->x_lock);
}

/* The lists' owner while settling is set. */
static void drop_contained(struct replica *replica)
{
    size_t kept = 0;
    for (size_t i = 0; i < replica->in_flight_count; i++) {
        struct in_flight *item = &replica->in_flight[i];
        if (!item->answered || item->version > replica->x_version) {
            replica->in_flight[kept++] = *item;
            continue;
        }
        if (replica->settings.keep_unsent)
            codec_add(&item->payload, 1.0f, replica->x, replica->settings.pool);
        shared_unref(item->bytes);
    }
    replica->in_flight_count = kept;
}

bool replica_settle(struct replica *replica)
{
    struct merged merged[MERGED_MAX];
    take(replica);
    if (replica->packing) {
        give(replica);
        return false;
    }
    size_t count = replica->merged_count;
    memcpy(merged, replica->merged, count * sizeof merged[0]);
    replica->merged_count = 0;
    replica->settling = true;
    uint64_t version = replica->version;
    give(replica);

    for (size_t i = 0; i < count; i++) {
        codec_add(&merged[i].payload, 1.0f, replica->x, replica->settings.pool);
        shared_unref(merged[i].bytes);
    }

    take(replica);
    if (replica->loaded)
        replica->x_version = version;
    drop_contained(replica);
    replica->settling = false;
    pthread_cond_broadcast(&replica->changed);
    give(replica);
    return true;
}

void replica_answer(struct replica *replica, const char *lease, enum replica_verdict verdict,
                    uint64_t version)
{
    take(replica);
    for (size_t i = 0; i < replica->in_flight_count; i++) {
        struct in_flight *item = &replica->in_flight[i];
        if (strcmp(item->lease, lease) != 0 || item->answered)
            continue;
        item->answered = true;
        item->version = verdict == REPLICA_APPLIED ? version : 0;
        break;
    }
    give(replica);
}

void replica_begin_lease(struct replica *replica)
{
    uint64_t n = replica->settings.n;
    float forget = (float)(1.0 - replica->settings.residual_decay);
    if (replica->settings.keep_unsent && forget <= 0.0f) {
        replica_settle(replica);
        return;
    }
    const float *w = replica_hold_w(replica);
    replica_settle(replica);
    if (!replica->settings.keep_unsent) {
        memcpy(replica->x, w, n * sizeof(float));
    } else {
        for (uint64_t i = 0; i < n; i++)
            replica->e[i] = w[i] - replica->x[i];
        for (size_t i = 0; i < replica->in_flight_count; i++)
            codec_add(&replica->in_flight[i].payload, -1.0f, replica->e, replica->settings.pool);
        for (uint64_t i = 0; i < n; i++)
            replica->x[i] += forget * replica->e[i];
    }
    replica_release_w(replica);
}

/* --- w ---------------------------------------------------------------------------------------- */

static enum status check_order(struct replica *replica, uint64_t version, struct error *err)
{
    take(replica);
    bool loaded = replica->loaded;
    uint64_t have = replica->version;
    give(replica);
    if (!loaded || version > have + 1)
        return error_set(err, STATUS_STATE,
                         "delta to version %llu does not follow our version %llu",
                         (unsigned long long)version, (unsigned long long)have);
    if (version <= have)
        return error_set(err, STATUS_STALE, "delta to version %llu is merged already",
                         (unsigned long long)version);
    return STATUS_OK;
}

static enum status broken(struct replica *replica, struct shared *bytes)
{
    take(replica);
    replica->loaded = false;
    give(replica);
    shared_unref(bytes);
    return STATUS_CORRUPT;
}

/* This thread alone adds to the list: the room stays. */
static void wait_for_room(struct replica *replica)
{
    take(replica);
    while (replica->merged_count == MERGED_MAX)
        pthread_cond_wait(&replica->changed, &replica->lock);
    give(replica);
}

static void note_merged(struct replica *replica, const struct merged *merged, uint64_t version,
                        uint64_t hash)
{
    take(replica);
    replica->merged[replica->merged_count++] = *merged;
    replica->version = version;
    replica->hash = hash;
    give(replica);
}

enum status replica_merge(struct replica *replica, const void *delta, size_t delta_bytes,
                          uint64_t version, uint64_t hash, struct error *err)
{
    uint64_t n = replica->settings.n;
    enum status status = check_order(replica, version, err);
    if (status)
        return status;
    struct merged merged = {.bytes = shared_create(delta, delta_bytes)};
    if (!merged.bytes)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a delta of %zu bytes", delta_bytes);
    if (codec_open(shared_data(merged.bytes), delta_bytes, n, NULL, &merged.payload, err))
        return broken(replica, merged.bytes);
    wait_for_room(replica);
    pthread_mutex_lock(&replica->w_lock);
    codec_add(&merged.payload, 1.0f, replica->w, NULL);
    uint64_t got = codec_hash(replica->w, n);
    if (got == hash) /* before w is released: whoever holds it reads the version that it has */
        note_merged(replica, &merged, version, hash);
    pthread_mutex_unlock(&replica->w_lock);
    if (got != hash) {
        error_set(err, STATUS_CORRUPT,
                  "hash of version %llu is %016llx here, %016llx was published",
                  (unsigned long long)version, (unsigned long long)got, (unsigned long long)hash);
        return broken(replica, merged.bytes);
    }
    return STATUS_OK;
}

/* --- making an update ------------------------------------------------------------------------- */

/* e = w - x - sum of the unanswered payloads, or decay · e + (w - x) without keep_unsent. */
static enum status encode(struct replica *replica, uint32_t k, struct buffer *ret,
                          struct error *err)
{
    const struct codec_payload *unanswered[REPLICA_IN_FLIGHT_MAX];
    for (size_t i = 0; i < replica->in_flight_count; i++)
        unanswered[i] = &replica->in_flight[i].payload;
    struct codec_source source = {.plus = replica->w,
                                  .minus = replica->x,
                                  .before = begin_read,
                                  .after = end_read,
                                  .user = replica};
    if (replica->settings.keep_unsent) {
        source.subtract = unanswered;
        source.subtract_count = replica->in_flight_count;
    } else {
        source.residual = replica->e;
        source.decay = (float)replica->settings.residual_decay;
    }
    struct codec_format format = {replica->settings.values, k};
    pthread_mutex_lock(&replica->w_lock);
    enum status status =
        codec_encode(replica->encoder, &source, replica->settings.n, format, ret, err);
    pthread_mutex_unlock(&replica->w_lock);
    return status;
}

/* From here on the lists stay as they are and x contains all that w does. */
static enum status begin_packing(struct replica *replica, struct error *err)
{
    enum status status = STATUS_OK;
    take(replica);
    while (replica->loaded && (replica->settling || replica->merged_count > 0))
        pthread_cond_wait(&replica->changed, &replica->lock);
    if (!replica->loaded)
        status = error_set(err, STATUS_STATE, "the replica is not loaded any more");
    else if (replica->in_flight_count == REPLICA_IN_FLIGHT_MAX)
        status =
            error_set(err, STATUS_BUSY, "%d updates wait for an answer", REPLICA_IN_FLIGHT_MAX);
    else
        replica->packing = true;
    give(replica);
    return status;
}

static void end_packing(struct replica *replica, const struct in_flight *made)
{
    take(replica);
    if (made)
        replica->in_flight[replica->in_flight_count++] = *made;
    replica->packing = false;
    pthread_cond_broadcast(&replica->changed);
    give(replica);
}

static enum status make_payload(struct replica *replica, uint32_t k, struct in_flight *ret,
                                struct error *err)
{
    uint64_t n = replica->settings.n;
    struct buffer buffer;
    buffer_init(&buffer, codec_bytes_max(n, (struct codec_format){replica->settings.values, k}));
    enum status status = encode(replica, k, &buffer, err);
    if (!status) {
        ret->bytes = shared_create(buffer.data, buffer.bytes);
        if (!ret->bytes)
            status = error_set(err, STATUS_NO_MEMORY, "no memory for an update of %zu bytes",
                               buffer.bytes);
    }
    buffer_done(&buffer);
    if (!status)
        status = codec_open(shared_data(ret->bytes), shared_bytes(ret->bytes), n, NULL,
                            &ret->payload, err);
    return status;
}

enum status replica_end_lease(struct replica *replica, const char *lease, uint32_t k,
                              struct shared **ret_payload, struct error *err)
{
    struct in_flight made = {0};
    enum status status = begin_packing(replica, err);
    if (status)
        return status;
    status = make_payload(replica, k, &made, err);
    if (status) {
        end_packing(replica, NULL);
        shared_unref(made.bytes);
        return status;
    }
    text_copy(made.lease, sizeof made.lease, lease);
    *ret_payload = shared_ref(made.bytes);
    end_packing(replica, &made);
    return STATUS_OK;
}
