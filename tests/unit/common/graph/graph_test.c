/* Layouts of the presets, initial parameters, and the order of data blocks. */
#include "common/graph/graph.h"

#include "common/base/checksum.h"
#include "common/graph/data_plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static const struct model_spec gpt = {
    .preset = MODEL_GPT, .layers = 2, .width = 64, .heads = 4, .context = 64, .vocabulary = 256};
static const struct model_spec mlp = {
    .preset = MODEL_MLP, .inputs = 784, .hidden = {512, 512}, .hidden_count = 2, .classes = 10};
static const struct model_spec cnn = {.preset = MODEL_CNN,
                                      .image_height = 28,
                                      .image_width = 28,
                                      .channels = {32, 64},
                                      .channels_count = 2,
                                      .classes = 10};

static struct graph *build(const struct model_spec *model)
{
    struct graph *graph = NULL;
    struct error err = {0};
    if (graph_build(model, &graph, &err))
        fail_msg("%s", err.text);
    return graph;
}

static void test_parameter_counts(void **state)
{
    static const struct {
        const struct model_spec *model;
        uint64_t count;
    } cases[] = {{&gpt, 137216}, {&mlp, 669706}, {&cnn, 50186}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct graph *graph = build(cases[i].model);
        assert_int_equal(graph->parameter_count, cases[i].count);
        uint64_t offset = 0;
        for (uint32_t t = 0; t < graph_parameter_tensors(graph); t++) {
            assert_int_equal(graph_parameter(graph, t)->offset, offset);
            offset += graph_parameter(graph, t)->count;
        }
        assert_int_equal(offset, cases[i].count);
        graph_free(graph);
    }
}

static void test_synthetic_layouts(void **state)
{
    static const uint64_t sizes[] = {1, 15, 16, 17, 63, 4096, 1000000, 30800000, 1ull << 31};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct model_spec model = {.preset = MODEL_SYNTHETIC, .parameters = sizes[i]};
        struct graph *graph = build(&model);
        uint64_t offset = 0, largest = 0;
        for (uint32_t t = 0; t < graph_parameter_tensors(graph); t++) {
            const struct graph_tensor *tensor = graph_parameter(graph, t);
            assert_int_equal(tensor->offset, offset);
            assert_int_equal(tensor->init, INIT_NORMAL);
            assert_true(tensor->count > 0);
            largest = tensor->count > largest ? tensor->count : largest;
            offset += tensor->count;
        }
        assert_int_equal(offset, sizes[i]);
        assert_int_equal(graph->parameter_count, sizes[i]);
        assert_int_equal(graph->node_count, 0);
        if (sizes[i] >= 4096) {
            assert_in_range(graph_parameter_tensors(graph), 16, 17);
            assert_true(largest <= sizes[i] / 16);
        }
        graph_free(graph);
    }
    struct model_spec a = {.preset = MODEL_SYNTHETIC, .parameters = 5000}, b = a;
    b.parameters = 5001;
    struct graph *first = build(&a), *second = build(&b);
    assert_int_not_equal(graph_layout_hash(first), graph_layout_hash(second));
    graph_free(first);
    graph_free(second);
}

static void test_synthetic_data_need_nothing(void **state)
{
    struct job_spec spec = {.model = {.preset = MODEL_SYNTHETIC, .parameters = 1},
                            .data = {.kind = DATA_SYNTHETIC},
                            .training = {.batch_size = 4096}};
    struct data_plan plan;
    struct error err = {0};
    (void)state;
    assert_int_equal(data_plan_make(&spec, 0, 0, 0, &plan, &err), STATUS_OK);
    assert_int_equal(plan.train_samples, plan.blocks * DATA_BLOCK_SAMPLES);
    assert_true(plan.blocks > 1000 && plan.held_out_samples > 1000);
}

static void test_initial_parameters(void **state)
{
    (void)state;
    struct graph *graph = build(&gpt);
    uint64_t n = graph->parameter_count;
    float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    graph_initialise(graph, 1, a);
    graph_initialise(graph, 1, b);
    assert_memory_equal(a, b, n * sizeof *a);
    graph_initialise(graph, 2, b);
    assert_int_not_equal(memcmp(a, b, n * sizeof *a), 0);
    double squares = 0;
    const struct graph_tensor *first = graph_parameter(graph, 0);
    for (uint64_t i = 0; i < first->count; i++)
        squares += (double)a[first->offset + i] * (double)a[first->offset + i];
    assert_float_equal(sqrt(squares / (double)first->count), 0.02, 0.001);
    /* Every machine must start from these bits. */
    assert_int_equal(checksum_xxh3(a, n * sizeof *a), 0x9bf0adac22e59e86);
    free(a);
    free(b);
    graph_free(graph);
}

static void test_layout_hash_tells_models_apart(void **state)
{
    (void)state;
    struct model_spec other = gpt;
    struct graph *a = build(&gpt), *b = build(&gpt);
    assert_int_equal(graph_layout_hash(a), graph_layout_hash(b));
    graph_free(b);
    other.heads = 4;
    other.layers = 3;
    b = build(&other);
    assert_int_not_equal(graph_layout_hash(a), graph_layout_hash(b));
    graph_free(a);
    graph_free(b);
}

static void test_absurd_models_are_refused(void **state)
{
    (void)state;
    struct model_spec huge = {.preset = MODEL_GPT,
                              .layers = 4096,
                              .width = 8192,
                              .heads = 4,
                              .context = 4096,
                              .vocabulary = 65536};
    struct graph *graph = NULL;
    struct error err = {0};
    assert_int_equal(graph_build(&huge, &graph, &err), STATUS_TOO_LARGE);
    assert_true(strlen(err.text) > 10);
    assert_null(graph);
}

static void test_each_epoch_hands_out_each_block_once(void **state)
{
    (void)state;
    for (uint64_t blocks = 1; blocks <= 40; blocks++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            uint64_t seen = 0;
            for (uint64_t i = 0; i < blocks; i++) {
                uint64_t block = data_plan_block_at(9, epoch * blocks + i, blocks);
                assert_true(block < blocks);
                seen |= 1ull << block;
            }
            assert_int_equal(seen, (1ull << blocks) - 1);
        }
    uint64_t same = 0;
    for (uint64_t i = 0; i < 1000; i++)
        same += data_plan_block_at(9, i, 1000) == data_plan_block_at(9, 1000 + i, 1000);
    assert_true(same < 100);
}

static void test_lease_blocks(void **state)
{
    (void)state;
    assert_int_equal(data_plan_lease_blocks(1, 1), 1);
    assert_int_equal(data_plan_lease_blocks(30, 8), 1);
    assert_int_equal(data_plan_lease_blocks(30, 64), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameter_counts),
        cmocka_unit_test(test_synthetic_layouts),
        cmocka_unit_test(test_synthetic_data_need_nothing),
        cmocka_unit_test(test_initial_parameters),
        cmocka_unit_test(test_layout_hash_tells_models_apart),
        cmocka_unit_test(test_absurd_models_are_refused),
        cmocka_unit_test(test_each_epoch_hands_out_each_block_once),
        cmocka_unit_test(test_lease_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
