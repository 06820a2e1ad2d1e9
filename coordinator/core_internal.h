/* Private to the core: its loop's state and the messages it takes. Everything here but struct
 * core's mailbox, hub, store, auth and alive_us belongs to the loop's thread alone. */
#ifndef RAVEN_COORDINATOR_CORE_INTERNAL_H
#define RAVEN_COORDINATOR_CORE_INTERNAL_H

#include "common/base/buffer.h"
#include "common/base/file.h"
#include "common/base/mailbox.h"
#include "coordinator/core.h"
#include "coordinator/job/job.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#define MAIL_COUNT_MAX 65536u
#define MAIL_COUNT_BUSY 32768u /* beyond it agents' messages are refused */
#define UPLOADS_MAX 32u        /* of one volunteer at a time: as many as an agent can hold */
#define RATE_SECONDS 10u
#define EVENTS_LIVE_MAX 20u
#define FINISHED_KEPT 4u
#define REPLICAS_KEPT 2u
#define WAIT_NO_JOB_MS 3000u
#define WAIT_NO_LEASE_MS 1000u

enum mail_type {
    MAIL_STOP,
    MAIL_CALL,
    MAIL_EVENT,
    MAIL_DURABLE,
    MAIL_ENROLLED,
    MAIL_AGENT_OPENED,
    MAIL_AGENT_MESSAGE,
    MAIL_AGENT_FRAME,
    MAIL_AGENT_CLOSED,
};

struct mail_event {
    struct mail mail;
    struct store_event event;
};

struct mail_durable {
    struct mail mail;
    char job[ID_BYTES];
    uint64_t sequence;
    enum status status;
};

struct mail_enrolled {
    struct mail mail;
    uint64_t peer;
    enum status status;
    char sentence[200];
    struct store_volunteer volunteer;
};

struct mail_opened {
    struct mail mail;
    uint64_t peer;
    char address[64];
};

struct mail_message {
    struct mail mail;
    uint64_t peer;
    struct wire_message message; /* allocated only as long as this type needs */
};

struct mail_frame {
    struct mail mail;
    uint64_t peer;
    uint32_t stream;
    uint64_t offset;
    size_t bytes;
    uint8_t payload[];
};

struct mail_closed {
    struct mail mail;
    uint64_t peer;
    enum end_reason reason;
    char detail[160];
};

/* A question from another thread; both sides hold a reference, since the asker may give up. */
struct call {
    struct mail mail;
    void (*run)(struct core *core, struct call *call);
    atomic_int references;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool done;
    enum status status;
    struct error error;
    char id[ID_BYTES];
    char reason[161];
    struct store_job job;   /* core_job_start: owns the two texts */
    struct shared *replica; /* core_job_replica: owned until the asker takes it */
    uint64_t wanted_version;
    struct core_job_progress progress;
    struct core_volunteer_live volunteer;
};

struct rate {
    uint64_t buckets[RATE_SECONDS]; /* the last one is being filled */
    uint32_t filled;
};

/* Its bytes are in a file, so that they outlive sessions and the coordinator. */
struct upload {
    char lease[ID_BYTES]; /* empty: free */
    uint32_t stream;      /* of the current session, 0: not offered in it yet */
    char job[ID_BYTES];
    uint64_t base, samples;
    double loss;
    uint64_t bytes, received;
    uint8_t sha256[SHA256_BYTES];
    uint32_t restarts;
    int fd; /* of its file, -1: closed */
};

struct session {
    struct session *next;
    uint64_t peer;
    char address[64];
    uint8_t nonce[32];
    int64_t challenged_ms;       /* wall time of the challenge */
    int64_t clock_offset_ms;     /* how far the agent's clock is ahead of this one */
    struct volunteer *volunteer; /* NULL before a good hello */
    bool enrolling;
    struct wire_hello hello;
    char id[ID_BYTES];
    char token[AUTH_SECRET_BYTES];
    char job[ID_BYTES]; /* the last `job` message of this session */
    bool synced;        /* gets every delta of `job` */
    uint64_t sent_version;
    char have_job[ID_BYTES];
    uint64_t have_version, have_hash;
    uint64_t spread_ms;       /* as it was told */
    uint64_t offered_version; /* of the snapshot that was last offered to it */
    uint64_t part_bytes;      /* of the delta after have_version */
    uint32_t last_stream;
    int64_t progress_us;
    double samples_per_s, rtt_ms, loss, step_ms, utilisation;
    struct wire_choice choice; /* its controller's last; job empty: none yet */
};

/* An enrolled volunteer; lives as long as the core. */
struct volunteer {
    struct volunteer *next;
    char id[ID_BYTES];
    char label[65];
    uint8_t public_key[32];
    bool revoked;
    struct session *session; /* NULL: offline */
    struct upload uploads[UPLOADS_MAX];
    uint64_t updates_applied, samples;
    double loss; /* NaN: none yet */
    uint32_t staleness;
    int64_t seen_us;
};

/* A replica as a file, for downloads: kept while deltas lead from it to now, so that a download
 * that was cut goes on in the same bytes. */
struct kept_replica {
    struct shared *bytes; /* NULL: none */
    uint64_t version, hash;
};

