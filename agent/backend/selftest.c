/* A known-answer test of a device: operators on small fixed inputs, compared with the formula
 * written out in double precision. Takes a few milliseconds, on the calling thread. Its surprise:
 * the answers are computed, not stored, so that a reader can check them. */
#include "agent/backend/backend.h"
#include "common/base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-4
#define FLOATS 4096 /* of each scratch vector */

struct selftest {
    struct backend *backend;
    float *a, *b, *c, *y, *saved;
    double worst;
};

static void fill(float *data, size_t count, uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (size_t i = 0; i < count; i++)
        data[i] = (float)(rng_uniform(&rng) * 2.0 - 1.0);
}

static void compare(struct selftest *test, double expected, float got)
{
    double error = fabs(expected - (double)got);
    if (!(error <= test->worst))
        test->worst = isnan(error) ? INFINITY : error;
}

static void test_linear(struct selftest *test)
{
    const struct linear_shape shape = {.rows = 7, .in = 19, .out = 13};
    fill(test->a, shape.rows * shape.in, 1);
    fill(test->b, shape.out * shape.in, 2);
    fill(test->c, shape.out, 3);
    test->backend->linear_forward(test->backend, &shape, test->a, test->b, test->c, test->y);
    for (size_t r = 0; r < shape.rows; r++)
        for (size_t o = 0; o < shape.out; o++) {
            double sum = (double)test->c[o];
            for (size_t i = 0; i < shape.in; i++)
                sum += (double)test->a[r * shape.in + i] * (double)test->b[o * shape.in + i];
            compare(test, sum, test->y[r * shape.out + o]);
        }
    float *dx = test->saved;
    test->backend->linear_backward(test->backend, &shape, test->a, test->b, test->y,
                                   (struct gradient){.data = dx}, (struct gradient){0},
                                   (struct gradient){0});
    for (size_t r = 0; r < shape.rows; r++)
        for (size_t i = 0; i < shape.in; i++) {
            double sum = 0;
            for (size_t o = 0; o < shape.out; o++)
                sum += (double)test->y[r * shape.out + o] * (double)test->b[o * shape.in + i];
            compare(test, sum, dx[r * shape.in + i]);
        }
}

static void test_layernorm(struct selftest *test)
{
    const struct norm_shape shape = {.rows = 5, .width = 24};
    fill(test->a, shape.rows * shape.width, 4);
    fill(test->b, shape.width, 5);
    fill(test->c, shape.width, 6);
    test->backend->layernorm_forward(test->backend, &shape, test->a, test->b, test->c, test->y,
                                     test->saved);
    for (size_t r = 0; r < shape.rows; r++) {
        const float *x = test->a + r * shape.width;
        double mean = 0, variance = 0;
        for (size_t i = 0; i < shape.width; i++)
            mean += (double)x[i] / (double)shape.width;
        for (size_t i = 0; i < shape.width; i++)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)shape.width;
        for (size_t i = 0; i < shape.width; i++)
            compare(test,
                    ((double)x[i] - mean) / sqrt(variance + 1e-5) * (double)test->b[i] +
                        (double)test->c[i],
                    test->y[r * shape.width + i]);
    }
}

static void test_gelu(struct selftest *test)
{
    fill(test->a, 257, 7);
    for (size_t i = 0; i < 257; i++)
        test->a[i] *= 6.0f;
    test->backend->gelu_forward(test->backend, 257, test->a, test->y);
    for (size_t i = 0; i < 257; i++) {
        double x = (double)test->a[i];
        compare(test, 0.5 * x * (1.0 + erf(x * M_SQRT1_2)), test->y[i]);
    }
}

static double attention_at(const float *qkv, const struct attention_shape *shape, size_t row,
                           size_t head, size_t column)
{
    size_t wide = 3 * shape->width, depth = shape->width / shape->heads;
    const float *query = qkv + row * wide + head * depth;
    double weights = 0, sum = 0;
    for (size_t other = 0; other <= row; other++) {
        const float *key = qkv + other * wide + shape->width + head * depth;
        double score = 0;
        for (size_t i = 0; i < depth; i++)
            score += (double)query[i] * (double)key[i];
        double weight = exp(score / sqrt((double)depth));
        weights += weight;
        sum += weight * (double)key[shape->width + column];
    }
    return sum / weights;
}

static void test_attention(struct selftest *test)
{
    const struct attention_shape shape = {.samples = 1, .context = 21, .width = 16, .heads = 2};
    fill(test->a, shape.context * 3 * shape.width, 8);
    test->backend->attention_forward(test->backend, &shape, test->a, test->y, test->saved);
    for (size_t row = 0; row < shape.context; row++)
        for (size_t i = 0; i < shape.width; i++)
            compare(test, attention_at(test->a, &shape, row, i / 8, i % 8),
                    test->y[row * shape.width + i]);
}

