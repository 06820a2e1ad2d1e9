/* The table of routes. */
#include "coordinator/http/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

struct row {
    const char *method, *path;
    uint32_t scope, flags;
    bool is_public;
};

#define INLINE FLAG_INLINE
#define KEY FLAG_KEY
#define AGENT FLAG_AGENT
static const struct row rows[] = {
#define ROUTE(method, path, access, scope, body, flags, query, handler)                            \
    {method, path, scope, flags, ACCESS_##access == ACCESS_PUBLIC},
#include "coordinator/http/routes.def"
#undef ROUTE
};

static const struct route *find(const char *method, const char *path, char *parameter, char *allow)
{
    static char unused[ROUTE_PARAMETER_BYTES], unused_allow[64];
    return route_find(method, path, parameter ? parameter : unused, allow ? allow : unused_allow,
                      64);
}

static void test_paths(void **state)
{
    char parameter[ROUTE_PARAMETER_BYTES], allow[64], longest[200];
    (void)state;
    assert_non_null(find("GET", "/livez", parameter, allow));
    assert_string_equal(parameter, "");
    const struct route *job = find("GET", "/v1/jobs/job_x", parameter, allow);
    assert_non_null(job);
    assert_string_equal(parameter, "job_x");
    assert_string_equal(job->path, "/v1/jobs/{id}");
    assert_ptr_equal(find("HEAD", "/v1/jobs/job_x", NULL, NULL), job);
    assert_string_equal(find("POST", "/v1/jobs/a/cancel", parameter, allow)->path,
                        "/v1/jobs/{id}/cancel");
    assert_null(find("GET", "/v1/jobs/", parameter, allow));
    assert_string_equal(allow, "");
    assert_null(find("GET", "/v1/jobs/a/b", NULL, NULL));
    assert_null(find("GET", "/v1/jobs//cancel", NULL, NULL));
    assert_null(find("GET", "/V1/jobs", NULL, NULL));
    assert_null(find("get", "/v1/jobs", NULL, NULL));
    assert_null(find("PUT", "/v1/jobs", parameter, allow));
    assert_string_equal(allow, "POST, GET, HEAD");
    assert_null(find("GET", "/v1/artifacts/a/upload", parameter, allow));
    assert_string_equal(allow, "HEAD, PATCH");
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "/v1/jobs/", 9);
    longest[sizeof longest - 1] = 0;
    assert_null(find("GET", longest, NULL, NULL));
}

static void test_query(void **state)
{
    const struct route *jobs = find("GET", "/v1/jobs", NULL, NULL);
    (void)state;
    assert_true(route_allows_query(jobs, "state"));
    assert_true(route_allows_query(jobs, "cursor"));
    assert_false(route_allows_query(jobs, "stat"));
    assert_false(route_allows_query(jobs, "state limit"));
    assert_false(route_allows_query(jobs, ""));
}

/* What must hold for every row, also for those that will be added. */
static void test_rules_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool reads = strcmp(rows[i].method, "GET") == 0 || strcmp(rows[i].method, "HEAD") == 0;
        if (rows[i].flags & FLAG_AGENT) {
            assert_true(reads);
            assert_int_equal(rows[i].scope, SCOPE_ARTIFACTS_READ);
        }
        if (rows[i].is_public)
            assert_true(reads || strcmp(rows[i].path, "/v1/session") == 0);
        if (!reads && !rows[i].is_public && strcmp(rows[i].path, "/v1/session") != 0)
            assert_true(rows[i].scope != SCOPE_NONE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_rules_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
