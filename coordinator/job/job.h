/* One training job: leases, data position, deduplication, the ledger and the parameters.
 * Plain calls, no sockets, HTTP or SQL; everything runs on the core's thread, but the ledger's
 * writer, which reports through the durable callback given at job_open. Time is passed in. */
#ifndef RAVEN_COORDINATOR_JOB_JOB_H
#define RAVEN_COORDINATOR_JOB_JOB_H

#include "common/base/shared.h"
#include "common/graph/graph.h"
#include "common/graph/job_spec.h"
#include "coordinator/job/series.h"
#include "coordinator/job/verdicts.h"
#include "coordinator/ledger/ledger.h"

#include <stdint.h>

struct job;

struct job_create_options {
    const char *id;
    const char *dir; /* is made */
    const struct job_spec *spec;
    uint64_t blocks; /* training blocks of the dataset, common/graph/data_plan.h */
};

/* Makes dir with job.json and the snapshot of version 0. A second call for the same dir is fine. */
enum status job_create(const struct job_create_options *options, struct error *err) MUST_CHECK;

struct job_open_options {
    ledger_done_fn durable;
    void *context;
    int64_t now_us;
    uint64_t ledger_segment_bytes; /* reserved on the disk at a time */
};

struct job_recovery {
    uint64_t version, records, torn_bytes;
    uint32_t damaged_snapshots;
};

/* Newest whole snapshot + replay of the ledger; every replayed commit's hash is compared.
 * durable(context, sequence, status) comes from the ledger's thread: bring it to the core's thread
 * and call job_durable there. Live leases start a new deadline at now_us. */
enum status job_open(const char *dir, const struct job_open_options *options, struct job **ret,
                     struct job_recovery *ret_recovery, struct error *err) MUST_CHECK;
/* Closes the ledger; job_snapshot first if a quick start is wanted. NULL is fine. */
void job_close(struct job *job);

const struct job_spec *job_spec_of(const struct job *job);
uint64_t job_parameters(const struct job *job);
uint64_t job_layout(const struct job *job);
uint64_t job_blocks(const struct job *job);
uint64_t job_version(const struct job *job);
uint64_t job_hash(const struct job *job);
const float *job_replica(const struct job *job); /* w[n] of job_version */

/* --- leases ---------------------------------------------------------------------------------- */
struct job_lease {
    char id[ID_BYTES];
    char volunteer[ID_BYTES];
    bool evaluates; /* else it trains */
    uint64_t nonce; /* of the request it answers */
    uint64_t base;  /* version when it was given */
    uint64_t block_first, block_count, seed;
    uint64_t steps, samples; /* steps × batch size */
    uint64_t samples_position;
    uint64_t k;          /* coordinates per chunk of its update */
    int64_t patience_us; /* without progress of its volunteer, then it has passed its deadline */
    int64_t deadline_us;
    uint64_t step; /* reported progress */
    bool pending;  /* its update waits for the disk */
    bool expired;  /* may still answer until its blocks are given to somebody else */
};

/* What an agent asks for; the lease keeps within the job's bounds. */
struct job_wish {
    uint64_t nonce;
    uint64_t steps, k;   /* 0: as the job says */
    int64_t patience_us; /* what the job's own deadline is raised to, if it is less */
};

/* STATUS_OK: *ret (a repeated nonce of the same volunteer gives the same lease).
 * STATUS_UNAVAILABLE: nothing to do now, *ret_reason says why (static text). */
enum status job_grant(struct job *job, const char *volunteer, const struct job_wish *wish,
                      int64_t now_us, struct job_lease *ret, const char **ret_reason) MUST_CHECK;
/* Progress counts only when the step has grown; it is good for all leases that the volunteer holds,
 * since those in store wait for this one. */
void job_progress(struct job *job, const char *lease, const char *volunteer, uint64_t step,
                  int64_t now_us);
/* Next lease that has passed its deadline (and now is marked so), or false. */
bool job_expire_next(struct job *job, int64_t now_us, struct job_lease *ret);
/* Live (unexpired) leases of a volunteer; and volunteers with one. */
uint32_t job_leases_of(const struct job *job, const char *volunteer);
uint32_t job_active_volunteers(const struct job *job);

