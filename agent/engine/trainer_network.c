/* Trains a network: ties data, executor and optimiser of one job. Training thread. Surprising:
 * evaluation runs in the same memory as training, between two steps; the last batch may be smaller.
 */
#include "agent/engine/data.h"
#include "agent/engine/executor.h"
#include "agent/engine/optimizer.h"
#include "agent/engine/trainer_methods.h"

#include <math.h>
#include <stdlib.h>

struct network {
    struct trainer trainer; /* first: a trainer is its network */
    uint32_t batch, rows_per_sample;
    struct data *data;
    struct executor *executor;
    struct optimizer *optimizer;
};

static struct network *network_of(struct trainer *trainer)
{
    return (struct network *)trainer;
}

static void network_free(struct trainer *trainer)
{
    struct network *network = network_of(trainer);
    optimizer_free(network->optimizer);
    executor_free(network->executor);
    data_close(network->data);
    free(network);
}

static void network_begin_lease(struct trainer *trainer, uint64_t block_first, uint64_t block_count,
                                uint64_t seed)
{
    data_begin_lease(network_of(trainer)->data, block_first, block_count, seed);
}

static enum status network_step(struct trainer *trainer, float *x, double learning_rate,
                                double *ret_loss, struct error *err)
{
    struct network *network = network_of(trainer);
    struct executor *executor = network->executor;
    data_next(network->data, network->batch, executor_input(executor), executor_target(executor));
    double sum;
    uint64_t hits;
    executor_forward(executor, x, network->batch, &sum, &hits);
    if (!isfinite(sum))
        return error_set(err, STATUS_NOT_FINITE,
                         "the training loss is not finite; use a smaller learning_rate");
    const float *gradient = executor_backward(executor, x);
    trainer_begin_write(trainer);
    enum status status = optimizer_step(network->optimizer, x, gradient, learning_rate, err);
    trainer_end_write(trainer);
    if (status)
        return status;
    *ret_loss = sum / ((double)network->batch * network->rows_per_sample);
    return STATUS_OK;
}

static enum status network_evaluate(struct trainer *trainer, const float *w, uint64_t samples,
                                    const atomic_bool *cancel, double *ret_loss,
                                    double *ret_accuracy, uint64_t *ret_samples, struct error *err)
{
    struct network *network = network_of(trainer);
    struct executor *executor = network->executor;
    uint64_t of = network->data->plan.held_out_samples;
    if (samples < of)
        of = samples;
    if (of == 0)
        return error_set(err, STATUS_INVALID, "evaluating on 0 samples; use at least 1");
    double sum = 0;
    uint64_t hits = 0;
    for (uint64_t first = 0; first < of; first += network->batch) {
        if (cancel && atomic_load(cancel))
            return error_set(err, STATUS_CLOSED, "the evaluation was cancelled");
        uint32_t count = of - first < network->batch ? (uint32_t)(of - first) : network->batch;
        data_held_out(network->data, first, count, of, executor_input(executor),
                      executor_target(executor));
        double batch_sum;
        uint64_t batch_hits;
        executor_forward(executor, w, count, &batch_sum, &batch_hits);
        sum += batch_sum;
        hits += batch_hits;
    }
    if (!isfinite(sum))
        return error_set(err, STATUS_NOT_FINITE, "the held-out loss is not finite");
    double rows = (double)of * network->rows_per_sample;
    *ret_loss = sum / rows;
    *ret_accuracy = (double)hits / rows;
    *ret_samples = of;
    return STATUS_OK;
}

static void network_reset_optimizer(struct trainer *trainer)
{
    optimizer_reset(network_of(trainer)->optimizer);
}

static const struct trainer_methods network_methods = {
    .free = network_free,
    .begin_lease = network_begin_lease,
    .step = network_step,
    .evaluate = network_evaluate,
    .reset_optimizer = network_reset_optimizer,
};

enum status trainer_create_network(const struct job_spec *spec, const struct graph *graph,
                                   const struct trainer_data_paths *data, struct backend *backend,
                                   struct trainer **ret, struct error *err)
{
    struct network *network = calloc(1, sizeof *network);
    if (!network)
        return error_set(err, STATUS_NO_MEMORY, "preparing to train: out of memory");
    network->trainer.methods = &network_methods;
    network->batch = spec->training.batch_size;
    network->rows_per_sample = graph->rows_per_sample;
    enum status status = data_open(spec, data, &network->data, err);
    if (!status)
        status = executor_create(graph, backend, network->batch, &network->executor, err);
    if (!status)
        status = optimizer_create(spec, graph, backend, &network->optimizer, err);
    if (status)
        network_free(&network->trainer);
    else
        *ret = &network->trainer;
    return status;
}
