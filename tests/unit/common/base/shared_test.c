/* Tests of shared.c: last unref frees (the sanitizer builds see leaks), many threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/shared.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void *ref_and_unref(void *arg)
{
    struct shared *shared = arg;
    for (int i = 0; i < 10000; i++) {
        shared_ref(shared);
        shared_unref(shared);
    }
    shared_unref(shared);
    return NULL;
}

static void threads_share_one_copy(void **state)
{
    (void)state;
    char text[] = "bytes";
    struct shared *shared = shared_create(text, 5);
    text[0] = 'x';
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ref_and_unref, shared_ref(shared)), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(shared_bytes(shared), 5);
    assert_memory_equal(shared_data(shared), "bytes", 5);
    shared_unref(shared);
    shared_unref(NULL);
}

static void take_keeps_the_callers_block(void **state)
{
    (void)state;
    uint8_t *data = malloc(3);
    memcpy(data, "abc", 3);
    struct shared *shared = shared_create_take(data, 3);
    assert_ptr_equal(shared_data(shared), data);
    shared_unref(shared);
    shared = shared_create(NULL, 0);
    assert_int_equal(shared_bytes(shared), 0);
    shared_unref(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_one_copy),
        cmocka_unit_test(take_keeps_the_callers_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
