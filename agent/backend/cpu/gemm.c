/* Blocked matrix product around the 6 × 16 tile of kernels.h. Any thread, one scratch each.
 * Surprising: a is packed only when its columns are not adjacent (or at the ragged last rows): the
 * tile broadcasts single elements of a, so rows can be read where they are. */
#include "agent/backend/cpu/gemm.h"

#include <string.h>

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* One block: rows [i0, i0 + m) of c, columns [j0, j0 + n), inner [k0, k0 + k). */
struct block {
    size_t i0, m, j0, n, k0, k;
    const float *packed_b;
    float *packed_a;
};

/* A tile that sticks out of c: computed aside, then only what exists is copied. */
static void ragged_tile(const struct cpu_kernels *kernels, const struct gemm *call, size_t k,
                        const float *a, size_t a_row, size_t a_k, const float *b, size_t i,
                        size_t j, size_t rows, size_t columns, bool accumulate, bool with_bias)
{
    float tile[TILE_ROWS * TILE_COLUMNS] __attribute__((aligned(64)));
    kernels->gemm_tile(k, a, a_row, a_k, b, tile, TILE_COLUMNS, false, NULL);
    for (size_t y = 0; y < rows; y++) {
        float *c = call->c + (i + y) * call->c_row + j;
        for (size_t x = 0; x < columns; x++) {
            float start = accumulate ? c[x] : 0.0f;
            c[x] = start + tile[y * TILE_COLUMNS + x] + (with_bias ? call->bias[j + x] : 0.0f);
        }
    }
}

/* Where the tile's rows of a are: in place, or packed [k][6] by pack_a. */
static struct matrix rows_of_a(const struct gemm *call, const struct block *block, size_t i)
{
    bool in_place = call->a.column == 1 && i + TILE_ROWS <= block->m;
    if (in_place)
        return matrix_rows(call->a.data + (block->i0 + i) * call->a.row + block->k0, call->a.row);
    return matrix_transposed(block->packed_a + i * block->k, TILE_ROWS);
}

static void pack_a(const struct cpu_kernels *kernels, const struct gemm *call,
                   const struct block *block)
{
    for (size_t i = 0; i < block->m; i += TILE_ROWS) {
        if (call->a.column == 1 && i + TILE_ROWS <= block->m)
            continue;
        const float *source =
            call->a.data + (block->i0 + i) * call->a.row + block->k0 * call->a.column;
        kernels->pack_rows(min_of(TILE_ROWS, block->m - i), block->k, source, call->a.row,
                           call->a.column, block->packed_a + i * block->k);
    }
}

static void run_block(const struct cpu_kernels *kernels, const struct gemm *call,
                      const struct block *block)
{
    bool first = block->k0 == 0;
    bool accumulate = call->accumulate || !first;
    bool with_bias = call->bias && first;
    for (size_t j = 0; j < block->n; j += TILE_COLUMNS) {
        size_t columns = min_of(TILE_COLUMNS, block->n - j), column = block->j0 + j;
        const float *b = block->packed_b + j * block->k;
        for (size_t i = 0; i < block->m; i += TILE_ROWS) {
            size_t rows = min_of(TILE_ROWS, block->m - i), row = block->i0 + i;
            struct matrix a = rows_of_a(call, block, i);
            if (rows == TILE_ROWS && columns == TILE_COLUMNS)
                kernels->gemm_tile(block->k, a.data, a.row, a.column, b,
                                   call->c + row * call->c_row + column, call->c_row, accumulate,
                                   with_bias ? call->bias + column : NULL);
            else
                ragged_tile(kernels, call, block->k, a.data, a.row, a.column, b, row, column, rows,
                            columns, accumulate, with_bias);
        }
    }
}

static void pack_b(const struct cpu_kernels *kernels, const struct gemm *call,
                   const struct block *block, float *packed)
{
    for (size_t j = 0; j < block->n; j += TILE_COLUMNS) {
        const float *source =
            call->b.data + block->k0 * call->b.row + (block->j0 + j) * call->b.column;
        kernels->pack_columns(min_of(TILE_COLUMNS, block->n - j), block->k, source, call->b.column,
                              call->b.row, packed + j * block->k);
    }
}

static void only_bias(const struct gemm *call)
{
    for (size_t i = 0; i < call->m; i++) {
        float *c = call->c + i * call->c_row;
        for (size_t j = 0; j < call->n; j++)
            c[j] = (call->accumulate ? c[j] : 0.0f) + (call->bias ? call->bias[j] : 0.0f);
    }
}

void gemm_run(const struct cpu_kernels *kernels, const struct gemm *call, float *scratch)
{
    if (call->k == 0) {
        only_bias(call);
        return;
    }
    float *packed_b = scratch, *packed_a = scratch + GEMM_K_BLOCK * GEMM_N_BLOCK;
    struct block block = {.packed_b = packed_b, .packed_a = packed_a};
    for (block.j0 = 0; block.j0 < call->n; block.j0 += GEMM_N_BLOCK) {
        block.n = min_of(GEMM_N_BLOCK, call->n - block.j0);
        for (block.k0 = 0; block.k0 < call->k; block.k0 += GEMM_K_BLOCK) {
            block.k = min_of(GEMM_K_BLOCK, call->k - block.k0);
            pack_b(kernels, call, &block, packed_b);
            for (block.i0 = 0; block.i0 < call->m; block.i0 += GEMM_M_BLOCK) {
                block.m = min_of(GEMM_M_BLOCK, call->m - block.i0);
                pack_a(kernels, call, &block);
                run_block(kernels, call, &block);
            }
        }
    }
}
