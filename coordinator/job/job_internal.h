/* Private to coordinator/job: the parts of one job. */
#ifndef RAVEN_COORDINATOR_JOB_JOB_INTERNAL_H
#define RAVEN_COORDINATOR_JOB_JOB_INTERNAL_H

#include "common/base/file.h"
#include "coordinator/aggregate/aggregate.h"
#include "coordinator/job/job.h"
#include "coordinator/ledger/records.h"
#include "coordinator/ledger/snapshot.h"

#define DELTAS_COUNT_MAX 4096u
#define SNAPSHOT_EVERY_VERSIONS 500u
#define SNAPSHOTS_KEPT 2u
#define SMOOTHING 0.05 /* weight of a new loss in the moving average */

struct kept_delta {
    struct shared *bytes;
    uint64_t hash; /* of the replica after it */
};

/* The newest deltas, oldest first; together never larger than one replica. */
struct delta_ring {
    struct kept_delta items[DELTAS_COUNT_MAX];
    uint32_t first, count;
    uint64_t bytes;
    uint64_t base_hash; /* of the replica before the oldest kept delta */
};

struct lease_table {
    struct job_lease *items;
    uint32_t count, capacity;
};

/* An update or a refusal on its way to the disk, in ledger order. */
struct pending {
    struct pending *next;
    uint64_t sequence;
    enum verdict_reason reason; /* REASON_NONE: apply it */
    char volunteer[ID_BYTES];
    char lease[ID_BYTES];
    struct shared *payload;
    float *factors;
    struct ledger_update update; /* its payload and factors point at the two above */
    struct codec_payload opened; /* the payload, once examined */
};

struct job {
    char id[ID_BYTES];
    char dir[PATH_BYTES];
    struct job_spec spec;
    struct graph *graph;
    struct aggregate *aggregate;
    struct ledger *ledger;
    ledger_done_fn durable;
    void *durable_context;
    uint64_t layout, blocks;

    uint64_t next_block;
    struct lease_table leases;
    struct verdict_table verdicts;
    struct pending *pending_first, **pending_last;
    uint32_t pending_count;
    struct delta_ring deltas;

    uint64_t durable_sequence;
    uint32_t in_flight; /* records that the ledger has not answered yet */
    uint64_t snapshot_version;
    bool snapshot_due; /* the full disk refused a record of which the state knows */
    bool failed;

    struct job_figures figures; /* points and evaluations are set when read */
    double smoothed_sum, smoothed_weight;
    bool evaluated_once;
    uint64_t evaluated_version;
    struct series points, evaluations;
    int64_t replay_wall_ms;
    struct job_outcome replayed; /* scratch for replay */
};

/* leases.c */
struct job_lease *lease_find(struct lease_table *table, const char *id);
enum status lease_add(struct lease_table *table, const struct job_lease *lease) MUST_CHECK;
void lease_remove(struct lease_table *table, const char *id);
/* A granted lease goes live: blocks count as handed out, and the lease it replaces ("" for new
 * blocks) is refused from now on. */
enum status lease_take(struct job *job, const struct job_lease *lease,
                       const char *replaces) MUST_CHECK;
uint64_t lease_seed(const struct job *job, uint64_t block_first);

/* updates.c */
/* θ and w move, the delta is kept, counters and series follow, the lease gets its verdict. payload:
 * the update's, opened. */
enum status job_absorb_update(struct job *job, const struct ledger_update *update,
                              const struct codec_payload *payload, int64_t wall_ms,
                              struct job_outcome *ret, struct error *err) MUST_CHECK;
enum status job_absorb_verdict(struct job *job, const char *volunteer, const char *lease,
                               enum verdict_reason reason, struct job_outcome *ret) MUST_CHECK;
void pending_free(struct pending *pending); /* NULL is fine */
void job_note_evaluation(struct job *job, uint64_t version, double loss, double accuracy,
                         int64_t wall_ms);
/* Appends with the job's durable callback and keeps count. */
enum status job_append(struct job *job, enum ledger_type type, const struct buffer *body,
                       uint64_t *ret_sequence) MUST_CHECK;

/* deltas.c */
enum status delta_ring_add(struct delta_ring *ring, struct shared *bytes, uint64_t hash,
                           uint64_t bytes_max) MUST_CHECK; /* takes the reference */
void delta_ring_done(struct delta_ring *ring);

/* control.c: bodies of LEDGER_CONTROL records */
enum status control_grant_write(const struct job_lease *lease, const char *replaces,
                                struct buffer *ret) MUST_CHECK;
enum status control_evaluation_write(uint64_t version, double loss, double accuracy,
                                     int64_t wall_ms, struct buffer *ret) MUST_CHECK;
enum status control_replay(struct job *job, const uint8_t *body, size_t bytes,
                           struct error *err) MUST_CHECK;

/* state.c: the job's part of a snapshot */
enum status job_state_write(const struct job *job, struct buffer *ret) MUST_CHECK;
enum status job_state_read(struct job *job, const uint8_t *data, size_t bytes,
                           struct error *err) MUST_CHECK;

/* open.c */
enum status job_read_description(const char *dir, struct job *job, struct error *err) MUST_CHECK;
enum status job_make_aggregate(const struct graph *graph, const float *theta,
                               struct aggregate **ret) MUST_CHECK;

#endif
