/* A trainer on real small files: it learns, repeats itself for the same seeds, evaluates the same
 * samples, refuses data that does not fit, and leaves everything alone when numbers break. */
#include "agent/engine/trainer.h"
#include "common/base/file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define TEXT_BYTES 20000

struct rig {
    char dir[PATH_BYTES], text[PATH_BYTES];
    struct job_spec spec;
    struct graph *graph;
    struct backend *backend;
    struct trainer *trainer;
    float *x;
};

static const char spec_text[] =
    "{\"name\":\"t\",\"model\":{\"preset\":\"gpt\",\"layers\":1,\"width\":16,\"heads\":2,"
    "\"context\":16,\"vocabulary\":256},\"data\":{\"kind\":\"text\","
    "\"train\":\"art_01JD0000000000000000000001\",\"held_out_ratio\":0.1},"
    "\"training\":{\"batch_size\":4,\"total_samples\":100000}}";

static int setup(void **state)
{
    struct rig *rig = calloc(1, sizeof *rig);
    struct error err = {0};
    static const char sentence[] = "the quick brown fox jumps over the lazy dog. ";
    char *text = malloc(TEXT_BYTES);
    for (size_t i = 0; i < TEXT_BYTES; i++)
        text[i] = sentence[i % (sizeof sentence - 1)];
    snprintf(rig->dir, sizeof rig->dir, "/tmp/raven-trainer-XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    assert_int_equal(path_format(rig->text, "%s/text", rig->dir), STATUS_OK);
    assert_int_equal(file_write_atomic(rig->text, text, TEXT_BYTES, 0600, &err), STATUS_OK);
    free(text);
    struct trainer_data_paths paths = {.paths = {rig->text}};
    if (job_spec_parse_text(spec_text, sizeof spec_text - 1, &rig->spec, &err) ||
        graph_build(&rig->spec.model, &rig->graph, &err) ||
        backend_create_cpu(1, &rig->backend, &err) ||
        trainer_create(&rig->spec, rig->graph, &paths, rig->backend, &rig->trainer, &err))
        fail_msg("%s", err.text);
    rig->x = malloc(rig->graph->parameter_count * sizeof *rig->x);
    graph_initialise(rig->graph, 1, rig->x);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;
    trainer_free(rig->trainer);
    backend_free(rig->backend);
    graph_free(rig->graph);
    assert_int_equal(file_remove_tree(rig->dir, NULL), STATUS_OK);
    free(rig->x);
    free(rig);
    return 0;
}

static double train(struct rig *rig, int steps)
{
    double loss = 0;
    struct error err = {0};
    trainer_begin_lease(rig->trainer, 0, 2, 7);
    for (int i = 0; i < steps; i++)
        if (trainer_step(rig->trainer, rig->x, 0.01, &loss, &err))
            fail_msg("%s", err.text);
    return loss;
}

static double evaluate(struct rig *rig, double *ret_accuracy)
{
    double loss;
    uint64_t samples;
    atomic_bool cancel = false;
    struct error err = {0};
    if (trainer_evaluate(rig->trainer, rig->x, 32, &cancel, &loss, ret_accuracy, &samples, &err))
        fail_msg("%s", err.text);
    assert_int_equal(samples, 32);
    return loss;
}

static void test_it_learns_a_sentence(void **state)
{
    struct rig *rig = *state;
    double accuracy, before = evaluate(rig, &accuracy);
    assert_float_equal(before, log(256), 0.3);
    train(rig, 400);
    double after = evaluate(rig, &accuracy);
    assert_true(after < 0.5);
    assert_true(accuracy > 0.8 && accuracy <= 1.0);
}

static void test_same_seed_same_run(void **state)
{
    struct rig *rig = *state;
    uint64_t n = rig->graph->parameter_count;
    float *first = malloc(n * sizeof *first);
    train(rig, 20);
    memcpy(first, rig->x, n * sizeof *first);
    graph_initialise(rig->graph, 1, rig->x);
    trainer_reset_optimizer(rig->trainer);
    train(rig, 20);
    assert_memory_equal(first, rig->x, n * sizeof *first);
    free(first);
}

static void test_evaluation_repeats_and_can_be_cancelled(void **state)
{
    struct rig *rig = *state;
    double a, b, loss;
    uint64_t samples;
    atomic_bool cancel = true;
    struct error err = {0};
    assert_float_equal(evaluate(rig, &a), evaluate(rig, &b), 0.0);
    assert_float_equal(a, b, 0.0);
    assert_int_equal(trainer_evaluate(rig->trainer, rig->x, 32, &cancel, &loss, &a, &samples, &err),
                     STATUS_CLOSED);
}

static void test_broken_numbers_change_nothing(void **state)
{
    struct rig *rig = *state;
    uint64_t n = rig->graph->parameter_count;
    double loss;
    struct error err = {0};
    float *copy = malloc(n * sizeof *copy);
    train(rig, 3);
    rig->x[n / 2] = NAN;
    memcpy(copy, rig->x, n * sizeof *copy);
    assert_int_equal(trainer_step(rig->trainer, rig->x, 0.01, &loss, &err), STATUS_NOT_FINITE);
    assert_memory_equal(copy, rig->x, n * sizeof *copy);
    free(copy);
}

static void test_data_that_does_not_fit_is_refused(void **state)
{
    struct rig *rig = *state;
    struct error err = {0};
    struct trainer *trainer = NULL;
    struct trainer_data_paths paths = {.paths = {"/nonexistent/text"}};
    assert_int_not_equal(
        trainer_create(&rig->spec, rig->graph, &paths, rig->backend, &trainer, &err), STATUS_OK);
    assert_non_null(strstr(err.text, "/nonexistent/text"));
    assert_int_equal(file_write_atomic(rig->text, "tiny", 4, 0600, &err), STATUS_OK);
    paths.paths[0] = rig->text;
    assert_int_not_equal(
        trainer_create(&rig->spec, rig->graph, &paths, rig->backend, &trainer, &err), STATUS_OK);
    assert_null(trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_it_learns_a_sentence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_same_seed_same_run, setup, teardown),
        cmocka_unit_test_setup_teardown(test_evaluation_repeats_and_can_be_cancelled, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_broken_numbers_change_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_data_that_does_not_fit_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
