/* Every task runs exactly once, on no two threads with one number, however often and with however
 * many threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "common/base/pool.h"

#include <stdatomic.h>
#include <string.h>

#define TASKS 100
#define THREADS_MAX 5

struct tally {
    atomic_uint runs[TASKS];
    atomic_bool busy[THREADS_MAX];
    atomic_uint collisions;
};

static void count_task(void *context, size_t task, uint32_t worker)
{
    struct tally *tally = context;
    if (worker >= THREADS_MAX || atomic_exchange(&tally->busy[worker], true))
        atomic_fetch_add(&tally->collisions, 1);
    atomic_fetch_add(&tally->runs[task], 1);
    if (worker < THREADS_MAX)
        atomic_store(&tally->busy[worker], false);
}

static void assert_all_ran(struct pool *pool, size_t tasks)
{
    struct tally tally;
    memset(&tally, 0, sizeof tally);
    pool_run(pool, tasks, count_task, &tally);
    assert_int_equal(tally.collisions, 0);
    for (size_t i = 0; i < TASKS; i++)
        assert_int_equal(tally.runs[i], i < tasks);
}

static void every_task_runs_once(void **state)
{
    (void)state;
    static const size_t tasks[] = {0, 1, 2, 3, TASKS};
    for (uint32_t threads = 1; threads <= THREADS_MAX; threads++) {
        struct pool *pool;
        assert_int_equal(pool_create(threads, &pool, NULL), STATUS_OK);
        assert_int_equal(pool_threads(pool), threads);
        for (int round = 0; round < 300; round++)
            assert_all_ran(pool, tasks[(size_t)round % COUNT_OF(tasks)]);
        pool_free(pool);
    }
}

static void no_pool_means_this_thread(void **state)
{
    (void)state;
    assert_int_equal(pool_threads(NULL), 1);
    assert_all_ran(NULL, TASKS);
    pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(no_pool_means_this_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
