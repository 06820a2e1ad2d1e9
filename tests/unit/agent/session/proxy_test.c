/* Which proxy leads where: what people and distributions write into the environment. */
#include "agent/session/proxy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void forget_environment(void)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY",
                                        "all_proxy",  "ALL_PROXY",   "no_proxy",    "NO_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

static void test_parse(void **state)
{
    (void)state;
    static const struct {
        const char *text, *url, *name, *user, *password;
    } cases[] = {
        {"10.0.0.1:3128", "http://10.0.0.1:3128", "10.0.0.1:3128", "", ""},
        {"http://proxy.example:80/", "http://proxy.example:80", "proxy.example:80", "", ""},
        {"HTTP://proxy", "http://proxy:1080", "proxy:1080", "", ""},
        {"http://[::1]:8080", "http://[::1]:8080", "[::1]:8080", "", ""},
        {"http://[::1]", "http://[::1]:1080", "[::1]:1080", "", ""},
        {"socks5h://p:9", "socks5h://p:9", "p:9", "", ""},
        {"http://anna:b%40c%3Ad@p:1", "http://p:1", "p:1", "anna", "b@c:d"},
        {"http://a@b:c@d@p:1", "http://p:1", "p:1", "a@b", "c@d"},
        {"anna@p:1", "http://p:1", "p:1", "anna", ""},
        {"http://a%zz%:x%4@p:1", "http://p:1", "p:1", "a%zz%", "x%4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct proxy proxy;
        struct error err = {0};
        if (proxy_parse(cases[i].text, &proxy, &err))
            fail_msg("%s: %s", cases[i].text, err.text);
        assert_true(proxy.used);
        assert_string_equal(proxy.url, cases[i].url);
        assert_string_equal(proxy.name, cases[i].name);
        assert_string_equal(proxy.user, cases[i].user);
        assert_string_equal(proxy.password, cases[i].password);
    }
    static const char *const bad[] = {
        "",           "http://",           "http://p:0",  "http://p:99999",
        "ftp://p:1",  "https://p:1",       "http://a b",  "http://u:s3cret@",
        "http://p/x", "http://u%0a:x@p:1", "socks://p:1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct proxy proxy;
        struct error err = {0};
        if (proxy_parse(bad[i], &proxy, &err) == STATUS_OK)
            fail_msg("accepted: %s", bad[i]);
        assert_null(strstr(err.text, "s3cret"));
    }
}

static void test_no_proxy(void **state)
{
    (void)state;
    static const struct {
        const char *list, *host;
        uint16_t port;
        bool excluded;
    } cases[] = {
        {"", "a.example", 80, false},
        {"*", "a.example", 80, true},
        {"a.example", "a.example", 80, true},
        {"A.Example", "a.exAMPLE", 80, true},
        {"example", "a.example", 80, true},
        {".example", "a.example", 80, true},
        {"*.example", "a.example", 80, true},
        {"a.example.", "a.example", 80, true},
        {"a.example", "a.example.", 80, true},
        {"b.example", "a.example", 80, false},
        {"ample", "a.example", 80, false},
        {"x.a.example", "a.example", 80, false},
        {"localhost, 127.0.0.1 ,a.example", "a.example", 80, true},
        {"localhost 127.0.0.1 a.example", "127.0.0.1", 80, true},
        {"0.0.1", "127.0.0.1", 80, false},
        {"10.0.0.0/8", "10.200.3.4", 80, true},
        {"10.0.0.0/8", "11.0.0.1", 80, false},
        {"10.0.0.0/33", "10.0.0.0", 80, false},
        {"0.0.0.0/0", "10.0.0.0", 80, true},
        {"10.0.0.0/8", "a.example", 80, false},
        {"192.168.1.128/25", "192.168.1.127", 80, false},
        {"192.168.1.128/25", "192.168.1.129", 80, true},
        {"fe80::/10", "fe90::1", 80, true},
        {"fe80::/10", "2001::1", 80, false},
        {"::1", "::1", 80, true},
        {"[::1]", "::1", 80, true},
        {"[::1]:80", "::1", 80, true},
        {"[::1]:81", "::1", 80, false},
        {"a.example:8080", "a.example", 8080, true},
        {"a.example:8080", "a.example", 80, false},
        {",, ,", "a.example", 80, false},
        {".", "a.example", 80, false},
        {"[", "a.example", 80, false},
        {":", "a.example", 80, false},
        {"/", "a.example", 80, false},
        {"]:1", "a.example", 80, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (proxy_is_excluded(cases[i].list, cases[i].host, cases[i].port) != cases[i].excluded)
            fail_msg("\"%s\" and %s:%u", cases[i].list, cases[i].host, cases[i].port);
    char *list = malloc(100001);
    memset(list, 'a', 100000);
    list[100000] = '\0';
    assert_false(proxy_is_excluded(list, "a.example", 80));
    free(list);
}

static void expect(const char *option, const char *address, const char *name)
{
    struct url url;
    struct proxy proxy;
    struct error err = {0};
    assert_int_equal(url_parse(address, &url, &err), STATUS_OK);
    if (proxy_choose(option, &url, &proxy, &err))
        fail_msg("%s: %s", address, err.text);
    assert_int_equal(proxy.used, name[0] != '\0');
    assert_string_equal(proxy.name, name);
}

static void test_choice(void **state)
{
    (void)state;
    forget_environment();
    expect("", "http://a.example", "");
    expect(NULL, "https://a.example", "");
    setenv("HTTP_PROXY", "http://evil:1", 1);
    expect("", "http://a.example", "");
    setenv("http_proxy", "http://plain:1", 1);
    expect("", "http://a.example", "plain:1");
    expect("", "https://a.example", "");
    setenv("ALL_PROXY", "http://all:1", 1);
    expect("", "https://a.example", "all:1");
    setenv("all_proxy", "http://small:1", 1);
    expect("", "https://a.example", "small:1");
    setenv("HTTPS_PROXY", "http://big:1", 1);
    expect("", "https://a.example", "big:1");
    setenv("https_proxy", "http://secure:1", 1);
    expect("", "https://a.example", "secure:1");
    expect("http://own:1", "https://a.example", "own:1");
    expect("none", "https://a.example", "");
    setenv("NO_PROXY", "example", 1);
    expect("", "https://a.example", "");
    expect("http://own:1", "https://a.example", "");
    setenv("no_proxy", "other", 1);
    expect("", "https://a.example", "secure:1");
    setenv("https_proxy", "", 1);
    expect("", "https://a.example", "big:1");
    setenv("https_proxy", "nonsense://u:s3cret@x", 1);
    struct url url;
    struct proxy proxy;
    struct error err = {0};
    assert_int_equal(url_parse("https://a.example", &url, &err), STATUS_OK);
    assert_int_equal(proxy_choose("", &url, &proxy, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "https_proxy: "));
    assert_null(strstr(err.text, "s3cret"));
    forget_environment();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_no_proxy),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
