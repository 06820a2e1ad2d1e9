/* What every kind of trainer does, and how each is made. Private to agent/engine. The contracts are
 * those of trainer.h. */
#ifndef RAVEN_AGENT_ENGINE_TRAINER_METHODS_H
#define RAVEN_AGENT_ENGINE_TRAINER_METHODS_H

#include "agent/engine/trainer.h"

struct trainer_methods {
    void (*free)(struct trainer *trainer);
    void (*begin_lease)(struct trainer *trainer, uint64_t block_first, uint64_t block_count,
                        uint64_t seed);
    enum status (*step)(struct trainer *trainer, float *x, double learning_rate, double *ret_loss,
                        struct error *err);
    enum status (*evaluate)(struct trainer *trainer, const float *w, uint64_t samples,
                            const atomic_bool *cancel, double *ret_loss, double *ret_accuracy,
                            uint64_t *ret_samples, struct error *err);
    void (*reset_optimizer)(struct trainer *trainer);
};

/* The first member of every kind. */
struct trainer {
    const struct trainer_methods *methods;
    struct trainer_gate gate; /* functions NULL: none */
};

static inline void trainer_begin_write(const struct trainer *trainer)
{
    if (trainer->gate.begin_write)
        trainer->gate.begin_write(trainer->gate.user);
}

static inline void trainer_end_write(const struct trainer *trainer)
{
    if (trainer->gate.end_write)
        trainer->gate.end_write(trainer->gate.user);
}

enum status trainer_create_network(const struct job_spec *spec, const struct graph *graph,
                                   const struct trainer_data_paths *data, struct backend *backend,
                                   struct trainer **ret, struct error *err) MUST_CHECK;
/* Needs neither data nor backend. */
enum status trainer_create_synthetic(const struct job_spec *spec, const struct graph *graph,
                                     struct trainer **ret, struct error *err) MUST_CHECK;

#endif
