/* A few threads that run what may wait: requests that ask the database or the core. */
#ifndef RAVEN_COORDINATOR_HTTP_WORKERS_H
#define RAVEN_COORDINATOR_HTTP_WORKERS_H

#include "common/base/status.h"

#include <stdint.h>

/* Embed it in what is to be run. */
struct work {
    struct work *next;
    void (*run)(struct work *work);
};

struct workers;

enum status workers_start(uint32_t threads, uint32_t queue_max, struct workers **ret,
                          struct error *err) MUST_CHECK;
/* Any thread. False, and nothing happens, when the queue is full or after workers_drain. */
bool workers_submit(struct workers *workers, struct work *work) MUST_CHECK;
/* Refuses new work, runs what is queued, ends the threads. */
void workers_drain(struct workers *workers);
void workers_free(struct workers *workers); /* drained, and nobody submits any more; NULL is fine */

#endif
