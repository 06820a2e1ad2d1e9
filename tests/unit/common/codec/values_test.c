/* Tests of values.c against numbers worked out by hand from the description in format.c: which
 * scale a mean gets down to its last bit, how levels round, and what a decoder must refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "common/base/rng.h"
#include "common/codec/values.h"

#include <float.h>
#include <math.h>
#include <string.h>

static struct selection quantised(const float *x, uint32_t count, enum codec_values values)
{
    struct selection selection = {.count = count};
    for (uint32_t i = 0; i < count; i++) {
        selection.indices[i] = i;
        selection.bits[i] = float_bits(x[i]);
        uint32_t magnitude = selection.bits[i] & FLOAT_MAGNITUDE;
        selection.greatest = magnitude > selection.greatest ? magnitude : selection.greatest;
    }
    values_quantise(&selection, values);
    return selection;
}

static void scales_are_quarter_octaves_rounded_to_nearest(void **state)
{
    (void)state;
    for (uint32_t scale = 1; scale <= SCALE_TOP; scale++) {
        float table[VALUES_TABLE];
        assert_null(values_table(CODEC_SIGN, scale, 0, table));
        assert_true(table[0] == (float)exp2l(((long double)scale - 1) / 4 - 48));
        assert_true(table[1] == -table[0]);
    }
    float table[VALUES_TABLE];
    assert_null(values_table(CODEC_SIGN, 1, 0, table));
    assert_true(table[0] == 0x1p-48f);
    assert_null(values_table(CODEC_SIGN, 193, 0, table));
    assert_true(table[0] == 1.0f);
    assert_null(values_table(CODEC_SIGN, 254, 0, table));
    assert_true(table[0] == 0x1.306fep+15f);
}

#define BORDER_COUNT 16u

/* Sixteen floats whose fixed-point numbers under 2^exponent add up to sum: fifteen multiples of
 * 2^8, and one that holds the low byte and so can end anywhere. */
static void numbers_with_sum(uint64_t sum, int exponent, float ret[BORDER_COUNT])
{
    uint64_t low = 256 + sum % 256, rest = (sum - low) / 256, each = rest / (BORDER_COUNT - 1);
    for (uint32_t i = 0; i + 1 < BORDER_COUNT; i++) {
        uint64_t number = (each + (i < rest % (BORDER_COUNT - 1))) * 256;
        assert_true(number >= 1ul << 31 && number < 1ul << 32);
        ret[i] = ldexpf((float)number, exponent - 31) * (i % 2 ? -1.0f : 1.0f);
    }
    ret[BORDER_COUNT - 1] = ldexpf((float)low, exponent - 31);
}

/* The means next to each border, one unit of the sum apart. */
static void means_below_a_border_get_the_lower_scale(void **state)
{
    (void)state;
    /* 2^31 · 2^((j + 1/2) / 4), rounded up */
    const uint64_t borders[] = {0x8B95C1E4, 0xA5FED6AA, 0xC5672A12, 0xEAC0C6E8};
    for (int exponent = -47; exponent <= 15; exponent++)
        for (uint32_t j = 0; j < COUNT_OF(borders) && j + 4 * (uint32_t)(exponent + 48) < 253;
             j++) {
            float x[BORDER_COUNT];
            uint32_t scale = 1 + 4 * (uint32_t)(exponent + 48) + j;
            numbers_with_sum(BORDER_COUNT * borders[j] - 1, exponent, x);
            assert_int_equal(quantised(x, BORDER_COUNT, CODEC_SIGN).scale, scale);
            numbers_with_sum(BORDER_COUNT * borders[j], exponent, x);
            assert_int_equal(quantised(x, BORDER_COUNT, CODEC_SIGN).scale, scale + 1);
        }
}

