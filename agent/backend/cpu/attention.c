/* Causal attention, one task per sample and head. Training thread, tasks on the pool. Surprising:
 * the probabilities are not kept for the backward pass (samples × heads × context² floats) but made
 * again from the saved log-sums, a block of rows at a time; keys after the block are never touched.
 */
#include "agent/backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define BLOCK_ROWS_MAX 48

struct attention_job {
    struct cpu_backend *cpu;
    const struct attention_shape *shape;
    const float *qkv, *dy;
    float *y, *saved;
    const float *saved_before;
    struct gradient dqkv;
};

/* One head of one sample. */
struct head {
    size_t context, size, stride;  /* of q, k and v: 3 × width */
    size_t qkv_at, y_at, saved_at; /* where its first row is */
    size_t block_rows;
    float scale;
};

static struct head head_of(const struct attention_shape *shape, size_t task)
{
    size_t sample = task / shape->heads, index = task % shape->heads;
    size_t size = shape->width / shape->heads;
    return (struct head){
        .context = shape->context,
        .size = size,
        .stride = 3 * shape->width,
        .qkv_at = sample * shape->context * 3 * shape->width + index * size,
        .y_at = sample * shape->context * shape->width + index * size,
        .saved_at = task * shape->context,
        .block_rows = shape->context > 128 ? BLOCK_ROWS_MAX : BLOCK_ROWS_MAX / 2,
        .scale = 1.0f / sqrtf((float)size),
    };
}

static void forward_task(void *context, size_t task, uint32_t worker)
{
    const struct attention_job *job = context;
    const struct cpu_kernels *kernels = job->cpu->kernels;
    struct head head = head_of(job->shape, task);
    float *scores = job->cpu->scratch[worker], *scratch = job->cpu->gemm_scratch[worker];
    size_t width = job->shape->width;
    const float *q = job->qkv + head.qkv_at, *k = q + width, *v = k + width;
    for (size_t begin = 0; begin < head.context; begin += head.block_rows) {
        size_t rows =
            head.context - begin < head.block_rows ? head.context - begin : head.block_rows;
        size_t keys = begin + rows;
        gemm_run(kernels,
                 &(struct gemm){.m = rows,
                                .n = keys,
                                .k = head.size,
                                .a = matrix_rows(q + begin * head.stride, head.stride),
                                .b = matrix_transposed(k, head.stride),
                                .c = scores,
                                .c_row = keys},
                 scratch);
        for (size_t i = 0; i < rows; i++) {
            float *row = scores + i * keys;
            size_t visible = begin + i + 1;
            job->saved[head.saved_at + begin + i] = kernels->softmax(visible, row, head.scale, row);
            memset(row + visible, 0, (keys - visible) * sizeof *row);
        }
        gemm_run(kernels,
                 &(struct gemm){.m = rows,
                                .n = head.size,
                                .k = keys,
                                .a = matrix_rows(scores, keys),
                                .b = matrix_rows(v, head.stride),
                                .c = job->y + head.y_at + begin * width,
                                .c_row = width},
                 scratch);
    }
}

void cpu_attention_forward(struct backend *backend, const struct attention_shape *shape,
                           const float *qkv, float *y, float *saved)
{
    struct cpu_backend *cpu = cpu_of(backend);
    struct attention_job job = {.cpu = cpu, .shape = shape, .qkv = qkv, .y = y, .saved = saved};
    pool_run(cpu->base.pool, shape->samples * shape->heads, forward_task, &job);
}

