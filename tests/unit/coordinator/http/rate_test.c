/* Failures are counted per address and minute. */
#include "coordinator/http/rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <string.h>

static uint64_t key_of(const struct rate *rate, const char *text)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    memset(&address, 0, sizeof address);
    if (inet_pton(AF_INET, text, &address.v4.sin_addr) == 1) {
        address.any.sa_family = AF_INET;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &address.v6.sin6_addr), 1);
        address.any.sa_family = AF_INET6;
    }
    return rate_key(rate, &address.any);
}

static void test_limit_and_window(void **state)
{
    static struct rate rate;
    (void)state;
    rate_init(&rate);
    uint64_t a = key_of(&rate, "10.0.0.1"), b = key_of(&rate, "10.0.0.2");
    for (unsigned i = 0; i < RATE_FAILURES_PER_MINUTE; i++)
        assert_false(rate_fail(&rate, a, 1000000 + i));
    assert_true(rate_fail(&rate, a, 2000000));
    assert_false(rate_fail(&rate, b, 2000000));
    assert_true(rate_fail(&rate, a, 60999999));
    assert_false(rate_fail(&rate, a, 61000000)); /* the next minute */
    rate_done(&rate);
}

static void test_keys(void **state)
{
    static struct rate rate;
    (void)state;
    rate_init(&rate);
    assert_true(key_of(&rate, "10.0.0.1") != key_of(&rate, "10.0.0.2"));
    assert_true(key_of(&rate, "10.0.0.1") == key_of(&rate, "::ffff:10.0.0.1"));
    assert_true(key_of(&rate, "2001:db8:1:2::1") == key_of(&rate, "2001:db8:1:2:ffff::9"));
    assert_true(key_of(&rate, "2001:db8:1:2::1") != key_of(&rate, "2001:db8:1:3::1"));
    rate_done(&rate);
}

/* A flood of addresses that each fail once must not make any of them look guilty. */
static void test_flood_of_addresses(void **state)
{
    static struct rate rate;
    (void)state;
    rate_init(&rate);
    for (uint64_t i = 1; i <= 100000; i++)
        assert_false(rate_fail(&rate, i * 2654435761u, (int64_t)i));
    rate_done(&rate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit_and_window),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_flood_of_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
