/* The one loop that owns the state of jobs, leases, sessions and live figures. Everything else
 * sends it messages. The functions here may be called from HTTP workers and main: they post and,
 * where they return something, wait for the loop's answer (at most 2 s, then STATUS_UNAVAILABLE).
 */
#ifndef RAVEN_COORDINATOR_CORE_H
#define RAVEN_COORDINATOR_CORE_H

#include "common/base/shared.h"
#include "common/base/status.h"
#include "coordinator/auth/auth.h"
#include "coordinator/hub/hub.h"
#include "coordinator/store/store.h"

#include <stdint.h>

struct core;

struct core_options {
    const char *jobs_dir; /* one directory per job below it: ledger and snapshots */
    uint64_t ledger_segment_bytes;
    const char *uploads_dir; /* parts of updates that are arriving */
    struct store *store;
    struct auth *auth;
    struct hub_options hub; /* callbacks and context are filled in by the core */
    /* Folders that hold artifacts by SHA-256, NULL-ended; or NULL. Must outlive the core. */
    const char *const *mirrors;
    bool (*viewer_allowed)(void *context, const struct hub_viewer_handshake *handshake);
    void *viewer_context;
};

/* Starts hub and loop, loads volunteers and unfinished jobs, recovers each job from its ledger. */
enum status core_start(const struct core_options *options, struct core **ret,
                       struct error *err) MUST_CHECK;
void core_stop(struct core *core); /* drains sessions, closes ledgers; NULL is fine */
struct hub *core_hub(struct core *core);
bool core_is_alive(struct core *core); /* the loop turned within the last 5 s; never waits */

/* job: created in the store already. Takes nothing over; copies. */
enum status core_job_start(struct core *core, const struct store_job *job,
                           struct error *err) MUST_CHECK;
/* STATUS_NOT_FOUND: not live (finished or unknown). */
enum status core_job_cancel(struct core *core, const char *id, const char *reason,
                            struct error *err) MUST_CHECK;

struct core_job_progress {
    char state[16]; /* of this moment; the database follows */
    uint64_t version, samples, total_samples, parameters;
    uint64_t updates_applied, updates_stale, updates_refused;
    uint32_t volunteers;                                          /* holding a lease now */
    double loss, loss_smoothed;                                   /* nats per row; NaN: not yet */
    double held_out_loss_first, held_out_loss, held_out_accuracy; /* NaN: not yet */
    uint64_t uplink_bytes, downlink_bytes;                        /* payloads */
    uint64_t staleness[8]; /* 0, 1, 2, 3–4, 5–8, 9–16, 17–32, > 32 versions */
    uint64_t hash;         /* hash(w) */
};
enum status core_job_read(struct core *core, const char *id,
                          struct core_job_progress *ret) MUST_CHECK;
/* A recent replica as tensorfile/replica_file.h bytes, that of wanted_version if it is still of use
 * (a download that goes on); the caller unrefs. */
enum status core_job_replica(struct core *core, const char *id, uint64_t wanted_version,
                             struct shared **ret) MUST_CHECK;

struct core_volunteer_live {
    bool connected, training;
    double samples_per_s, rtt_ms;
    int64_t clock_offset_ms; /* how far its clock is ahead of the coordinator's */
    char job[ID_BYTES];
};
enum status core_volunteer_read(struct core *core, const char *id,
                                struct core_volunteer_live *ret) MUST_CHECK;

/* Adds an event to the log and the live stream. Never waits. */
void core_event(struct core *core, const char *type, const char *severity, const char *subject,
                const char *format, ...) PRINTF_LIKE(5, 6);

#endif
