/* Everything that is kept in PostgreSQL, in terms of jobs, volunteers, artifacts and events.
 * Two kinds of calls:
 *  - store_…        any thread but the core's and the hub's: waits for the database, at most
 *                   2 seconds, then STATUS_UNAVAILABLE;
 *  - store_post_…   any thread, never waits: queued (bounded), written in order by the store's own
 *                   thread, kept while the database is away. STATUS_BUSY when the queue is full.
 * Only parameterised SQL. All times are wall milliseconds. */
#ifndef RAVEN_COORDINATOR_STORE_STORE_H
#define RAVEN_COORDINATOR_STORE_STORE_H

#include "common/base/buffer.h"
#include "common/base/checksum.h"
#include "common/base/id.h"
#include "common/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct store;

/* conninfo: libpq connection string. Connects once (err tells why not) and applies sql/ migrations
 * from sql_dir; refuses a schema newer than its files. STATUS_BUSY: another coordinator has this
 * database open, which is known by an advisory lock that the writer's connection holds. After a
 * lost connection nothing is written before the lock is held again. */
enum status store_open(const char *conninfo, const char *sql_dir, struct store **ret,
                       struct error *err) MUST_CHECK;
void store_close(struct store *store);       /* writes what is queued (up to 5 s); NULL is fine */
bool store_is_ready(struct store *store);    /* cached, asked every second; never waits */
uint64_t store_queued(struct store *store);  /* posted rows waiting */
uint64_t store_dropped(struct store *store); /* posted rows that PostgreSQL refused, since opened */

/* --- API keys --- */
struct store_key {
    char id[ID_BYTES];
    char name[81];
    uint8_t hash[SHA256_BYTES];
    uint32_t scopes;
    int64_t created_ms, expires_ms;
};
enum status store_key_create(struct store *store, const struct store_key *key,
                             struct error *err) MUST_CHECK;
typedef void (*store_key_fn)(void *context, const struct store_key *key);
enum status store_keys_load(struct store *store, store_key_fn each, void *context,
                            struct error *err) MUST_CHECK; /* not revoked, not expired */

/* --- idempotency: the effect and the answer in one transaction --- */
/* Every …_create below takes one (NULL: none). When the same (scope, key) was used before, the call
 * has no effect and returns STATUS_EXISTS with the stored answer in *ret_replay (same fingerprint)
 * or STATUS_STATE (other fingerprint). */
struct store_idempotency {
    const char *scope;                 /* principal id + ' ' + method + path */
    const char *key;                   /* the header's value, ≤ 128 characters */
    uint8_t fingerprint[SHA256_BYTES]; /* of the request body */
    int answer_status;                 /* what to store */
    const char *answer_body;           /* JSON text */
};
struct store_replay {
    int status;
    char *body; /* free() */
};

/* --- invites and volunteers --- */
struct store_invite {
    char id[ID_BYTES];
    uint8_t hash[SHA256_BYTES];
    char group[41];
    uint32_t max_uses, uses;
    int64_t created_ms, expires_ms;
};
enum status store_invite_create(struct store *store, const struct store_invite *invite,
                                const struct store_idempotency *idempotency,
                                struct store_replay *ret_replay, struct error *err) MUST_CHECK;

struct store_volunteer {
    char id[ID_BYTES];
    uint8_t public_key[32];
    char label[65];
    char group[41];
    char state[16]; /* "active", "revoked" */
    char cpu[97];
    uint32_t threads;
    uint64_t memory_bytes;
    char backend[33];
    char agent_version[33];
    int64_t created_ms, last_seen_ms;
    uint64_t updates_applied, samples; /* credited */
    char last_end_reason[32];
};
typedef void (*store_volunteer_fn)(void *context, const struct store_volunteer *volunteer);
enum status store_volunteers_load(struct store *store, store_volunteer_fn each, void *context,
                                  struct error *err) MUST_CHECK; /* all; for the core's start */

/* Uses one use of the invite and creates the volunteer (id and created_ms are filled in), or
 * returns the existing one with this key without using the invite. Runs on the store's thread;
 * done is called there, exactly once: STATUS_DENIED with a sentence (unknown, used up, expired),
 * STATUS_UNAVAILABLE, or STATUS_OK. */
typedef void (*store_enrol_fn)(void *context, enum status status, const char *sentence,
                               const struct store_volunteer *volunteer);
enum status store_post_enrol(struct store *store, const uint8_t invite_hash[SHA256_BYTES],
                             const struct store_volunteer *volunteer, store_enrol_fn done,
                             void *context) MUST_CHECK;

/* A page of a list, newest first; JSON objects as docs/PROTOCOL.md gives them. after: id of the
 * last one of the page before ("" for the first page); limit 1 … 200. *ret: new array. */
enum status store_volunteers_page(struct store *store, const char *after, uint32_t limit,
                                  json_t **ret, bool *ret_more, struct error *err) MUST_CHECK;

