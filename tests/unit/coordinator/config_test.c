/* Flags, environment, defaults, and the sentences for wrong ones. */
#include "coordinator/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static struct config config;
static struct error err;

static enum status parse(int argc, char **argv)
{
    memset(&err, 0, sizeof err);
    return config_parse(argc, argv, &config, &err);
}

#define PARSE(...)                                                                                 \
    parse((int)(sizeof(char *[]){"raven-coordinator", __VA_ARGS__} / sizeof(char *)),              \
          (char *[]){"raven-coordinator", __VA_ARGS__})

static void test_defaults(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--data", "/d"), STATUS_OK);
    assert_int_equal(config.command, COMMAND_SERVE);
    assert_string_equal(config.bind, "127.0.0.1");
    assert_int_equal(config.port, 8080);
    assert_false(config.allow_plain_http);
}

static void test_flags_beat_the_environment(void **state)
{
    (void)state;
    setenv("RAVEN_PORT", "1234", 1);
    setenv("RAVEN_DATA", "/from-environment", 1);
    assert_int_equal(PARSE("verify", "--json"), STATUS_OK);
    assert_int_equal(config.command, COMMAND_VERIFY);
    assert_int_equal(config.port, 1234);
    assert_string_equal(config.data, "/from-environment");
    assert_true(config.json);
    assert_int_equal(PARSE("--port=99", "--data=/flag"), STATUS_OK);
    assert_int_equal(config.port, 99);
    assert_string_equal(config.data, "/flag");
    unsetenv("RAVEN_PORT");
    unsetenv("RAVEN_DATA");
}

static void refuse(enum status status, const char *word)
{
    assert_int_equal(status, STATUS_INVALID);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not name %s", err.text, word);
}

static void test_wrong_usage_is_named(void **state)
{
    (void)state;
    refuse(PARSE("--port", "80"), "--data");
    refuse(PARSE("--data", "/d", "--port", "65536"), "65535");
    refuse(PARSE("--data", "/d", "--port", "-1"), "-1");
    refuse(PARSE("--data", "/d", "--port", "80x"), "80x");
    refuse(PARSE("--data", "/d", "--colour", "red"), "--colour");
    refuse(PARSE("--data"), "--data");
    refuse(PARSE("dance"), "dance");
}

static void test_help_needs_nothing(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--help"), STATUS_OK);
    assert_int_equal(config.command, COMMAND_HELP);
    assert_int_equal(PARSE("--version"), STATUS_OK);
    assert_int_equal(config.command, COMMAND_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_flags_beat_the_environment),
        cmocka_unit_test(test_wrong_usage_is_named),
        cmocka_unit_test(test_help_needs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
