/* Tests of buffer.c: maximum, unchanged on failure, text, ownership. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/buffer.h"

#include <stdlib.h>
#include <string.h>

static void maximum_is_never_exceeded(void **state)
{
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer, 100);
    char data[100] = {0};
    assert_int_equal(buffer_append(&buffer, data, 60), STATUS_OK);
    assert_int_equal(buffer_append(&buffer, data, 41), STATUS_TOO_LARGE);
    assert_int_equal(buffer.bytes, 60);
    assert_int_equal(buffer_printf(&buffer, "%41s", "x"), STATUS_TOO_LARGE);
    assert_int_equal(buffer_reserve(&buffer, SIZE_MAX), STATUS_TOO_LARGE);
    assert_int_equal(buffer_printf(&buffer, "%40s", "x"), STATUS_OK);
    assert_int_equal(buffer.bytes, 100);
    assert_non_null(buffer_text(&buffer));
    assert_int_equal(buffer.bytes, 100);
    assert_true(buffer.capacity_bytes <= 101);
    buffer_done(&buffer);
    assert_int_equal(buffer.bytes_max, 100);
}

static void text_and_printf_build_a_string(void **state)
{
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer, SIZE_MAX);
    assert_string_equal(buffer_text(&buffer), "");
    for (int i = 0; i < 1000; i++)
        assert_int_equal(buffer_printf(&buffer, "%d,", i), STATUS_OK);
    assert_int_equal(buffer_append_text(&buffer, "end"), STATUS_OK);
    assert_int_equal(buffer.bytes, 3893);
    assert_string_equal(buffer_text(&buffer) + 3882, "998,999,end");
    buffer_clear(&buffer);
    assert_int_equal(buffer.bytes, 0);
    buffer_done(&buffer);
}

static void take_moves_the_bytes_out(void **state)
{
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer, 10);
    assert_int_equal(buffer_append(&buffer, "abc", 3), STATUS_OK);
    uint8_t *data;
    size_t bytes;
    buffer_take(&buffer, &data, &bytes);
    assert_int_equal(bytes, 3);
    assert_memory_equal(data, "abc", 3);
    assert_null(buffer.data);
    assert_int_equal(buffer_append(&buffer, "defghijklm", 10), STATUS_OK);
    free(data);
    buffer_done(&buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maximum_is_never_exceeded),
        cmocka_unit_test(text_and_printf_build_a_string),
        cmocka_unit_test(take_moves_the_bytes_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
