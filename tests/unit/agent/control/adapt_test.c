/* The controller's choices for links of many kinds, and how it follows changes. */
#include "agent/control/adapt.h"

#include "common/codec/codec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#define MBIT (1e6 / 8)

static struct job_spec make_spec(void)
{
    struct job_spec spec = {0};
    spec.training.steps_per_lease = 30;
    spec.training.steps_min = 8;
    spec.training.steps_max = 256;
    spec.update.adaptive = true;
    spec.update.k_per_chunk = 64;
    spec.update.k_min = 16;
    spec.update.k_max = 256;
    spec.update.values = CODEC_SIGN;
    return spec;
}

static struct adapt_inputs big_model(double up_mbit, double down_mbit)
{
    return (struct adapt_inputs){.parameters = 30800000,
                                 .step_ms = 25,
                                 .fleet_step_ms = 25,
                                 .up_bytes_per_s = up_mbit * MBIT,
                                 .down_bytes_per_s = down_mbit * MBIT,
                                 .rtt_ms = 20,
                                 .overhead_ms = 60,
                                 .active = 4,
                                 .delta_bytes = 911000};
}

/* The demo's: its transfers are hardly more than round trips. */
static struct adapt_inputs small_model(void)
{
    struct adapt_inputs inputs = big_model(1000, 1000);
    inputs.parameters = 137216;
    inputs.delta_bytes = 4000;
    inputs.overhead_ms = 1;
    return inputs;
}

static struct adapt_choice choose(struct adapt *adapt, const struct adapt_inputs *inputs)
{
    struct job_spec spec = make_spec();
    struct adapt_choice choice;
    adapt_choose(adapt, &spec, inputs, &choice);
    return choice;
}

static void update_sizes_are_those_of_the_code(void **state)
{
    (void)state;
    /* docs/FORMATS.md: 0.01690 bytes a parameter for 1/64 signs, 0.02958 for 1/32 */
    assert_float_equal(adapt_update_bytes(1000000, 64, CODEC_SIGN), 16900, 300);
    assert_float_equal(adapt_update_bytes(1000000, 128, CODEC_SIGN), 29580, 500);
    assert_float_equal(adapt_update_bytes(1000, 64, CODEC_FP32), 4000, 0);
}

static void nothing_measured_means_as_the_job_says(void **state)
{
    (void)state;
    struct adapt adapt = {0};
    struct adapt_inputs inputs = {.parameters = 1000, .active = 1};
    struct adapt_choice choice = choose(&adapt, &inputs);
    assert_int_equal(choice.steps, 30);
    assert_int_equal(choice.k, 64);
    assert_int_equal(choice.ahead, 1);
    assert_non_null(strstr(choice.reason, "nothing is measured"));
}

static void a_fast_link_keeps_the_jobs_steps_and_raises_k(void **state)
{
    (void)state;
    struct adapt adapt = {0};
    struct adapt_inputs inputs = small_model();
    inputs.rtt_ms = 1;
    struct adapt_choice choice = choose(&adapt, &inputs);
    assert_int_equal(choice.steps, 30);
    assert_int_equal(choice.k, 256);
    assert_non_null(strstr(choice.reason, "link keeps up"));
}

static void a_home_link_gets_longer_leases(void **state)
{
    (void)state;
    struct adapt adapt = {0};
    struct adapt_inputs inputs = big_model(50, 50);
    struct adapt_choice choice = choose(&adapt, &inputs);
    assert_in_range(choice.steps, 180, 256);
    assert_true(choice.compute_ms >= 3.9 * choice.transfer_ms || choice.steps == 256);
    assert_non_null(strstr(choice.reason, "4 times the predicted transfer"));
}

static void a_link_that_is_too_slow_is_named_as_the_limit(void **state)
{
    (void)state;
    struct adapt adapt = {0};
    struct adapt_inputs inputs = big_model(1, 5);
    struct adapt_choice choice = choose(&adapt, &inputs);
    assert_int_equal(choice.steps, 256);
    assert_int_equal(choice.k, 16);
    assert_non_null(strstr(choice.reason, "the link is the limit"));
}

