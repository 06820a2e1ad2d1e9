/* The synthetic trainer, for trying links with large models on small machines: each step moves one
 * slice of the parameters towards a hidden optimum, with noise, and then sleeps until step_ms have
 * passed since it began. Training thread.
 *
 * Surprising: a slice is not a contiguous part of the model, but one block of QUADRATIC_BLOCK out
 * of every SLICES, so that even a short lease changes every tensor and every chunk of the codec
 * alike, as a network's does. */
#include "agent/engine/quadratic.h"
#include "agent/engine/trainer_methods.h"
#include "common/base/rng.h"
#include "common/graph/data_plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#define SLICES 64u
#define CACHE_LINE_BYTES 64u
#define PREFETCH_GROUPS 8u
#define RATE_MAX 0.5f /* of the distance in one visit; beyond 1 it would not converge */

struct synthetic {
    struct trainer trainer; /* first: a trainer is its synthetic one */
    struct quadratic problem;
    struct rng draws;                      /* of the lease: which noise each step gets */
    uint64_t parameters, blocks, held_out; /* held_out: samples at most in one evaluation */
    uint32_t slices; /* 1 for models too small to have a block in each slice */
    uint32_t slice;  /* of the next step */
    int64_t step_ns;
};

static struct synthetic *synthetic_of(struct trainer *trainer)
{
    return (struct synthetic *)trainer;
}

static void synthetic_free(struct trainer *trainer)
{
    free(synthetic_of(trainer));
}

static void synthetic_begin_lease(struct trainer *trainer, uint64_t block_first,
                                  uint64_t block_count, uint64_t seed)
{
    struct synthetic *synthetic = synthetic_of(trainer);
    (void)block_first; /* there is no data: the seed alone tells leases apart */
    (void)block_count;
    rng_seed(&synthetic->draws, seed);
    synthetic->slice = (uint32_t)(seed % synthetic->slices);
}

/* --- a step ----------------------------------------------------------------------------------- */

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void sleep_until(int64_t deadline_ns)
{
    struct timespec deadline = {.tv_sec = deadline_ns / 1000000000,
                                .tv_nsec = deadline_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) == EINTR)
        continue;
}

static uint32_t block_length(const struct synthetic *synthetic, uint64_t block)
{
    uint64_t left = synthetic->parameters - block * QUADRATIC_BLOCK;
    return left < QUADRATIC_BLOCK ? (uint32_t)left : QUADRATIC_BLOCK;
}

/* The slice's block within the group-th SLICES blocks; it turns from group to group, because equal
 * distances of a power of two would all fall into the same few lines of the cache. May be ≥ blocks
 * in the last group. */
static uint64_t block_of(const struct synthetic *synthetic, uint64_t group)
{
    return group * synthetic->slices + (group + synthetic->slice) % synthetic->slices;
}

/* Every group lies on pages of its own, which the processor does not foresee. An address, not a
 * pointer: beyond the last group it lies outside of x. */
static void prefetch(const struct synthetic *synthetic, const float *x, uint64_t group)
{
    uintptr_t at = (uintptr_t)x + block_of(synthetic, group) * QUADRATIC_BLOCK * sizeof *x;
    for (uint32_t i = 0; i < QUADRATIC_BLOCK * sizeof *x; i += CACHE_LINE_BYTES)
        __builtin_prefetch((const void *)(at + i), 1);
}

static bool is_sane(const struct synthetic *synthetic, const float *x)
{
    bool sane = true;
    for (uint64_t group = 0; sane && group * synthetic->slices < synthetic->blocks; group++) {
        uint64_t block = block_of(synthetic, group);
        prefetch(synthetic, x, group + PREFETCH_GROUPS);
        if (block < synthetic->blocks)
            sane = quadratic_is_sane(x + block * QUADRATIC_BLOCK, block_length(synthetic, block));
    }
    return sane;
}

