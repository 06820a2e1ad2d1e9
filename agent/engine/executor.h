/* Runs a graph: forward, and backward by walking the nodes in reverse. All memory is planned and
 * allocated at creation; a step allocates nothing. Not thread-safe: the training thread. */
#ifndef RAVEN_AGENT_ENGINE_EXECUTOR_H
#define RAVEN_AGENT_ENGINE_EXECUTOR_H

#include "agent/backend/backend.h"
#include "common/base/status.h"
#include "common/graph/graph.h"

#include <stdint.h>

struct executor;

/* batch: the most samples of one call. graph and backend must outlive it. STATUS_NO_MEMORY says how
 * much a step would need. */
enum status executor_create(const struct graph *graph, struct backend *backend, uint32_t batch,
                            struct executor **ret, struct error *err) MUST_CHECK;
void executor_free(struct executor *executor);

/* To be filled by the caller before forward: int32_t tokens or float images, and a class per row.
 * Values must be below vocabulary and classes. */
void *executor_input(struct executor *executor);
int32_t *executor_target(struct executor *executor);

/* samples ≤ batch of the input. *ret_loss_sum: sum over rows; *ret_hits: rows predicted right. */
void executor_forward(struct executor *executor, const float *parameters, uint32_t samples,
                      double *ret_loss_sum, uint64_t *ret_hits);
/* After a forward with the same parameters. Returns the gradient of the mean loss, [n], valid until
 * the next call. */
const float *executor_backward(struct executor *executor, const float *parameters);

#endif
