/* The pool of worker threads: one queue, first in, first out, bounded. Its surprise: the struct
 * outlives its threads (workers_drain, then workers_free), so that libmicrohttpd's threads may go
 * on submitting, and be refused, while the server stops. */
#include "coordinator/http/workers.h"

#include <pthread.h>
#include <stdlib.h>

#define THREADS_MAX 64u

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first, **last;
    uint32_t queued, queue_max;
    bool draining;
    uint32_t threads;
    pthread_t thread[THREADS_MAX];
};

static struct work *take(struct workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    while (!workers->first && !workers->draining)
        pthread_cond_wait(&workers->changed, &workers->lock);
    struct work *work = workers->first;
    if (work) {
        workers->first = work->next;
        if (!workers->first)
            workers->last = &workers->first;
        workers->queued--;
    }
    pthread_mutex_unlock(&workers->lock);
    return work;
}

static void *run(void *argument)
{
    struct workers *workers = argument;
    for (struct work *work = take(workers); work; work = take(workers))
        work->run(work);
    return NULL;
}

enum status workers_start(uint32_t threads, uint32_t queue_max, struct workers **ret,
                          struct error *err)
{
    struct workers *workers = calloc(1, sizeof *workers);
    if (!workers)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the HTTP workers");
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->changed, NULL);
    workers->last = &workers->first;
    workers->queue_max = queue_max;
    for (uint32_t i = 0; i < threads && i < THREADS_MAX; i++) {
        int failed = pthread_create(&workers->thread[i], NULL, run, workers);
        if (failed) {
            workers_drain(workers);
            workers_free(workers);
            return error_set_errno(err, failed, "cannot start HTTP worker %u", i);
        }
        workers->threads++;
    }
    *ret = workers;
    return STATUS_OK;
}

bool workers_submit(struct workers *workers, struct work *work)
{
    pthread_mutex_lock(&workers->lock);
    bool accepted = !workers->draining && workers->queued < workers->queue_max;
    if (accepted) {
        work->next = NULL;
        *workers->last = work;
        workers->last = &work->next;
        workers->queued++;
        pthread_cond_signal(&workers->changed);
    }
    pthread_mutex_unlock(&workers->lock);
    return accepted;
}

void workers_drain(struct workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    workers->draining = true;
    pthread_cond_broadcast(&workers->changed);
    pthread_mutex_unlock(&workers->lock);
    for (uint32_t i = 0; i < workers->threads; i++)
        pthread_join(workers->thread[i], NULL);
    workers->threads = 0;
}

void workers_free(struct workers *workers)
{
    if (!workers)
        return;
    pthread_cond_destroy(&workers->changed);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}