static enum status synthetic_step(struct trainer *trainer, float *x, double learning_rate,
                                  double *ret_loss, struct error *err)
{
    struct synthetic *synthetic = synthetic_of(trainer);
    int64_t deadline_ns = now_ns() + synthetic->step_ns;
    if (!isfinite(learning_rate) || !is_sane(synthetic, x))
        return error_set(err, STATUS_NOT_FINITE,
                         "the training loss is not finite; use a smaller learning_rate");
    /* A visit makes up for the steps in which the slice was not visited. */
    float rate = fminf((float)learning_rate * (float)synthetic->slices, RATE_MAX);
    uint64_t draw = rng_u64(&synthetic->draws);
    struct quadratic_sums sums = {0};
    trainer_begin_write(trainer);
    for (uint64_t group = 0; group * synthetic->slices < synthetic->blocks; group++) {
        uint64_t block = block_of(synthetic, group);
        prefetch(synthetic, x, group + PREFETCH_GROUPS);
        if (block < synthetic->blocks)
            quadratic_step(&synthetic->problem, block, draw, rate, x + block * QUADRATIC_BLOCK,
                           block_length(synthetic, block), &sums);
    }
    trainer_end_write(trainer);
    synthetic->slice = (synthetic->slice + 1) % synthetic->slices;
    *ret_loss = sums.distance2 / (double)sums.parameters;
    sleep_until(deadline_ns);
    return STATUS_OK;
}

/* --- evaluation ------------------------------------------------------------------------------- */

/* A held-out sample is a block, drawn with the job's seed. */
static enum status synthetic_evaluate(struct trainer *trainer, const float *w, uint64_t samples,
                                      const atomic_bool *cancel, double *ret_loss,
                                      double *ret_accuracy, uint64_t *ret_samples,
                                      struct error *err)
{
    const struct synthetic *synthetic = synthetic_of(trainer);
    uint64_t of = samples < synthetic->held_out ? samples : synthetic->held_out;
    if (of == 0)
        return error_set(err, STATUS_INVALID, "evaluating on 0 samples; use at least 1");
    struct rng rng;
    rng_seed(&rng, synthetic->problem.seed);
    struct quadratic_sums sums = {0};
    for (uint64_t i = 0; i < of; i++) {
        if (cancel && atomic_load(cancel))
            return error_set(err, STATUS_CLOSED, "the evaluation was cancelled");
        uint64_t block = rng_below(&rng, synthetic->blocks);
        quadratic_measure(&synthetic->problem, block, w + block * QUADRATIC_BLOCK,
                          block_length(synthetic, block), &sums);
    }
    if (!isfinite(sums.distance2))
        return error_set(err, STATUS_NOT_FINITE, "the held-out loss is not finite");
    *ret_loss = sums.distance2 / (double)sums.parameters;
    *ret_accuracy = (double)sums.hits / (double)sums.parameters;
    *ret_samples = of;
    return STATUS_OK;
}

/* Plain descent has no state. */
static void synthetic_reset_optimizer(struct trainer *trainer)
{
    (void)trainer;
}

static const struct trainer_methods synthetic_methods = {
    .free = synthetic_free,
    .begin_lease = synthetic_begin_lease,
    .step = synthetic_step,
    .evaluate = synthetic_evaluate,
    .reset_optimizer = synthetic_reset_optimizer,
};

enum status trainer_create_synthetic(const struct job_spec *spec, const struct graph *graph,
                                     struct trainer **ret, struct error *err)
{
    struct data_plan plan;
    enum status status = data_plan_make(spec, 0, 0, 0, &plan, err);
    if (status)
        return status;
    struct synthetic *synthetic = calloc(1, sizeof *synthetic);
    if (!synthetic)
        return error_set(err, STATUS_NO_MEMORY, "preparing to train: out of memory");
    synthetic->trainer.methods = &synthetic_methods;
    synthetic->parameters = graph->parameter_count;
    synthetic->blocks = (graph->parameter_count + QUADRATIC_BLOCK - 1) / QUADRATIC_BLOCK;
    synthetic->slices = synthetic->blocks < SLICES ? 1 : SLICES;
    synthetic->step_ns = (int64_t)(spec->model.step_ms * 1e6);
    synthetic->held_out = plan.held_out_samples;
    quadratic_init(&synthetic->problem, spec->training.seed,
                   graph_parameter(graph, 0)->init_deviation);
    synthetic_begin_lease(&synthetic->trainer, 0, 0, spec->training.seed);
    *ret = &synthetic->trainer;
    return STATUS_OK;
}
