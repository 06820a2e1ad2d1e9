/* A good device passes its known-answer test; one that computes a single operator wrongly does not
 * (pain C11). */
#include "agent/backend/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static struct backend honest;

static void broken_linear(struct backend *backend, const struct linear_shape *shape, const float *x,
                          const float *weight, const float *bias, float *y)
{
    honest.linear_forward(backend, shape, x, weight, bias, y);
    y[shape->rows * shape->out - 1] += 0.01f;
}

static void broken_gelu(struct backend *backend, size_t count, const float *x, float *y)
{
    honest.gelu_forward(backend, count, x, y);
    y[count / 2] = -y[count / 2] - 1.0f;
}

static struct backend *make(uint32_t threads)
{
    struct backend *backend = NULL;
    struct error err = {0};
    if (backend_create_cpu(threads, &backend, &err))
        fail_msg("%s", err.text);
    honest = *backend;
    return backend;
}

static void test_cpu_passes(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct backend *backend = make(threads);
        struct error err = {0};
        if (backend_selftest(backend, &err))
            fail_msg("%s", err.text);
        backend_free(backend);
    }
}

static void test_pain_C11_a_wrong_result_is_named(void **state)
{
    (void)state;
    struct backend *backend = make(1);
    struct error err = {0};
    backend->linear_forward = broken_linear;
    assert_int_equal(backend_selftest(backend, &err), STATUS_CORRUPT);
    assert_non_null(strstr(err.text, "linear"));
    backend->linear_forward = honest.linear_forward;
    backend->gelu_forward = broken_gelu;
    assert_int_equal(backend_selftest(backend, &err), STATUS_CORRUPT);
    assert_non_null(strstr(err.text, "gelu"));
    backend_free(backend);
}

static void test_too_many_threads(void **state)
{
    (void)state;
    struct backend *backend = NULL;
    struct error err = {0};
    assert_int_equal(backend_create_cpu(BACKEND_THREADS_MAX + 1, &backend, &err), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_passes),
        cmocka_unit_test(test_pain_C11_a_wrong_result_is_named),
        cmocka_unit_test(test_too_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