struct live_job {
    struct live_job *next;
    struct core *core;
    char id[ID_BYTES];
    char name[81 * 4];
    char *spec;      /* JSON text */
    char *artifacts; /* JSON text */
    json_t *spec_json;
    struct job *job;
    char state[16];
    char reason[161];
    int64_t finished_us; /* 0: running */
    bool full;           /* people have been told that the ledger's disk is full */
    struct rate updates, samples;
    struct kept_replica replicas[REPLICAS_KEPT]; /* newest first */
    uint64_t snapshot_warned_version;
    json_t *published; /* the channel's last "d" */
    uint64_t sequence; /* of the channel */
    uint64_t points_published, evaluations_published, events_published;
};

struct core {
    struct mailbox *box;
    struct hub *hub;
    struct store *store;
    struct auth *auth;
    char jobs_dir[PATH_BYTES], uploads_dir[PATH_BYTES];
    uint64_t ledger_segment_bytes;
    const char *const *mirrors; /* NULL-ended */
    bool (*viewer_allowed)(void *context, const struct hub_viewer_handshake *handshake);
    void *viewer_context;
    struct hub_options hub_options;
    pthread_t thread;
    bool thread_started;
    atomic_llong alive_us;

    bool stopping;
    struct session *sessions;
    struct volunteer *volunteers;
    struct live_job *jobs; /* oldest first */
    json_t *events;        /* newest last, at most EVENTS_LIVE_MAX */
    uint64_t event_sequence;
    json_t *published;
    uint64_t sequence, points_published, events_published;
    char points_job[ID_BYTES];
    uint64_t updates_stale, updates_refused;
};

/* core.c */
enum status core_mail(struct core *core, int type, struct mail *mail) MUST_CHECK;
/* For mail that must arrive: both wait while memory or the mailbox is out. Made of zeros. */
void *core_mail_make(size_t bytes);
void core_mail_surely(struct core *core, int type, struct mail *mail);

/* core_calls.c */
void core_call_run(struct core *core, struct call *call);

/* core_agents.c: who is connected */
struct hub_callbacks core_hub_callbacks(struct core *core);
struct session *session_by_peer(struct core *core, uint64_t peer);
struct volunteer *volunteer_by_id(struct core *core, const char *id);
enum status core_volunteer_add(struct core *core, const struct store_volunteer *row) MUST_CHECK;
void core_spread_tick(struct core *core); /* tells everybody when the fleet's size has changed */
void core_agent_opened(struct core *core, const struct mail_opened *mail);
void core_agent_closed(struct core *core, const struct mail_closed *mail);
void core_agent_hello(struct core *core, struct session *session, const struct wire_hello *hello);
void core_agent_enrolled(struct core *core, const struct mail_enrolled *mail);

/* core_uploads.c: updates on their way up */
enum status core_uploads_open(struct core *core, const char *dir, struct error *err) MUST_CHECK;
void core_take_offer(struct core *core, struct session *session, const struct wire_offer *offer);
void core_agent_frame(struct core *core, struct session *session, const struct mail_frame *frame);
/* The coordinator cannot keep an update now: ends the session with that reason. */
void core_offer_later(struct core *core, struct session *session);
/* The answer to this lease is durable. */
void core_upload_answered(struct core *core, struct volunteer *volunteer, const char *lease);
void volunteer_rewind_uploads(struct volunteer *volunteer); /* its session is another one now */
bool volunteer_is_uploading(const struct volunteer *volunteer);

/* core_deltas.c: the model on its way down */
void core_send_job(struct core *core, struct session *session, struct live_job *live);
void core_send_snapshot(struct core *core, struct session *session, struct live_job *live);
/* True when the session's replica is, or by deltas will be, up to date. */
bool core_sync_session(struct core *core, struct session *session, struct live_job *live);
void core_take_have(struct core *core, struct session *session, const struct wire_have *have);
/* Queues the deltas that the session lacks, as long as little waits for its link. */
void core_send_deltas(struct core *core, struct session *session, struct live_job *live);
void core_deltas_tick(struct core *core);
/* What a download gets: version `wanted` if it is still of use, else a recent one; NULL: no memory.
 * Not referenced. */
const struct kept_replica *core_replica(struct live_job *live, uint64_t wanted);
void core_forget_replicas(struct live_job *live);

/* core_work.c: what they are doing */
void core_agent_message(struct core *core, struct session *session,
                        const struct wire_message *message);
void core_send_result(struct core *core, struct session *session, const char *lease,
                      enum verdict verdict, enum verdict_reason reason, uint64_t version);

/* core_jobs.c: jobs as a whole */
struct live_job *live_job_find(struct core *core, const char *id);
struct live_job *live_job_choose(struct core *core, const struct session *session);
/* On the asker's thread: makes the job's directory, which for a large model takes seconds. */
enum status live_job_prepare(const struct core *core, const struct store_job *job,
                             struct error *err) MUST_CHECK;
enum status live_job_start(struct core *core, const struct store_job *job,
                           struct error *err) MUST_CHECK;
void live_job_finish(struct core *core, struct live_job *live, const char *state,
                     const char *reason);
void live_job_free(struct core *core, struct live_job *live);
void live_job_lease_row(struct core *core, const struct live_job *live,
                        const struct job_lease *lease, const char *state);
void core_durable(struct core *core, const struct mail_durable *mail);
void core_jobs_tick(struct core *core, int64_t now_us);

/* core_live.c: the dashboards' stream */
void core_live_tick(struct core *core);
void core_live_event(struct core *core, const struct store_event *event);
void rate_add(struct rate *rate, uint64_t amount);
void rate_turn(struct rate *rate);

#endif
