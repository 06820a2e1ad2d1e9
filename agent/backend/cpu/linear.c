/* Fully connected layer. Training thread, tasks on the pool. Surprising: every product is cut along
 * the rows of its result, never along the sum, so no task adds into another's memory. */
#include "agent/backend/cpu/cpu.h"

#include <string.h>

#define GRAIN_MULTIPLY_ADDS 65536 /* below it, waking a thread costs more than it saves */

struct product_job {
    struct cpu_backend *cpu;
    struct gemm whole;
    struct range rows;
};

static void product_task(void *context, size_t task, uint32_t worker)
{
    const struct product_job *job = context;
    size_t begin = range_begin(&job->rows, task), end = range_begin(&job->rows, task + 1);
    struct gemm part = job->whole;
    part.m = end - begin;
    part.a.data += begin * part.a.row;
    part.c += begin * part.c_row;
    if (part.m > 0)
        gemm_run(job->cpu->kernels, &part, job->cpu->gemm_scratch[worker]);
}

static void run_product(struct cpu_backend *cpu, const struct gemm *call)
{
    size_t per_row = call->n * call->k;
    struct product_job job = {
        .cpu = cpu,
        .whole = *call,
        .rows =
            cpu_range(cpu, call->m, GRAIN_MULTIPLY_ADDS / (per_row + 1) + TILE_ROWS, TILE_ROWS)};
    pool_run(cpu->base.pool, job.rows.tasks, product_task, &job);
}

void cpu_linear_forward(struct backend *backend, const struct linear_shape *shape, const float *x,
                        const float *weight, const float *bias, float *y)
{
    run_product(cpu_of(backend), &(struct gemm){
                                     .m = shape->rows,
                                     .n = shape->out,
                                     .k = shape->in,
                                     .a = matrix_rows(x, shape->in),
                                     .b = matrix_transposed(weight, shape->in),
                                     .c = y,
                                     .c_row = shape->out,
                                     .bias = bias,
                                 });
}

struct bias_job {
    struct cpu_backend *cpu;
    const struct linear_shape *shape;
    const float *dy;
    float *dbias;
    struct range columns;
};

static void bias_task(void *context, size_t task, uint32_t worker)
{
    (void)worker;
    const struct bias_job *job = context;
    size_t begin = range_begin(&job->columns, task), end = range_begin(&job->columns, task + 1);
    for (size_t row = 0; row < job->shape->rows; row++)
        job->cpu->kernels->add_to(end - begin, job->dy + row * job->shape->out + begin,
                                  job->dbias + begin);
}

static void bias_gradient(struct cpu_backend *cpu, const struct linear_shape *shape,
                          const float *dy, struct gradient dbias)
{
    cpu_gradient_clear(&dbias, shape->out);
    size_t grain = GRAIN_MULTIPLY_ADDS / (shape->rows + 1) + 16;
    struct bias_job job = {cpu, shape, dy, dbias.data, cpu_range(cpu, shape->out, grain, 16)};
    pool_run(cpu->base.pool, job.columns.tasks, bias_task, &job);
}

void cpu_linear_backward(struct backend *backend, const struct linear_shape *shape, const float *x,
                         const float *weight, const float *dy, struct gradient dx,
                         struct gradient dweight, struct gradient dbias)
{
    struct cpu_backend *cpu = cpu_of(backend);
    if (dx.data)
        run_product(cpu, &(struct gemm){
                             .m = shape->rows,
                             .n = shape->in,
                             .k = shape->out,
                             .a = matrix_rows(dy, shape->out),
                             .b = matrix_rows(weight, shape->in),
                             .c = dx.data,
                             .c_row = shape->in,
                             .accumulate = dx.accumulate,
                         });
    if (dweight.data)
        run_product(cpu, &(struct gemm){
                             .m = shape->out,
                             .n = shape->in,
                             .k = shape->rows,
                             .a = matrix_transposed(dy, shape->out),
                             .b = matrix_rows(x, shape->in),
                             .c = dweight.data,
                             .c_row = shape->in,
                             .accumulate = dweight.accumulate,
                         });
    if (dbias.data)
        bias_gradient(cpu, shape, dy, dbias);
}
