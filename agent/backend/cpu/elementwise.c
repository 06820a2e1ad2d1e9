/* GELU, ReLU, addition, the sum of squares and AdamW: work that is one pass over arrays. Training
 * thread, tasks on the pool. */
#include "agent/backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define GRAIN 16384
#define MULTIPLE 64

enum pass { PASS_GELU, PASS_GELU_GRADIENT, PASS_RELU, PASS_RELU_GRADIENT, PASS_ADD, PASS_COPY };

struct pass_job {
    struct cpu_backend *cpu;
    enum pass pass;
    const float *a, *b;
    float *ret;
    bool accumulate;
    struct range range;
};

static void pass_task(void *context, size_t task, uint32_t worker)
{
    (void)worker;
    const struct pass_job *job = context;
    const struct cpu_kernels *kernels = job->cpu->kernels;
    size_t begin = range_begin(&job->range, task);
    size_t count = range_begin(&job->range, task + 1) - begin;
    const float *a = job->a + begin, *b = job->b ? job->b + begin : NULL;
    float *ret = job->ret + begin;
    switch (job->pass) {
    case PASS_GELU:
        kernels->gelu(count, a, ret);
        break;
    case PASS_GELU_GRADIENT:
        kernels->gelu_gradient(count, a, b, ret, job->accumulate);
        break;
    case PASS_RELU:
        kernels->relu(count, a, ret);
        break;
    case PASS_RELU_GRADIENT:
        kernels->relu_gradient(count, a, b, ret, job->accumulate);
        break;
    case PASS_ADD:
        kernels->add(count, a, b, ret);
        break;
    case PASS_COPY:
        if (job->accumulate)
            kernels->add_to(count, a, ret);
        else
            memcpy(ret, a, count * sizeof *ret);
        break;
    }
}

static void run_pass(struct backend *backend, enum pass pass, size_t count, const float *a,
                     const float *b, float *ret, bool accumulate)
{
    struct cpu_backend *cpu = cpu_of(backend);
    struct pass_job job = {
        cpu, pass, a, b, ret, accumulate, cpu_range(cpu, count, GRAIN, MULTIPLE)};
    pool_run(cpu->base.pool, job.range.tasks, pass_task, &job);
}

void cpu_gelu_forward(struct backend *backend, size_t count, const float *x, float *y)
{
    run_pass(backend, PASS_GELU, count, x, NULL, y, false);
}

void cpu_gelu_backward(struct backend *backend, size_t count, const float *x, const float *dy,
                       struct gradient dx)
{
    if (dx.data)
        run_pass(backend, PASS_GELU_GRADIENT, count, x, dy, dx.data, dx.accumulate);
}

void cpu_relu_forward(struct backend *backend, size_t count, const float *x, float *y)
{
    run_pass(backend, PASS_RELU, count, x, NULL, y, false);
}

void cpu_relu_backward(struct backend *backend, size_t count, const float *x, const float *dy,
                       struct gradient dx)
{
    if (dx.data)
        run_pass(backend, PASS_RELU_GRADIENT, count, x, dy, dx.data, dx.accumulate);
}

void cpu_add_forward(struct backend *backend, size_t count, const float *a, const float *b,
                     float *y)
{
    run_pass(backend, PASS_ADD, count, a, b, y, false);
}

void cpu_add_backward(struct backend *backend, size_t count, const float *dy, struct gradient dx)
{
    if (dx.data)
        run_pass(backend, PASS_COPY, count, dy, NULL, dx.data, dx.accumulate);
}

struct squares_job {
    struct cpu_backend *cpu;
    const float *x;
    struct range range;
    double sums[2 * BACKEND_THREADS_MAX];
};

static void squares_task(void *context, size_t task, uint32_t worker)
{
    (void)worker;
    struct squares_job *job = context;
    size_t begin = range_begin(&job->range, task), end = range_begin(&job->range, task + 1);
    job->sums[task] = job->cpu->kernels->sum_squares(end - begin, job->x + begin);
}

double cpu_sum_squares(struct backend *backend, size_t count, const float *x)
{
    struct cpu_backend *cpu = cpu_of(backend);
    struct squares_job job = {.cpu = cpu, .x = x, .range = cpu_range(cpu, count, GRAIN, 1024)};
    pool_run(cpu->base.pool, job.range.tasks, squares_task, &job);
    double sum = 0;
    for (size_t i = 0; i < job.range.tasks; i++)
        sum += job.sums[i];
    return sum;
}

struct adamw_job {
    struct cpu_backend *cpu;
    struct adamw_constants constants;
    float *x, *m, *v;
    const float *gradient;
    struct range range;
};

static void adamw_task(void *context, size_t task, uint32_t worker)
{
    (void)worker;
    const struct adamw_job *job = context;
    size_t begin = range_begin(&job->range, task), end = range_begin(&job->range, task + 1);
    job->cpu->kernels->adamw(end - begin, &job->constants, job->x + begin, job->gradient + begin,
                             job->m + begin, job->v + begin);
}

void cpu_adamw(struct backend *backend, const struct adamw *settings, size_t count, float *x,
               const float *gradient, float *m, float *v)
{
    struct cpu_backend *cpu = cpu_of(backend);
    double t = (double)settings->step;
    struct adamw_job job = {
        .cpu = cpu,
        .constants = {.gradient_scale = (float)settings->gradient_scale,
                      .beta1 = (float)settings->beta1,
                      .beta2 = (float)settings->beta2,
                      .one_minus_beta1 = (float)(1 - settings->beta1),
                      .one_minus_beta2 = (float)(1 - settings->beta2),
                      .m_correction = (float)(1 / (1 - pow(settings->beta1, t))),
                      .v_correction = (float)(1 / (1 - pow(settings->beta2, t))),
                      .learning_rate = (float)settings->learning_rate,
                      .weight_decay = (float)settings->weight_decay},
        .x = x,
        .m = m,
        .v = v,
        .gradient = gradient,
        .range = cpu_range(cpu, count, GRAIN, MULTIPLE)};
    pool_run(cpu->base.pool, job.range.tasks, adamw_task, &job);
}
