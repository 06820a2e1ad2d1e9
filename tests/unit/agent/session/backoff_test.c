/* The back-off's distribution and its fall-back, on a clock of the test's own. */
#include "agent/session/backoff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define STABLE_MS 60000
#define STABLE_US (STABLE_MS * 1000ll)

static void test_full_jitter(void **state)
{
    (void)state;
    double sum[10] = {0};
    int64_t largest[10] = {0};
    enum { AGENTS = 4000 };
    for (uint64_t seed = 0; seed < AGENTS; seed++) {
        struct backoff backoff;
        backoff_init(&backoff, seed);
        for (int i = 0; i < 10; i++) {
            int64_t wait_ms = backoff_next_ms(&backoff, 0);
            assert_true(wait_ms >= 0);
            sum[i] += (double)wait_ms;
            if (wait_ms > largest[i])
                largest[i] = wait_ms;
        }
    }
    int64_t ceiling_ms = BACKOFF_FIRST_MS;
    for (int i = 0; i < 10; i++) {
        double mean = sum[i] / AGENTS; /* of a uniform distribution: half the ceiling */
        assert_true(mean > 0.47 * (double)ceiling_ms && mean < 0.53 * (double)ceiling_ms);
        assert_true(largest[i] <= ceiling_ms && largest[i] > ceiling_ms * 9 / 10);
        ceiling_ms = ceiling_ms * 2 > BACKOFF_LAST_MS ? BACKOFF_LAST_MS : ceiling_ms * 2;
    }
    assert_int_equal(ceiling_ms, BACKOFF_LAST_MS);
}

static void test_falls_back_after_a_stable_session_only(void **state)
{
    (void)state;
    struct backoff backoff;
    backoff_init(&backoff, 1);
    for (int i = 0; i < 20; i++)
        backoff_next_ms(&backoff, 0);
    int64_t now_us = 5000000;
    for (int i = 0; i < 5; i++) { /* accepted and dropped at once, again and again */
        backoff_connected(&backoff, 0, STABLE_MS, now_us);
        backoff_lost(&backoff, now_us + STABLE_US - 1);
        now_us += STABLE_US;
        assert_int_equal(backoff.ceiling_ms, BACKOFF_LAST_MS);
    }
    backoff_lost(&backoff, now_us + 10 * STABLE_US); /* failed attempts are no session */
    assert_int_equal(backoff.ceiling_ms, BACKOFF_LAST_MS);
    backoff_connected(&backoff, 0, STABLE_MS, now_us);
    backoff_lost(&backoff, now_us + STABLE_US);
    assert_int_equal(backoff.ceiling_ms, BACKOFF_FIRST_MS);
}

static void test_the_coordinator_asks(void **state)
{
    (void)state;
    struct backoff backoff;
    backoff_init(&backoff, 7);
    for (int i = 0; i < 1000; i++) {
        int64_t wait_ms = backoff_next_ms(&backoff, 4000);
        assert_true(wait_ms >= 4000 && wait_ms <= 6000);
    }
    assert_int_equal(backoff.ceiling_ms, BACKOFF_FIRST_MS);
    assert_true(backoff_next_ms(&backoff, UINT64_MAX) <= BACKOFF_ASKED_MAX_MS * 3 / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_jitter),
        cmocka_unit_test(test_falls_back_after_a_stable_session_only),
        cmocka_unit_test(test_the_coordinator_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
