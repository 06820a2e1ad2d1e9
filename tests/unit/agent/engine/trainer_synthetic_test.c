/* The synthetic trainer: its loss falls as updates are applied, a step takes its time, the same
 * seeds give the same numbers, every size works, broken numbers change nothing. */
#include "agent/engine/trainer.h"
#include "common/base/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define STEP_MS 0.2

struct rig {
    struct job_spec spec;
    struct graph *graph;
    struct trainer *trainer;
    float *x;
};

static struct rig make(uint64_t parameters, double step_ms)
{
    struct rig rig = {0};
    struct error err = {0};
    char text[400];
    snprintf(text, sizeof text,
             "{\"name\":\"t\",\"model\":{\"preset\":\"synthetic\",\"parameters\":%llu,"
             "\"step_ms\":%g},\"data\":{\"kind\":\"synthetic\"},"
             "\"training\":{\"batch_size\":4,\"total_samples\":100000}}",
             (unsigned long long)parameters, step_ms);
    if (job_spec_parse_text(text, strlen(text), &rig.spec, &err) ||
        graph_build(&rig.spec.model, &rig.graph, &err) ||
        trainer_create(&rig.spec, rig.graph, NULL, NULL, &rig.trainer, &err))
        fail_msg("%s", err.text);
    rig.x = malloc(parameters * sizeof *rig.x);
    assert_non_null(rig.x);
    graph_initialise(rig.graph, 1, rig.x);
    return rig;
}

static void discard(struct rig *rig)
{
    trainer_free(rig->trainer);
    graph_free(rig->graph);
    free(rig->x);
}

/* The mean loss of the steps. */
static double train(struct rig *rig, uint64_t seed, int steps)
{
    double loss, sum = 0;
    struct error err = {0};
    trainer_begin_lease(rig->trainer, 0, 1, seed);
    for (int i = 0; i < steps; i++) {
        if (trainer_step(rig->trainer, rig->x, 0.003, &loss, &err))
            fail_msg("%s", err.text);
        assert_true(isfinite(loss) && loss > 0);
        sum += loss;
    }
    return sum / steps;
}

static double evaluate(const struct rig *rig, double *ret_accuracy)
{
    double loss;
    uint64_t samples;
    atomic_bool cancel = false;
    struct error err = {0};
    if (trainer_evaluate(rig->trainer, rig->x, 320, &cancel, &loss, ret_accuracy, &samples, &err))
        fail_msg("%s", err.text);
    assert_int_equal(samples, 320);
    return loss;
}

static void test_the_loss_falls(void **state)
{
    struct rig rig = make(100000, STEP_MS);
    double accuracy_before, accuracy, before = evaluate(&rig, &accuracy_before);
    (void)state;
    assert_float_equal(before, 2.0, 0.1); /* twice the variance */
    double first = train(&rig, 5, 30);
    for (uint64_t lease = 1; lease < 10; lease++)
        train(&rig, lease * 1000003, 30);
    double last = train(&rig, 77, 30);
    assert_true(last < 0.5 * first);
    double after = evaluate(&rig, &accuracy);
    assert_true(after < 0.4 * before && after > 0);
    assert_true(accuracy > 1.5 * accuracy_before && accuracy <= 1.0);
    discard(&rig);
}

static void test_each_step_changes_every_tensor_and_chunk(void **state)
{
    struct rig rig = make(100000, STEP_MS);
    float *before = malloc(100000 * sizeof *before);
    (void)state;
    memcpy(before, rig.x, 100000 * sizeof *before);
    train(&rig, 9, 1);
    uint64_t changed = 0;
    for (uint64_t chunk = 0; chunk + 4096 <= 100000; chunk += 4096) {
        uint64_t here = 0;
        for (uint64_t i = chunk; i < chunk + 4096; i++)
            here += before[i] != rig.x[i];
        assert_in_range(here, 32, 64);
        changed += here;
    }
    assert_true(changed > 1400);
    free(before);
    discard(&rig);
}