/* p: probabilities of the block again; ds: gradient of the scores before softmax. */
static void block_gradient(const struct attention_job *job, const struct head *head, size_t begin,
                           size_t rows, float *p, float *ds, float *scratch)
{
    const struct cpu_kernels *kernels = job->cpu->kernels;
    size_t width = job->shape->width, keys = begin + rows;
    const float *q = job->qkv + head->qkv_at, *k = q + width, *v = k + width;
    gemm_run(kernels,
             &(struct gemm){.m = rows,
                            .n = keys,
                            .k = head->size,
                            .a = matrix_rows(q + begin * head->stride, head->stride),
                            .b = matrix_transposed(k, head->stride),
                            .c = p,
                            .c_row = keys},
             scratch);
    gemm_run(kernels,
             &(struct gemm){.m = rows,
                            .n = keys,
                            .k = head->size,
                            .a = matrix_rows(job->dy + head->y_at + begin * width, width),
                            .b = matrix_transposed(v, head->stride),
                            .c = ds,
                            .c_row = keys},
             scratch);
    for (size_t i = 0; i < rows; i++) {
        size_t visible = begin + i + 1;
        float *p_row = p + i * keys, *ds_row = ds + i * keys;
        float log_sum = job->saved_before[head->saved_at + begin + i];
        kernels->exp_shifted(visible, p_row, head->scale, log_sum, p_row);
        kernels->softmax_gradient(visible, p_row, head->scale, ds_row);
        memset(p_row + visible, 0, (keys - visible) * sizeof *p_row);
        memset(ds_row + visible, 0, (keys - visible) * sizeof *ds_row);
    }
}

/* Spreads one block's p and ds to q, k and v. The last block comes first: it reaches every key, so
 * it may overwrite, and the others add. */
static void block_outputs(const struct attention_job *job, const struct head *head, size_t begin,
                          size_t rows, const float *p, const float *ds, float *scratch)
{
    const struct cpu_kernels *kernels = job->cpu->kernels;
    size_t width = job->shape->width, keys = begin + rows;
    const float *q = job->qkv + head->qkv_at, *k = q + width;
    float *dq = job->dqkv.data + head->qkv_at, *dk = dq + width, *dv = dk + width;
    bool add = job->dqkv.accumulate || keys < head->context;
    gemm_run(kernels,
             &(struct gemm){.m = rows,
                            .n = head->size,
                            .k = keys,
                            .a = matrix_rows(ds, keys),
                            .b = matrix_rows(k, head->stride),
                            .c = dq + begin * head->stride,
                            .c_row = head->stride,
                            .accumulate = job->dqkv.accumulate},
             scratch);
    gemm_run(kernels,
             &(struct gemm){.m = keys,
                            .n = head->size,
                            .k = rows,
                            .a = matrix_transposed(ds, keys),
                            .b = matrix_rows(q + begin * head->stride, head->stride),
                            .c = dk,
                            .c_row = head->stride,
                            .accumulate = add},
             scratch);
    gemm_run(kernels,
             &(struct gemm){.m = keys,
                            .n = head->size,
                            .k = rows,
                            .a = matrix_transposed(p, keys),
                            .b = matrix_rows(job->dy + head->y_at + begin * width, width),
                            .c = dv,
                            .c_row = head->stride,
                            .accumulate = add},
             scratch);
}

static void backward_task(void *context, size_t task, uint32_t worker)
{
    const struct attention_job *job = context;
    struct head head = head_of(job->shape, task);
    float *p = job->cpu->scratch[worker], *scratch = job->cpu->gemm_scratch[worker];
    float *ds = p + head.block_rows * head.context;
    size_t blocks = (head.context + head.block_rows - 1) / head.block_rows;
    for (size_t block = blocks; block-- > 0;) {
        size_t begin = block * head.block_rows;
        size_t rows =
            head.context - begin < head.block_rows ? head.context - begin : head.block_rows;
        block_gradient(job, &head, begin, rows, p, ds, scratch);
        block_outputs(job, &head, begin, rows, p, ds, scratch);
    }
}

void cpu_attention_backward(struct backend *backend, const struct attention_shape *shape,
                            const float *qkv, const float *dy, const float *saved,
                            struct gradient dqkv)
{
    struct cpu_backend *cpu = cpu_of(backend);
    if (!dqkv.data)
        return;
    struct attention_job job = {
        .cpu = cpu, .shape = shape, .qkv = qkv, .dy = dy, .saved_before = saved, .dqkv = dqkv};
    pool_run(cpu->base.pool, shape->samples * shape->heads, backward_task, &job);
}
