/* The own polynomials for exp and the normal distribution against libm in double precision, on both
 * kernel tables, over the whole range that can matter. */
#include "agent/backend/cpu/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define COUNT 4001 /* not a multiple of any vector length */

static const struct cpu_kernels *table(int i)
{
    return i == 0 ? cpu_kernels_best() : cpu_kernels_portable();
}

static void spread(float *x, double lowest, double highest)
{
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(lowest + (highest - lowest) * i / (COUNT - 1));
}

static void test_exp(void **state)
{
    float x[COUNT], y[COUNT];
    (void)state;
    spread(x, -80, 80);
    for (int t = 0; t < 2; t++) {
        table(t)->exp_shifted(COUNT, x, 1.0f, 0.0f, y);
        for (int i = 0; i < COUNT; i++) {
            double want = exp((double)x[i]);
            if (!(fabs((double)y[i] - want) <= 1e-6 * want))
                fail_msg("%s: exp(%g) is %g", table(t)->name, (double)x[i], (double)y[i]);
        }
    }
}

static double gelu(double x)
{
    return 0.5 * x * erfc(-x * M_SQRT1_2);
}

static double gelu_slope(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
}

static void test_gelu_and_its_gradient(void **state)
{
    float x[COUNT], y[COUNT], dy[COUNT], dx[COUNT];
    (void)state;
    spread(x, -20, 20);
    for (int i = 0; i < COUNT; i++)
        dy[i] = 1.0f;
    for (int t = 0; t < 2; t++) {
        table(t)->gelu(COUNT, x, y);
        table(t)->gelu_gradient(COUNT, x, dy, dx, false);
        for (int i = 0; i < COUNT; i++) {
            double at = (double)x[i];
            if (!(fabs((double)y[i] - gelu(at)) <= 2e-6 * (1 + fabs(at))) ||
                !(fabs((double)dx[i] - gelu_slope(at)) <= 4e-6))
                fail_msg("%s: at %g gelu is %g, its slope %g", table(t)->name, at, (double)y[i],
                         (double)dx[i]);
        }
    }
}

static void test_softmax(void **state)
{
    float x[COUNT], y[COUNT];
    (void)state;
    spread(x, -300, 300);
    for (int t = 0; t < 2; t++) {
        double total = 0, sum = 0;
        float log_sum = table(t)->softmax(COUNT, x, 0.25f, y);
        for (int i = 0; i < COUNT; i++)
            total += exp(0.25 * (double)x[i] - 75);
        for (int i = 0; i < COUNT; i++)
            sum += (double)y[i];
        assert_true(fabs(sum - 1.0) < 1e-5);
        assert_true(fabs((double)log_sum - 75 - log(total)) < 1e-4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_gelu_and_its_gradient),
        cmocka_unit_test(test_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