static void test_a_step_takes_its_time(void **state)
{
    struct rig rig = make(1000, 20);
    (void)state;
    int64_t from_us = clock_monotonic_us();
    train(&rig, 1, 5);
    assert_true(clock_monotonic_us() - from_us >= 100000);
    discard(&rig);
}

static void test_same_seeds_same_numbers(void **state)
{
    enum { N = 20000 };
    struct rig a = make(N, STEP_MS), b = make(N, STEP_MS);
    (void)state;
    train(&a, 7, 80);
    train(&b, 8, 3); /* a lease leaves nothing behind in the trainer */
    graph_initialise(b.graph, 1, b.x);
    trainer_reset_optimizer(b.trainer);
    train(&b, 7, 80);
    assert_memory_equal(a.x, b.x, N * sizeof *a.x);
    graph_initialise(b.graph, 1, b.x);
    train(&b, 8, 80);
    assert_memory_not_equal(a.x, b.x, N * sizeof *a.x);
    discard(&a);
    discard(&b);
}

/* Blocks, slices and tails of all shapes; the sanitizers watch the edges. */
static void test_every_size_works(void **state)
{
    static const uint64_t sizes[] = {1,    63,   64,   65,   4031, 4032,
                                     4033, 4095, 4096, 4097, 8200, 12345};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct rig rig = make(sizes[i], 0.1);
        double accuracy;
        train(&rig, i, 65);
        assert_true(isfinite(evaluate(&rig, &accuracy)));
        discard(&rig);
    }
}

static void test_broken_numbers_change_nothing(void **state)
{
    enum { N = 100 }; /* so small that each step visits everything */
    struct rig rig = make(N, STEP_MS);
    static const float broken[] = {NAN, INFINITY, -INFINITY, 1e30f};
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        float copy[N];
        double loss;
        struct error err = {0};
        rig.x[99] = broken[i];
        memcpy(copy, rig.x, sizeof copy);
        assert_int_equal(trainer_step(rig.trainer, rig.x, 0.01, &loss, &err), STATUS_NOT_FINITE);
        assert_memory_equal(copy, rig.x, sizeof copy);
    }
    discard(&rig);
}

static void test_evaluation_repeats_and_can_be_cancelled(void **state)
{
    struct rig rig = make(50000, STEP_MS);
    double a, b, loss;
    uint64_t samples = 0;
    atomic_bool cancel = true;
    struct error err = {0};
    (void)state;
    assert_float_equal(evaluate(&rig, &a), evaluate(&rig, &b), 0.0);
    assert_float_equal(a, b, 0.0);
    assert_int_equal(trainer_evaluate(rig.trainer, rig.x, 32, &cancel, &loss, &a, &samples, &err),
                     STATUS_CLOSED);
    assert_int_equal(trainer_evaluate(rig.trainer, rig.x, 0, NULL, &loss, &a, &samples, &err),
                     STATUS_INVALID);
    assert_int_equal(trainer_evaluate(rig.trainer, rig.x, 1000000, NULL, &loss, &a, &samples, &err),
                     STATUS_OK);
    assert_int_equal(samples, 65536);
    rig.x[0] = NAN; /* of the many blocks drawn, the first is one */
    assert_int_equal(trainer_evaluate(rig.trainer, rig.x, 1000000, NULL, &loss, &a, &samples, &err),
                     STATUS_NOT_FINITE);
    discard(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_loss_falls),
        cmocka_unit_test(test_each_step_changes_every_tensor_and_chunk),
        cmocka_unit_test(test_a_step_takes_its_time),
        cmocka_unit_test(test_same_seeds_same_numbers),
        cmocka_unit_test(test_every_size_works),
        cmocka_unit_test(test_broken_numbers_change_nothing),
        cmocka_unit_test(test_evaluation_repeats_and_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
