/* The pool: everything accepted is run, also while draining; nothing is accepted beyond the limit.
 */
#include "coordinator/http/workers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

struct job {
    struct work work;
    atomic_int *done;
    pthread_barrier_t *gate;
};

static void run(struct work *work)
{
    struct job *job = (struct job *)work;
    if (job->gate)
        pthread_barrier_wait(job->gate);
    atomic_fetch_add(job->done, 1);
}

static void test_runs_all_and_refuses_the_rest(void **state)
{
    enum { QUEUE = 8 };
    struct workers *workers = NULL;
    struct error err = {0};
    atomic_int done = 0;
    pthread_barrier_t gate;
    struct job first = {.work.run = run, .done = &done, .gate = &gate}, jobs[QUEUE + 1];
    (void)state;
    pthread_barrier_init(&gate, NULL, 2);
    assert_int_equal(workers_start(1, QUEUE, &workers, &err), STATUS_OK);
    assert_true(workers_submit(workers, &first.work)); /* holds the only thread or waits for it */
    int accepted = 0;
    for (int i = 0; i <= QUEUE; i++) {
        jobs[i] = (struct job){.work.run = run, .done = &done};
        accepted += workers_submit(workers, &jobs[i].work);
    }
    assert_true(accepted == QUEUE || accepted == QUEUE - 1);
    assert_int_equal(atomic_load(&done), 0);
    pthread_barrier_wait(&gate);
    workers_drain(workers);
    assert_int_equal(atomic_load(&done), 1 + accepted);
    assert_false(workers_submit(workers, &first.work));
    workers_free(workers);
    workers_free(NULL);
    pthread_barrier_destroy(&gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_all_and_refuses_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
