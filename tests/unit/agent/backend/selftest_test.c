/* The known answers: right on every kernel table and thread count, and a single wrong operator is
 * found and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

// clang-format off
#include <cmocka.h>
// clang-format on

#include "agent/backend/backend.h"
#include "agent/backend/cpu/cpu.h"

#include <string.h>

static void passes(struct backend *backend)
{
    struct error err = {0};
    if (backend_selftest(backend, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void test_this_machine_passes(void **state)
{
    (void)state;
    for (uint32_t threads = 0; threads <= 3; threads++) {
        struct backend *backend;
        struct error err;
        assert_int_equal(backend_create_cpu(threads, &backend, &err), STATUS_OK);
        assert_int_equal(backend->threads, threads ? threads : 1);
        passes(backend);
        backend_free(backend);
    }
}

static void test_portable_kernels_pass(void **state)
{
    (void)state;
    struct backend *backend;
    struct error err;
    assert_int_equal(cpu_backend_create(2, cpu_kernels_portable(), &backend, &err), STATUS_OK);
    assert_string_equal(backend->name, "cpu portable");
    passes(backend);
    backend_free(backend);
}

static void wrong_relu(struct backend *backend, size_t count, const float *x, float *y)
{
    cpu_relu_forward(backend, count, x, y);
    y[count - 1] += 0.01f;
}

static void test_pain_C11_a_wrong_operator_is_named(void **state)
{
    (void)state;
    struct backend *backend;
    struct error err = {0};
    assert_int_equal(backend_create_cpu(1, &backend, &err), STATUS_OK);
    backend->relu_forward = wrong_relu;
    assert_int_equal(backend_selftest(backend, &err), STATUS_CORRUPT);
    assert_non_null(strstr(err.text, "relu"));
    backend_free(backend);
}

static void test_too_many_threads_are_refused(void **state)
{
    (void)state;
    struct backend *backend = NULL;
    struct error err = {0};
    assert_int_equal(backend_create_cpu(BACKEND_THREADS_MAX + 1, &backend, &err), STATUS_INVALID);
    assert_null(backend);
    backend_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_this_machine_passes),
        cmocka_unit_test(test_portable_kernels_pass),
        cmocka_unit_test(test_pain_C11_a_wrong_operator_is_named),
        cmocka_unit_test(test_too_many_threads_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
