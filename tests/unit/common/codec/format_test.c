/* Tests of format.c: the bound on a payload holds for every chunk that there can be, by arithmetic
 * instead of samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "common/codec/bits.h"
#include "common/codec/format.h"

static void rice_parameters_are_those_of_the_description(void **state)
{
    (void)state;
    assert_int_equal(format_rice_bits(4096, 64), 5);
    assert_int_equal(format_rice_bits(4096, 128), 4);
    assert_int_equal(format_rice_bits(4096, 1), 11);
    assert_int_equal(format_rice_bits(4096, 4096), 0);
    assert_int_equal(format_rice_bits(1, 1), 0);
    /* smallest b with 1000 count 2^b (2 length + count) >= 957 length^2, in wider numbers */
    for (uint32_t length = 1; length <= CODEC_CHUNK; length += 1 + length / 50)
        for (uint32_t count = 1; count <= length && count <= CODEC_K_MAX; count++) {
            long double need = 0.957L * length * length, have = (long double)count;
            uint32_t b = 0;
            for (have *= 2.0L * length + count; have < need * 0.9999999999L; have *= 2)
                b++;
            assert_int_equal(format_rice_bits(length, count), b);
        }
}

/* Coordinates so placed that their gaps have the most ones: those above the parameter's multiple
 * are all in one gap. */
static uint64_t most_bits(uint32_t length, uint32_t count, uint32_t k, enum codec_values values)
{
    uint32_t b = format_rice_bits(length, count);
    uint64_t bits = SCALE_BITS + (values == CODEC_TWO_BITS ? SCALE_BITS : 0);
    if (count < format_whole(length, k))
        bits += SCALE_BITS + COUNT_BITS;
    return bits + count * (uint64_t)(b + 1 + format_value_bits(values)) + ((length - count) >> b);
}

/* Of 32 chunks, so that rounding to words changes nothing. */
static uint64_t bound_bits(struct codec_format format)
{
    return format_super_chunk_bytes_max(32, format) * 8 / 32;
}

/* Every length and count. A bound grows with k, so that the smallest k with which a chunk can have
 * so many coordinates (without and with the escape) is the hardest. */
static void no_chunk_is_larger_than_the_bound(void **state)
{
    (void)state;
    for (int v = CODEC_SIGN; v < CODEC_FP32; v++) {
        struct codec_format format = {(enum codec_values)v, 0};
        uint64_t bounds[CODEC_K_MAX + 2] = {0}, most[CODEC_K_MAX + 2] = {0};
        for (format.k = 1; format.k <= CODEC_K_MAX; format.k++) {
            bounds[format.k] = bound_bits(format);
            assert_true(bounds[format.k] >= bounds[format.k - 1]);
        }
        for (uint32_t length = 1; length <= CODEC_CHUNK; length++)
            for (uint32_t count = 1; count <= format_whole(length, CODEC_K_MAX); count++)
                for (uint32_t k = count; k <= count + 1 && k <= CODEC_K_MAX; k++) {
                    uint64_t bits = most_bits(length, count, k, format.values);
                    most[k] = bits > most[k] ? bits : most[k];
                    if (bits > bounds[k])
                        fail_msg("coder %d, k %u: %u of %u take %llu bits, bound %llu", v, k, count,
                                 length, (unsigned long long)bits, (unsigned long long)bounds[k]);
                }
        for (uint32_t k = 1; k <= CODEC_K_MAX; k++)
            assert_true(bounds[k] < most[k] + most[k] / 16 + 33); /* nor much larger than needed */
    }
    assert_true(bound_bits((struct codec_format){CODEC_FP32, 0}) == 32 * CODEC_CHUNK);
}

/* The encoder lays whole super-chunks side by side, each with room for a writer's last store. */
static void the_whole_has_room_for_the_slots_of_its_super_chunks(void **state)
{
    (void)state;
    for (int v = CODEC_SIGN; v <= CODEC_FP32; v++)
        for (uint32_t k = 1; k <= CODEC_K_MAX; k += 73)
            for (uint64_t chunks = 0; chunks <= 3 * CODEC_SUPER_CHUNK + 1; chunks++) {
                struct codec_format format = {(enum codec_values)v, k};
                uint64_t n = chunks * CODEC_CHUNK, supers = codec_super_chunks(n);
                uint64_t need = FORMAT_HEADER_BYTES + supers * 8;
                if (supers > 0) {
                    uint64_t last = chunks - (supers - 1) * CODEC_SUPER_CHUNK;
                    need +=
                        (supers - 1) *
                        (format_super_chunk_bytes_max(CODEC_SUPER_CHUNK, format) + BIT_SLACK_BYTES);
                    need += format_super_chunk_bytes_max(last, format) + BIT_SLACK_BYTES;
                }
                assert_true(codec_bytes_max(n, format) >= need);
                assert_true(codec_bytes_max(n, format) <= need + 8 + supers * 8);
            }
}

static void bounds_of_any_n_do_not_overflow(void **state)
{
    (void)state;
    for (int v = CODEC_SIGN; v <= CODEC_FP32; v++) {
        struct codec_format format = {(enum codec_values)v, CODEC_K_MAX};
        size_t before = 0;
        for (int bit = 0; bit < 64; bit++) {
            size_t bytes = codec_bytes_max(UINT64_MAX >> (63 - bit), format);
            assert_true(bytes >= before && bytes >= UINT64_MAX >> (63 - bit) >> 10);
            before = bytes;
        }
    }
    assert_true(codec_bytes_max(UINT64_MAX, (struct codec_format){CODEC_FP32, 0}) == SIZE_MAX);
    assert_int_equal(codec_bytes_max(4096, (struct codec_format){CODEC_SIGN, 0}), 0);
    assert_int_equal(codec_bytes_max(4096, (struct codec_format){CODEC_SIGN, 513}), 0);
    assert_int_equal(codec_bytes_max(4096, (struct codec_format){(enum codec_values)0, 64}), 0);
    assert_int_equal(codec_bytes_max(4096, (struct codec_format){(enum codec_values)6, 64}), 0);
}

static void super_chunks_are_counted_without_overflow(void **state)
{
    (void)state;
    const uint64_t super = (uint64_t)CODEC_CHUNK * CODEC_SUPER_CHUNK;
    assert_int_equal(codec_super_chunks(0), 0);
    assert_int_equal(codec_super_chunks(1), 1);
    assert_int_equal(codec_super_chunks(super), 1);
    assert_int_equal(codec_super_chunks(super + 1), 2);
    assert_true(codec_super_chunks(UINT64_MAX) == UINT64_C(1) << 44);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rice_parameters_are_those_of_the_description),
        cmocka_unit_test(no_chunk_is_larger_than_the_bound),
        cmocka_unit_test(the_whole_has_room_for_the_slots_of_its_super_chunks),
        cmocka_unit_test(bounds_of_any_n_do_not_overflow),
        cmocka_unit_test(super_chunks_are_counted_without_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
