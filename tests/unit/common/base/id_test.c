/* Tests of id.c: form, uniqueness, hostile text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/id.h"

#include <string.h>

static void ids_are_valid_and_differ(void **state)
{
    (void)state;
    char a[ID_BYTES], b[ID_BYTES];
    for (int i = 0; i < 1000; i++) {
        id_make(a, "job");
        id_make(b, "job");
        assert_true(id_is_valid(a, "job"));
        assert_string_not_equal(a, b);
    }
    assert_int_equal(strlen(a), 30);
    assert_memory_equal(a, b, 8); /* the same minute or so: the time comes first */
}

static void hostile_texts_are_refused(void **state)
{
    (void)state;
    const char *const bad[] = {
        "",
        "job_",
        "job_01JD000000000000000000000",   /* 25 */
        "job_01JD00000000000000000000000", /* 27 */
        "art_01JD0000000000000000000000",
        "job-01JD0000000000000000000000",
        "job_01JD000000000000000000000I", /* not in the alphabet */
        "job_01jd0000000000000000000000", /* lower case */
        "job_81JD0000000000000000000000", /* over 128 bits */
        "job_../../../../../etc/passwd0",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(id_is_valid(bad[i], "job"));
    assert_true(id_is_valid("job_01JD0000000000000000000000", "job"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_valid_and_differ),
        cmocka_unit_test(hostile_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
