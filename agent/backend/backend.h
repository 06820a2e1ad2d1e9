/* What a device must be able to do to train a graph: one table of functions. The CPU's is in
 * agent/backend/cpu; a GPU adds another table and nothing else changes.
 *
 * All tensors are dense fp32, row-major, in the backend's memory (allocate); parameters and their
 * gradients may lie at any multiple of 4 bytes. Sizes are trusted: the engine checked them against
 * the graph, tokens against the vocabulary and targets against the classes. Functions block until
 * the result is in memory, allocate nothing, and do not fail: non-finite numbers flow through and
 * the engine looks at loss and norm. Not thread-safe: one training thread calls a backend, which
 * may use more threads inside. */
#ifndef RAVEN_AGENT_BACKEND_BACKEND_H
#define RAVEN_AGENT_BACKEND_BACKEND_H

#include "common/base/pool.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BACKEND_THREADS_MAX 64u

/* Where a gradient goes. data NULL: not wanted. accumulate: add to what is there, else overwrite.
 */
struct gradient {
    float *data;
    bool accumulate;
};

struct linear_shape {
    size_t rows, in, out;
};

struct norm_shape {
    size_t rows, width;
};

struct embed_shape {
    size_t rows, width, context, vocabulary;
};

/* rows = samples × context; q, k, v of a row lie side by side, 3 × width floats. */
struct attention_shape {
    size_t samples, context, width, heads;
};

struct image_shape {
    size_t samples, channels_in, channels_out, height, width; /* pooling: channels_in only */
};

struct loss_shape {
    size_t rows, classes;
};

struct adamw {
    double learning_rate, beta1, beta2, weight_decay;
    double gradient_scale; /* clipping */
    uint64_t step;         /* from 1, for the bias correction */
};

struct backend {
    char name[32]; /* for people: "cpu avx2" */
    uint32_t threads;
    struct pool *pool; /* its threads; the training thread may use them between calls */

    void (*free)(struct backend *backend);
    /* Zeroed memory, aligned to 64 bytes; NULL when there is none. */
    void *(*allocate)(struct backend *backend, size_t bytes);
    void (*release)(struct backend *backend, void *memory);

    /* y = x · weightᵀ + bias */
    void (*linear_forward)(struct backend *backend, const struct linear_shape *shape,
                           const float *x, const float *weight, const float *bias, float *y);
    void (*linear_backward)(struct backend *backend, const struct linear_shape *shape,
                            const float *x, const float *weight, const float *dy,
                            struct gradient dx, struct gradient dweight, struct gradient dbias);
    /* y = gain (x - mean) / sqrt(variance + 1e-5) + bias; saved[2 × rows]: mean, 1 / deviation */
    void (*layernorm_forward)(struct backend *backend, const struct norm_shape *shape,
                              const float *x, const float *gain, const float *bias, float *y,
                              float *saved);
    void (*layernorm_backward)(struct backend *backend, const struct norm_shape *shape,
                               const float *x, const float *gain, const float *dy,
                               const float *saved, struct gradient dx, struct gradient dgain,
                               struct gradient dbias);
    /* y[r] = table[tokens[r]] + positions[r mod context] */
    void (*embed_forward)(struct backend *backend, const struct embed_shape *shape,
                          const int32_t *tokens, const float *table, const float *positions,
                          float *y);
    void (*embed_backward)(struct backend *backend, const struct embed_shape *shape,
                           const int32_t *tokens, const float *dy, struct gradient dtable,
                           struct gradient dpositions);
    /* Causal softmax attention; saved[samples × heads × context]: log of each row's sum */
    void (*attention_forward)(struct backend *backend, const struct attention_shape *shape,
                              const float *qkv, float *y, float *saved);
    void (*attention_backward)(struct backend *backend, const struct attention_shape *shape,
                               const float *qkv, const float *dy, const float *saved,
                               struct gradient dqkv);
    void (*gelu_forward)(struct backend *backend, size_t count, const float *x, float *y);
    void (*gelu_backward)(struct backend *backend, size_t count, const float *x, const float *dy,
                          struct gradient dx);
    void (*relu_forward)(struct backend *backend, size_t count, const float *x, float *y);
    void (*relu_backward)(struct backend *backend, size_t count, const float *x, const float *dy,
                          struct gradient dx);
    void (*add_forward)(struct backend *backend, size_t count, const float *a, const float *b,
                        float *y);
    /* dx = dy: an addition passes its gradient on */
    void (*add_backward)(struct backend *backend, size_t count, const float *dy,
                         struct gradient dx);
    /* 3 × 3, zero padding 1, weight [out][in][3][3], images [channel][row][column] */
    void (*conv3x3_forward)(struct backend *backend, const struct image_shape *shape,
                            const float *x, const float *weight, const float *bias, float *y);
    void (*conv3x3_backward)(struct backend *backend, const struct image_shape *shape,
                             const float *x, const float *weight, const float *dy,
                             struct gradient dx, struct gradient dweight, struct gradient dbias);
    /* saved: one byte per output, which of the four inputs won */
    void (*maxpool2_forward)(struct backend *backend, const struct image_shape *shape,
                             const float *x, float *y, uint8_t *saved);
    void (*maxpool2_backward)(struct backend *backend, const struct image_shape *shape,
                              const float *dy, const uint8_t *saved, struct gradient dx);
    /* Sum over rows of -log softmax(logits)[target]; hits: rows whose largest logit is the target.
     * saved[rows × classes]: the softmax */
    void (*cross_entropy_forward)(struct backend *backend, const struct loss_shape *shape,
                                  const float *logits, const int32_t *target, float *saved,
                                  double *ret_sum, uint64_t *ret_hits);
    /* dlogits = (softmax - onehot(target)) / rows: the gradient of the mean */
    void (*cross_entropy_backward)(struct backend *backend, const struct loss_shape *shape,
                                   const int32_t *target, const float *saved,
                                   struct gradient dlogits);

    double (*sum_squares)(struct backend *backend, size_t count, const float *x);
    /* With g' = gradient_scale × g: m, v as usual, x -= learning_rate × (m̂ / (sqrt(v̂) + 1e-8) +
     * weight_decay × x) */
    void (*adamw)(struct backend *backend, const struct adamw *settings, size_t count, float *x,
                  const float *gradient, float *m, float *v);
};

/* threads 0: one. STATUS_INVALID over BACKEND_THREADS_MAX. */
enum status backend_create_cpu(uint32_t threads, struct backend **ret,
                               struct error *err) MUST_CHECK;
void backend_free(struct backend *backend); /* NULL is fine */

/* Runs every operator once on fixed inputs and compares with stored answers, in a few ms: a device
 * that computes wrongly must not train. STATUS_CORRUPT names the operator. */
enum status backend_selftest(struct backend *backend, struct error *err) MUST_CHECK;

#endif
