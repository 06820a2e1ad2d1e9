/* Tests of clock.c: format at the edges, clocks that run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"

#include <string.h>

static void format_is_exact_at_the_edges(void **state)
{
    (void)state;
    char text[CLOCK_RFC3339_BYTES];
    clock_format_rfc3339(INT64_C(1796076879120), text);
    assert_string_equal(text, "2026-11-30T22:14:39.120Z");
    clock_format_rfc3339(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    clock_format_rfc3339(-1, text);
    assert_string_equal(text, "1969-12-31T23:59:59.999Z");
    clock_format_rfc3339(INT64_MAX, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999Z");
    clock_format_rfc3339(INT64_MIN, text);
    assert_string_equal(text, "0000-01-01T00:00:00.000Z");
}

static void monotonic_time_covers_a_sleep(void **state)
{
    (void)state;
    int64_t before_us = clock_monotonic_us();
    clock_sleep_us(2000);
    clock_sleep_us(-5);
    assert_true(clock_monotonic_us() - before_us >= 2000);
    assert_true(clock_wall_ms() > INT64_C(1700000000000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(format_is_exact_at_the_edges),
        cmocka_unit_test(monotonic_time_covers_a_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
