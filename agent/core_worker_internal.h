/* The worker's inside, shared by core_worker.c (thread, orders), core_load.c (job, replica) and
 * core_train.c (leases). Training thread only, but for the two atomics. */
#ifndef RAVEN_AGENT_CORE_WORKER_INTERNAL_H
#define RAVEN_AGENT_CORE_WORKER_INTERNAL_H

#include "agent/backend/backend.h"
#include "agent/control/adapt.h"
#include "agent/control/duty.h"
#include "agent/core_packer.h"
#include "agent/core_worker.h"
#include "agent/engine/trainer.h"
#include "agent/update/replica.h"
#include "common/graph/graph.h"

#include <pthread.h>
#include <stdatomic.h>

#define LEASES_MAX (ADAPT_AHEAD_MAX + 1)
#define UNANSWERED_MAX 16 /* then wait for an answer; nothing is ever dropped */

struct lease_work {
    struct wire_lease wire;
    int64_t received_us;
};

struct worker {
    struct worker_settings settings;
    struct mailbox *inbox;
    struct packer *packer;
    pthread_t thread;
    atomic_bool stopping;
    atomic_bool interrupt; /* ends an evaluation early */

    /* the job */
    char job[ID_BYTES]; /* empty: none */
    struct job_spec spec;
    struct backend *backend;
    struct graph *graph;
    struct trainer *trainer;
    struct replica *replica;
    bool replica_held; /* loaded, as far as core was told */
    uint64_t layout;

    /* the leases */
    struct lease_work leases[LEASES_MAX];
    size_t lease_count;
    uint64_t ahead;  /* how many to hold */
    bool begun;      /* leases[0] has started */
    uint64_t step;   /* done steps of it */
    uint64_t base;   /* replica version at its start */
    double loss_sum; /* over its steps */
    unsigned broken_steps;
    bool wanting; /* CORE_WANT was sent, no lease came yet */
    char unanswered[UNANSWERED_MAX][ID_BYTES];
    size_t unanswered_count;

    /* pace */
    struct duty duty;
    uint64_t ramp_steps; /* since the replica was loaded */
    int64_t rest_until_us, rest_from_us;
    double samples_per_s;
    int64_t rate_from_us, progress_us;
    uint64_t rate_samples;

    /* what the controller and people want to know */
    double step_ms, overhead_ms; /* smoothed; overhead: what a lease's end holds training up */
    bool odd_step;               /* the last one took far longer than usual */
    int64_t begun_us, computed_us, rested_us; /* since the first lease of this run */
    uint64_t steps_done, samples_done;
};

/* core_worker.c */
void worker_report(struct worker *worker, struct core_mail *mail); /* takes mail */
void worker_say(struct worker *worker, const char *state);
void worker_drop_lease(struct worker *worker, size_t index);
void worker_want_more(struct worker *worker);
/* Broken parameters: forget the replica, ask for a new one. */
void worker_lose_replica(struct worker *worker, const char *why);

/* core_load.c */
void worker_load_job(struct worker *worker, const struct job_order *order);
void worker_unload_job(struct worker *worker);
void worker_load_replica(struct worker *worker, const char *job, const char *path);

/* core_train.c */
bool worker_can_work(const struct worker *worker);
/* One training step, or one whole evaluation; starts and ends the lease as needed. */
void worker_work(struct worker *worker);

#endif
