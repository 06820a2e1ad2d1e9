/* The command line: commands, options, and no way to put an invite into it. */
#include "agent/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static enum status parse(struct cli *cli, struct error *err, const char *line)
{
    static char copy[512];
    char *argv[32] = {"raven-agent"};
    int argc = 1;
    strcpy(copy, line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    return cli_parse(argc, argv, cli, err);
}

static void test_good(void **state)
{
    (void)state;
    struct cli cli;
    struct error err = {0};
    assert_int_equal(parse(&cli, &err, "join http://a:1 --label x --cpu-percent=35"), STATUS_OK);
    assert_string_equal(cli.command, "join");
    assert_string_equal(cli.argument, "http://a:1");
    assert_int_equal(cli.config.cpu_percent, 35);
    assert_int_equal(parse(&cli, &err, "--state-dir /s status --json"), STATUS_OK);
    assert_true(cli.json);
    assert_string_equal(cli.config.state_dir, "/s");
    assert_int_equal(parse(&cli, &err, "--help"), STATUS_OK);
    assert_int_equal(parse(&cli, &err, "--version"), STATUS_OK);
}

static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *line, *expected;
    } cases[] = {
        {"", "a command is missing"},
        {"dance", "unknown command dance"},
        {"join", "usage: raven-agent join URL"},
        {"run now", "usage: raven-agent run"},
        {"join a b", "one word too many"},
        {"join http://a rvn_inv_0123", "RAVEN_INVITE"},
        {"run --invite x", "unknown option --invite"},
        {"run --cpu-percent", "needs a value"},
        {"run --cpu-percent 0", "from 1 to 100"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cli cli;
        struct error err = {0};
        assert_int_equal(parse(&cli, &err, cases[i].line), STATUS_INVALID);
        if (!strstr(err.text, cases[i].expected))
            fail_msg("\"%s\" gave: %s", cases[i].line, err.text);
    }
}

static void test_lock(void **state)
{
    (void)state;
    char dir[] = "/tmp/raven_lock_XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct state_lock first, second;
    struct error err = {0};
    assert_int_equal(state_lock_take(dir, &first, &err), STATUS_OK);
    assert_int_equal(state_lock_take(dir, &second, &err), STATUS_BUSY);
    state_lock_release(&first);
    assert_int_equal(state_lock_take(dir, &second, &err), STATUS_OK);
    state_lock_release(&second);
    char path[64];
    strcpy(path, dir);
    strcat(path, "/agent.lock");
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
