/* 2 × 2 maximum pooling. Training thread, tasks on the pool, cut by planes (sample and channel).
 * Surprising: of equal values the first wins (upper left first), so that gradients are repeatable.
 */
#include "agent/backend/cpu/cpu.h"

#include <string.h>

#define GRAIN_ELEMENTS 8192

struct pool_job {
    struct cpu_backend *cpu;
    const struct image_shape *shape;
    const float *x, *dy;
    float *y;
    uint8_t *saved;
    const uint8_t *saved_before;
    struct gradient dx;
    struct range planes;
};

static struct range plane_range(const struct cpu_backend *cpu, const struct image_shape *shape)
{
    size_t grain = GRAIN_ELEMENTS / (shape->height * shape->width + 1) + 1;
    return cpu_range(cpu, shape->samples * shape->channels_in, grain, 1);
}

static void forward_plane(const struct image_shape *shape, const float *x, float *y, uint8_t *saved)
{
    size_t rows = shape->height / 2, columns = shape->width / 2;
    for (size_t row = 0; row < rows; row++) {
        const float *upper = x + 2 * row * shape->width, *lower = upper + shape->width;
        for (size_t i = 0; i < columns; i++) {
            float most = upper[2 * i];
            uint8_t which = 0;
            which = upper[2 * i + 1] > most ? 1 : which;
            most = upper[2 * i + 1] > most ? upper[2 * i + 1] : most;
            which = lower[2 * i] > most ? 2 : which;
            most = lower[2 * i] > most ? lower[2 * i] : most;
            which = lower[2 * i + 1] > most ? 3 : which;
            most = lower[2 * i + 1] > most ? lower[2 * i + 1] : most;
            y[row * columns + i] = most;
            saved[row * columns + i] = which;
        }
    }
}

static void forward_task(void *context, size_t task, uint32_t worker)
{
    (void)worker;
    const struct pool_job *job = context;
    const struct image_shape *shape = job->shape;
    size_t in = shape->height * shape->width, out = (shape->height / 2) * (shape->width / 2);
    size_t end = range_begin(&job->planes, task + 1);
    for (size_t plane = range_begin(&job->planes, task); plane < end; plane++)
        forward_plane(shape, job->x + plane * in, job->y + plane * out, job->saved + plane * out);
}

void cpu_maxpool2_forward(struct backend *backend, const struct image_shape *shape, const float *x,
                          float *y, uint8_t *saved)
{
    struct cpu_backend *cpu = cpu_of(backend);
    struct pool_job job = {.cpu = cpu,
                           .shape = shape,
                           .x = x,
                           .y = y,
                           .saved = saved,
                           .planes = plane_range(cpu, shape)};
    pool_run(cpu->base.pool, job.planes.tasks, forward_task, &job);
}

static void backward_plane(const struct image_shape *shape, const float *dy, const uint8_t *saved,
                           float *dx)
{
    size_t rows = shape->height / 2, columns = shape->width / 2;
    for (size_t row = 0; row < rows; row++) {
        float *upper = dx + 2 * row * shape->width;
        for (size_t i = 0; i < columns; i++) {
            size_t which = saved[row * columns + i];
            upper[which / 2 * shape->width + 2 * i + which % 2] += dy[row * columns + i];
        }
    }
}

static void backward_task(void *context, size_t task, uint32_t worker)
{
    (void)worker;
    const struct pool_job *job = context;
    const struct image_shape *shape = job->shape;
    size_t in = shape->height * shape->width, out = (shape->height / 2) * (shape->width / 2);
    size_t begin = range_begin(&job->planes, task), end = range_begin(&job->planes, task + 1);
    struct gradient own = {job->dx.data + begin * in, job->dx.accumulate};
    cpu_gradient_clear(&own, (end - begin) * in);
    for (size_t plane = begin; plane < end; plane++)
        backward_plane(shape, job->dy + plane * out, job->saved_before + plane * out,
                       job->dx.data + plane * in);
}

void cpu_maxpool2_backward(struct backend *backend, const struct image_shape *shape,
                           const float *dy, const uint8_t *saved, struct gradient dx)
{
    struct cpu_backend *cpu = cpu_of(backend);
    if (!dx.data)
        return;
    struct pool_job job = {.cpu = cpu,
                           .shape = shape,
                           .dy = dy,
                           .saved_before = saved,
                           .dx = dx,
                           .planes = plane_range(cpu, shape)};
    pool_run(cpu->base.pool, job.planes.tasks, backward_task, &job);
}