/* --- updates --------------------------------------------------------------------------------- */
/* What to answer to an offer before its bytes are asked for: VERDICT_NONE: fetch it. */
struct job_answer {
    enum verdict verdict;
    enum verdict_reason reason;
    uint64_t version;
    bool pending; /* the same update is being written, or cannot be: ask again later */
};
struct job_answer job_examine_offer(struct job *job, const char *volunteer, const char *lease,
                                    uint64_t bytes);

/* A complete, checksummed payload. samples: how many the agent trained, counted at most up to the
 * lease's (an agent may end early). It (or the refusal) is appended to the ledger; the answer comes
 * through job_durable. Takes a reference. STATUS_NO_SPACE, STATUS_BUSY: offer it again later;
 * STATUS_IO, …: the ledger failed. */
enum status job_submit(struct job *job, const char *volunteer, const char *lease, uint64_t base,
                       uint64_t samples, double loss, struct shared *payload,
                       struct error *err) MUST_CHECK;

struct job_outcome {
    char volunteer[ID_BYTES];
    char lease[ID_BYTES];
    enum verdict verdict;
    enum verdict_reason reason;
    uint64_t version;
    uint64_t samples, payload_bytes, base;
    uint32_t staleness;
    double loss;
    float weight;
};

/* A record became durable (or never will: status). True when it produced an answer in *ret; an
 * applied one has made version ret->version, whose delta is job_delta(version). VERDICT_NONE: the
 * disk is full, nothing happened to the lease, and its update must be offered again. */
bool job_durable(struct job *job, uint64_t sequence, enum status status, int64_t wall_ms,
                 struct job_outcome *ret);

/* The delta that made version, and its hash; NULL when it is no longer kept. Not referenced. */
struct shared *job_delta(const struct job *job, uint64_t version, uint64_t *ret_hash);
/* Bytes of the deltas from version to now; UINT64_MAX when one of them is no longer kept. */
uint64_t job_replay_bytes(const struct job *job, uint64_t version);
/* True when a replica at (version, hash) can be brought up to date by deltas that together are
 * smaller than a replica: then they are the cheaper way on any link. */
bool job_can_replay(const struct job *job, uint64_t version, uint64_t hash);

/* --- evaluations -------------------------------------------------------------------------------
 */
/* False when the lease is not a live evaluation of this volunteer or the figures are not finite. */
bool job_evaluated(struct job *job, const char *volunteer, const char *lease, uint64_t version,
                   double loss, double accuracy, int64_t wall_ms);

/* --- state -------------------------------------------------------------------------------------
 */
struct job_figures {
    uint64_t samples, updates_applied, updates_stale, updates_refused;
    uint64_t uplink_bytes, downlink_bytes; /* payloads; a delta counts once per version */
    uint64_t staleness[8];                 /* 0, 1, 2, 3–4, 5–8, 9–16, 17–32, > 32 */
    double loss, loss_smoothed;            /* NaN: not yet */
    double held_out_loss_first, held_out_loss, held_out_accuracy;
    double outer_rate;
    const struct series *points;      /* version, loss, smoothed */
    const struct series *evaluations; /* version, loss, accuracy */
};
void job_read_figures(const struct job *job, struct job_figures *ret);
bool job_is_complete(const struct job *job); /* all samples applied and evaluated */
bool job_is_failed(const struct job *job);   /* the ledger failed: nothing more is accepted */
/* The disk has no space for the ledger: nothing is accepted until there is, then all goes on. */
bool job_is_full(const struct job *job);

/* Writes a snapshot now if nothing is in flight to the disk: STATUS_BUSY otherwise. */
enum status job_snapshot(struct job *job, struct error *err) MUST_CHECK;
bool job_wants_snapshot(const struct job *job);

/* --- verify --------------------------------------------------------------------------------------
 */
struct job_verify_report {
    uint64_t records, updates, commits, version, hash, torn_bytes;
    uint64_t duplicates; /* leases applied more than once: must be 0 */
};
/* Replays dir from version 0, beside a live or dead coordinator: STATUS_CORRUPT at the first commit
 * whose hash differs. Reads only. */
enum status job_verify(const char *dir, struct job_verify_report *ret,
                       struct error *err) MUST_CHECK;

#endif
