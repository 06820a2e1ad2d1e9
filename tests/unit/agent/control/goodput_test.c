/* Rates and stalls from confirmations with a clock of our own. */
#include "agent/control/goodput.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS 1000ll
#define S 1000000ll

/* bytes at a rate, confirmed in pieces of 32 KiB. Returns the time at the end. */
static int64_t transfer(struct goodput *goodput, uint64_t bytes, double bytes_per_s, int64_t now_us)
{
    goodput_begin(goodput, now_us);
    for (uint64_t done = 0; done < bytes;) {
        uint64_t piece = bytes - done < 32768 ? bytes - done : 32768;
        now_us += (int64_t)((double)piece / bytes_per_s * 1e6);
        goodput_add(goodput, piece, now_us);
        done += piece;
    }
    goodput_end(goodput, false, now_us);
    return now_us;
}

static void idle_time_does_not_count(void **state)
{
    (void)state;
    struct goodput goodput = {0};
    int64_t now_us = 5 * S;
    for (int i = 0; i < 10; i++)
        now_us = transfer(&goodput, 500000, 1e6, now_us) + 30 * S;
    assert_float_equal(goodput.bytes_per_s, 1e6, 2e4);
    assert_int_equal(goodput.stalls, 0);
}

static void a_slower_link_is_seen_within_two_transfers(void **state)
{
    (void)state;
    struct goodput goodput = {0};
    int64_t now_us = transfer(&goodput, 4000000, 6.25e6, S);
    now_us = transfer(&goodput, 500000, 0.625e6, now_us + S);
    now_us = transfer(&goodput, 500000, 0.625e6, now_us + S);
    assert_true(goodput.bytes_per_s < 0.8e6);
    for (int i = 0; i < 4; i++)
        now_us = transfer(&goodput, 500000, 6.25e6, now_us + S);
    assert_true(goodput.bytes_per_s > 4e6);
}

static void a_stall_is_no_rate(void **state)
{
    (void)state;
    struct goodput goodput = {0};
    int64_t now_us = transfer(&goodput, 4000000, 1e6, S);
    goodput_begin(&goodput, now_us);
    goodput_add(&goodput, 200000, now_us += 200 * MS);
    goodput_add(&goodput, 200000, now_us += 10 * S); /* gone for ten seconds */
    goodput_add(&goodput, 200000, now_us += 200 * MS);
    goodput_end(&goodput, false, now_us);
    assert_int_equal(goodput.stalls, 1);
    assert_int_equal(goodput_longest_stall_us(&goodput, now_us), 10 * S);
    assert_true(goodput.bytes_per_s > 0.5e6);
    assert_int_equal(goodput_longest_stall_us(&goodput, now_us + GOODPUT_MEMORY_US), 0);

    goodput_stalled(&goodput, 3 * S, now_us + S); /* a shorter one changes nothing */
    assert_int_equal(goodput_longest_stall_us(&goodput, now_us + S), 10 * S);
    goodput_stalled(&goodput, 3 * S, now_us + GOODPUT_MEMORY_US + S);
    assert_int_equal(goodput_longest_stall_us(&goodput, now_us + GOODPUT_MEMORY_US + S), 3 * S);
}

static void tiny_transfers_say_nothing_and_breaks_are_stalls(void **state)
{
    (void)state;
    struct goodput goodput = {0};
    goodput_end(&goodput, true, S); /* not busy */
    transfer(&goodput, 2400, 1e6, S);
    assert_true(goodput.bytes_per_s == 0.0);
    goodput_begin(&goodput, 2 * S);
    goodput_end(&goodput, true, 12 * S);
    assert_int_equal(goodput.stalls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_time_does_not_count),
        cmocka_unit_test(a_slower_link_is_seen_within_two_transfers),
        cmocka_unit_test(a_stall_is_no_rate),
        cmocka_unit_test(tiny_transfers_say_nothing_and_breaks_are_stalls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
