/* The executor: memory by plan, nodes in order, then in reverse. Training thread. Surprising: the
 * first node (in reverse) to reach a tensor overwrites its gradient and later ones add, decided
 * once at creation, so nothing is ever zeroed. */
#include "agent/engine/executor.h"

#include "agent/engine/memory_plan.h"
#include "agent/engine/ops.h"
#include "common/base/bytes.h"

#include <stdlib.h>

#define NOWHERE UINT64_MAX

struct node_plan {
    uint64_t saved; /* offset, or NOWHERE */
    bool accumulate[GRAPH_NODE_INPUTS_MAX];
};

struct tensor_plan {
    uint64_t value, gradient; /* offsets, or NOWHERE */
};

struct executor {
    const struct graph *graph;
    struct backend *backend;
    uint32_t batch, samples; /* samples of the last forward */
    struct node_plan *nodes;
    struct tensor_plan *tensors;
    float *memory;   /* activations, their gradients, saved values */
    float *gradient; /* [n] */
    void *input;
    int32_t *target;
};

void executor_free(struct executor *executor)
{
    if (!executor)
        return;
    struct backend *backend = executor->backend;
    backend->release(backend, executor->memory);
    backend->release(backend, executor->gradient);
    backend->release(backend, executor->input);
    backend->release(backend, executor->target);
    free(executor->nodes);
    free(executor->tensors);
    free(executor);
}

/* First and last node that reads each tensor. */
struct uses {
    uint32_t first, last, count;
};

static void find_uses(const struct graph *graph, struct uses *uses)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        for (uint32_t j = 0; j < graph->nodes[i].input_count; j++) {
            struct uses *use = &uses[graph->nodes[i].inputs[j]];
            if (use->count++ == 0)
                use->first = i;
            use->last = i;
        }
    }
}

/* Node i runs forward at time i and backward at time 2 N - 1 - i. Items: for node i value, gradient
 * and saved of its output at 3 i, 3 i + 1, 3 i + 2. */
static enum status list_items(const struct executor *executor, struct memory_item *items,
                              const struct uses *uses, struct error *err)
{
    const struct graph *graph = executor->graph;
    uint32_t end = 2 * graph->node_count - 1;
    uint64_t rows = (uint64_t)executor->batch * graph->rows_per_sample;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct graph_node *node = &graph->nodes[i];
        const struct uses *use = &uses[node->output];
        items[3 * i + 2] = (struct memory_item){
            .floats = op_saved_floats(graph, node, executor->batch), .first = i, .last = end - i};
        if (node->op == OP_CROSS_ENTROPY)
            continue; /* its output is the loss itself, kept nowhere */
        if (use->count == 0)
            return error_set(err, STATUS_INVALID,
                             "the graph's node %u (%s) has an output that nothing reads", i,
                             op_name(node->op));
        uint64_t floats;
        if (__builtin_mul_overflow(rows, graph->tensors[node->output].count, &floats))
            return error_set(err, STATUS_TOO_LARGE, "the graph's node %u is too large", i);
        items[3 * i] = (struct memory_item){.floats = floats, .first = i, .last = end - use->first};
        items[3 * i + 1] =
            (struct memory_item){.floats = floats, .first = end - use->last, .last = end - i};
    }
    return STATUS_OK;
}

static void keep_offsets(struct executor *executor, const struct memory_item *items)
{
    const struct graph *graph = executor->graph;
    for (uint32_t i = 0; i < graph->tensor_count; i++)
        executor->tensors[i] = (struct tensor_plan){NOWHERE, NOWHERE};
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct graph_node *node = &graph->nodes[i];
        executor->nodes[i].saved = items[3 * i + 2].floats ? items[3 * i + 2].offset : NOWHERE;
        if (node->op != OP_CROSS_ENTROPY)
            executor->tensors[node->output] =
                (struct tensor_plan){items[3 * i].offset, items[3 * i + 1].offset};
    }
}

static void decide_accumulation(struct executor *executor, bool *reached)
{
    const struct graph *graph = executor->graph;
    for (uint32_t i = graph->node_count; i-- > 0;) {
        for (uint32_t j = 0; j < graph->nodes[i].input_count; j++) {
            uint32_t tensor = graph->nodes[i].inputs[j];
            executor->nodes[i].accumulate[j] = reached[tensor];
            reached[tensor] = true;
        }
    }
}

/* Fills the plans; *ret_floats is the size of the shared block. */
static enum status make_plans(struct executor *executor, uint64_t *ret_floats, struct error *err)
{
    const struct graph *graph = executor->graph;
    struct uses *uses = calloc(graph->tensor_count, sizeof *uses);
    bool *reached = calloc(graph->tensor_count, sizeof *reached);
    struct memory_item *items = calloc(3 * (size_t)graph->node_count, sizeof *items);
    executor->nodes = calloc(graph->node_count, sizeof *executor->nodes);
    executor->tensors = calloc(graph->tensor_count, sizeof *executor->tensors);
    enum status status = STATUS_OK;
    if (!uses || !reached || !items || !executor->nodes || !executor->tensors) {
        status = error_set(err, STATUS_NO_MEMORY, "planning a training step: out of memory");
        goto done;
    }
    find_uses(graph, uses);
    status = list_items(executor, items, uses, err);
    if (!status)
        status = memory_plan_make(items, 3 * graph->node_count, ret_floats, err);
    if (!status) {
        keep_offsets(executor, items);
        decide_accumulation(executor, reached);
    }
done:
    free(items);
    free(reached);
    free(uses);
    return status;
}

