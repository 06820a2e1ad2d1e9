/* The cap holds on average, whatever the size of the messages and however time comes. */
#include "agent/session/meter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint64_t sent_in(uint64_t bytes_per_s, size_t piece, int64_t seconds, int64_t step_us)
{
    struct meter meter;
    uint64_t sent = 0;
    meter_init(&meter, bytes_per_s, 0);
    for (int64_t now_us = 0; now_us < seconds * 1000000; now_us += step_us)
        while (meter_wait_ms(&meter, now_us) == 0) {
            meter_spend(&meter, piece);
            sent += piece;
        }
    return sent;
}

static void test_average(void **state)
{
    (void)state;
    static const uint64_t rates[] = {1000, 50000, 10000000};
    static const size_t pieces[] = {100, 8192, 65560};
    static const int64_t steps_us[] = {100, 7777, 100000};
    for (size_t i = 0; i < 27; i++) {
        uint64_t rate = rates[i / 9];
        size_t piece = pieces[i / 3 % 3];
        uint64_t sent = sent_in(rate, piece, 100, steps_us[i % 3]);
        if (sent > 100 * rate + 2 * piece + rate / 4 || sent + 2 * piece + rate < 100 * rate)
            fail_msg("rate %lu, piece %zu: %lu bytes in 100 s", rate, piece, sent);
    }
}

static void test_idle_and_none(void **state)
{
    (void)state;
    struct meter meter = {0};
    assert_int_equal(meter_wait_ms(&meter, 5), 0);
    meter_spend(&meter, 1u << 30);
    assert_int_equal(meter_wait_ms(&meter, 6), 0);
    meter_init(&meter, 1000, 0);
    assert_int_equal(meter_wait_ms(&meter, 3600ll * 1000000), 0);
    meter_spend(&meter, 1250); /* a quarter of a second saved up, one second of debt */
    uint64_t wait_ms = meter_wait_ms(&meter, 3600ll * 1000000);
    assert_true(wait_ms >= 1000 && wait_ms <= 1001);
    assert_int_equal(meter_wait_ms(&meter, 3601ll * 1000000 + 1000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_average),
        cmocka_unit_test(test_idle_and_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
