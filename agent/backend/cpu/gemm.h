/* c = a · b (+ c) (+ bias) for fp32 matrices of any strides, on the calling thread. */
#ifndef RAVEN_AGENT_BACKEND_CPU_GEMM_H
#define RAVEN_AGENT_BACKEND_CPU_GEMM_H

#include "agent/backend/cpu/kernels.h"

/* A matrix read through strides, in elements: (i, j) at data[i × row + j × column]. */
struct matrix {
    const float *data;
    size_t row, column;
};

struct gemm {
    size_t m, n, k;
    struct matrix a, b; /* m × k, k × n */
    float *c;           /* m × n, columns adjacent */
    size_t c_row;
    bool accumulate;
    const float *bias; /* [n], added to every row; NULL: none */
};

/* Scratch of one call, in floats: one packed block of b and one panel block of a. */
#define GEMM_K_BLOCK 256
#define GEMM_M_BLOCK 96
#define GEMM_N_BLOCK 512
#define GEMM_SCRATCH_FLOATS (GEMM_K_BLOCK * (GEMM_N_BLOCK + GEMM_M_BLOCK))

/* scratch: GEMM_SCRATCH_FLOATS floats, aligned to 64 bytes. k 0 gives c = bias. */
void gemm_run(const struct cpu_kernels *kernels, const struct gemm *call, float *scratch);

static inline struct matrix matrix_rows(const float *data, size_t row)
{
    return (struct matrix){data, row, 1};
}

static inline struct matrix matrix_transposed(const float *data, size_t row)
{
    return (struct matrix){data, 1, row};
}

#endif
