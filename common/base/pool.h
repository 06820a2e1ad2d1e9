/* A few threads that run the tasks of one call at a time. The caller works too. Between calls the
 * workers spin for a few microseconds, then sleep: a volunteer's PC is shared. */
#ifndef RAVEN_COMMON_BASE_POOL_H
#define RAVEN_COMMON_BASE_POOL_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pool;

/* worker: 0 … threads - 1, the same for no two tasks that run at once. */
typedef void pool_task(void *context, size_t task, uint32_t worker);

/* threads counts the caller: threads - 1 are started. */
enum status pool_create(uint32_t threads, struct pool **ret, struct error *err) MUST_CHECK;
void pool_free(struct pool *pool);
/* How many threads run tasks, the caller among them; 1 for NULL. */
uint32_t pool_threads(const struct pool *pool);

/* Runs run(context, 0 … tasks - 1) in any order on any thread (in order on this one when pool is
 * NULL); returns when all are done. One caller at a time. */
void pool_run(struct pool *pool, size_t tasks, pool_task *run, void *context);

#endif
