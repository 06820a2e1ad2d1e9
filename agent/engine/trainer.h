/* Trains one job's model on this machine: data, forward, backward, gradient clip, AdamW. Owns the
 * optimiser's state, which lives across leases. Not thread-safe: one training thread calls it.
 *
 * A job of the synthetic preset trains nothing real: data and backend are not looked at (may be
 * NULL), a step takes the job's step_ms of wall time, and losses are mean squared distances to a
 * hidden optimum, in units of the initial values' variance (about 2 at first). */
#ifndef RAVEN_AGENT_ENGINE_TRAINER_H
#define RAVEN_AGENT_ENGINE_TRAINER_H

#include "agent/backend/backend.h"
#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/graph/job_spec.h"

#include <stdatomic.h>
#include <stdint.h>

/* Local paths of the job's artifacts (verified by the caller), in the order of data_spec: text:
 * {train}; images: {images, labels, held_out_images, held_out_labels}. */
struct trainer_data_paths {
    const char *paths[4];
};

struct trainer;

/* Copies spec; graph and backend must outlive the trainer. err names what does not fit (a label
 * outside the classes, an image size that the model does not take, …). */
enum status trainer_create(const struct job_spec *spec, const struct graph *graph,
                           const struct trainer_data_paths *data, struct backend *backend,
                           struct trainer **ret, struct error *err) MUST_CHECK;
void trainer_free(struct trainer *trainer);

/* Points the data pipeline at the lease's blocks (positions, see graph/data_plan.h). */
void trainer_begin_lease(struct trainer *trainer, uint64_t block_first, uint64_t block_count,
                         uint64_t seed);

/* One optimiser step on x[n] with the next batch. *ret_loss: mean of the batch, nats per row.
 * STATUS_NOT_FINITE when loss or gradient is not finite: x and the optimiser are then untouched. */
enum status trainer_step(struct trainer *trainer, float *x, double learning_rate, double *ret_loss,
                         struct error *err) MUST_CHECK;

/* Mean loss (nats per row) and top-1 accuracy (0 … 1) of w[n] on up to `samples` held-out samples,
 * always the same ones for the same count. Stops early with STATUS_CLOSED when *cancel is set. */
enum status trainer_evaluate(struct trainer *trainer, const float *w, uint64_t samples,
                             const atomic_bool *cancel, double *ret_loss, double *ret_accuracy,
                             uint64_t *ret_samples, struct error *err) MUST_CHECK;

/* Called around each moment in which trainer_step writes x, so that somebody else may read it in
 * between; NULL: nobody does. */
struct trainer_gate {
    void (*begin_write)(void *user);
    void (*end_write)(void *user);
    void *user;
};
void trainer_set_gate(struct trainer *trainer, const struct trainer_gate *gate);

/* Zeroes the optimiser's state (a new job starts with it zeroed). */
void trainer_reset_optimizer(struct trainer *trainer);

#endif
