/* Settings: order of the sources, clear complaints, what is saved can be read again. */
#include "agent/config.h"

#include "common/base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static enum status read_text(struct config *config, const char *text, struct error *err)
{
    return config_read_text(config, "agent.conf", text, strlen(text), err);
}

static void test_order_of_sources(void **state)
{
    (void)state;
    struct config config;
    struct error err = {0};
    config_init(&config);
    assert_int_equal(config.cpu_percent, 100);
    assert_string_equal(config.log_level, "info");
    assert_int_equal(config_set_flag(&config, "cpu-percent", "10", &err), STATUS_OK);
    assert_int_equal(setenv("RAVEN_CPU_PERCENT", "20", 1), 0);
    assert_int_equal(setenv("RAVEN_THREADS", "3", 1), 0);
    assert_int_equal(config_read_environment(&config, &err), STATUS_OK);
    unsetenv("RAVEN_CPU_PERCENT");
    unsetenv("RAVEN_THREADS");
    assert_int_equal(read_text(&config,
                               "# comment\n\n cpu_percent = 30 \nthreads=4\r\nlabel = the = one\n",
                               &err),
                     STATUS_OK);
    assert_int_equal(config.cpu_percent, 10);
    assert_int_equal(config.threads, 3);
    assert_string_equal(config.label, "the = one");
    assert_int_equal(read_text(&config,
                               "proxy = http://u:p@10.0.0.1:3128\nca_file = /etc/ca.pem\n"
                               "download_limit = 200\n",
                               &err),
                     STATUS_OK);
    assert_string_equal(config.proxy, "http://u:p@10.0.0.1:3128");
    assert_string_equal(config.ca_file, "/etc/ca.pem");
    assert_int_equal(config.download_limit, 200);
    assert_int_equal(config.upload_limit, 0);
    assert_int_equal(config_set_flag(&config, "proxy", "none", &err), STATUS_OK);
    assert_string_equal(config.proxy, "none");
}

static void test_complaints(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"# a\n\nwidht = 3\n", "agent.conf line 3: unknown key \"widht\""},
        {"cpu_percent = 0\n",
         "agent.conf line 1: cpu_percent = 0: use a whole number from 1 to 100"},
        {"cpu_percent = 101", "from 1 to 100"},
        {"cpu_percent = 5x", "from 1 to 100"},
        {"cpu_percent = -5", "from 1 to 100"},
        {"cpu_percent =", "from 1 to 100"},
        {"threads = 99999999999999999999999", "from 0 to 64"},
        {"log_level = loud", "use debug, info, warn or error"},
        {"state_dir = /x", "unknown key \"state_dir\""},
        {"just words", "line 1: not \"key = value\""},
        {"label = \x01", "control characters"},
        {"proxy = https://a:1", "agent.conf line 1: a proxy that is itself reached by TLS"},
        {"proxy = http://anna:s3cret@", "the proxy's address is not valid; use proxy = http://"},
        {"upload_limit = -1", "from 0 to 100000000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config config;
        struct error err = {0};
        config_init(&config);
        assert_int_equal(read_text(&config, cases[i].text, &err), STATUS_INVALID);
        if (!strstr(err.text, cases[i].expected))
            fail_msg("\"%s\" gave: %s", cases[i].text, err.text);
        assert_null(strstr(err.text, "s3cret"));
    }
    struct config config;
    struct error err = {0};
    config_init(&config);
    char text[200] = "label = ";
    memset(text + 8, 'a', 65);
    assert_int_equal(read_text(&config, text, &err), STATUS_INVALID);
    assert_int_equal(config_read_text(&config, "f", "a\0b", 3, &err), STATUS_INVALID);
    assert_int_equal(config_set_flag(&config, "invite", "x", &err), STATUS_NOT_FOUND);
    assert_int_equal(setenv("RAVEN_CPU_PERCENT", "many", 1), 0);
    assert_int_equal(config_read_environment(&config, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "RAVEN_CPU_PERCENT"));
    unsetenv("RAVEN_CPU_PERCENT");
}

static void test_save_and_read(void **state)
{
    (void)state;
    char dir[] = "/tmp/raven_config_XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct config config, again;
    struct error err = {0};
    config_init(&config);
    assert_int_equal(config_set_flag(&config, "state-dir", dir, &err), STATUS_OK);
    assert_int_equal(config_read_file(&config, &err), STATUS_OK); /* none yet */
    assert_int_equal(config_set_flag(&config, "coordinator", "http://a:1", &err), STATUS_OK);
    assert_int_equal(config_set(&config, "threads", "5", CONFIG_ENVIRONMENT, &err), STATUS_OK);
    assert_int_equal(config_save(&config, &err), STATUS_OK);
    config_init(&again);
    assert_int_equal(config_set_flag(&again, "state-dir", dir, &err), STATUS_OK);
    assert_int_equal(config_read_file(&again, &err), STATUS_OK);
    assert_string_equal(again.coordinator, "http://a:1");
    assert_int_equal(again.threads, 0); /* the environment's value was for that run */
    assert_int_equal(again.cpu_percent_origin, CONFIG_DEFAULT);
    assert_int_equal(file_remove_tree(dir, &err), STATUS_OK);
}

static void test_state_dir(void **state)
{
    (void)state;
    struct config config;
    struct error err = {0};
    config_init(&config);
    assert_int_equal(config_find_state_dir(&config, &err), STATUS_OK);
    assert_int_equal(config.state_dir[0], '/');
    config_init(&config);
    assert_int_equal(config_set_flag(&config, "state-dir", "here", &err), STATUS_OK);
    assert_int_equal(config_find_state_dir(&config, &err), STATUS_OK);
    assert_string_equal(config.state_dir, "here");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_sources),
        cmocka_unit_test(test_complaints),
        cmocka_unit_test(test_save_and_read),
        cmocka_unit_test(test_state_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
