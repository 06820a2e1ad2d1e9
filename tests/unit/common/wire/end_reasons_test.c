/* Tests of end_reasons.c: names are the lower-case enumerators, numbers are distinct. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/wire/wire.h"

#include <ctype.h>
#include <string.h>

static void ids_follow_the_enumerators(void **state)
{
    (void)state;
    bool seen[256] = {false};
#define END_REASON(name, number, id, text, reconnect)                                              \
    {                                                                                              \
        const char *upper = #name;                                                                 \
        assert_int_equal(strlen(upper), strlen(id));                                               \
        for (size_t i = 0; upper[i]; i++)                                                          \
            assert_int_equal(tolower(upper[i]), id[i]);                                            \
        assert_false(seen[number]);                                                                \
        seen[number] = true;                                                                       \
        assert_string_equal(end_reason_name((enum end_reason)(number)), id);                       \
        assert_int_equal(end_reason_may_reconnect((enum end_reason)(number)), reconnect);          \
    }
#include "common/wire/end_reasons.def"
#undef END_REASON
}

static void unknown_reasons_are_safe(void **state)
{
    (void)state;
    assert_string_equal(end_reason_text((enum end_reason)999), "unknown reason");
    assert_string_equal(end_reason_name((enum end_reason)999), "unknown");
    assert_true(end_reason_may_reconnect((enum end_reason)999));
    assert_string_equal(end_reason_text(END_SILENCE), "nothing was heard for too long");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_follow_the_enumerators),
        cmocka_unit_test(unknown_reasons_are_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