static void scales_end_at_both_ends(void **state)
{
    (void)state;
    float x[BORDER_COUNT];
    numbers_with_sum(BORDER_COUNT * UINT64_C(0xEAC0C6E8), -49, x); /* 2^(-48 - 1/8) */
    struct selection s = quantised(x, BORDER_COUNT, CODEC_SIGN);
    assert_true(s.scale == 1 && s.count == BORDER_COUNT && s.values[1] == -0x1p-48f);
    numbers_with_sum(BORDER_COUNT * UINT64_C(0xEAC0C6E8) - 1, -49, x);
    s = quantised(x, BORDER_COUNT, CODEC_SIGN);
    assert_true(s.scale == 0 && s.count == 0);
    s = quantised(x, BORDER_COUNT, CODEC_TWO_BITS); /* its large ones alone are above the border */
    assert_true(s.scale == 1 && s.second == 1 && s.count == BORDER_COUNT);
    const float tiny[] = {FLT_MIN, -0x1p-50f}, huge[] = {FLT_MAX, -FLT_MAX, 0x1p100f};
    assert_int_equal(quantised(tiny, 2, CODEC_SIGN).count, 0);
    assert_int_equal(quantised(tiny, 2, CODEC_TWO_BITS).count, 0);
    s = quantised(huge, 3, CODEC_SIGN);
    assert_true(s.scale == SCALE_TOP && s.values[1] == -0x1.306fep+15f);
    s = quantised(huge, 3, CODEC_TWO_BITS);
    assert_true(s.scale == SCALE_TOP && s.second == SCALE_TOP);
}

static void two_bits_split_at_the_mean_of_all(void **state)
{
    (void)state;
    const float x[] = {1, -2, 1, 4}; /* mean 2: what equals it is large */
    struct selection s = quantised(x, 4, CODEC_TWO_BITS);
    const uint8_t words[] = {0, 3, 0, 2};
    assert_memory_equal(s.words, words, 4);
    assert_int_equal(s.scale, 193 + 6); /* mean 3: nearest is 2^(6/4) = 2.83 */
    assert_int_equal(s.second, 193);
    assert_true(s.values[0] == 1 && s.values[1] == -0x1.6a09e6p+1f);
    const float alike[] = {2, -2, 2};
    s = quantised(alike, 3, CODEC_TWO_BITS);
    assert_true(s.scale == 197 && s.second == 197 && s.words[1] == 3 && s.values[1] == -2);
    const float apart[] = {1, 0x1p-100f}; /* the small one is nothing beside the large one */
    s = quantised(apart, 2, CODEC_TWO_BITS);
    assert_true(s.scale == 193 && s.second == 1 && s.values[1] == 0x1p-48f);
}

static void levels_round_halves_away_from_zero(void **state)
{
    (void)state;
    const struct {
        enum codec_values values;
        float x, sent;
    } rows[] = {
        {CODEC_FOUR_BITS, 1.25f, 1.5f},
        {CODEC_FOUR_BITS, -1.25f, -1.5f},
        {CODEC_FOUR_BITS, 0x1.3ffffep0f, 1.0f},
        {CODEC_FOUR_BITS, 1.75f, 2.0f},
        {CODEC_FOUR_BITS, 6.99f, 6.0f}, /* 7 and more would be 8: above the scale's levels */
        {CODEC_FOUR_BITS, 7.99f, 6.0f},
        {CODEC_FOUR_BITS, 0.5f, 0.5f}, /* the lowest of 8 levels under exponent 2 */
        {CODEC_FOUR_BITS, -0.01f, -0.5f},
        {CODEC_EIGHT_BITS, 1.03125f, 1.0625f},
        {CODEC_EIGHT_BITS, 0x1.07fffep0f, 1.0f},
        {CODEC_EIGHT_BITS, -7.99f, -7.75f},
        {CODEC_EIGHT_BITS, 0x1p-5f, 0x1p-5f},
        {CODEC_EIGHT_BITS, FLT_MIN, 0x1p-5f},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const float x[] = {4, rows[i].x};
        struct selection s = quantised(x, 2, rows[i].values);
        assert_int_equal(s.scale, 129);
        assert_true(s.values[0] == 4 && s.values[1] == rows[i].sent);
    }
}

static void levels_stop_at_the_smallest_and_the_largest_float(void **state)
{
    (void)state;
    const float small[] = {FLT_MIN, -2 * FLT_MIN}, large[] = {FLT_MAX, -1};
    struct selection s = quantised(small, 2, CODEC_EIGHT_BITS);
    assert_true(s.scale == 2 && s.values[0] == FLT_MIN && s.values[1] == -2 * FLT_MIN);
    s = quantised(large, 2, CODEC_FOUR_BITS);
    assert_true(s.scale == 254 && s.values[0] == 0x1.8p127f && s.values[1] == -0x1p124f);
    s = quantised(large, 2, CODEC_EIGHT_BITS);
    assert_true(s.values[0] == 0x1.fp127f && s.values[1] == -0x1p120f);
}

