/* Ranges: every one that is granted lies inside the content. */
#include "coordinator/http/range.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>

static void test_table(void **state)
{
    static const struct {
        const char *text;
        enum range_kind kind;
        uint64_t first, count;
    } cases[] = {
        {NULL, RANGE_WHOLE, 0, 0},
        {"", RANGE_WHOLE, 0, 0},
        {"bytes=0-9", RANGE_PART, 0, 10},
        {"bytes=5-5", RANGE_PART, 5, 1},
        {"Bytes=90-", RANGE_PART, 90, 10},
        {"bytes=0-1000", RANGE_PART, 0, 100},
        {"bytes=-1", RANGE_PART, 99, 1},
        {"bytes=-100", RANGE_PART, 0, 100},
        {"bytes=-1000", RANGE_PART, 0, 100},
        {"bytes=-0", RANGE_OUTSIDE, 0, 0},
        {"bytes=100-", RANGE_OUTSIDE, 0, 0},
        {"bytes=100-200", RANGE_OUTSIDE, 0, 0},
        {"bytes=99999999999999999999999-", RANGE_OUTSIDE, 0, 0},
        {"bytes=0-99999999999999999999999", RANGE_PART, 0, 100},
        {"bytes=-99999999999999999999999", RANGE_PART, 0, 100},
        {"bytes=9-5", RANGE_WHOLE, 0, 0},
        {"bytes=-", RANGE_WHOLE, 0, 0},
        {"bytes=0-1,5-6", RANGE_WHOLE, 0, 0},
        {"bytes= 0-1", RANGE_WHOLE, 0, 0},
        {"bytes=0-1x", RANGE_WHOLE, 0, 0},
        {"bytes=0", RANGE_WHOLE, 0, 0},
        {"bytes=+1-2", RANGE_WHOLE, 0, 0},
        {"items=0-1", RANGE_WHOLE, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t first = 0, count = 0;
        assert_int_equal(range_parse(cases[i].text, 100, &first, &count), cases[i].kind);
        assert_int_equal(first, cases[i].first);
        assert_int_equal(count, cases[i].count);
    }
}

static void test_inside_for_all_small_numbers(void **state)
{
    (void)state;
    for (uint64_t total = 0; total < 8; total++)
        for (unsigned a = 0; a < 10; a++)
            for (unsigned b = 0; b < 10; b++)
                for (int shape = 0; shape < 3; shape++) {
                    char text[32];
                    uint64_t first = 0, count = 0;
                    if (shape == 0)
                        snprintf(text, sizeof text, "bytes=%u-%u", a, b);
                    else
                        snprintf(text, sizeof text, shape == 1 ? "bytes=%u-" : "bytes=-%u", a);
                    if (range_parse(text, total, &first, &count) != RANGE_PART)
                        continue;
                    assert_true(count >= 1 && first < total && count <= total - first);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_inside_for_all_small_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
