/* DNS rebinding and foreign origins. */
#include "coordinator/http/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_hosts(void **state)
{
    static const char *const extra[] = {"raven.example", "other.example:8443", NULL};
    static const char *const good[] = {
        "127.0.0.1",     "127.0.0.1:8080",    "localhost:1",        "LOCALHOST",
        "[::1]",         "[::1]:8080",        "192.168.1.5:8080",   "[fe80::1]:65535",
        "raven.example", "RAVEN.example:443", "other.example:8443",
    };
    static const char *const bad[] = {
        "",
        ":",
        ":80",
        "evil.example",
        "raven.example.evil",
        "xraven.example",
        "other.example",
        "other.example:443",
        "localhost.evil",
        "localhost:",
        "localhost:80:80",
        "localhost:99999999",
        "localhost:8a",
        "127.0.0.1.evil",
        "127.1",
        "0x7f.0.0.1",
        "2130706433",
        "[::1",
        "::1",
        "[]",
        "[::1]x",
        "[evil]",
        "localhost/",
        "user@localhost",
        "localhost ",
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(host_is_allowed(good[i], extra));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(host_is_allowed(bad[i], extra));
    assert_false(host_is_allowed("raven.example", NULL));
    assert_true(host_is_allowed("127.0.0.1", NULL));
}

static void test_origins(void **state)
{
    (void)state;
    assert_true(origin_is_of_host("http://127.0.0.1:8080", "127.0.0.1:8080"));
    assert_true(origin_is_of_host("https://raven.example", "raven.example"));
    assert_true(origin_is_of_host("http://LocalHost:1", "localhost:1"));
    assert_false(origin_is_of_host("null", "null"));
    assert_false(origin_is_of_host("", "localhost"));
    assert_false(origin_is_of_host("localhost", "localhost"));
    assert_false(origin_is_of_host("ftp://localhost", "localhost"));
    assert_false(origin_is_of_host("http://localhost:3000", "localhost:8080"));
    assert_false(origin_is_of_host("https://raven.example.evil", "raven.example"));
    assert_false(origin_is_of_host("http://evil/raven.example", "raven.example"));
    assert_false(origin_is_of_host("http://localhost/", "localhost"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
