/* Threads that share one call. pool_run runs on its caller; workers only run its tasks.
 * Surprising: a call never waits for a worker that has not woken up yet (its core may be busy with
 * the owner's game): the caller closes the call when no task is left, and late workers go back to
 * sleep. */
#include "common/base/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define SPINS 150 /* about 5 µs */

struct worker {
    struct pool *pool;
    uint32_t index;
    pthread_t thread;
};

struct pool {
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    atomic_uint calls;  /* grows with every call, so that a spinning worker sees it */
    atomic_uint active; /* workers inside the open call */
    bool open, stop;
    pool_task *run;
    void *context;
    size_t tasks;
    atomic_size_t next;
    uint32_t started;
    struct worker workers[];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void run_tasks(struct pool *pool, uint32_t worker)
{
    for (;;) {
        size_t task = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (task >= pool->tasks)
            return;
        pool->run(pool->context, task, worker);
    }
}

/* Called and returns with the mutex held. False: stop. */
static bool wait_for_call(struct pool *pool, unsigned *seen)
{
    pthread_mutex_unlock(&pool->mutex);
    for (int i = 0; i < SPINS && atomic_load_explicit(&pool->calls, memory_order_relaxed) == *seen;
         i++)
        relax();
    pthread_mutex_lock(&pool->mutex);
    while (!pool->stop && !(pool->open && atomic_load(&pool->calls) != *seen))
        pthread_cond_wait(&pool->work, &pool->mutex);
    *seen = atomic_load(&pool->calls);
    return !pool->stop;
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct pool *pool = worker->pool;
    unsigned seen = 0;
    pthread_mutex_lock(&pool->mutex);
    while (wait_for_call(pool, &seen)) {
        atomic_fetch_add(&pool->active, 1);
        pthread_mutex_unlock(&pool->mutex);
        run_tasks(pool, worker->index);
        pthread_mutex_lock(&pool->mutex);
        if (atomic_fetch_sub(&pool->active, 1) == 1)
            pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* Signals are the program's business: workers start with all of them blocked. */
static int start_worker(struct worker *worker)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&worker->thread, NULL, worker_main, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

enum status pool_create(uint32_t threads, struct pool **ret, struct error *err)
{
    uint32_t wanted = threads > 0 ? threads - 1 : 0;
    struct pool *pool = calloc(1, sizeof *pool + wanted * sizeof pool->workers[0]);
    if (!pool)
        return error_set(err, STATUS_NO_MEMORY, "starting %u threads: out of memory", threads);
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (uint32_t i = 0; i < wanted; i++) {
        pool->workers[i] = (struct worker){.pool = pool, .index = i + 1};
        int failed = start_worker(&pool->workers[i]);
        if (failed) {
            pool_free(pool);
            return error_set_errno(err, failed, "starting thread %u of %u", i + 2, threads);
        }
        pool->started++;
    }
    *ret = pool;
    return STATUS_OK;
}

void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->mutex);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (uint32_t i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

uint32_t pool_threads(const struct pool *pool)
{
    return pool ? pool->started + 1 : 1;
}

void pool_run(struct pool *pool, size_t tasks, pool_task *run, void *context)
{
    if (!pool || pool->started == 0 || tasks <= 1) {
        for (size_t i = 0; i < tasks; i++)
            run(context, i, 0);
        return;
    }
    pthread_mutex_lock(&pool->mutex);
    pool->run = run;
    pool->context = context;
    pool->tasks = tasks;
    atomic_store(&pool->next, 0);
    pool->open = true;
    atomic_fetch_add(&pool->calls, 1);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);

    run_tasks(pool, 0);

    for (int i = 0; i < SPINS && atomic_load(&pool->active) > 0; i++)
        relax();
    pthread_mutex_lock(&pool->mutex);
    pool->open = false;
    while (atomic_load(&pool->active) > 0)
        pthread_cond_wait(&pool->done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}
