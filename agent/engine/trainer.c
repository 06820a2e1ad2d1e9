/* The trainer ties data, executor and optimiser of one job. Training thread. Surprising: evaluation
 * runs in the same memory as training, between two steps; the last batch may be smaller. */
#include "agent/engine/trainer.h"

#include "agent/engine/data.h"
#include "agent/engine/executor.h"
#include "agent/engine/optimizer.h"

#include <math.h>
#include <stdlib.h>

struct trainer {
    uint32_t batch, rows_per_sample;
    struct data *data;
    struct executor *executor;
    struct optimizer *optimizer;
};

enum status trainer_create(const struct job_spec *spec, const struct graph *graph,
                           const struct trainer_data_paths *data, struct backend *backend,
                           struct trainer **ret, struct error *err)
{
    struct trainer *trainer = calloc(1, sizeof *trainer);
    if (!trainer)
        return error_set(err, STATUS_NO_MEMORY, "preparing to train: out of memory");
    trainer->batch = spec->training.batch_size;
    trainer->rows_per_sample = graph->rows_per_sample;
    enum status status = data_open(spec, data, &trainer->data, err);
    if (!status)
        status = executor_create(graph, backend, trainer->batch, &trainer->executor, err);
    if (!status)
        status = optimizer_create(spec, graph, backend, &trainer->optimizer, err);
    if (status)
        trainer_free(trainer);
    else
        *ret = trainer;
    return status;
}

void trainer_free(struct trainer *trainer)
{
    if (!trainer)
        return;
    optimizer_free(trainer->optimizer);
    executor_free(trainer->executor);
    data_close(trainer->data);
    free(trainer);
}

void trainer_begin_lease(struct trainer *trainer, uint64_t block_first, uint64_t block_count,
                         uint64_t seed)
{
    data_begin_lease(trainer->data, block_first, block_count, seed);
}

enum status trainer_step(struct trainer *trainer, float *x, double learning_rate, double *ret_loss,
                         struct error *err)
{
    struct executor *executor = trainer->executor;
    data_next(trainer->data, trainer->batch, executor_input(executor), executor_target(executor));
    double sum;
    uint64_t hits;
    executor_forward(executor, x, trainer->batch, &sum, &hits);
    if (!isfinite(sum))
        return error_set(err, STATUS_NOT_FINITE,
                         "the training loss is not finite; use a smaller learning_rate");
    const float *gradient = executor_backward(executor, x);
    enum status status = optimizer_step(trainer->optimizer, x, gradient, learning_rate, err);
    if (status)
        return status;
    *ret_loss = sum / ((double)trainer->batch * trainer->rows_per_sample);
    return STATUS_OK;
}

enum status trainer_evaluate(struct trainer *trainer, const float *w, uint64_t samples,
                             const atomic_bool *cancel, double *ret_loss, double *ret_accuracy,
                             uint64_t *ret_samples, struct error *err)
{
    struct executor *executor = trainer->executor;
    uint64_t of = trainer->data->plan.held_out_samples;
    if (samples < of)
        of = samples;
    if (of == 0)
        return error_set(err, STATUS_INVALID, "evaluating on 0 samples; use at least 1");
    double sum = 0;
    uint64_t hits = 0;
    for (uint64_t first = 0; first < of; first += trainer->batch) {
        if (cancel && atomic_load(cancel))
            return error_set(err, STATUS_CLOSED, "the evaluation was cancelled");
        uint32_t count = of - first < trainer->batch ? (uint32_t)(of - first) : trainer->batch;
        data_held_out(trainer->data, first, count, of, executor_input(executor),
                      executor_target(executor));
        double batch_sum;
        uint64_t batch_hits;
        executor_forward(executor, w, count, &batch_sum, &batch_hits);
        sum += batch_sum;
        hits += batch_hits;
    }
    if (!isfinite(sum))
        return error_set(err, STATUS_NOT_FINITE, "the held-out loss is not finite");
    double rows = (double)of * trainer->rows_per_sample;
    *ret_loss = sum / rows;
    *ret_accuracy = (double)hits / rows;
    *ret_samples = of;
    return STATUS_OK;
}

void trainer_reset_optimizer(struct trainer *trainer)
{
    optimizer_reset(trainer->optimizer);
}
