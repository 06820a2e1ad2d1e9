/* Autodiff against central differences on whole small graphs of each preset, and the same numbers
 * with one thread and with several. */
#include "agent/engine/executor.h"

#include "agent/backend/cpu/cpu.h"
#include "common/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define BATCH 3

static const struct model_spec gpt = {
    .preset = MODEL_GPT, .layers = 2, .width = 8, .heads = 2, .context = 6, .vocabulary = 11};
static const struct model_spec mlp = {
    .preset = MODEL_MLP, .inputs = 10, .hidden = {9, 7}, .hidden_count = 2, .classes = 5};
static const struct model_spec cnn = {.preset = MODEL_CNN,
                                      .image_height = 8,
                                      .image_width = 8,
                                      .channels = {3, 4},
                                      .channels_count = 2,
                                      .classes = 5};

struct rig {
    struct graph *graph;
    struct backend *backend;
    struct executor *executor;
    float *parameters;
};

static struct rig make_rig(const struct model_spec *model, uint32_t threads,
                           const struct cpu_kernels *kernels)
{
    struct rig rig;
    struct error err = {0};
    struct rng rng;
    if (graph_build(model, &rig.graph, &err) ||
        cpu_backend_create(threads, kernels, &rig.backend, &err) ||
        executor_create(rig.graph, rig.backend, BATCH, &rig.executor, &err))
        fail_msg("%s", err.text);
    uint64_t n = rig.graph->parameter_count;
    rig.parameters = malloc(n * sizeof *rig.parameters);
    rng_seed(&rng, 3);
    for (uint64_t i = 0; i < n; i++) /* larger than the initial ones: gradients stand out of fp32 */
        rig.parameters[i] = 0.4f * (float)rng_normal(&rng);

    uint32_t rows = BATCH * rig.graph->rows_per_sample;
    for (uint32_t i = 0; i < rows; i++)
        executor_target(rig.executor)[i] = (int32_t)rng_below(&rng, rig.graph->classes);
    if (model->preset == MODEL_GPT)
        for (uint32_t i = 0; i < rows; i++)
            ((int32_t *)executor_input(rig.executor))[i] =
                (int32_t)rng_below(&rng, model->vocabulary);
    else
        for (uint32_t i = 0; i < BATCH * (model->preset == MODEL_MLP ? model->inputs : 64u); i++)
            ((float *)executor_input(rig.executor))[i] = (float)rng_normal(&rng);
    return rig;
}

static void free_rig(struct rig *rig)
{
    executor_free(rig->executor);
    backend_free(rig->backend);
    graph_free(rig->graph);
    free(rig->parameters);
}

static double mean_loss(struct rig *rig)
{
    double sum;
    uint64_t hits;
    executor_forward(rig->executor, rig->parameters, BATCH, &sum, &hits);
    return sum / (BATCH * rig->graph->rows_per_sample);
}

/* A step along the gradient must change the loss by the gradient's squared length; and each single
 * parameter by its own entry, within what fp32 and kinks of ReLU and max allow. */
static void check_gradient(const struct model_spec *model)
{
    struct rig rig = make_rig(model, 1, cpu_kernels_best());
    uint64_t n = rig.graph->parameter_count;
    float *gradient = malloc(n * sizeof *gradient);
    mean_loss(&rig);
    memcpy(gradient, executor_backward(rig.executor, rig.parameters), n * sizeof *gradient);
    double scale = 0;
    for (uint64_t i = 0; i < n; i++)
        scale = fmax(scale, fabs((double)gradient[i]));
    assert_true(scale > 1e-3);

    uint64_t wrong = 0;
    const float step = 2e-3f;
    for (uint64_t i = 0; i < n; i++) {
        float kept = rig.parameters[i];
        rig.parameters[i] = kept + step;
        double above = mean_loss(&rig);
        rig.parameters[i] = kept - step;
        double below = mean_loss(&rig);
        rig.parameters[i] = kept;
        double expected = (above - below) / (2 * (double)step);
        if (fabs(expected - (double)gradient[i]) > 0.01 * scale + 0.02 * fabs(expected))
            wrong++;
    }
    if (wrong > n / 100)
        fail_msg("%llu of %llu gradients are wrong", (unsigned long long)wrong,
                 (unsigned long long)n);
    free(gradient);
    free_rig(&rig);
}

static void test_gradients_of_gpt(void **state)
{
    (void)state;
    check_gradient(&gpt);
}

static void test_gradients_of_mlp(void **state)
{
    (void)state;
    check_gradient(&mlp);
}

static void test_gradients_of_cnn(void **state)
{
    (void)state;
    check_gradient(&cnn);
}

/* One thread with the best kernels against three with the portable ones. */
static void test_threads_and_kernels_agree(void **state)
{
    const struct model_spec *const models[] = {&gpt, &mlp, &cnn};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rig one = make_rig(models[i], 1, cpu_kernels_best());
        struct rig three = make_rig(models[i], 3, cpu_kernels_portable());
        uint64_t n = one.graph->parameter_count;
        assert_float_equal(mean_loss(&one), mean_loss(&three), 1e-5);
        const float *a = executor_backward(one.executor, one.parameters);
        const float *b = executor_backward(three.executor, three.parameters);
        for (uint64_t k = 0; k < n; k++)
            assert_float_equal(a[k], b[k], 1e-5);
        free_rig(&one);
        free_rig(&three);
    }
}

static void test_fewer_samples_than_the_batch(void **state)
{
    (void)state;
    struct rig rig = make_rig(&mlp, 2, cpu_kernels_best());
    double all, first;
    uint64_t hits;
    executor_forward(rig.executor, rig.parameters, BATCH, &all, &hits);
    executor_forward(rig.executor, rig.parameters, 1, &first, &hits);
    assert_true(first < all);
    assert_true(hits <= 1);
    free_rig(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_of_gpt),
        cmocka_unit_test(test_gradients_of_mlp),
        cmocka_unit_test(test_gradients_of_cnn),
        cmocka_unit_test(test_threads_and_kernels_agree),
        cmocka_unit_test(test_fewer_samples_than_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
