/* The store: a small pool of connections for calls that wait, and the writer for posted rows. Calls
 * run on their caller's thread; posted rows on the writer's. Surprising: a call's 2 seconds include
 * waiting for a free connection, so that nobody queues behind a database that does not answer; and
 * the writer's connection also keeps other coordinators off this database. */
#include "coordinator/store/store.h"

#include "common/base/clock.h"
#include "coordinator/store/internal.h"
#include "coordinator/store/migrate.h"
#include "coordinator/store/writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define POOL_CONNECTIONS 4
#define OPEN_US (INT64_C(5) * 1000000)
#define CLAIM_KEY INT64_C(0x726176656e2d6f6e) /* "raven-on" */
#define CLAIM_US (INT64_C(3) * 1000000)
#define CLAIM_STEP_US 100000

struct store {
    pthread_mutex_t mutex; /* guards idle, idle_count */
    pthread_cond_t freed;
    struct pq *connections[POOL_CONNECTIONS];
    struct pq *idle[POOL_CONNECTIONS]; /* the most recently used is last, and taken first */
    int idle_count;
    struct writer *writer;
};

static void pool_done(struct store *store)
{
    for (int i = 0; i < POOL_CONNECTIONS; i++)
        pq_free(store->connections[i]);
    pthread_cond_destroy(&store->freed);
    pthread_mutex_destroy(&store->mutex);
}

static enum status pool_init(struct store *store, const char *conninfo, struct error *err)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&store->mutex, NULL);
    pthread_cond_init(&store->freed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (int i = 0; i < POOL_CONNECTIONS; i++) {
        if (pq_create(conninfo, &store->connections[i]) != STATUS_OK)
            return error_set(err, STATUS_NO_MEMORY, "no memory for the database connections");
        store->idle[store->idle_count++] = store->connections[i];
    }
    return STATUS_OK;
}

/* One coordinator to a database; what a killed one left behind ends within a moment. */
static enum status connect_claimed(const char *conninfo, struct pq **ret, struct error *err)
{
    struct pq *pq = NULL;
    if (pq_create(conninfo, &pq) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the database connections");
    pq_claim(pq, CLAIM_KEY);
    int64_t until_us = clock_monotonic_us() + CLAIM_US;
    enum status status = pq_ready(pq, clock_monotonic_us() + OPEN_US, err);
    while (status == STATUS_BUSY && clock_monotonic_us() < until_us) {
        clock_sleep_us(CLAIM_STEP_US);
        status = pq_ready(pq, clock_monotonic_us() + OPEN_US, err);
    }
    if (status == STATUS_OK)
        *ret = pq;
    else
        pq_free(pq);
    return status;
}

enum status store_open(const char *conninfo, const char *sql_dir, struct store **ret,
                       struct error *err)
{
    struct store *store = calloc(1, sizeof *store);
    if (!store)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the store");
    struct pq *claimed = NULL;
    enum status status = pool_init(store, conninfo, err);
    if (status == STATUS_OK)
        status = connect_claimed(conninfo, &claimed, err);
    if (status == STATUS_OK)
        status = migrate(claimed, sql_dir, err);
    if (status == STATUS_OK)
        status = writer_create(claimed, &store->writer, err);
    else
        pq_free(claimed);
    if (status == STATUS_OK) {
        *ret = store;
        return STATUS_OK;
    }
    pool_done(store);
    free(store);
    return status;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    writer_close(store->writer);
    pool_done(store);
    free(store);
}

bool store_is_ready(struct store *store)
{
    return writer_is_ready(store->writer);
}

uint64_t store_queued(struct store *store)
{
    return writer_queued(store->writer);
}

uint64_t store_dropped(struct store *store)
{
    return writer_dropped(store->writer);
}

struct writer *store_writer(struct store *store)
{
    return store->writer;
}

/* --- the pool --- */

static struct timespec after_us(int64_t us)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += us / 1000000;
    at.tv_nsec += us % 1000000 * 1000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

void store_give(struct store *store, struct pq *pq)
{
    pthread_mutex_lock(&store->mutex);
    store->idle[store->idle_count++] = pq;
    pthread_cond_signal(&store->freed);
    pthread_mutex_unlock(&store->mutex);
}

enum status store_take(struct store *store, struct pq **ret, int64_t *ret_deadline_us,
                       struct error *err)
{
    int64_t deadline_us = clock_monotonic_us() + PQ_CALL_US;
    struct timespec until = after_us(PQ_CALL_US);
    struct pq *pq = NULL;
    pthread_mutex_lock(&store->mutex);
    while (store->idle_count == 0 &&
           pthread_cond_timedwait(&store->freed, &store->mutex, &until) != ETIMEDOUT)
        continue;
    if (store->idle_count > 0)
        pq = store->idle[--store->idle_count];
    pthread_mutex_unlock(&store->mutex);
    if (!pq)
        return error_set(err, STATUS_UNAVAILABLE,
                         "all connections to the database are busy; try again in a second");
    enum status status = pq_ready(pq, deadline_us, err);
    if (status != STATUS_OK) {
        store_give(store, pq);
        return status;
    }
    *ret = pq;
    *ret_deadline_us = deadline_us;
    return STATUS_OK;
}

enum status store_query(struct store *store, const char *sql, const struct pq_args *args,
                        PGresult **ret, struct error *err)
{
    struct pq *pq;
    int64_t deadline_us;
    enum status status = store_take(store, &pq, &deadline_us, err);
    if (status != STATUS_OK)
        return status;
    status = pq_run(pq, sql, args, deadline_us, ret, err);
    store_give(store, pq);
    return status;
}

enum status store_change(struct store *store, const char *sql, const struct pq_args *args,
                         const char *id, struct error *err)
{
    PGresult *result = NULL;
    enum status status = store_query(store, sql, args, &result, err);
    if (status == STATUS_OK && strtol(PQcmdTuples(result), NULL, 10) == 0)
        status = error_set(err, STATUS_NOT_FOUND, "there is no %s", id);
    PQclear(result);
    return status;
}
