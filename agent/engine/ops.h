/* One node of a graph as calls to the backend: forward and backward of every operator in ops.def.
 * Training thread. */
#ifndef RAVEN_AGENT_ENGINE_OPS_H
#define RAVEN_AGENT_ENGINE_OPS_H

#include "agent/backend/backend.h"
#include "common/graph/graph.h"

/* A node with its memory. rows = samples × rows per sample. */
struct op_call {
    struct backend *backend;
    const struct graph *graph;
    const struct graph_node *node;
    size_t samples, rows;
    const void *inputs[GRAPH_NODE_INPUTS_MAX]; /* float, or int32_t: tokens and targets */
    float *output;
    void *saved; /* from forward to backward, op_saved_floats long */

    const float *output_gradient; /* backward only; NULL for the loss */
    struct gradient gradients[GRAPH_NODE_INPUTS_MAX];

    double loss_sum; /* set by the loss's forward */
    uint64_t hits;
};

void op_forward(struct op_call *call);
void op_backward(struct op_call *call);
/* What a node keeps for its backward pass besides inputs and output, in floats. */
uint64_t op_saved_floats(const struct graph *graph, const struct graph_node *node,
                         uint64_t samples);
const char *op_name(enum graph_op op);

#endif
