/* Targets and headers that must be refused, and those that must not. */
#include "coordinator/http/guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

static void test_targets(void **state)
{
    static const char *const good[] = {
        "/",
        "/v1/jobs",
        "/v1/jobs?state=running&limit=5",
        "/app-0123abcd.js",
        "/a.b/c.d",
        "/v1/jobs?cursor=a%2Fb%2e..//x",
        "/a%20b",
        "/~x_-",
    };
    static const char *const bad[] = {
        "",
        "v1",
        "*",
        "http://evil.example/v1",
        "//",
        "/a//b",
        "/../x",
        "/a/..",
        "/a..b",
        "/a%00b",
        "/a?x=%00",
        "/a%2fb",
        "/a%2Fb",
        "/a%5cb",
        "/%2e%2e/x",
        "/a\\b",
        "/a b",
        "/a\x7f",
        "/a\x01",
        "/a\xc3\xa4",
        "/a%",
        "/a%2",
        "/a%zz",
        "/a#b",
        "/a%0d%0aX:y",
        "/a?b=%0a",
    };
    char longest[GUARD_URI_BYTES_MAX + 2];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(guard_uri_is_clean(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(guard_uri_is_clean(bad[i]));
    memset(longest, 'a', sizeof longest);
    longest[0] = '/';
    longest[GUARD_URI_BYTES_MAX + 1] = 0;
    assert_false(guard_uri_is_clean(longest));
    longest[GUARD_URI_BYTES_MAX] = 0;
    assert_true(guard_uri_is_clean(longest));
}

static void see(struct guard *guard, const char *name, const char *value)
{
    guard_see_header(guard, name, strlen(name), value, strlen(value));
}

static void test_framing(void **state)
{
    static const struct {
        const char *headers[3][2];
        bool good;
    } cases[] = {
        {{{"Host", "x"}}, true},
        {{{"hOST", "x"}, {"content-LENGTH", "5"}}, true},
        {{{"Host", "x"}, {"Content-Length", "0"}}, true},
        {{{"Content-Length", "5"}}, false},
        {{{"Host", "x"}, {"Host", "x"}}, false},
        {{{"Host", "x"}, {"Content-Length", "5"}, {"Content-Length", "5"}}, false},
        {{{"Host", "x"}, {"Transfer-Encoding", "chunked"}}, false},
        {{{"Host", "x"}, {"transfer-encoding", "identity"}}, false},
        {{{"Host", "x"}, {"Transfer-Encoding ", "chunked"}}, false},
        {{{"Host", "x"}, {"Content-Length", "+5"}}, false},
        {{{"Host", "x"}, {"Content-Length", "0x5"}}, false},
        {{{"Host", "x"}, {"Content-Length", "5, 5"}}, false},
        {{{"Host", "x"}, {"Content-Length", ""}}, false},
        {{{"Host", "x"}, {"Content-Length", "99999999999999999999"}}, false},
        {{{"Host", "x"}, {"", "y"}}, false},
        {{{"Host", "x"}, {"A B", "y"}}, false},
        {{{"Host", "x"}, {"A\tB", "y"}}, false},
        {{{"Host", "x"}, {"A", "y\x01"}}, false},
        {{{"Host", "x"}, {"A", "y\r\nB: z"}}, false},
        {{{"Host", "x"}, {"A", "\xc3\xa4 \t"}}, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct guard guard = {0};
        for (size_t k = 0; k < 3 && cases[i].headers[k][0]; k++)
            see(&guard, cases[i].headers[k][0], cases[i].headers[k][1]);
        assert_int_equal(guard_complaint(&guard, "HTTP/1.1") == NULL, cases[i].good);
        assert_non_null(guard_complaint(&guard, "HTTP/1.0"));
        assert_non_null(guard_complaint(&guard, "HTTP/1.10"));
    }
}

static void test_length_and_embedded_nul(void **state)
{
    struct guard guard = {0};
    (void)state;
    see(&guard, "Host", "x");
    see(&guard, "Content-Length", "123456789012345678");
    assert_null(guard_complaint(&guard, "HTTP/1.1"));
    assert_int_equal(guard.content_length, 123456789012345678u);
    guard_see_header(&guard, "A", 1, "b\0c", 3);
    assert_non_null(guard_complaint(&guard, "HTTP/1.1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_framing),
        cmocka_unit_test(test_length_and_embedded_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
