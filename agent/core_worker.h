/* The training thread: owns backend, graph, trainer and replica; does leases; merges deltas between
 * steps. Orders come by worker_post, reports go to core's mailbox. */
#ifndef RAVEN_AGENT_CORE_WORKER_H
#define RAVEN_AGENT_CORE_WORKER_H

#include "agent/core_mail.h"

struct worker_settings {
    uint32_t threads; /* ≥ 1 */
    unsigned cpu_percent;
    struct mailbox *core; /* must outlive the worker */
};

struct worker;

enum status worker_start(const struct worker_settings *settings, struct worker **ret,
                         struct error *err) MUST_CHECK;
/* Ends the thread after the step it is in and frees everything. */
void worker_stop(struct worker *worker); /* NULL is fine */

/* Takes the mail on STATUS_OK. STATUS_BUSY: the worker is far behind. */
enum status worker_post(struct worker *worker, struct worker_mail *mail) MUST_CHECK;
/* A running evaluation ends early; the order that says why follows by worker_post. */
void worker_interrupt(struct worker *worker);

#endif