static uint64_t input_elements(const struct executor *executor)
{
    const struct graph *graph = executor->graph;
    uint64_t rows = (uint64_t)executor->batch * graph->rows_per_sample;
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        if (graph->tensors[i].role == TENSOR_INPUT)
            return rows * graph->tensors[i].count;
    }
    return rows;
}

static enum status allocate_memory(struct executor *executor, uint64_t floats, struct error *err)
{
    struct backend *backend = executor->backend;
    uint64_t n = executor->graph->parameter_count, input = input_elements(executor);
    uint64_t rows = (uint64_t)executor->batch * executor->graph->rows_per_sample;
    uint64_t all = floats + n + input + rows;
    if (all <= SIZE_MAX / sizeof(float) / 2) {
        executor->memory = backend->allocate(backend, (size_t)floats * sizeof(float));
        executor->gradient = backend->allocate(backend, (size_t)n * sizeof(float));
        executor->input = backend->allocate(backend, (size_t)input * sizeof(float));
        executor->target = backend->allocate(backend, (size_t)rows * sizeof(int32_t));
    }
    if (!executor->memory || !executor->gradient || !executor->input || !executor->target)
        return error_set(err, STATUS_NO_MEMORY,
                         "a training step with batch_size %u needs %llu MiB, more than there is; "
                         "use a smaller batch_size",
                         executor->batch, (unsigned long long)(all >> 18));
    return STATUS_OK;
}

enum status executor_create(const struct graph *graph, struct backend *backend, uint32_t batch,
                            struct executor **ret, struct error *err)
{
    struct executor *executor = calloc(1, sizeof *executor);
    if (!executor)
        return error_set(err, STATUS_NO_MEMORY, "preparing to train: out of memory");
    executor->graph = graph;
    executor->backend = backend;
    executor->batch = batch;
    uint64_t floats;
    enum status status = make_plans(executor, &floats, err);
    if (!status)
        status = allocate_memory(executor, floats, err);
    if (status)
        executor_free(executor);
    else
        *ret = executor;
    return status;
}

void *executor_input(struct executor *executor)
{
    return executor->input;
}

int32_t *executor_target(struct executor *executor)
{
    return executor->target;
}

static void *place(const struct executor *executor, uint64_t offset)
{
    return offset == NOWHERE ? NULL : executor->memory + offset;
}

static const void *value_of(const struct executor *executor, uint32_t tensor,
                            const float *parameters)
{
    const struct graph_tensor *of = &executor->graph->tensors[tensor];
    switch (of->role) {
    case TENSOR_PARAMETER:
        return parameters + of->offset;
    case TENSOR_INPUT:
        return executor->input;
    case TENSOR_TARGET:
        return executor->target;
    case TENSOR_ACTIVATION:
        return place(executor, executor->tensors[tensor].value);
    }
    return NULL;
}

static float *gradient_of(const struct executor *executor, uint32_t tensor)
{
    const struct graph_tensor *of = &executor->graph->tensors[tensor];
    if (of->role == TENSOR_PARAMETER)
        return executor->gradient + of->offset;
    if (of->role == TENSOR_ACTIVATION)
        return place(executor, executor->tensors[tensor].gradient);
    return NULL;
}

static struct op_call call_of(const struct executor *executor, uint32_t index,
                              const float *parameters)
{
    const struct graph_node *node = &executor->graph->nodes[index];
    struct op_call call = {
        .backend = executor->backend,
        .graph = executor->graph,
        .node = node,
        .samples = executor->samples,
        .rows = (size_t)executor->samples * executor->graph->rows_per_sample,
        .output = place(executor, executor->tensors[node->output].value),
        .saved = place(executor, executor->nodes[index].saved),
    };
    for (uint32_t j = 0; j < node->input_count; j++)
        call.inputs[j] = value_of(executor, node->inputs[j], parameters);
    return call;
}

void executor_forward(struct executor *executor, const float *parameters, uint32_t samples,
                      double *ret_loss_sum, uint64_t *ret_hits)
{
    executor->samples = samples;
    *ret_loss_sum = 0;
    *ret_hits = 0;
    for (uint32_t i = 0; i < executor->graph->node_count; i++) {
        struct op_call call = call_of(executor, i, parameters);
        op_forward(&call);
        *ret_loss_sum += call.loss_sum;
        *ret_hits += call.hits;
    }
}

const float *executor_backward(struct executor *executor, const float *parameters)
{
    for (uint32_t i = executor->graph->node_count; i-- > 0;) {
        struct op_call call = call_of(executor, i, parameters);
        const struct graph_node *node = call.node;
        call.output_gradient = gradient_of(executor, node->output);
        for (uint32_t j = 0; j < node->input_count; j++)
            call.gradients[j] = (struct gradient){gradient_of(executor, node->inputs[j]),
                                                  executor->nodes[i].accumulate[j]};
        op_backward(&call);
    }
    return executor->gradient;
}
