/* Large vectors are zero, aligned, writable to the last byte, and go back whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "common/base/large.h"

static void memory_is_zero_and_aligned(void **state)
{
    (void)state;
    const size_t sizes[] = {
        0, 1, 63, 64, 4097, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, 3 * LARGE_BYTES + 12345};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        uint8_t *memory = large_alloc(sizes[i]);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(memory[j], 0);
            memory[j] = 0xA5;
        }
        large_free(memory, sizes[i]);
    }
    large_free(NULL, 0);
    large_free(NULL, LARGE_BYTES);
}

static void impossible_sizes_give_null(void **state)
{
    (void)state;
    assert_null(large_alloc(SIZE_MAX));
    assert_null(large_alloc(SIZE_MAX / 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zero_and_aligned),
        cmocka_unit_test(impossible_sizes_give_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
