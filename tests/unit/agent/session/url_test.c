/* Coordinator URLs as people and attackers type them. */
#include "agent/session/url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_good(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *base;
        unsigned port;
        bool tls;
    } cases[] = {
        {"http://localhost:8080", "localhost", "http://localhost:8080", 8080, false},
        {"http://localhost:8080/", "localhost", "http://localhost:8080", 8080, false},
        {"HTTPS://raven.example", "raven.example", "https://raven.example:443", 443, true},
        {"http://10.0.0.1", "10.0.0.1", "http://10.0.0.1:80", 80, false},
        {"http://[::1]:9", "::1", "http://[::1]:9", 9, false},
        {"https://[fe80::1]", "fe80::1", "https://[fe80::1]:443", 443, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct url url;
        struct error err = {0};
        assert_int_equal(url_parse(cases[i].text, &url, &err), STATUS_OK);
        assert_string_equal(url.host, cases[i].host);
        assert_string_equal(url.base, cases[i].base);
        assert_int_equal(url.port, cases[i].port);
        assert_int_equal(url.tls, cases[i].tls);
    }
}

static void test_bad(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        "localhost:8080",
        "ftp://localhost",
        "http://",
        "http:///x",
        "http://:80",
        "http://a:0",
        "http://a:65536",
        "http://a:80x",
        "http://a:",
        "http://a:999999999999999999999",
        "http://user@host",
        "http://a b",
        "http://a/path",
        "http://a?x=rvn_inv_1",
        "http://a#b",
        "http://[::1",
        "http://[]:80",
        "http://[::1]x",
        "http://a\r\nHost: b",
        "http://ä",
    };
    struct error err;
    struct url url;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (url_parse(cases[i], &url, &err) != STATUS_INVALID)
            fail_msg("accepted: %s", cases[i]);
    char text[1000] = "http://";
    memset(text + 7, 'a', 900);
    assert_int_equal(url_parse(text, &url, &err), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
