/* A model as a list of operators over named tensors, and the flat layout of its parameters.
 * Built from a preset (presets.c); later also from ONNX. The coordinator uses the layout and the
 * initial values only; the agent's engine executes the nodes. Immutable after building. */
#ifndef RAVEN_COMMON_GRAPH_GRAPH_H
#define RAVEN_COMMON_GRAPH_GRAPH_H

#include "common/base/status.h"
#include "common/graph/job_spec.h"

#include <stdint.h>

#define GRAPH_RANK_MAX 4
#define GRAPH_NODE_INPUTS_MAX 4
#define GRAPH_NAME_BYTES 48
#define GRAPH_PARAMETERS_MAX (1ull << 31)

enum graph_op {
    OP_NONE,
#define OP(name, ...) OP_##name,
#include "common/graph/ops.def"
#undef OP
    OP_COUNT
};

enum tensor_role {
    TENSOR_PARAMETER,  /* in the flat layout */
    TENSOR_INPUT,      /* tokens (int32) or images (fp32) of one batch */
    TENSOR_TARGET,     /* int32 class per row */
    TENSOR_ACTIVATION, /* made by a node */
};

enum tensor_init { INIT_ZERO, INIT_ONE, INIT_NORMAL };

/* dims[0] of inputs, targets and activations is the batch size and written as 0 here; for text
 * models it is batch × context rows (rows_per_sample = context). */
struct graph_tensor {
    char name[GRAPH_NAME_BYTES]; /* "block0.attention.qkv.weight" */
    enum tensor_role role;
    uint32_t rank;
    uint64_t dims[GRAPH_RANK_MAX];
    uint64_t offset; /* parameters: position in the flat layout, in elements */
    uint64_t count;  /* elements; of all but parameters: elements per row (dims[0] taken as 1) */
    enum tensor_init init;
    float init_deviation; /* standard deviation of INIT_NORMAL */
    bool decays;          /* weight decay applies: matrices yes; biases and norms no */
};

struct graph_node {
    enum graph_op op;
    uint32_t inputs[GRAPH_NODE_INPUTS_MAX]; /* tensor indices */
    uint32_t input_count;
    uint32_t output; /* tensor index */
    uint32_t heads;  /* attention only */
};

struct graph {
    struct graph_tensor *tensors;
    uint32_t tensor_count;
    struct graph_node *nodes;
    uint32_t node_count;
    uint32_t *parameters; /* tensor indices in layout order */
    uint32_t parameter_tensors;
    uint64_t parameter_count; /* n */
    uint32_t rows_per_sample; /* context for text, 1 for images */
    uint32_t classes;         /* width of the logits: vocabulary or classes */
};

/* The last node is always OP_CROSS_ENTROPY; the synthetic preset has parameters only, no nodes, no
 * inputs and no classes. The caller frees with graph_free. STATUS_TOO_LARGE over
 * GRAPH_PARAMETERS_MAX, err says the size. */
enum status graph_build(const struct model_spec *model, struct graph **ret,
                        struct error *err) MUST_CHECK;
void graph_free(struct graph *graph);

/* Initial master parameters theta[n]; the same bits for the same graph and seed on every machine.
 */
void graph_initialise(const struct graph *graph, uint64_t seed, float *theta);

/* Hash of names, shapes and order of the parameters: both sides must agree before any update. */
uint64_t graph_layout_hash(const struct graph *graph);

/* The parameter tensors in layout order: index of the i-th one, i < graph_parameter_tensors. */
uint32_t graph_parameter_tensors(const struct graph *graph);
const struct graph_tensor *graph_parameter(const struct graph *graph, uint32_t i);

#endif
