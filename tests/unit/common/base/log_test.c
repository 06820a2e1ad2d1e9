/* Tests of log.c: level, escaping, cut lines; standard error is a temporary file meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void capture(void (*act)(void), char *ret, size_t ret_bytes)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    int saved = dup(STDERR_FILENO);
    assert_int_equal(dup2(fileno(file), STDERR_FILENO), STDERR_FILENO);
    act();
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    (void)close(saved);
    rewind(file);
    size_t got = fread(ret, 1, ret_bytes - 1, file);
    ret[got] = '\0';
    (void)fclose(file);
}

static void act_hostile(void)
{
    log_debug("m", "hidden");
    log_warn("module", "name \"%s\"", "x\n2026 ERROR forged\x1b[2J");
}

static void act_long(void)
{
    char text[10000];
    memset(text, '\n', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    log_info("module", "%s", text);
}

static void lines_are_escaped_and_filtered(void **state)
{
    (void)state;
    char out[20000];
    capture(act_hostile, out, sizeof out);
    assert_non_null(strstr(out, "Z WARN module: name \"x\\x0a2026 ERROR forged\\x1b[2J\"\n"));
    assert_ptr_equal(strchr(out, '\n'), out + strlen(out) - 1);
    assert_null(strstr(out, "hidden"));
}

static void long_lines_are_cut(void **state)
{
    (void)state;
    char out[20000];
    capture(act_long, out, sizeof out);
    size_t length = strlen(out);
    assert_true(length > 1000 && length < 7000);
    assert_string_equal(out + length - 4, "...\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_escaped_and_filtered),
        cmocka_unit_test(long_lines_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
