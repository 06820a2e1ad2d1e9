/* Parameters of one job: examine an update, apply it to θ, commit a delta into w. Used by one
 * thread at a time, no I/O, no clock. Surprising: θ is what the updates say, w is what the agents
 * were told; the difference is never lost, since each commit compresses θ − w anew.
 * An update costs time by its size, not by the model's; a commit reads θ and w once. */
#include "coordinator/aggregate/aggregate.h"

#include "common/base/bytes.h"
#include "common/base/large.h"
#include "common/codec/codec.h"
#include "coordinator/aggregate/aggregate_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* No sum of so many updates as fit into a ledger can overflow fp32 when none moves further. */
#define MOVE_MAX 1e20f
#define REACH_MAX 1e38

struct aggregate {
    uint64_t n;
    uint64_t version, hash; /* of w */
    double reach;           /* no θ is farther from zero */
    float *theta;
    float *w;
    struct codec_encoder *encoder;
    uint32_t tensor_count;
    uint64_t *tensor_counts;
    struct norms *norms; /* [tensor_count] */
    double *norms_now;   /* [tensor_count], of the update in hand */
};

static bool counts_fit(uint64_t n, const uint64_t *tensor_counts, uint32_t tensor_count)
{
    uint64_t left = n;
    for (uint32_t t = 0; t < tensor_count; t++) {
        if (tensor_counts[t] > left)
            return false;
        left -= tensor_counts[t];
    }
    return left == 0;
}

static bool all_finite(const float *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            return false;
    }
    return true;
}

enum status aggregate_create(const float *theta0, uint64_t n, const uint64_t *tensor_counts,
                             uint32_t tensor_count, struct aggregate **ret)
{
    if (n == 0 || n > SIZE_MAX / sizeof(float) || !counts_fit(n, tensor_counts, tensor_count))
        return STATUS_INVALID;
    if (!all_finite(theta0, n))
        return STATUS_NOT_FINITE;
    struct aggregate *aggregate = calloc(1, sizeof *aggregate);
    if (!aggregate)
        return STATUS_NO_MEMORY;
    aggregate->n = n;
    aggregate->tensor_count = tensor_count;
    aggregate->theta = large_alloc((size_t)n * sizeof(float));
    aggregate->w = large_alloc((size_t)n * sizeof(float));
    aggregate->tensor_counts = malloc(tensor_count * sizeof(uint64_t));
    aggregate->norms = calloc(tensor_count, sizeof *aggregate->norms);
    aggregate->norms_now = calloc(tensor_count, sizeof(double));
    if (!aggregate->theta || !aggregate->w || !aggregate->tensor_counts || !aggregate->norms ||
        !aggregate->norms_now || codec_encoder_create(NULL, &aggregate->encoder)) {
        aggregate_free(aggregate);
        return STATUS_NO_MEMORY;
    }
    memcpy(aggregate->tensor_counts, tensor_counts, tensor_count * sizeof(uint64_t));
    aggregate_restore(aggregate, theta0, theta0, 0);
    *ret = aggregate;
    return STATUS_OK;
}

void aggregate_restore(struct aggregate *aggregate, const float *theta, const float *w,
                       uint64_t version)
{
    memcpy(aggregate->theta, theta, (size_t)aggregate->n * sizeof(float));
    memcpy(aggregate->w, w, (size_t)aggregate->n * sizeof(float));
    aggregate->version = version;
    aggregate->hash = codec_hash(w, aggregate->n);
    aggregate->reach = 0;
    for (uint64_t i = 0; i < aggregate->n; i++)
        aggregate->reach = fmax(aggregate->reach, fabs((double)theta[i]));
}

void aggregate_free(struct aggregate *aggregate)
{
    if (!aggregate)
        return;
    large_free(aggregate->theta, (size_t)aggregate->n * sizeof(float));
    large_free(aggregate->w, (size_t)aggregate->n * sizeof(float));
    codec_encoder_free(aggregate->encoder);
    free(aggregate->tensor_counts);
    free(aggregate->norms);
    free(aggregate->norms_now);
    free(aggregate);
}

const float *aggregate_theta(const struct aggregate *aggregate)
{
    return aggregate->theta;
}

const float *aggregate_w(const struct aggregate *aggregate)
{
    return aggregate->w;
}

uint64_t aggregate_version(const struct aggregate *aggregate)
{
    return aggregate->version;
}

uint64_t aggregate_parameters(const struct aggregate *aggregate)
{
    return aggregate->n;
}

uint64_t aggregate_hash(const struct aggregate *aggregate)
{
    return aggregate->hash;
}

/* The coordinates of a payload in index order, each with its tensor. */
struct walk {
    const struct codec_payload *payload;
    struct codec_reader reader;
    struct codec_chunk chunk;
    uint64_t super_chunk, super_chunks;
};

static void walk_init(struct walk *walk, const struct codec_payload *payload, const float *target)
{
    walk->payload = payload;
    walk->super_chunk = 0;
    walk->super_chunks = codec_super_chunks(payload->n);
    codec_reader_init(&walk->reader, payload, 0);
    walk->reader.target = target;
}

/* The next chunk; false after the last. */
static bool walk_next(struct walk *walk)
{
    while (!codec_reader_next(&walk->reader, &walk->chunk)) {
        const float *target = walk->reader.target;
        if (++walk->super_chunk >= walk->super_chunks)
            return false;
        codec_reader_init(&walk->reader, walk->payload, walk->super_chunk);
        walk->reader.target = target;
    }
    return true;
}

