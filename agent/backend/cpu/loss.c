/* Softmax cross-entropy. Training thread, tasks on the pool. Surprising: the softmax is kept from
 * the forward pass, so the gradient costs one pass and no exp. */
#include "agent/backend/cpu/cpu.h"

#define GRAIN_ELEMENTS 8192

struct loss_job {
    struct cpu_backend *cpu;
    const struct loss_shape *shape;
    const float *logits;
    const int32_t *target;
    float *saved;
    const float *saved_before;
    struct gradient dlogits;
    struct range rows;
    double sums[2 * BACKEND_THREADS_MAX];
    uint64_t hits[2 * BACKEND_THREADS_MAX];
};

static void forward_task(void *context, size_t task, uint32_t worker)
{
    (void)worker;
    struct loss_job *job = context;
    const struct cpu_kernels *kernels = job->cpu->kernels;
    size_t classes = job->shape->classes, end = range_begin(&job->rows, task + 1);
    double sum = 0;
    uint64_t hits = 0;
    for (size_t row = range_begin(&job->rows, task); row < end; row++) {
        const float *logits = job->logits + row * classes;
        size_t target = (size_t)job->target[row];
        float log_sum = kernels->softmax(classes, logits, 1.0f, job->saved + row * classes);
        sum += (double)log_sum - (double)logits[target];
        hits += kernels->largest(classes, logits) == target;
    }
    job->sums[task] = sum;
    job->hits[task] = hits;
}

void cpu_cross_entropy_forward(struct backend *backend, const struct loss_shape *shape,
                               const float *logits, const int32_t *target, float *saved,
                               double *ret_sum, uint64_t *ret_hits)
{
    struct cpu_backend *cpu = cpu_of(backend);
    struct loss_job job = {
        .cpu = cpu,
        .shape = shape,
        .logits = logits,
        .target = target,
        .saved = saved,
        .rows = cpu_range(cpu, shape->rows, GRAIN_ELEMENTS / (shape->classes + 1) + 1, 1)};
    pool_run(cpu->base.pool, job.rows.tasks, forward_task, &job);
    *ret_sum = 0;
    *ret_hits = 0;
    for (size_t i = 0; i < job.rows.tasks; i++) {
        *ret_sum += job.sums[i];
        *ret_hits += job.hits[i];
    }
}

static void backward_task(void *context, size_t task, uint32_t worker)
{
    (void)worker;
    const struct loss_job *job = context;
    size_t classes = job->shape->classes, end = range_begin(&job->rows, task + 1);
    float share = 1.0f / (float)job->shape->rows;
    for (size_t row = range_begin(&job->rows, task); row < end; row++) {
        const float *p = job->saved_before + row * classes;
        float *d = job->dlogits.data + row * classes;
        if (job->dlogits.accumulate) {
            for (size_t i = 0; i < classes; i++)
                d[i] += p[i] * share;
        } else {
            for (size_t i = 0; i < classes; i++)
                d[i] = p[i] * share;
        }
        d[job->target[row]] -= share;
    }
}

void cpu_cross_entropy_backward(struct backend *backend, const struct loss_shape *shape,
                                const int32_t *target, const float *saved, struct gradient dlogits)
{
    struct cpu_backend *cpu = cpu_of(backend);
    if (!dlogits.data)
        return;
    struct loss_job job = {
        .cpu = cpu,
        .shape = shape,
        .target = target,
        .saved_before = saved,
        .dlogits = dlogits,
        .rows = cpu_range(cpu, shape->rows, GRAIN_ELEMENTS / (shape->classes + 1) + 1, 1)};
    pool_run(cpu->base.pool, job.rows.tasks, backward_task, &job);
}
