/* Tests of bytes.h and bytes.c: byte order, checked arithmetic, text and hex. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"

static void loads_and_stores_are_little_endian(void **state)
{
    (void)state;
    uint8_t b[8];
    store_u64(b, UINT64_C(0x8877665544332211));
    const uint8_t expected[8] = {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88};
    assert_memory_equal(b, expected, 8);
    assert_true(load_u64(b) == UINT64_C(0x8877665544332211));
    assert_int_equal(load_u32(b + 1), 0x55443322);
    assert_int_equal(load_u16(b + 6), 0x8877);
    store_f32(b, -1.5f);
    assert_int_equal(load_u32(b), 0xBFC00000);
    assert_true(load_f32(b) == -1.5f);
}

static void size_arithmetic_refuses_overflow(void **state)
{
    (void)state;
    size_t x = 7;
    assert_false(size_add(SIZE_MAX, 1, &x));
    assert_false(size_mul(SIZE_MAX / 2, 3, &x));
    assert_int_equal(x, 7);
    assert_true(size_mul(3, 5, &x) && x == 15);
}

static void text_copy_never_cuts_a_character(void **state)
{
    (void)state;
    char out[5];
    assert_true(text_copy(out, sizeof out, "abcd"));
    assert_false(text_copy(out, sizeof out, "abcde"));
    assert_string_equal(out, "abcd");
    assert_false(text_copy(out, sizeof out, "abc\xe2\x82\xac"));
    assert_string_equal(out, "abc");
    assert_false(text_copy(out, 1, "x"));
    assert_string_equal(out, "");
}

static void text_sanitize_keeps_good_text_only(void **state)
{
    (void)state;
    char text[] = "ok \xf0\x9f\x90\xa6 \xc0\xaf \xf4\x90\x80\x80 \xe2\x82";
    text_sanitize(text);
    assert_string_equal(text, "ok \xf0\x9f\x90\xa6 ?? ???? ??");
}

static void hex_round_trip_and_refusals(void **state)
{
    (void)state;
    const uint8_t data[3] = {0x00, 0xAB, 0xFF};
    char text[7];
    hex_encode(data, 3, text);
    assert_string_equal(text, "00abff");
    uint8_t back[3] = {1, 1, 1};
    assert_false(hex_decode("00abf", back, 3));
    assert_false(hex_decode("00abff0", back, 3));
    assert_false(hex_decode("00abfg", back, 3));
    assert_int_equal(back[0], 1);
    assert_true(hex_decode("00ABff", back, 3));
    assert_memory_equal(back, data, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_and_stores_are_little_endian),
        cmocka_unit_test(size_arithmetic_refuses_overflow),
        cmocka_unit_test(text_copy_never_cuts_a_character),
        cmocka_unit_test(text_sanitize_keeps_good_text_only),
        cmocka_unit_test(hex_round_trip_and_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
