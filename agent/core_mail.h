/* What the agent's threads say to each other: the session thread (core) orders work from the
 * training thread (worker) and the download thread (fetcher); both report to core's mailbox. The
 * worker's own packing thread (core_packer.h) reports to both. A message belongs to whoever took
 * it. */
#ifndef RAVEN_AGENT_CORE_MAIL_H
#define RAVEN_AGENT_CORE_MAIL_H

#include "agent/session/deltas.h"
#include "common/base/file.h"
#include "common/base/id.h"
#include "common/base/mailbox.h"
#include "common/base/shared.h"
#include "common/graph/job_spec.h"
#include "common/wire/wire.h"

#define JOB_ARTIFACTS_MAX 4

/* One artifact of a job, in the order in which the trainer wants the paths. */
struct job_artifact {
    char id[ID_BYTES];
    uint8_t sha256[32];
    uint64_t bytes;
    char path[PATH_BYTES]; /* in the cache */
};

struct job_order {
    char job[ID_BYTES];
    struct job_spec spec;
    struct job_artifact artifacts[JOB_ARTIFACTS_MAX];
    size_t artifact_count;
    char mirrors[WIRE_MIRRORS_MAX][WIRE_MIRROR_CHARACTERS_MAX + 1];
    size_t mirror_count;
    uint64_t parameters, layout;
};

/* --- core, packer → worker -------------------------------------------------------------------- */

enum worker_mail_type {
    WORKER_JOB,     /* load this job; the one before is dropped */
    WORKER_REPLICA, /* load the replica in path */
    WORKER_DELTA,   /* merge */
    WORKER_LEASE,   /* do this next */
    WORKER_ANSWER,  /* the durable answer to an update */
    WORKER_CANCEL,  /* drop a lease, or the job */
    WORKER_AHEAD,   /* how many leases to hold */
    WORKER_SETTLE,  /* packer: w has moved, x should follow */
    WORKER_LOST,    /* packer: the replica is broken, or the update of a lease could not be made */
};

struct worker_mail {
    struct mail mail;
    union {
        struct job_order job;
        struct {
            char job[ID_BYTES];
            char path[PATH_BYTES];
        } replica;
        struct delta_in *delta; /* owned */
        struct wire_lease lease;
        struct wire_result answer;
        struct wire_cancel cancel;
        uint64_t ahead;
        struct {
            char lease[ID_BYTES]; /* whose update there will not be; empty: none */
            char why[320];
        } lost;
    };
};

void worker_mail_free(struct worker_mail *mail);

/* --- core → fetcher --------------------------------------------------------------------------- */

enum fetch_mail_type { FETCH_ARTIFACTS, FETCH_REPLICA };

struct fetch_mail {
    struct mail mail;
    unsigned generation; /* an older one than the fetcher's is cancelled */
    char base_url[288];
    char token[81];
    struct job_order order;       /* FETCH_ARTIFACTS */
    struct wire_snapshot replica; /* FETCH_REPLICA */
    /* FETCH_REPLICA: where it goes; the unfinished one and its ETag, one for all jobs. */
    char path[PATH_BYTES], part_path[PATH_BYTES], etag_path[PATH_BYTES];
};

/* --- worker, packer, fetcher → core ----------------------------------------------------------- */

enum core_mail_type {
    CORE_WANT,          /* worker: another lease, please */
    CORE_LOADED,        /* worker: the job is ready for a replica */
    CORE_LOAD_ERROR,    /* worker: this machine cannot do the job (text) */
    CORE_HAVE,          /* worker: replica loaded (version) or lost (version 0, text) */
    CORE_MERGED,        /* packer: version, hash */
    CORE_STATE,         /* worker: text is what it does now */
    CORE_PROGRESS,      /* worker */
    CORE_UPDATE,        /* packer: payload is ready */
    CORE_EVALUATION,    /* worker */
    CORE_FETCHED,       /* fetcher: everything of order / the replica is there */
    CORE_FETCH_TROUBLE, /* fetcher: text; it tries again */
    CORE_FETCH_FAILED,  /* fetcher: text; it gave up */
};

struct core_mail {
    struct mail mail;
    char job[ID_BYTES];
    char lease[ID_BYTES];
    char text[320];
    uint64_t version, hash;
    uint64_t base, step, steps, samples;
    double loss, samples_per_s, accuracy;
    double step_ms, overhead_ms;       /* of one step; of ending a lease */
    double utilisation;                /* 0 … 1, since the first lease of this run */
    uint64_t steps_done, samples_done; /* in this run */
    struct shared *payload;            /* owned, CORE_UPDATE */
    struct job_order *order;           /* owned, CORE_FETCHED of artifacts */
    unsigned generation;               /* fetcher's */
    bool is_replica;                   /* fetcher's */
    char path[PATH_BYTES];
};

struct core_mail *core_mail_create(enum core_mail_type type); /* NULL: no memory */
void core_mail_free(struct core_mail *mail);

#endif