/* Issue: 50 → 5 Mbit/s is followed within two leases, and back. */
static void worse_is_followed_at_once_and_better_after_two(void **state)
{
    (void)state;
    struct adapt adapt = {0};
    struct adapt_inputs fast = big_model(50, 50), slow = big_model(5, 50);
    fast.parameters = slow.parameters = 3000000;
    fast.delta_bytes = slow.delta_bytes = 90000;
    fast.overhead_ms = slow.overhead_ms = 6;
    struct adapt_choice before = choose(&adapt, &fast);
    struct adapt_choice worse = choose(&adapt, &slow);
    assert_true(worse.k < before.k);
    struct adapt_choice once = choose(&adapt, &fast);
    assert_int_equal(once.k, worse.k);
    assert_int_equal(once.steps, worse.steps);
    struct adapt_choice twice = choose(&adapt, &fast);
    assert_int_equal(twice.k, before.k);
    assert_int_equal(twice.steps, before.steps);
}

static void a_flicker_changes_nothing(void **state)
{
    (void)state;
    struct adapt adapt = {0};
    struct adapt_inputs slow = big_model(20, 20), better = big_model(50, 50);
    struct adapt_choice before = choose(&adapt, &slow);
    for (int i = 0; i < 10; i++) {
        choose(&adapt, &better);
        struct adapt_choice again = choose(&adapt, &slow);
        assert_int_equal(again.steps, before.steps);
        assert_int_equal(again.k, before.k);
    }
}

static void a_slower_pc_takes_fewer_steps(void **state)
{
    (void)state;
    struct adapt adapt = {0};
    struct adapt_inputs inputs = small_model();
    inputs.step_ms = 75;
    struct adapt_choice choice = choose(&adapt, &inputs);
    assert_int_equal(choice.steps, 10);
    assert_non_null(strstr(choice.reason, "fewer steps"));
}

static void leases_are_stored_against_the_longest_stall(void **state)
{
    (void)state;
    struct adapt adapt = {0};
    struct adapt_inputs inputs = big_model(50, 50);
    inputs.longest_stall_ms = 10000;
    struct adapt_choice choice = choose(&adapt, &inputs);
    assert_true((double)(choice.ahead - 1) * choice.compute_ms >= 12500);
    inputs.longest_stall_ms = 1e7;
    assert_int_equal(choose(&adapt, &inputs).ahead, ADAPT_AHEAD_MAX);
}

static void bounds_hold_for_any_figures(void **state)
{
    (void)state;
    static const double odd[] = {0, 1e-9, 1, 25, 1e6, 1e18};
    for (size_t a = 0; a < 6; a++)
        for (size_t b = 0; b < 6; b++)
            for (size_t c = 0; c < 6; c++) {
                struct adapt adapt = {0};
                struct adapt_inputs inputs = {.parameters = 1u << 31,
                                              .step_ms = odd[a],
                                              .fleet_step_ms = odd[b],
                                              .up_bytes_per_s = odd[c],
                                              .down_bytes_per_s = odd[b],
                                              .rtt_ms = odd[c],
                                              .overhead_ms = odd[b],
                                              .active = 1000000,
                                              .delta_bytes = 1u << 30,
                                              .longest_stall_ms = odd[a]};
                struct adapt_choice choice = choose(&adapt, &inputs);
                assert_in_range(choice.steps, 8, 256);
                assert_in_range(choice.k, 16, 256);
                assert_in_range(choice.ahead, 1, ADAPT_AHEAD_MAX);
                assert_true(isfinite(choice.transfer_ms) && isfinite(choice.compute_ms));
            }
}

static void a_job_may_refuse_to_adapt(void **state)
{
    (void)state;
    struct adapt adapt = {0};
    struct job_spec spec = make_spec();
    spec.update.adaptive = false;
    struct adapt_inputs inputs = big_model(1, 1);
    struct adapt_choice choice;
    adapt_choose(&adapt, &spec, &inputs, &choice);
    assert_int_equal(choice.steps, 30);
    assert_int_equal(choice.k, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(update_sizes_are_those_of_the_code),
        cmocka_unit_test(nothing_measured_means_as_the_job_says),
        cmocka_unit_test(a_fast_link_keeps_the_jobs_steps_and_raises_k),
        cmocka_unit_test(a_home_link_gets_longer_leases),
        cmocka_unit_test(a_link_that_is_too_slow_is_named_as_the_limit),
        cmocka_unit_test(worse_is_followed_at_once_and_better_after_two),
        cmocka_unit_test(a_flicker_changes_nothing),
        cmocka_unit_test(a_slower_pc_takes_fewer_steps),
        cmocka_unit_test(leases_are_stored_against_the_longest_stall),
        cmocka_unit_test(bounds_hold_for_any_figures),
        cmocka_unit_test(a_job_may_refuse_to_adapt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
