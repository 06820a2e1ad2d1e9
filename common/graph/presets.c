/* The presets: multilayer perceptron, small convolutional network, byte-level GPT, and the
 * synthetic one, which has no operators. Plain functions, any thread. Surprising: the order of the
 * calls fixes the flat layout; weights lie as PyTorch's (linear [out][in], convolution
 * [out][in][3][3]), so that checkpoints open there. */
#include "common/graph/builder.h"

#include <math.h>
#include <stdio.h>

static struct parameter_init he_normal(uint64_t fan_in)
{
    return (struct parameter_init){INIT_NORMAL, sqrtf(2.0f / (float)fan_in)};
}

static void add_loss(struct graph_builder *builder, uint32_t logits, uint32_t target,
                     uint32_t classes)
{
    uint32_t inputs[2] = {logits, target};
    (void)graph_add_node(builder, OP_CROSS_ENTROPY, inputs, 0, NULL, 0);
    builder->graph->classes = classes;
}

static uint32_t add_target(struct graph_builder *builder)
{
    return graph_add_input(builder, "target", TENSOR_TARGET, 0, NULL);
}

static void build_mlp(struct graph_builder *builder, const struct model_spec *model)
{
    uint64_t width = model->inputs;
    uint32_t x = graph_add_input(builder, "images", TENSOR_INPUT, 1, &width);
    uint32_t target = add_target(builder);
    char name[24];
    for (uint32_t i = 0; i < model->hidden_count; i++) {
        (void)snprintf(name, sizeof name, "hidden%u", i);
        x = graph_add_linear(builder, name, x, width, model->hidden[i], he_normal(width));
        x = graph_add_unary(builder, OP_RELU, x);
        width = model->hidden[i];
    }
    x = graph_add_linear(builder, "head", x, width, model->classes, he_normal(width));
    builder->graph->rows_per_sample = 1;
    add_loss(builder, x, target, model->classes);
}

static void build_cnn(struct graph_builder *builder, const struct model_spec *model)
{
    uint64_t image[3] = {1, model->image_height, model->image_width};
    uint32_t x = graph_add_input(builder, "images", TENSOR_INPUT, 3, image);
    uint32_t target = add_target(builder);
    char name[24];
    for (uint32_t i = 0; i < model->channels_count; i++) {
        (void)snprintf(name, sizeof name, "conv%u", i);
        x = graph_add_conv3x3(builder, name, x, image, model->channels[i], he_normal(9 * image[0]));
        x = graph_add_unary(builder, OP_RELU, x);
        image[0] = model->channels[i];
        image[1] /= 2;
        image[2] /= 2;
        x = graph_add_node(builder, OP_MAXPOOL2, &x, 3, image, 0);
    }
    uint64_t flat = image[0] * image[1] * image[2];
    x = graph_add_linear(builder, "head", x, flat, model->classes, he_normal(flat));
    builder->graph->rows_per_sample = 1;
    add_loss(builder, x, target, model->classes);
}

static uint32_t add_sum(struct graph_builder *builder, uint32_t a, uint32_t b, uint64_t width)
{
    return graph_add_node(builder, OP_ADD, (uint32_t[]){a, b}, 1, &width, 0);
}

/* Pre-norm: x + attention(norm(x)), then x + feed-forward(norm(x)). */
static uint32_t add_block(struct graph_builder *builder, const struct model_spec *model, uint32_t x)
{
    struct parameter_init normal = {INIT_NORMAL, 0.02f};
    uint64_t width = model->width;
    uint32_t y = graph_add_layernorm(builder, "norm1", x, width);
    y = graph_add_linear(builder, "attention.qkv", y, width, 3 * width, normal);
    y = graph_add_node(builder, OP_ATTENTION, &y, 1, &width, model->heads);
    y = graph_add_linear(builder, "attention.out", y, width, width, normal);
    x = add_sum(builder, x, y, width);
    y = graph_add_layernorm(builder, "norm2", x, width);
    y = graph_add_linear(builder, "feed.up", y, width, 4 * width, normal);
    y = graph_add_unary(builder, OP_GELU, y);
    y = graph_add_linear(builder, "feed.down", y, 4 * width, width, normal);
    return add_sum(builder, x, y, width);
}

static void build_gpt(struct graph_builder *builder, const struct model_spec *model)
{
    struct parameter_init normal = {INIT_NORMAL, 0.02f};
    uint64_t width = model->width;
    uint32_t inputs[3];
    inputs[0] = graph_add_input(builder, "tokens", TENSOR_INPUT, 0, NULL);
    uint32_t target = add_target(builder);
    inputs[1] = graph_add_parameter(builder, "embedding.weight", 2,
                                    (uint64_t[]){model->vocabulary, width}, normal);
    inputs[2] = graph_add_parameter(builder, "position.weight", 2,
                                    (uint64_t[]){model->context, width}, normal);
    uint32_t x = graph_add_node(builder, OP_EMBED, inputs, 1, &width, 0);
    for (uint32_t i = 0; i < model->layers; i++) {
        (void)snprintf(builder->prefix, sizeof builder->prefix, "block%u.", i);
        x = add_block(builder, model, x);
    }
    builder->prefix[0] = '\0';
    x = graph_add_layernorm(builder, "norm", x, width);
    x = graph_add_linear(builder, "head", x, width, model->vocabulary, normal);
    builder->graph->rows_per_sample = model->context;
    add_loss(builder, x, target, model->vocabulary);
}

#define SYNTHETIC_MATRICES 16u

/* Parameters only: square matrices, and what they leave over, so that everything which is done per
 * tensor is done. */
static void build_synthetic(struct graph_builder *builder, const struct model_spec *model)
{
    struct parameter_init normal = {INIT_NORMAL, 0.02f};
    uint64_t side = (uint64_t)sqrt((double)(model->parameters / SYNTHETIC_MATRICES));
    uint64_t rest = model->parameters - SYNTHETIC_MATRICES * side * side;
    char name[24];
    for (uint32_t i = 0; side > 0 && i < SYNTHETIC_MATRICES; i++) {
        (void)snprintf(name, sizeof name, "matrix%u", i);
        (void)graph_add_parameter(builder, name, 2, (uint64_t[]){side, side}, normal);
    }
    if (rest > 0)
        (void)graph_add_parameter(builder, "rest", 1, &rest, normal);
    builder->graph->rows_per_sample = 1;
}

enum status graph_build(const struct model_spec *model, struct graph **ret, struct error *err)
{
    struct graph_builder builder;
    enum status status = graph_builder_init(&builder, err);
    if (status)
        return status;
    switch (model->preset) {
    case MODEL_MLP:
        build_mlp(&builder, model);
        break;
    case MODEL_CNN:
        build_cnn(&builder, model);
        break;
    case MODEL_GPT:
        build_gpt(&builder, model);
        break;
    case MODEL_SYNTHETIC:
        build_synthetic(&builder, model);
        break;
    }
    return graph_builder_finish(&builder, ret, err);
}
