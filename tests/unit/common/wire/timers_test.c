/* The timers are always in order, and a wrong order is named. */
#include "common/wire/timers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

static void derived_timers_are_ordered_for_every_ping(void **state)
{
    (void)state;
    for (uint64_t ping_ms = 1; ping_ms < 400000; ping_ms = ping_ms * 3 / 2 + 1) {
        struct timers timers;
        timers_derive(ping_ms, &timers);
        assert_int_equal(timers_check(&timers, NULL), STATUS_OK);
    }
    struct timers usual;
    timers_derive(20000, &usual);
    assert_int_equal(usual.silence_ms, 37500);
    assert_int_equal(usual.stall_ms, 60000);
    assert_int_equal(usual.lease_ms, 80000);
}

/* A ping each 5 s is welcome whatever the interval, and so is the interval itself. */
static void pain_E11_the_least_interval_between_pings(void **state)
{
    (void)state;
    for (uint64_t ping_ms = 1; ping_ms < 400000; ping_ms = ping_ms * 3 / 2 + 1) {
        struct timers timers;
        timers_derive(ping_ms, &timers);
        assert_true(timers.ping_min_ms <= 5000);
        assert_true(timers.ping_min_ms <= ping_ms / 4);
    }
}

/* Last heard just before the line broke: silence plus the tick that looks for it. */
static void pain_E23_silence_is_found_within_two_pings(void **state)
{
    (void)state;
    for (uint64_t ping_ms = 100; ping_ms < 400000; ping_ms = ping_ms * 3 / 2 + 1) {
        struct timers timers;
        timers_derive(ping_ms, &timers);
        assert_true(timers.silence_ms + ping_ms / 16 <= 2 * ping_ms);
        assert_true(timers.silence_ms > ping_ms * 3 / 2); /* and a slow pong may come */
    }
}

static void a_wrong_order_is_named(void **state)
{
    (void)state;
    struct timers timers = {20000, 20000, 60000, 80000, 0};
    struct error err = {0};
    assert_int_equal(timers_check(&timers, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "silence is 20000 ms"));
    timers = (struct timers){20000, 45000, 60000, 50000, 0};
    assert_int_equal(timers_check(&timers, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "lease is 50000 ms"));
    timers = (struct timers){0, 45000, 60000, 80000, 0};
    assert_int_equal(timers_check(&timers, &err), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(derived_timers_are_ordered_for_every_ping),
        cmocka_unit_test(a_wrong_order_is_named),
        cmocka_unit_test(pain_E11_the_least_interval_between_pings),
        cmocka_unit_test(pain_E23_silence_is_found_within_two_pings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
