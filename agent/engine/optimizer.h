/* AdamW over the flat parameters, with clipping by the gradient's global norm. Training thread. */
#ifndef RAVEN_AGENT_ENGINE_OPTIMIZER_H
#define RAVEN_AGENT_ENGINE_OPTIMIZER_H

#include "agent/backend/backend.h"
#include "common/graph/graph.h"

struct optimizer;

/* graph and backend must outlive it; spec's settings are copied. */
enum status optimizer_create(const struct job_spec *spec, const struct graph *graph,
                             struct backend *backend, struct optimizer **ret,
                             struct error *err) MUST_CHECK;
void optimizer_free(struct optimizer *optimizer);
void optimizer_reset(struct optimizer *optimizer);

/* One step on x[n]. STATUS_NOT_FINITE when the gradient's norm is not finite: nothing changed. */
enum status optimizer_step(struct optimizer *optimizer, float *x, const float *gradient,
                           double learning_rate, struct error *err) MUST_CHECK;

#endif
