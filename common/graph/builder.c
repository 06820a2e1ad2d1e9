/* Graph builder: grows the arrays, computes counts and the flat layout. Plain functions, any
 * thread. Surprising: offsets are given out in the order in which presets add parameters, so the
 * order of calls in presets.c is part of the layout that agents and coordinator must agree on. */
#include "common/graph/builder.h"

#include "common/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t op_inputs[OP_COUNT] = {
#define OP(name, lower, inputs) [OP_##name] = inputs,
#include "common/graph/ops.def"
#undef OP
};

enum status graph_builder_init(struct graph_builder *builder, struct error *err)
{
    *builder = (struct graph_builder){.graph = calloc(1, sizeof(struct graph))};
    if (!builder->graph)
        return error_set(err, STATUS_NO_MEMORY, "building the model's graph: out of memory");
    return STATUS_OK;
}

enum status graph_builder_finish(struct graph_builder *builder, struct graph **ret,
                                 struct error *err)
{
    struct graph *graph = builder->graph;
    enum status status = builder->status;
    if (status == STATUS_TOO_LARGE)
        error_set(err, status,
                  "the model has %llu parameters or more; the limit is %llu; use smaller layers",
                  (unsigned long long)graph->parameter_count,
                  (unsigned long long)GRAPH_PARAMETERS_MAX);
    else if (status)
        error_set(err, status, "building the model's graph: out of memory");
    if (status)
        graph_free(graph);
    else
        *ret = graph;
    builder->graph = NULL;
    return status;
}

