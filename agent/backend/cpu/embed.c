/* Token and position embedding. Training thread, tasks on the pool. Surprising: the gradient is cut
 * by columns: rows of the table are hit in any order, columns never collide. */
#include "agent/backend/cpu/cpu.h"

#define GRAIN_ELEMENTS 16384

struct embed_job {
    struct cpu_backend *cpu;
    const struct embed_shape *shape;
    const int32_t *tokens;
    const float *table, *positions, *dy;
    float *y;
    struct gradient dtable, dpositions;
    struct range range; /* forward: rows; backward: columns */
};

static void forward_task(void *context, size_t task, uint32_t worker)
{
    (void)worker;
    const struct embed_job *job = context;
    size_t width = job->shape->width, end = range_begin(&job->range, task + 1);
    for (size_t row = range_begin(&job->range, task); row < end; row++)
        job->cpu->kernels->add(width, job->table + (size_t)job->tokens[row] * width,
                               job->positions + row % job->shape->context * width,
                               job->y + row * width);
}

void cpu_embed_forward(struct backend *backend, const struct embed_shape *shape,
                       const int32_t *tokens, const float *table, const float *positions, float *y)
{
    struct cpu_backend *cpu = cpu_of(backend);
    struct embed_job job = {
        .cpu = cpu,
        .shape = shape,
        .tokens = tokens,
        .table = table,
        .positions = positions,
        .y = y,
        .range = cpu_range(cpu, shape->rows, GRAIN_ELEMENTS / (shape->width + 1) + 1, 1)};
    pool_run(cpu->base.pool, job.range.tasks, forward_task, &job);
}

static void backward_task(void *context, size_t task, uint32_t worker)
{
    (void)worker;
    const struct embed_job *job = context;
    const struct cpu_kernels *kernels = job->cpu->kernels;
    size_t width = job->shape->width, begin = range_begin(&job->range, task);
    size_t count = range_begin(&job->range, task + 1) - begin;
    for (size_t row = 0; row < job->shape->rows; row++) {
        const float *dy = job->dy + row * width + begin;
        if (job->dtable.data)
            kernels->add_to(count, dy, job->dtable.data + (size_t)job->tokens[row] * width + begin);
        if (job->dpositions.data)
            kernels->add_to(count, dy,
                            job->dpositions.data + row % job->shape->context * width + begin);
    }
}

void cpu_embed_backward(struct backend *backend, const struct embed_shape *shape,
                        const int32_t *tokens, const float *dy, struct gradient dtable,
                        struct gradient dpositions)
{
    struct cpu_backend *cpu = cpu_of(backend);
    cpu_gradient_clear(&dtable, shape->vocabulary * shape->width);
    cpu_gradient_clear(&dpositions, shape->context * shape->width);
    struct embed_job job = {
        .cpu = cpu,
        .shape = shape,
        .tokens = tokens,
        .dy = dy,
        .dtable = dtable,
        .dpositions = dpositions,
        .range = cpu_range(cpu, shape->width, GRAIN_ELEMENTS / (shape->rows + 1) + 16, 16)};
    pool_run(cpu->base.pool, job.range.tasks, backward_task, &job);
}
