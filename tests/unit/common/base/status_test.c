/* Tests of status.c: sentences, errno mapping, hostile text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/status.h"

#include <errno.h>
#include <string.h>

static void every_status_has_text_and_unknown_is_safe(void **state)
{
    (void)state;
    assert_string_equal(status_text(STATUS_OK), "ok");
    assert_string_equal(status_text(STATUS_NOT_FINITE), "contains NaN or infinity");
    assert_string_equal(status_text((enum status)999), "unknown status");
    assert_true(status_is_retryable(STATUS_BUSY));
    assert_false(status_is_retryable(STATUS_CORRUPT));
    assert_false(status_is_retryable((enum status)999));
}

static void error_set_works_without_an_error(void **state)
{
    (void)state;
    assert_int_equal(error_set(NULL, STATUS_BUSY, "x"), STATUS_BUSY);
    assert_int_equal(error_set_errno(NULL, ENOSPC, "x"), STATUS_NO_SPACE);
}

static void error_set_replaces_control_characters_and_bad_utf8(void **state)
{
    (void)state;
    struct error err;
    (void)error_set(&err, STATUS_INVALID, "a\nb\x1b[2J%s", "\xff\xc3\xa9 \xc2\x9b \xed\xa0\x80");
    assert_string_equal(err.text, "a?b?[2J?\xc3\xa9 ?? ???");
}

static void error_set_may_wrap_its_own_text(void **state)
{
    (void)state;
    struct error err;
    (void)error_set(&err, STATUS_IO, "inner");
    assert_int_equal(error_set(&err, err.status, "outer: %s", err.text), STATUS_IO);
    assert_string_equal(err.text, "outer: inner");
}

static void error_set_cuts_long_text_between_characters(void **state)
{
    (void)state;
    struct error err;
    char text[1000];
    for (size_t i = 0; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    text[sizeof text - 2] = '\0';
    (void)error_set(&err, STATUS_IO, "%s", text);
    assert_int_equal(strlen(err.text) % 2, 0);
    assert_null(strchr(err.text, '?'));
}

static void errno_is_mapped_and_explained(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(error_set_errno(&err, ENOENT, "open %s", "f"), STATUS_NOT_FOUND);
    assert_string_equal(err.text, "open f: No such file or directory");
    assert_int_equal(error_set_errno(&err, EEXIST, "x"), STATUS_EXISTS);
    assert_int_equal(error_set_errno(&err, EACCES, "x"), STATUS_DENIED);
    assert_int_equal(error_set_errno(&err, EIO, "x"), STATUS_IO);
    assert_int_equal(err.status, STATUS_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_text_and_unknown_is_safe),
        cmocka_unit_test(error_set_works_without_an_error),
        cmocka_unit_test(error_set_replaces_control_characters_and_bad_utf8),
        cmocka_unit_test(error_set_may_wrap_its_own_text),
        cmocka_unit_test(error_set_cuts_long_text_between_characters),
        cmocka_unit_test(errno_is_mapped_and_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
