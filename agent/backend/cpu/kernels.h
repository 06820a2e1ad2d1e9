/* The innermost loops of the CPU backend, once per instruction set: kernels_body.h is compiled by
 * kernels_avx2.c (AVX2 and FMA) and kernels_portable.c (whatever the compiler's base is); which
 * table is used is decided when the backend is created. Plain functions on one thread's data. */
#ifndef RAVEN_AGENT_BACKEND_CPU_KERNELS_H
#define RAVEN_AGENT_BACKEND_CPU_KERNELS_H

#include "agent/backend/backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TILE_ROWS 6
#define TILE_COLUMNS 16

struct adamw_constants {
    float gradient_scale, beta1, beta2, one_minus_beta1, one_minus_beta2;
    float m_correction, v_correction; /* 1 / (1 - betaᵗ) */
    float learning_rate, weight_decay;
};

struct cpu_kernels {
    const char *name;

    /* c[6][16] (rows c_stride apart) = a · b, plus c when accumulate, plus bias[16] when not NULL.
     * a(i, k) at a[i × a_row + k × a_k]; b is a packed panel [k][16]. */
    void (*gemm_tile)(size_t k, const float *a, size_t a_row, size_t a_k, const float *b, float *c,
                      size_t c_stride, bool accumulate, const float *bias);
    /* ret[k][6] or ret[k][16] = source(i, k) at source[i × stride_i + k × stride_k] for i < count,
     * zero for the rest of the panel. */
    void (*pack_rows)(size_t count, size_t k, const float *source, size_t stride_i, size_t stride_k,
                      float *ret);
    void (*pack_columns)(size_t count, size_t k, const float *source, size_t stride_i,
                         size_t stride_k, float *ret);

    /* For all that follow: dx = (accumulate ? dx : 0) + … */
    void (*gelu)(size_t count, const float *x, float *y);
    void (*gelu_gradient)(size_t count, const float *x, const float *dy, float *dx,
                          bool accumulate);
    void (*relu)(size_t count, const float *x, float *y);
    void (*relu_gradient)(size_t count, const float *x, const float *dy, float *dx,
                          bool accumulate);
    void (*add)(size_t count, const float *a, const float *b, float *y);
    /* y += x */
    void (*add_to)(size_t count, const float *x, float *y);
    float (*sum)(size_t count, const float *x);

    void (*layernorm_row)(size_t width, const float *x, const float *gain, const float *bias,
                          float *y, float saved[2]);
    /* dgain and dbias (both or none) are added to; dx may be NULL. */
    void (*layernorm_row_gradient)(size_t width, const float *x, const float *gain, const float *dy,
                                   const float saved[2], float *dx, bool accumulate, float *dgain,
                                   float *dbias);

    /* y = softmax(scale × x); returns log of the sum of exp(scale × x). x and y may be the same. */
    float (*softmax)(size_t count, const float *x, float scale, float *y);
    /* y = exp(scale × x - shift), elementwise. */
    void (*exp_shifted)(size_t count, const float *x, float scale, float shift, float *y);
    /* d = scale × p × (d - Σ p d): the gradient of a softmax, in place. */
    void (*softmax_gradient)(size_t count, const float *p, float scale, float *d);
    size_t (*largest)(size_t count, const float *x); /* index; the first of equals */

    double (*sum_squares)(size_t count, const float *x);
    void (*adamw)(size_t count, const struct adamw_constants *constants, float *x,
                  const float *gradient, float *m, float *v);
};

/* The best table for this machine. */
const struct cpu_kernels *cpu_kernels_best(void);
const struct cpu_kernels *cpu_kernels_portable(void);
#if defined(__x86_64__)
const struct cpu_kernels *cpu_kernels_avx2(void); /* only where the processor has it */
#endif

#endif
