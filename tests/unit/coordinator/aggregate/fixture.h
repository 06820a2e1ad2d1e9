/* What the aggregate's tests share: a small model of two tensors, honest updates, and a copy of all
 * of an aggregate's state to compare with. */
#ifndef RAVEN_TESTS_AGGREGATE_FIXTURE_H
#define RAVEN_TESTS_AGGREGATE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "coordinator/aggregate/aggregate.h"
#include "tests/support/encode.h"

#include <math.h>
#include <stdlib.h>

#define N 9000
#define TENSORS 3
#define PAYLOAD_BYTES_MAX (1 << 20)
#define UNUSED __attribute__((unused))

static const uint64_t tensor_counts[TENSORS] = {5000, 3990, 10};

static UNUSED void fill_normal(float values[N], uint64_t seed, double factor)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (int i = 0; i < N; i++)
        values[i] = (float)(rng_normal(&rng) * factor);
}

/* The payload of a random update; buffer_done is the caller's. */
static UNUSED void make_payload(struct buffer *ret, uint64_t seed, double factor, uint32_t k)
{
    float *values = malloc(N * sizeof(float));
    assert_non_null(values);
    fill_normal(values, seed, factor);
    buffer_init(ret, PAYLOAD_BYTES_MAX);
    assert_int_equal(simple_encode(values, N, k, ret), STATUS_OK);
    free(values);
}

static UNUSED struct aggregate *make_aggregate(void)
{
    float *theta0 = malloc(N * sizeof(float));
    struct aggregate *aggregate = NULL;
    assert_non_null(theta0);
    fill_normal(theta0, 77, 0.02);
    assert_int_equal(aggregate_create(theta0, N, tensor_counts, TENSORS, &aggregate), STATUS_OK);
    free(theta0);
    return aggregate;
}

/* From bytes, as they come from an agent. */
static UNUSED enum status examine(struct aggregate *aggregate, const void *data, size_t bytes,
                                  float *ret_factors, struct error *err)
{
    struct codec_payload payload;
    enum status status =
        codec_open(data, bytes, aggregate_parameters(aggregate), NULL, &payload, err);
    return status ? status : aggregate_examine(aggregate, &payload, ret_factors, err);
}

static UNUSED enum status apply(struct aggregate *aggregate, const void *data, size_t bytes,
                                float weight, const float *factors, struct error *err)
{
    struct codec_payload payload;
    enum status status =
        codec_open(data, bytes, aggregate_parameters(aggregate), NULL, &payload, err);
    return status ? status : aggregate_apply(aggregate, &payload, weight, factors, err);
}

static UNUSED enum status commit(struct aggregate *aggregate, uint32_t k, struct buffer *ret_delta,
                                 uint64_t *ret_hash)
{
    return aggregate_commit(aggregate, (struct codec_format){CODEC_SIGN, k}, ret_delta, ret_hash);
}

/* Examines and applies; the factors used come back when ret_factors is given. */
static UNUSED void accept(struct aggregate *aggregate, const struct buffer *payload, float weight,
                          float *ret_factors)
{
    float factors[TENSORS];
    struct error err = {0};
    assert_int_equal(examine(aggregate, payload->data, payload->bytes, factors, &err), STATUS_OK);
    assert_int_equal(apply(aggregate, payload->data, payload->bytes, weight, factors, &err),
                     STATUS_OK);
    if (ret_factors)
        memcpy(ret_factors, factors, sizeof factors);
}

struct copy {
    float theta[N];
    float w[N];
    uint64_t version;
    struct buffer history;
};

static UNUSED struct copy *copy_of(const struct aggregate *aggregate)
{
    struct copy *copy = malloc(sizeof *copy);
    assert_non_null(copy);
    memcpy(copy->theta, aggregate_theta(aggregate), sizeof copy->theta);
    memcpy(copy->w, aggregate_w(aggregate), sizeof copy->w);
    copy->version = aggregate_version(aggregate);
    buffer_init(&copy->history, PAYLOAD_BYTES_MAX);
    assert_int_equal(aggregate_history_write(aggregate, &copy->history), STATUS_OK);
    return copy;
}

static UNUSED void copy_free(struct copy *copy)
{
    buffer_done(&copy->history);
    free(copy);
}

static UNUSED void assert_same(const struct copy *copy, const struct aggregate *aggregate)
{
    struct copy *now = copy_of(aggregate);
    assert_memory_equal(now->theta, copy->theta, sizeof copy->theta);
    assert_memory_equal(now->w, copy->w, sizeof copy->w);
    assert_int_equal(now->version, copy->version);
    assert_int_equal(now->history.bytes, copy->history.bytes);
    assert_memory_equal(now->history.data, copy->history.data, copy->history.bytes);
    copy_free(now);
}

#endif
