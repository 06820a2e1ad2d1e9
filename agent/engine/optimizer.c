/* AdamW. Training thread. Surprising: decay applies only to tensors marked so (matrices), therefore
 * the flat parameters are updated in runs of neighbours that decay alike. */
#include "agent/engine/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLIP_EPSILON 1e-6

struct run {
    uint64_t offset, count;
    bool decays;
};

struct optimizer {
    struct backend *backend;
    uint64_t n, step;
    double beta1, beta2, weight_decay, clip;
    float *m, *v;
    struct run *runs;
    uint32_t run_count;
};

static void find_runs(struct optimizer *optimizer, const struct graph *graph)
{
    for (uint32_t i = 0; i < graph_parameter_tensors(graph); i++) {
        const struct graph_tensor *tensor = graph_parameter(graph, i);
        struct run *last = &optimizer->runs[optimizer->run_count];
        if (optimizer->run_count > 0 && last[-1].decays == tensor->decays) {
            last[-1].count += tensor->count;
            continue;
        }
        *last = (struct run){tensor->offset, tensor->count, tensor->decays};
        optimizer->run_count++;
    }
}

enum status optimizer_create(const struct job_spec *spec, const struct graph *graph,
                             struct backend *backend, struct optimizer **ret, struct error *err)
{
    struct optimizer *optimizer = calloc(1, sizeof *optimizer);
    if (!optimizer)
        return error_set(err, STATUS_NO_MEMORY, "making the optimiser: out of memory");
    uint64_t n = graph->parameter_count;
    optimizer->backend = backend;
    optimizer->n = n;
    optimizer->beta1 = spec->training.adam_beta1;
    optimizer->beta2 = spec->training.adam_beta2;
    optimizer->weight_decay = spec->training.weight_decay;
    optimizer->clip = spec->training.gradient_clip;
    optimizer->m = backend->allocate(backend, n * sizeof(float));
    optimizer->v = backend->allocate(backend, n * sizeof(float));
    optimizer->runs = calloc(graph_parameter_tensors(graph) + 1, sizeof *optimizer->runs);
    if (!optimizer->m || !optimizer->v || !optimizer->runs) {
        optimizer_free(optimizer);
        return error_set(err, STATUS_NO_MEMORY,
                         "the optimiser's state for %llu parameters needs %llu MiB, more than "
                         "there is",
                         (unsigned long long)n, (unsigned long long)(n >> 17));
    }
    find_runs(optimizer, graph);
    *ret = optimizer;
    return STATUS_OK;
}

void optimizer_free(struct optimizer *optimizer)
{
    if (!optimizer)
        return;
    optimizer->backend->release(optimizer->backend, optimizer->m);
    optimizer->backend->release(optimizer->backend, optimizer->v);
    free(optimizer->runs);
    free(optimizer);
}

void optimizer_reset(struct optimizer *optimizer)
{
    memset(optimizer->m, 0, optimizer->n * sizeof(float));
    memset(optimizer->v, 0, optimizer->n * sizeof(float));
    optimizer->step = 0;
}

enum status optimizer_step(struct optimizer *optimizer, float *x, const float *gradient,
                           double learning_rate, struct error *err)
{
    struct backend *backend = optimizer->backend;
    double norm = sqrt(backend->sum_squares(backend, optimizer->n, gradient));
    if (!isfinite(norm))
        return error_set(err, STATUS_NOT_FINITE,
                         "the gradient's norm is not finite; use a smaller learning_rate");
    struct adamw settings = {.learning_rate = learning_rate,
                             .beta1 = optimizer->beta1,
                             .beta2 = optimizer->beta2,
                             .gradient_scale = 1,
                             .step = ++optimizer->step};
    if (optimizer->clip > 0)
        settings.gradient_scale = fmin(1, optimizer->clip / (norm + CLIP_EPSILON));
    for (uint32_t i = 0; i < optimizer->run_count; i++) {
        const struct run *run = &optimizer->runs[i];
        settings.weight_decay = run->decays ? optimizer->weight_decay : 0;
        backend->adamw(backend, &settings, run->count, x + run->offset, gradient + run->offset,
                       optimizer->m + run->offset, optimizer->v + run->offset);
    }
    return STATUS_OK;
}
