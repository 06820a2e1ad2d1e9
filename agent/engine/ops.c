/* Operators of ops.def as backend calls. Training thread. Surprising: shapes are read from the
 * graph's tensors at every call; they cost nothing beside the work and cannot go stale. */
#include "agent/engine/ops.h"

#include <stddef.h>

static const struct graph_tensor *input_tensor(const struct op_call *call, uint32_t i)
{
    return &call->graph->tensors[call->node->inputs[i]];
}

static const struct graph_tensor *output_tensor(const struct op_call *call)
{
    return &call->graph->tensors[call->node->output];
}

/* --- embed ---------------------------------------------------------------------------------- */

static struct embed_shape embed_shape_of(const struct op_call *call)
{
    return (struct embed_shape){.rows = call->rows,
                                .width = input_tensor(call, 1)->dims[1],
                                .context = input_tensor(call, 2)->dims[0],
                                .vocabulary = input_tensor(call, 1)->dims[0]};
}

static void embed_forward(struct op_call *call)
{
    struct embed_shape shape = embed_shape_of(call);
    call->backend->embed_forward(call->backend, &shape, call->inputs[0], call->inputs[1],
                                 call->inputs[2], call->output);
}

static void embed_backward(struct op_call *call)
{
    struct embed_shape shape = embed_shape_of(call);
    call->backend->embed_backward(call->backend, &shape, call->inputs[0], call->output_gradient,
                                  call->gradients[1], call->gradients[2]);
}

static uint64_t embed_saved_floats(const struct graph *graph, const struct graph_node *node,
                                   uint64_t samples)
{
    (void)graph, (void)node, (void)samples;
    return 0;
}

/* --- layernorm ------------------------------------------------------------------------------ */

static struct norm_shape norm_shape_of(const struct op_call *call)
{
    return (struct norm_shape){.rows = call->rows, .width = input_tensor(call, 0)->count};
}

static void layernorm_forward(struct op_call *call)
{
    struct norm_shape shape = norm_shape_of(call);
    call->backend->layernorm_forward(call->backend, &shape, call->inputs[0], call->inputs[1],
                                     call->inputs[2], call->output, call->saved);
}

static void layernorm_backward(struct op_call *call)
{
    struct norm_shape shape = norm_shape_of(call);
    call->backend->layernorm_backward(call->backend, &shape, call->inputs[0], call->inputs[1],
                                      call->output_gradient, call->saved, call->gradients[0],
                                      call->gradients[1], call->gradients[2]);
}

static uint64_t layernorm_saved_floats(const struct graph *graph, const struct graph_node *node,
                                       uint64_t samples)
{
    (void)node;
    return 2 * samples * graph->rows_per_sample;
}

/* --- linear --------------------------------------------------------------------------------- */

static struct linear_shape linear_shape_of(const struct op_call *call)
{
    return (struct linear_shape){.rows = call->rows,
                                 .in = input_tensor(call, 1)->dims[1],
                                 .out = input_tensor(call, 1)->dims[0]};
}

static void linear_forward(struct op_call *call)
{
    struct linear_shape shape = linear_shape_of(call);
    call->backend->linear_forward(call->backend, &shape, call->inputs[0], call->inputs[1],
                                  call->inputs[2], call->output);
}

static void linear_backward(struct op_call *call)
{
    struct linear_shape shape = linear_shape_of(call);
    call->backend->linear_backward(call->backend, &shape, call->inputs[0], call->inputs[1],
                                   call->output_gradient, call->gradients[0], call->gradients[1],
                                   call->gradients[2]);
}

static uint64_t linear_saved_floats(const struct graph *graph, const struct graph_node *node,
                                    uint64_t samples)
{
    return embed_saved_floats(graph, node, samples);
}

/* --- attention ------------------------------------------------------------------------------ */

static struct attention_shape attention_shape_of(const struct op_call *call)
{
    return (struct attention_shape){.samples = call->samples,
                                    .context = call->graph->rows_per_sample,
                                    .width = output_tensor(call)->count,
                                    .heads = call->node->heads};
}

static void attention_forward(struct op_call *call)
{
    struct attention_shape shape = attention_shape_of(call);
    call->backend->attention_forward(call->backend, &shape, call->inputs[0], call->output,
                                     call->saved);
}

static void attention_backward(struct op_call *call)
{
    struct attention_shape shape = attention_shape_of(call);
    call->backend->attention_backward(call->backend, &shape, call->inputs[0], call->output_gradient,
                                      call->saved, call->gradients[0]);
}

static uint64_t attention_saved_floats(const struct graph *graph, const struct graph_node *node,
                                       uint64_t samples)
{
    return samples * graph->rows_per_sample * node->heads;
}

/* --- gelu, relu, add ------------------------------------------------------------------------ */

static size_t elements_of(const struct op_call *call)
{
    return call->rows * output_tensor(call)->count;
}

static void gelu_forward(struct op_call *call)
{
    call->backend->gelu_forward(call->backend, elements_of(call), call->inputs[0], call->output);
}

static void gelu_backward(struct op_call *call)
{
    call->backend->gelu_backward(call->backend, elements_of(call), call->inputs[0],
                                 call->output_gradient, call->gradients[0]);
}

