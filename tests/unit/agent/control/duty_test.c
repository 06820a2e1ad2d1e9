/* The duty cycle keeps the chosen share over many steps of any length. */
#include "agent/control/duty.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Simulated time: steps of step_us, sleeps that last longer than asked by oversleep_us. */
static double share(unsigned percent, int64_t step_us, int64_t oversleep_us)
{
    struct duty duty;
    duty_init(&duty, percent);
    int64_t busy_us = 0, rest_us = 0;
    for (int i = 0; i < 20000; i++) {
        busy_us += step_us;
        duty_computed(&duty, step_us);
        int64_t wanted_us = duty_rest_us(&duty);
        if (wanted_us > 0) {
            rest_us += wanted_us + oversleep_us;
            duty_rested(&duty, wanted_us + oversleep_us);
        }
    }
    return 100.0 * (double)busy_us / (double)(busy_us + rest_us);
}

static void test_share(void **state)
{
    (void)state;
    const unsigned percents[] = {1, 10, 35, 60, 99};
    const int64_t steps_us[] = {70, 1500, 40000};
    for (size_t p = 0; p < 5; p++)
        for (size_t s = 0; s < 3; s++) {
            double got = share(percents[p], steps_us[s], 0);
            assert_true(got > percents[p] * 0.98 && got < percents[p] * 1.02);
        }
}

static void test_full_speed_never_rests(void **state)
{
    (void)state;
    struct duty duty;
    duty_init(&duty, 100);
    duty_computed(&duty, 1000000000);
    assert_int_equal(duty_rest_us(&duty), 0);
}

static void test_odd_clocks(void **state)
{
    (void)state;
    struct duty duty;
    duty_init(&duty, 0); /* clamped to 1 */
    duty_computed(&duty, -5);
    assert_int_equal(duty_rest_us(&duty), 0);
    duty_computed(&duty, 1000);
    assert_int_equal(duty_rest_us(&duty), 99000);
    duty_rested(&duty, 98500);
    assert_int_equal(duty_rest_us(&duty),
                     0); /* half a millisecond is not worth a sleep, but kept */
    assert_int_equal(duty.debt_us, 500);
    duty_rested(&duty, 1 << 30); /* the machine slept: no credit for later */
    assert_int_equal(duty.debt_us, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_full_speed_never_rests),
        cmocka_unit_test(test_odd_clocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