static double convolution_at(const struct selftest *test, const struct image_shape *shape,
                             size_t out, size_t row, size_t column)
{
    double sum = (double)test->c[out];
    for (size_t in = 0; in < shape->channels_in; in++)
        for (size_t i = 0; i < 9; i++) {
            size_t y = row + i / 3 - 1, x = column + i % 3 - 1; /* wraps below zero: outside */
            if (y < shape->height && x < shape->width)
                sum += (double)test->a[(in * shape->height + y) * shape->width + x] *
                       (double)test->b[(out * shape->channels_in + in) * 9 + i];
        }
    return sum;
}

static void test_convolution(struct selftest *test)
{
    const struct image_shape shape = {
        .samples = 1, .channels_in = 2, .channels_out = 3, .height = 8, .width = 10};
    size_t plane = shape.height * shape.width;
    fill(test->a, shape.channels_in * plane, 9);
    fill(test->b, shape.channels_out * shape.channels_in * 9, 10);
    fill(test->c, shape.channels_out, 11);
    test->backend->conv3x3_forward(test->backend, &shape, test->a, test->b, test->c, test->y);
    for (size_t out = 0; out < shape.channels_out; out++)
        for (size_t i = 0; i < plane; i++)
            compare(test, convolution_at(test, &shape, out, i / shape.width, i % shape.width),
                    test->y[out * plane + i]);
}

static void test_loss(struct selftest *test)
{
    const struct loss_shape shape = {.rows = 6, .classes = 17};
    const int32_t target[6] = {0, 16, 3, 8, 8, 1};
    double sum, expected = 0;
    uint64_t hits;
    fill(test->a, shape.rows * shape.classes, 12);
    test->backend->cross_entropy_forward(test->backend, &shape, test->a, target, test->saved, &sum,
                                         &hits);
    for (size_t r = 0; r < shape.rows; r++) {
        double total = 0;
        for (size_t i = 0; i < shape.classes; i++)
            total += exp((double)test->a[r * shape.classes + i]);
        expected += log(total) - (double)test->a[r * shape.classes + (size_t)target[r]];
    }
    compare(test, expected, (float)sum);
}

static void test_adamw(struct selftest *test)
{
    const struct adamw settings = {.learning_rate = 0.01,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .weight_decay = 0.1,
                                   .gradient_scale = 0.5,
                                   .step = 1};
    const size_t count = 33;
    fill(test->a, count, 13);
    fill(test->b, count, 14);
    memcpy(test->c, test->a, count * sizeof *test->c);
    memset(test->y, 0, count * sizeof *test->y);
    memset(test->saved, 0, count * sizeof *test->saved);
    test->backend->adamw(test->backend, &settings, count, test->a, test->b, test->y, test->saved);
    for (size_t i = 0; i < count; i++) {
        double g = 0.5 * (double)test->b[i], x = (double)test->c[i];
        compare(test, x - 0.01 * (g / (fabs(g) + 1e-8) + 0.1 * x), test->a[i]);
    }
}

static const struct {
    const char *name;
    void (*run)(struct selftest *test);
} tests[] = {
    {"linear", test_linear},       {"layernorm", test_layernorm}, {"gelu", test_gelu},
    {"attention", test_attention}, {"conv3x3", test_convolution}, {"cross_entropy", test_loss},
    {"adamw", test_adamw},
};

enum status backend_selftest(struct backend *backend, struct error *err)
{
    struct selftest test = {.backend = backend};
    enum status status = STATUS_OK;
    float *scratch = backend->allocate(backend, 5 * FLOATS * sizeof *scratch);
    if (!scratch)
        return error_set(err, STATUS_NO_MEMORY, "no memory to test the device %s", backend->name);
    test.a = scratch;
    test.b = scratch + FLOATS;
    test.c = scratch + 2 * FLOATS;
    test.y = scratch + 3 * FLOATS;
    test.saved = scratch + 4 * FLOATS;
    for (size_t i = 0; i < sizeof tests / sizeof tests[0] && status == STATUS_OK; i++) {
        test.worst = 0;
        tests[i].run(&test);
        if (!(test.worst <= TOLERANCE))
            status = error_set(err, STATUS_CORRUPT,
                               "the device %s computes %s wrongly (off by %g): it must not train",
                               backend->name, tests[i].name, test.worst);
    }
    backend->release(backend, scratch);
    return status;
}
