/* Puts a graph together, one tensor and one operator at a time. Private to common/graph. The first
 * failure is remembered and makes every later call do nothing, so that presets read as straight
 * lines; graph_builder_finish reports it. */
#ifndef RAVEN_COMMON_GRAPH_BUILDER_H
#define RAVEN_COMMON_GRAPH_BUILDER_H

#include "common/graph/graph.h"

struct graph_builder {
    struct graph *graph;
    uint32_t tensor_capacity, node_capacity;
    char prefix[24]; /* before every parameter's name: "block0." */
    enum status status;
};

struct parameter_init {
    enum tensor_init init;
    float deviation;
};

enum status graph_builder_init(struct graph_builder *builder, struct error *err) MUST_CHECK;
/* Moves the graph to *ret, or frees it and says what failed. */
enum status graph_builder_finish(struct graph_builder *builder, struct graph **ret,
                                 struct error *err) MUST_CHECK;

/* All return the index of the new tensor (0 after a failure). dims: per-row sizes, without the
 * batch. */
uint32_t graph_add_input(struct graph_builder *builder, const char *name, enum tensor_role role,
                         uint32_t rank, const uint64_t *dims);
uint32_t graph_add_parameter(struct graph_builder *builder, const char *name, uint32_t rank,
                             const uint64_t *dims, struct parameter_init init);
uint32_t graph_add_node(struct graph_builder *builder, enum graph_op op, const uint32_t *inputs,
                        uint32_t rank, const uint64_t *dims, uint32_t heads);

/* Operators with their parameters (names: name.weight, name.bias). */
uint32_t graph_add_linear(struct graph_builder *builder, const char *name, uint32_t x, uint64_t in,
                          uint64_t out, struct parameter_init weight);
uint32_t graph_add_layernorm(struct graph_builder *builder, const char *name, uint32_t x,
                             uint64_t width);
uint32_t graph_add_conv3x3(struct graph_builder *builder, const char *name, uint32_t x,
                           const uint64_t image[3], uint64_t out, struct parameter_init weight);
/* Same shape as x. */
uint32_t graph_add_unary(struct graph_builder *builder, enum graph_op op, uint32_t x);

#endif