/* --- artifacts --- */
struct store_artifact {
    char id[ID_BYTES];
    char kind[24]; /* "dataset_text", "dataset_idx" */
    char filename[129];
    uint64_t size_bytes;
    uint8_t sha256[SHA256_BYTES];
    char state[16]; /* "uploading", "ready", "rejected" */
    uint64_t items; /* idx: dims[0]; text: bytes */
    int64_t created_ms;
    char reason[161]; /* why "rejected", else "" */
};
enum status store_artifact_create(struct store *store, const struct store_artifact *artifact,
                                  const struct store_idempotency *idempotency,
                                  struct store_replay *ret_replay, struct error *err) MUST_CHECK;
enum status store_artifact_get(struct store *store, const char *id, struct store_artifact *ret,
                               struct error *err) MUST_CHECK; /* STATUS_NOT_FOUND */
/* A ready one with this content, if any (STATUS_NOT_FOUND). */
enum status store_artifact_find(struct store *store, const uint8_t sha256[SHA256_BYTES],
                                const char *kind, struct store_artifact *ret,
                                struct error *err) MUST_CHECK;
enum status store_artifact_set_state(struct store *store, const char *id, const char *state,
                                     uint64_t items, struct error *err) MUST_CHECK;
enum status store_artifact_reject(struct store *store, const char *id, const char *reason,
                                  struct error *err) MUST_CHECK; /* state "rejected" */
enum status store_artifact_delete(struct store *store, const char *id,
                                  struct error *err) MUST_CHECK;
enum status store_artifacts_page(struct store *store, const char *after, uint32_t limit,
                                 json_t **ret, bool *ret_more, struct error *err) MUST_CHECK;

/* --- jobs --- */
struct store_job {
    char id[ID_BYTES];
    char *spec;      /* canonical JSON text of job_spec.h; free() when loaded */
    char *artifacts; /* JSON object as in wire message `job`; free() when loaded */
    uint64_t blocks; /* data_plan */
    char state[16];  /* "queued", "running", "completed", "cancelled", "failed" */
    char reason[161];
    int64_t created_ms, started_ms, finished_ms; /* 0: not yet */
};
enum status store_job_create(struct store *store, const struct store_job *job,
                             const struct store_idempotency *idempotency,
                             struct store_replay *ret_replay, struct error *err) MUST_CHECK;
enum status store_job_get(struct store *store, const char *id, struct store_job *ret,
                          struct error *err) MUST_CHECK;
void store_job_done(struct store_job *job); /* frees the two texts */
enum status store_jobs_page(struct store *store, const char *state, const char *after,
                            uint32_t limit, json_t **ret, bool *ret_more,
                            struct error *err) MUST_CHECK; /* state "" for all */
typedef void (*store_job_fn)(void *context, const struct store_job *job);
enum status store_jobs_load(struct store *store, store_job_fn each, void *context,
                            struct error *err) MUST_CHECK; /* queued and running ones */

/* --- written behind --- */
struct store_event {
    char type[48];    /* "volunteer.connected", "job.created", "lease.expired" … */
    char severity[8]; /* "info", "warn", "error" */
    char subject[ID_BYTES];
    char text[256]; /* one sentence */
    int64_t at_ms;
};
enum status store_post_event(struct store *store, const struct store_event *event) MUST_CHECK;
/* Newest first (after = 0) or oldest first after a sequence number. */
enum status store_events_page(struct store *store, uint64_t after, uint32_t limit, json_t **ret,
                              bool *ret_more, struct error *err) MUST_CHECK;

enum status store_post_job_state(struct store *store, const char *job, const char *state,
                                 const char *reason, int64_t at_ms) MUST_CHECK;
enum status store_post_session_opened(struct store *store, const char *session,
                                      const char *volunteer, const char *address,
                                      int64_t at_ms) MUST_CHECK;
enum status store_post_session_closed(struct store *store, const char *session,
                                      const char *end_reason, int64_t at_ms) MUST_CHECK;
struct store_lease {
    char id[ID_BYTES], job[ID_BYTES], volunteer[ID_BYTES];
    char kind[16];  /* "train", "evaluate" */
    char state[16]; /* "granted", "applied", "stale", "refused", "expired", "done" */
    uint64_t base_version, version, steps, samples, payload_bytes;
    int64_t at_ms;
};
/* Upsert by id; a final state is never overwritten. "applied" credits the volunteer
 * (updates_applied
 * += 1, samples += samples), once per lease. */
enum status store_post_lease(struct store *store, const struct store_lease *lease) MUST_CHECK;
struct store_point {
    char job[ID_BYTES];
    int64_t at_ms;
    uint64_t version, samples;
    double loss, loss_smoothed; /* nats; NaN: not measured */
    bool held_out;              /* an evaluation, with accuracy */
    double accuracy;
};
enum status store_post_point(struct store *store, const struct store_point *point) MUST_CHECK;

#endif