/* What the encoder subtracts is what the decoder will find in its table. */
static void words_decode_to_the_values(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 1);
    for (int round = 0; round < 4000; round++) {
        enum codec_values values = (enum codec_values)(CODEC_SIGN + round % 4);
        float x[CODEC_K_MAX], table[VALUES_TABLE];
        uint32_t count = 1 + (uint32_t)rng_below(&rng, CODEC_K_MAX);
        int spread = 1 + (int)rng_below(&rng, 60), from = -126 + (int)rng_below(&rng, 190);
        for (uint32_t i = 0; i < count; i++) {
            x[i] = ldexpf((float)(1 + rng_uniform(&rng) * 0.999),
                          from + (int)rng_below(&rng, (uint64_t)spread));
            x[i] = rng_below(&rng, 2) ? -x[i] : x[i];
        }
        struct selection s = quantised(x, count, values);
        assert_true(s.count == 0 || s.count == count);
        assert_true(s.count > 0 || values <= CODEC_TWO_BITS);
        if (s.count == 0)
            continue;
        assert_null(values_table(values, s.scale, s.second, table));
        for (uint32_t i = 0; i < count; i++) {
            assert_true(s.words[i] < 1u << format_value_bits(values));
            assert_true(float_bits(s.values[i]) == float_bits(table[s.words[i]]));
            assert_true(signbit(s.values[i]) == signbit(x[i]));
        }
    }
}

static void scales_out_of_range_are_named(void **state)
{
    (void)state;
    float table[VALUES_TABLE];
    for (int v = CODEC_SIGN; v < CODEC_FP32; v++) {
        assert_string_equal(values_table((enum codec_values)v, 0, 1, table), "scale out of range");
        assert_string_equal(values_table((enum codec_values)v, 255, 1, table),
                            "scale out of range");
        assert_null(values_table((enum codec_values)v, 1, 1, table));
        assert_null(values_table((enum codec_values)v, 254, 254, table));
    }
    assert_string_equal(values_table(CODEC_TWO_BITS, 9, 0, table), "second scale out of range");
    assert_string_equal(values_table(CODEC_TWO_BITS, 9, 10, table), "second scale out of range");
}

/* A level below the smallest normal float decodes to zero, which the decoder then refuses. */
static void levels_below_the_smallest_float_are_zero(void **state)
{
    (void)state;
    for (uint32_t scale = 1; scale <= SCALE_TOP; scale++) {
        float four[VALUES_TABLE], eight[VALUES_TABLE];
        assert_null(values_table(CODEC_FOUR_BITS, scale, 0, four));
        assert_null(values_table(CODEC_EIGHT_BITS, scale, 0, eight));
        for (uint32_t level = 0; level < 8; level++) {
            int number = 2 * (int)scale + 1 - (int)level;
            float magnitude = number < 2 ? 0 : float_of_bits((uint32_t)number << 22);
            assert_true(four[2 * level] == magnitude && four[2 * level + 1] == -magnitude);
        }
        for (uint32_t level = 0; level < 128; level++) {
            int number = 16 * (int)scale + 15 - (int)level;
            float magnitude = number < 16 ? 0 : float_of_bits((uint32_t)number << 19);
            assert_true(eight[2 * level] == magnitude && eight[2 * level + 1] == -magnitude);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_are_quarter_octaves_rounded_to_nearest),
        cmocka_unit_test(means_below_a_border_get_the_lower_scale),
        cmocka_unit_test(scales_end_at_both_ends),
        cmocka_unit_test(two_bits_split_at_the_mean_of_all),
        cmocka_unit_test(levels_round_halves_away_from_zero),
        cmocka_unit_test(levels_stop_at_the_smallest_and_the_largest_float),
        cmocka_unit_test(words_decode_to_the_values),
        cmocka_unit_test(scales_out_of_range_are_named),
        cmocka_unit_test(levels_below_the_smallest_float_are_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
