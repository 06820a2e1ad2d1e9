/* Picks the kind of trainer that a job's model needs and hands every call to it. Training thread.
 * Surprising: a kind belongs to the model's preset, not to the data; the settings' checks see to it
 * that the two go together. */
#include "agent/engine/trainer_methods.h"

enum status trainer_create(const struct job_spec *spec, const struct graph *graph,
                           const struct trainer_data_paths *data, struct backend *backend,
                           struct trainer **ret, struct error *err)
{
    if (spec->model.preset == MODEL_SYNTHETIC)
        return trainer_create_synthetic(spec, graph, ret, err);
    return trainer_create_network(spec, graph, data, backend, ret, err);
}

void trainer_free(struct trainer *trainer)
{
    if (trainer)
        trainer->methods->free(trainer);
}

void trainer_begin_lease(struct trainer *trainer, uint64_t block_first, uint64_t block_count,
                         uint64_t seed)
{
    trainer->methods->begin_lease(trainer, block_first, block_count, seed);
}

enum status trainer_step(struct trainer *trainer, float *x, double learning_rate, double *ret_loss,
                         struct error *err)
{
    return trainer->methods->step(trainer, x, learning_rate, ret_loss, err);
}

enum status trainer_evaluate(struct trainer *trainer, const float *w, uint64_t samples,
                             const atomic_bool *cancel, double *ret_loss, double *ret_accuracy,
                             uint64_t *ret_samples, struct error *err)
{
    return trainer->methods->evaluate(trainer, w, samples, cancel, ret_loss, ret_accuracy,
                                      ret_samples, err);
}

void trainer_reset_optimizer(struct trainer *trainer)
{
    trainer->methods->reset_optimizer(trainer);
}

void trainer_set_gate(struct trainer *trainer, const struct trainer_gate *gate)
{
    trainer->gate = gate ? *gate : (struct trainer_gate){0};
}