/* Makes room for one more of count elements; false when memory is out. */
static bool grow(void **array, uint32_t *capacity, uint32_t count, size_t element_bytes)
{
    if (count < *capacity)
        return true;
    uint32_t wanted = *capacity ? *capacity * 2 : 32;
    void *grown = reallocarray(*array, wanted, element_bytes);
    if (!grown)
        return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

static struct graph_tensor *add_tensor(struct graph_builder *builder, const char *name,
                                       enum tensor_role role, uint32_t rank, const uint64_t *dims)
{
    struct graph *graph = builder->graph;
    if (builder->status)
        return NULL;
    if (!grow((void **)&graph->tensors, &builder->tensor_capacity, graph->tensor_count,
              sizeof *graph->tensors)) {
        builder->status = STATUS_NO_MEMORY;
        return NULL;
    }
    struct graph_tensor *tensor = &graph->tensors[graph->tensor_count];
    *tensor = (struct graph_tensor){.role = role, .rank = rank, .count = 1};
    bool is_parameter = role == TENSOR_PARAMETER;
    (void)snprintf(tensor->name, sizeof tensor->name, "%s%s", builder->prefix, name);
    for (uint32_t i = 0; i < rank; i++) {
        tensor->dims[i] = dims[i];
        if (!is_parameter && i == 0)
            continue;
        if (__builtin_mul_overflow(tensor->count, dims[i], &tensor->count)) {
            builder->status = STATUS_TOO_LARGE;
            return NULL;
        }
    }
    graph->tensor_count++;
    return tensor;
}

/* The tensor with the batch dimension put in front. */
static uint32_t add_batched(struct graph_builder *builder, const char *name, enum tensor_role role,
                            uint32_t rank, const uint64_t *dims)
{
    uint64_t all[GRAPH_RANK_MAX] = {0};
    for (uint32_t i = 0; i < rank; i++)
        all[i + 1] = dims[i];
    if (!add_tensor(builder, name, role, rank + 1, all))
        return 0;
    return builder->graph->tensor_count - 1;
}

uint32_t graph_add_input(struct graph_builder *builder, const char *name, enum tensor_role role,
                         uint32_t rank, const uint64_t *dims)
{
    return add_batched(builder, name, role, rank, dims);
}

uint32_t graph_add_parameter(struct graph_builder *builder, const char *name, uint32_t rank,
                             const uint64_t *dims, struct parameter_init init)
{
    struct graph *graph = builder->graph;
    struct graph_tensor *tensor = add_tensor(builder, name, TENSOR_PARAMETER, rank, dims);
    if (!tensor)
        return 0;
    tensor->init = init.init;
    tensor->init_deviation = init.deviation;
    tensor->decays = rank > 1;
    tensor->offset = graph->parameter_count;
    uint64_t total;
    if (__builtin_add_overflow(graph->parameter_count, tensor->count, &total))
        total = UINT64_MAX;
    graph->parameter_count = total;
    if (total > GRAPH_PARAMETERS_MAX) {
        builder->status = STATUS_TOO_LARGE;
        return 0;
    }
    uint32_t index = graph->tensor_count - 1;
    uint32_t *grown = reallocarray(graph->parameters, graph->parameter_tensors + 1, sizeof *grown);
    if (!grown) {
        builder->status = STATUS_NO_MEMORY;
        return 0;
    }
    graph->parameters = grown;
    graph->parameters[graph->parameter_tensors++] = index;
    return index;
}

uint32_t graph_add_node(struct graph_builder *builder, enum graph_op op, const uint32_t *inputs,
                        uint32_t rank, const uint64_t *dims, uint32_t heads)
{
    struct graph *graph = builder->graph;
    uint32_t output = add_batched(builder, "", TENSOR_ACTIVATION, rank, dims);
    if (builder->status)
        return 0;
    if (!grow((void **)&graph->nodes, &builder->node_capacity, graph->node_count,
              sizeof *graph->nodes)) {
        builder->status = STATUS_NO_MEMORY;
        return 0;
    }
    struct graph_node *node = &graph->nodes[graph->node_count++];
    *node = (struct graph_node){
        .op = op, .input_count = op_inputs[op], .output = output, .heads = heads};
    memcpy(node->inputs, inputs, node->input_count * sizeof *inputs);
    return output;
}

static uint32_t add_named_parameter(struct graph_builder *builder, const char *name,
                                    const char *part, uint32_t rank, const uint64_t *dims,
                                    struct parameter_init init)
{
    char full[GRAPH_NAME_BYTES];
    (void)snprintf(full, sizeof full, "%s.%s", name, part);
    return graph_add_parameter(builder, full, rank, dims, init);
}

uint32_t graph_add_linear(struct graph_builder *builder, const char *name, uint32_t x, uint64_t in,
                          uint64_t out, struct parameter_init weight)
{
    uint32_t inputs[3] = {x};
    inputs[1] = add_named_parameter(builder, name, "weight", 2, (uint64_t[]){out, in}, weight);
    inputs[2] = add_named_parameter(builder, name, "bias", 1, &out,
                                    (struct parameter_init){.init = INIT_ZERO});
    return graph_add_node(builder, OP_LINEAR, inputs, 1, &out, 0);
}

uint32_t graph_add_layernorm(struct graph_builder *builder, const char *name, uint32_t x,
                             uint64_t width)
{
    uint32_t inputs[3] = {x};
    inputs[1] = add_named_parameter(builder, name, "weight", 1, &width,
                                    (struct parameter_init){.init = INIT_ONE});
    inputs[2] = add_named_parameter(builder, name, "bias", 1, &width,
                                    (struct parameter_init){.init = INIT_ZERO});
    return graph_add_node(builder, OP_LAYERNORM, inputs, 1, &width, 0);
}

uint32_t graph_add_conv3x3(struct graph_builder *builder, const char *name, uint32_t x,
                           const uint64_t image[3], uint64_t out, struct parameter_init weight)
{
    uint32_t inputs[3] = {x};
    inputs[1] =
        add_named_parameter(builder, name, "weight", 4, (uint64_t[]){out, image[0], 3, 3}, weight);
    inputs[2] = add_named_parameter(builder, name, "bias", 1, &out,
                                    (struct parameter_init){.init = INIT_ZERO});
    return graph_add_node(builder, OP_CONV3X3, inputs, 3, (uint64_t[]){out, image[1], image[2]}, 0);
}

uint32_t graph_add_unary(struct graph_builder *builder, enum graph_op op, uint32_t x)
{
    if (builder->status)
        return 0;
    struct graph_tensor of = builder->graph->tensors[x]; /* a copy: adding may move the array */
    return graph_add_node(builder, op, &x, of.rank - 1, of.dims + 1, 0);
}
