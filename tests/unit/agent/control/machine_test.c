/* The processor's name from /proc/cpuinfo texts as they come. */
#include "agent/control/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_names(void **state)
{
    (void)state;
    char name[MACHINE_CPU_BYTES];
    assert_true(
        machine_cpu_name("processor\t: 0\nmodel name\t:  Fast(R)   CPU  @ 3 GHz \nx: y\n", name));
    assert_string_equal(name, "Fast(R) CPU @ 3 GHz");
    assert_false(machine_cpu_name("processor: 0\nBogoMIPS: 50\n", name));
    assert_false(machine_cpu_name("", name));
    assert_false(machine_cpu_name("model name", name));
    assert_false(machine_cpu_name("model name:\nx", name));
    char text[4096] = "model name : ";
    memset(text + strlen(text), 'a', 3000);
    assert_true(machine_cpu_name(text, name));
    assert_true(strlen(name) < MACHINE_CPU_BYTES);
    assert_true(machine_cpu_name("model name: a\x01\x1b[31mb", name));
    assert_string_equal(name, "a[31mb");
}

static void test_this_machine(void **state)
{
    (void)state;
    struct machine machine;
    machine_describe(&machine);
    assert_true(machine.threads >= 1);
    assert_true(machine.memory_bytes > 1 << 20);
    assert_true(machine.cpu[0] != '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