/* The tensor of a parameter; asked for with rising parameters. */
struct tensor_cursor {
    const uint64_t *counts;
    uint32_t tensor;
    uint64_t end; /* first parameter behind it */
};

static struct tensor_cursor tensor_first(const struct aggregate *aggregate)
{
    return (struct tensor_cursor){aggregate->tensor_counts, 0, aggregate->tensor_counts[0]};
}

static uint32_t tensor_of(struct tensor_cursor *cursor, uint64_t parameter)
{
    while (parameter >= cursor->end)
        cursor->end += cursor->counts[++cursor->tensor];
    return cursor->tensor;
}

/* θ − (weight · factor) · Δ for one parameter, each step rounded to fp32. */
static inline float moved(float theta, float weight, float factor, float delta)
{
    float scale = weight * factor;
    float change = scale * delta;
    return theta - change;
}

/* Norms of every tensor into norms_now; ret_most: the greatest |Δ|. */
static enum status survey(struct aggregate *aggregate, const struct codec_payload *payload,
                          double *ret_most, struct error *err)
{
    struct walk walk;
    struct tensor_cursor cursor = tensor_first(aggregate);
    double *sums = aggregate->norms_now, sum = 0; /* of the cursor's tensor */
    float most = 0;
    memset(sums, 0, aggregate->tensor_count * sizeof *sums);
    walk_init(&walk, payload, NULL);
    while (walk_next(&walk)) {
        const struct codec_chunk *chunk = &walk.chunk;
        for (uint32_t i = 0; i < chunk->count; i++) {
            float delta = fabsf(chunk->values[i]);
            if (chunk->first + chunk->indices[i] >= cursor.end) {
                sums[cursor.tensor] = sum;
                sum = sums[tensor_of(&cursor, chunk->first + chunk->indices[i])];
            }
            double square = (double)delta * (double)delta;
            sum = sum + square;
            most = delta > most ? delta : most;
        }
    }
    sums[cursor.tensor] = sum;
    if (most > MOVE_MAX)
        return error_set(err, STATUS_NOT_FINITE, "the update moves a parameter by %g, more than %g",
                         (double)most, (double)MOVE_MAX);
    for (uint32_t t = 0; t < aggregate->tensor_count; t++)
        sums[t] = sqrt(sums[t]);
    *ret_most = (double)most;
    return STATUS_OK;
}

enum status aggregate_examine(struct aggregate *aggregate, const struct codec_payload *payload,
                              float *ret_factors, struct error *err)
{
    double most;
    enum status status = survey(aggregate, payload, &most, err);
    for (uint32_t t = 0; status == STATUS_OK && t < aggregate->tensor_count; t++)
        ret_factors[t] = norms_clip_factor(&aggregate->norms[t], aggregate->norms_now[t]);
    return status;
}

static bool factors_are_valid(const struct aggregate *aggregate, float weight, const float *factors)
{
    if (!isfinite(weight) || weight < 0.0f)
        return false;
    for (uint32_t t = 0; t < aggregate->tensor_count; t++) {
        if (!(factors[t] > 0.0f && factors[t] <= 1.0f))
            return false;
    }
    return true;
}

enum status aggregate_apply(struct aggregate *aggregate, const struct codec_payload *payload,
                            float weight, const float *factors, struct error *err)
{
    if (!factors_are_valid(aggregate, weight, factors))
        return error_set(err, STATUS_INVALID,
                         "the update's weight or one of its clip factors is out of range");
    double most;
    enum status status = survey(aggregate, payload, &most, err);
    if (status != STATUS_OK)
        return status;
    /* Far from the largest float nothing can overflow; no honest model ever comes near. */
    double reach = aggregate->reach + (double)weight * most * 1.001;
    if (reach > REACH_MAX)
        return error_set(err, STATUS_NOT_FINITE, "the update makes a parameter overflow");
    aggregate->reach = reach;
    struct walk walk;
    struct tensor_cursor cursor = tensor_first(aggregate);
    walk_init(&walk, payload, aggregate->theta);
    while (walk_next(&walk)) {
        float *theta = aggregate->theta + walk.chunk.first;
        for (uint32_t i = 0; i < walk.chunk.count; i++) {
            uint32_t index = walk.chunk.indices[i];
            float factor = factors[tensor_of(&cursor, walk.chunk.first + index)];
            theta[index] = moved(theta[index], weight, factor, walk.chunk.values[i]);
        }
    }
    for (uint32_t t = 0; t < aggregate->tensor_count; t++)
        norms_add(&aggregate->norms[t], aggregate->norms_now[t]);
    return STATUS_OK;
}

enum status aggregate_commit(struct aggregate *aggregate, struct codec_format format,
                             struct buffer *ret_delta, uint64_t *ret_hash)
{
    struct codec_source source = {
        .plus = aggregate->theta,
        .minus = aggregate->w,
        .add_to = aggregate->w,
        .ret_hash = &aggregate->hash,
    };
    enum status status =
        codec_encode(aggregate->encoder, &source, aggregate->n, format, ret_delta, NULL);
    if (status != STATUS_OK)
        return status;
    aggregate->version++;
    if (ret_hash)
        *ret_hash = aggregate->hash;
    return STATUS_OK;
}

enum status aggregate_history_write(const struct aggregate *aggregate, struct buffer *ret)
{
    return history_write(aggregate->norms, aggregate->tensor_count, ret);
}

enum status aggregate_history_read(struct aggregate *aggregate, const uint8_t *data, size_t bytes)
{
    return history_read(data, bytes, aggregate->tensor_count, aggregate->norms);
}
