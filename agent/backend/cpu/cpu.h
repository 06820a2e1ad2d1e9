/* The CPU backend: its table of functions is made here, its operators lie one per file. Private to
 * agent/backend; others use backend.h. */
#ifndef RAVEN_AGENT_BACKEND_CPU_CPU_H
#define RAVEN_AGENT_BACKEND_CPU_CPU_H

#include "agent/backend/backend.h"
#include "agent/backend/cpu/gemm.h"
#include "agent/backend/cpu/kernels.h"

/* Working memory of one thread for one operator, besides gemm's: two score blocks of attention
 * (2 × 48 × context 4096), or one column block of a convolution (9 × 2048 channels × 16). */
#define CPU_SCRATCH_FLOATS (512u * 1024)

struct cpu_backend {
    struct backend base; /* first: the two pointers are the same */
    const struct cpu_kernels *kernels;
    /* [threads]: each thread's own; pages are touched only when used. */
    float *gemm_scratch[BACKEND_THREADS_MAX];
    float *scratch[BACKEND_THREADS_MAX];
};

/* kernels: cpu_kernels_best(), or another table in tests. */
enum status cpu_backend_create(uint32_t threads, const struct cpu_kernels *kernels,
                               struct backend **ret, struct error *err) MUST_CHECK;

/* How to cut `count` into tasks: at least grain each, about twice as many as threads. The i-th is
 * [range_begin, range_begin of i + 1). */
struct range {
    size_t count, tasks, multiple;
};
struct range cpu_range(const struct cpu_backend *cpu, size_t count, size_t grain, size_t multiple);
size_t range_begin(const struct range *range, size_t task);

/* memset(0) unless the gradient accumulates. */
void cpu_gradient_clear(const struct gradient *gradient, size_t count);

/* One file each. */
void cpu_linear_forward(struct backend *backend, const struct linear_shape *shape, const float *x,
                        const float *weight, const float *bias, float *y);
void cpu_linear_backward(struct backend *backend, const struct linear_shape *shape, const float *x,
                         const float *weight, const float *dy, struct gradient dx,
                         struct gradient dweight, struct gradient dbias);
void cpu_layernorm_forward(struct backend *backend, const struct norm_shape *shape, const float *x,
                           const float *gain, const float *bias, float *y, float *saved);
void cpu_layernorm_backward(struct backend *backend, const struct norm_shape *shape, const float *x,
                            const float *gain, const float *dy, const float *saved,
                            struct gradient dx, struct gradient dgain, struct gradient dbias);
void cpu_embed_forward(struct backend *backend, const struct embed_shape *shape,
                       const int32_t *tokens, const float *table, const float *positions, float *y);
void cpu_embed_backward(struct backend *backend, const struct embed_shape *shape,
                        const int32_t *tokens, const float *dy, struct gradient dtable,
                        struct gradient dpositions);
void cpu_attention_forward(struct backend *backend, const struct attention_shape *shape,
                           const float *qkv, float *y, float *saved);
void cpu_attention_backward(struct backend *backend, const struct attention_shape *shape,
                            const float *qkv, const float *dy, const float *saved,
                            struct gradient dqkv);
void cpu_gelu_forward(struct backend *backend, size_t count, const float *x, float *y);
void cpu_gelu_backward(struct backend *backend, size_t count, const float *x, const float *dy,
                       struct gradient dx);
void cpu_relu_forward(struct backend *backend, size_t count, const float *x, float *y);
void cpu_relu_backward(struct backend *backend, size_t count, const float *x, const float *dy,
                       struct gradient dx);
void cpu_add_forward(struct backend *backend, size_t count, const float *a, const float *b,
                     float *y);
void cpu_add_backward(struct backend *backend, size_t count, const float *dy, struct gradient dx);
void cpu_conv3x3_forward(struct backend *backend, const struct image_shape *shape, const float *x,
                         const float *weight, const float *bias, float *y);
void cpu_conv3x3_backward(struct backend *backend, const struct image_shape *shape, const float *x,
                          const float *weight, const float *dy, struct gradient dx,
                          struct gradient dweight, struct gradient dbias);
void cpu_maxpool2_forward(struct backend *backend, const struct image_shape *shape, const float *x,
                          float *y, uint8_t *saved);
void cpu_maxpool2_backward(struct backend *backend, const struct image_shape *shape,
                           const float *dy, const uint8_t *saved, struct gradient dx);
void cpu_cross_entropy_forward(struct backend *backend, const struct loss_shape *shape,
                               const float *logits, const int32_t *target, float *saved,
                               double *ret_sum, uint64_t *ret_hits);
void cpu_cross_entropy_backward(struct backend *backend, const struct loss_shape *shape,
                                const int32_t *target, const float *saved, struct gradient dlogits);
double cpu_sum_squares(struct backend *backend, size_t count, const float *x);
void cpu_adamw(struct backend *backend, const struct adamw *settings, size_t count, float *x,
               const float *gradient, float *m, float *v);

static inline struct cpu_backend *cpu_of(struct backend *backend)
{
    return (struct cpu_backend *)backend;
}

#endif
