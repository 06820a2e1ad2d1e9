/* Layer normalisation. Training thread, tasks on the pool. Surprising: gradients of gain and bias
 * are sums over all rows; each task sums its rows in its own scratch, and the caller adds those up
 * in order, so the result does not depend on which thread was faster. */
#include "agent/backend/cpu/cpu.h"

#include <string.h>

#define GRAIN_ELEMENTS 8192

struct norm_job {
    struct cpu_backend *cpu;
    const struct norm_shape *shape;
    const float *x, *gain, *bias, *dy;
    float *y, *saved;
    const float *saved_before;
    struct gradient dx;
    bool parameters; /* gradients of gain and bias are wanted */
    struct range rows;
};

static void forward_task(void *context, size_t task, uint32_t worker)
{
    (void)worker;
    const struct norm_job *job = context;
    size_t width = job->shape->width, end = range_begin(&job->rows, task + 1);
    for (size_t row = range_begin(&job->rows, task); row < end; row++)
        job->cpu->kernels->layernorm_row(width, job->x + row * width, job->gain, job->bias,
                                         job->y + row * width, job->saved + 2 * row);
}

void cpu_layernorm_forward(struct backend *backend, const struct norm_shape *shape, const float *x,
                           const float *gain, const float *bias, float *y, float *saved)
{
    struct cpu_backend *cpu = cpu_of(backend);
    struct norm_job job = {
        .cpu = cpu,
        .shape = shape,
        .x = x,
        .gain = gain,
        .bias = bias,
        .y = y,
        .saved = saved,
        .rows = cpu_range(cpu, shape->rows, GRAIN_ELEMENTS / (shape->width + 1) + 1, 1)};
    pool_run(cpu->base.pool, job.rows.tasks, forward_task, &job);
}

/* Task i's sums: dgain, then dbias. Two tasks share the scratch of one thread. */
static float *sums_of(const struct norm_job *job, size_t task)
{
    return job->cpu->scratch[task / 2] + task % 2 * (CPU_SCRATCH_FLOATS / 2);
}

static void backward_task(void *context, size_t task, uint32_t worker)
{
    (void)worker;
    const struct norm_job *job = context;
    size_t width = job->shape->width, end = range_begin(&job->rows, task + 1);
    float *sums = job->parameters ? sums_of(job, task) : NULL;
    if (sums)
        memset(sums, 0, 2 * width * sizeof *sums);
    for (size_t row = range_begin(&job->rows, task); row < end; row++) {
        float *dx = job->dx.data ? job->dx.data + row * width : NULL;
        job->cpu->kernels->layernorm_row_gradient(
            width, job->x + row * width, job->gain, job->dy + row * width,
            job->saved_before + 2 * row, dx, job->dx.accumulate, sums, sums ? sums + width : NULL);
    }
}

void cpu_layernorm_backward(struct backend *backend, const struct norm_shape *shape, const float *x,
                            const float *gain, const float *dy, const float *saved,
                            struct gradient dx, struct gradient dgain, struct gradient dbias)
{
    struct cpu_backend *cpu = cpu_of(backend);
    struct norm_job job = {
        .cpu = cpu,
        .shape = shape,
        .x = x,
        .gain = gain,
        .dy = dy,
        .saved_before = saved,
        .dx = dx,
        .parameters = dgain.data || dbias.data,
        .rows = cpu_range(cpu, shape->rows, GRAIN_ELEMENTS / (shape->width + 1) + 1, 1)};
    pool_run(cpu->base.pool, job.rows.tasks, backward_task, &job);
    if (!job.parameters)
        return;
    cpu_gradient_clear(&dgain, shape->width);
    cpu_gradient_clear(&dbias, shape->width);
    for (size_t i = 0; i < job.rows.tasks; i++) {
        if (dgain.data)
            cpu->kernels->add_to(shape->width, sums_of(&job, i), dgain.data);
        if (dbias.data)
            cpu->kernels->add_to(shape->width, sums_of(&job, i) + shape->width, dbias.data);
    }
}