static uint64_t gelu_saved_floats(const struct graph *graph, const struct graph_node *node,
                                  uint64_t samples)
{
    return embed_saved_floats(graph, node, samples);
}

static void relu_forward(struct op_call *call)
{
    call->backend->relu_forward(call->backend, elements_of(call), call->inputs[0], call->output);
}

static void relu_backward(struct op_call *call)
{
    call->backend->relu_backward(call->backend, elements_of(call), call->inputs[0],
                                 call->output_gradient, call->gradients[0]);
}

static uint64_t relu_saved_floats(const struct graph *graph, const struct graph_node *node,
                                  uint64_t samples)
{
    return embed_saved_floats(graph, node, samples);
}

static void add_forward(struct op_call *call)
{
    call->backend->add_forward(call->backend, elements_of(call), call->inputs[0], call->inputs[1],
                               call->output);
}

static void add_backward(struct op_call *call)
{
    for (uint32_t i = 0; i < 2; i++)
        call->backend->add_backward(call->backend, elements_of(call), call->output_gradient,
                                    call->gradients[i]);
}

static uint64_t add_saved_floats(const struct graph *graph, const struct graph_node *node,
                                 uint64_t samples)
{
    return embed_saved_floats(graph, node, samples);
}

/* --- conv3x3, maxpool2 ---------------------------------------------------------------------- */

static struct image_shape image_shape_of(const struct op_call *call)
{
    const uint64_t *in = input_tensor(call, 0)->dims;
    return (struct image_shape){.samples = call->samples,
                                .channels_in = in[1],
                                .channels_out = output_tensor(call)->dims[1],
                                .height = in[2],
                                .width = in[3]};
}

static void conv3x3_forward(struct op_call *call)
{
    struct image_shape shape = image_shape_of(call);
    call->backend->conv3x3_forward(call->backend, &shape, call->inputs[0], call->inputs[1],
                                   call->inputs[2], call->output);
}

static void conv3x3_backward(struct op_call *call)
{
    struct image_shape shape = image_shape_of(call);
    call->backend->conv3x3_backward(call->backend, &shape, call->inputs[0], call->inputs[1],
                                    call->output_gradient, call->gradients[0], call->gradients[1],
                                    call->gradients[2]);
}

static uint64_t conv3x3_saved_floats(const struct graph *graph, const struct graph_node *node,
                                     uint64_t samples)
{
    return embed_saved_floats(graph, node, samples);
}

static void maxpool2_forward(struct op_call *call)
{
    struct image_shape shape = image_shape_of(call);
    call->backend->maxpool2_forward(call->backend, &shape, call->inputs[0], call->output,
                                    call->saved);
}

static void maxpool2_backward(struct op_call *call)
{
    struct image_shape shape = image_shape_of(call);
    call->backend->maxpool2_backward(call->backend, &shape, call->output_gradient, call->saved,
                                     call->gradients[0]);
}

/* One byte per output. */
static uint64_t maxpool2_saved_floats(const struct graph *graph, const struct graph_node *node,
                                      uint64_t samples)
{
    return (samples * graph->tensors[node->output].count + 3) / 4;
}

/* --- cross_entropy -------------------------------------------------------------------------- */

static struct loss_shape loss_shape_of(const struct op_call *call)
{
    return (struct loss_shape){.rows = call->rows, .classes = input_tensor(call, 0)->count};
}

static void cross_entropy_forward(struct op_call *call)
{
    struct loss_shape shape = loss_shape_of(call);
    call->backend->cross_entropy_forward(call->backend, &shape, call->inputs[0], call->inputs[1],
                                         call->saved, &call->loss_sum, &call->hits);
}

static void cross_entropy_backward(struct op_call *call)
{
    struct loss_shape shape = loss_shape_of(call);
    call->backend->cross_entropy_backward(call->backend, &shape, call->inputs[1], call->saved,
                                          call->gradients[0]);
}

static uint64_t cross_entropy_saved_floats(const struct graph *graph, const struct graph_node *node,
                                           uint64_t samples)
{
    return samples * graph->rows_per_sample * graph->tensors[node->inputs[0]].count;
}

/* --- the table ------------------------------------------------------------------------------ */

struct op {
    const char *name;
    void (*forward)(struct op_call *call);
    void (*backward)(struct op_call *call);
    uint64_t (*saved_floats)(const struct graph *graph, const struct graph_node *node,
                             uint64_t samples);
};

static const struct op ops[OP_COUNT] = {
#define OP(name, lower, inputs)                                                                    \
    [OP_##name] = {#lower, lower##_forward, lower##_backward, lower##_saved_floats},
#include "common/graph/ops.def"
#undef OP
};

void op_forward(struct op_call *call)
{
    ops[call->node->op].forward(call);
}

void op_backward(struct op_call *call)
{
    ops[call->node->op].backward(call);
}

uint64_t op_saved_floats(const struct graph *graph, const struct graph_node *node, uint64_t samples)
{
    return ops[node->op].saved_floats(graph, node, samples);
}

const char *op_name(enum graph_op op)
{
    return op > OP_NONE && op < OP_COUNT ? ops[op].name : "none";
}
