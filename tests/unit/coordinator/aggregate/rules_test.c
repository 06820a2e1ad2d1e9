/* Staleness weights and outer rates against numbers worked out by hand. */
#include "fixture.h"

static void assert_close(float value, double expected)
{
    assert_true(fabs((double)value - expected) < 1e-6);
}

static void test_staleness_weight(void **state)
{
    (void)state;
    assert_true(aggregate_staleness_weight(0, 1) == 1.0f);
    assert_close(aggregate_staleness_weight(1, 1), 0.70710678);
    assert_close(aggregate_staleness_weight(3, 1), 0.5);
    for (uint32_t staleness = 0; staleness <= 7; staleness++)
        assert_true(aggregate_staleness_weight(staleness, 8) == 1.0f);
    assert_close(aggregate_staleness_weight(8, 8), 0.94280904); /* sqrt(8/9) */
    assert_close(aggregate_staleness_weight(31, 8), 0.5);
    assert_close(aggregate_staleness_weight(UINT32_MAX, 1), 1.0 / 65536);
    assert_true(aggregate_staleness_weight(0, 0) == 1.0f);
}

static void test_is_stale(void **state)
{
    (void)state;
    assert_false(aggregate_is_stale(4, 1));
    assert_true(aggregate_is_stale(5, 1));
    assert_false(aggregate_is_stale(32, 8));
    assert_true(aggregate_is_stale(33, 8));
    assert_false(aggregate_is_stale(4, 0));
    assert_false(aggregate_is_stale(UINT32_MAX, UINT32_MAX)); /* 4 × active does not wrap */
    assert_false(aggregate_is_stale(1u << 30, 1u << 30));
}

static void test_outer_rate(void **state)
{
    (void)state;
    assert_true(aggregate_outer_rate(1, 64, 0) == 1.0f);
    assert_true(aggregate_outer_rate(4, 64, 0) == 1.0f); /* 2/√4 */
    assert_close(aggregate_outer_rate(16, 64, 0), 0.5);
    assert_close(aggregate_outer_rate(16, 16, 0), 0.5);
    assert_true(aggregate_outer_rate(1, 128, 0) == 1.0f);
    assert_close(aggregate_outer_rate(16, 65, 0), 0.35);
    assert_close(aggregate_outer_rate(16, 128, 0), 0.35);
    assert_close(aggregate_outer_rate(4, 129, 0), 0.5);
    assert_close(aggregate_outer_rate(16, 512, 0), 0.25);
    assert_close(aggregate_outer_rate(16, 64, 0.7), 0.7);
    assert_true(aggregate_outer_rate(0, 64, 0) == 1.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_staleness_weight),
        cmocka_unit_test(test_is_stale),
        cmocka_unit_test(test_outer_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
