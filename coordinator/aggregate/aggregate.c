/* Parameters of one job: examine an update, apply it to θ, commit a delta into w. Used by one
 * thread at a time, no I/O, no clock. Surprising: θ is what the updates say, w is what the agents
 * were told; the difference is never lost, since each commit compresses θ − w anew. */
#include "coordinator/aggregate/aggregate.h"

#include "common/base/bytes.h"
#include "common/codec/codec.h"
#include "coordinator/aggregate/aggregate_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* No sum of so many updates as fit into a ledger can overflow fp32 when none moves further. */
#define MOVE_MAX 1e20f

struct aggregate {
    uint64_t n;
    uint64_t version;
    float *theta;
    float *w;
    float *scratch; /* [n], zero between calls */
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
    aggregate->theta = malloc((size_t)n * sizeof(float));
    aggregate->w = malloc((size_t)n * sizeof(float));
    aggregate->scratch = calloc((size_t)n, sizeof(float));
    aggregate->tensor_counts = malloc(tensor_count * sizeof(uint64_t));
    aggregate->norms = calloc(tensor_count, sizeof *aggregate->norms);
    aggregate->norms_now = calloc(tensor_count, sizeof(double));
    if (!aggregate->theta || !aggregate->w || !aggregate->scratch || !aggregate->tensor_counts ||
        !aggregate->norms || !aggregate->norms_now) {
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
}

void aggregate_free(struct aggregate *aggregate)
{
    if (!aggregate)
        return;
    free(aggregate->theta);
    free(aggregate->w);
    free(aggregate->scratch);
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
    return codec_hash(aggregate->w, aggregate->n);
}

static void clear_scratch(struct aggregate *aggregate)
{
    memset(aggregate->scratch, 0, (size_t)aggregate->n * sizeof(float));
}

/* Δ into scratch, its norms into norms_now. On failure scratch is zero. */
static enum status unpack(struct aggregate *aggregate, const void *payload, size_t bytes,
                          struct error *err)
{
    enum status status =
        codec_decode_add(payload, bytes, 1.0f, aggregate->scratch, aggregate->n, err);
    if (status != STATUS_OK)
        return status;
    const float *delta = aggregate->scratch;
    for (uint32_t t = 0; t < aggregate->tensor_count; t++) {
        double sum = 0.0;
        for (uint64_t i = 0; i < aggregate->tensor_counts[t]; i++) {
            /* Written so that NaN fails as well. */
            if (!(fabsf(delta[i]) <= MOVE_MAX)) {
                clear_scratch(aggregate);
                return error_set(err, STATUS_NOT_FINITE,
                                 "the update moves a parameter of tensor %u by more than %g", t,
                                 (double)MOVE_MAX);
            }
            double value = (double)delta[i];
            double square = value * value;
            sum = sum + square;
        }
        aggregate->norms_now[t] = sqrt(sum);
        delta += aggregate->tensor_counts[t];
    }
    return STATUS_OK;
}

enum status aggregate_examine(struct aggregate *aggregate, const void *payload, size_t bytes,
                              float *ret_factors, struct error *err)
{
    enum status status = unpack(aggregate, payload, bytes, err);
    if (status != STATUS_OK)
        return status;
    for (uint32_t t = 0; t < aggregate->tensor_count; t++)
        ret_factors[t] = norms_clip_factor(&aggregate->norms[t], aggregate->norms_now[t]);
    clear_scratch(aggregate);
    return STATUS_OK;
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

/* scratch = θ − (weight · factor) · Δ, each step rounded to fp32, and Δ = 0 leaves θ as it is.
 * False when a result is not finite. */
static bool compute_moved(struct aggregate *aggregate, float weight, const float *factors)
{
    float *scratch = aggregate->scratch;
    const float *theta = aggregate->theta;
    bool finite = true;
    for (uint32_t t = 0; t < aggregate->tensor_count; t++) {
        float scale = weight * factors[t];
        for (uint64_t i = 0; i < aggregate->tensor_counts[t]; i++) {
            float move = scale * scratch[i];
            float moved = theta[i] - move;
            scratch[i] = scratch[i] != 0.0f ? moved : theta[i];
            finite = finite && isfinite(scratch[i]);
        }
        scratch += aggregate->tensor_counts[t];
        theta += aggregate->tensor_counts[t];
    }
    return finite;
}

enum status aggregate_apply(struct aggregate *aggregate, const void *payload, size_t bytes,
                            float weight, const float *factors, struct error *err)
{
    if (!factors_are_valid(aggregate, weight, factors))
        return error_set(err, STATUS_INVALID,
                         "the update's weight or one of its clip factors is out of range");
    enum status status = unpack(aggregate, payload, bytes, err);
    if (status != STATUS_OK)
        return status;
    if (compute_moved(aggregate, weight, factors)) {
        float *old_theta = aggregate->theta;
        aggregate->theta = aggregate->scratch;
        aggregate->scratch = old_theta;
        for (uint32_t t = 0; t < aggregate->tensor_count; t++)
            norms_add(&aggregate->norms[t], aggregate->norms_now[t]);
    } else {
        status = error_set(err, STATUS_NOT_FINITE, "the update makes a parameter overflow");
    }
    clear_scratch(aggregate);
    return status;
}

enum status aggregate_commit(struct aggregate *aggregate, uint32_t k, struct buffer *ret_delta,
                             uint64_t *ret_hash)
{
    const size_t delta_start = ret_delta->bytes;
    for (uint64_t i = 0; i < aggregate->n; i++)
        aggregate->scratch[i] = aggregate->theta[i] - aggregate->w[i];
    enum status status = codec_encode(aggregate->scratch, aggregate->n, k, ret_delta);
    clear_scratch(aggregate);
    if (status != STATUS_OK)
        return status;
    status = codec_decode_add(ret_delta->data + delta_start, ret_delta->bytes - delta_start, 1.0f,
                              aggregate->w, aggregate->n, NULL);
    if (status != STATUS_OK) {
        ret_delta->bytes = delta_start;
        return status;
    }
    aggregate->version++;
    if (ret_hash)
        *ret_hash = aggregate_hash(aggregate);
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
