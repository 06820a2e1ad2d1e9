/* What one agent knows of the model: the replica w (the same bits everywhere at one version), the
 * local parameters x that training moves, and the updates that were made but not yet answered. All
 * vectors are n fp32 values in the layout's flat order; decoded(p) is what the codec makes of p.
 *
 * Two threads share it, so that training waits for neither merging nor packing. The packing thread
 * moves w (replica_merge) and makes updates (replica_end_lease). The training thread moves x:
 * steps, and replica_settle, which brings x up to w. While an update is being made, steps may go
 * on: they write x between replica_x_begin_write and _end_write, and each part of the update is
 * made of one moment's x.
 *
 * keep_unsent (the default): what was not sent stays in x, so that always, where x is settled,
 *     e = w - x - sum over unanswered p of decoded(p)
 * is the residual, and the next payload is made from e. x does not change when a payload is made;
 * when its answer is known and x contains it (or never will), the local copy leaves: x +=
 * decoded(p). Without keep_unsent each lease starts from x = w and the residual lives in a vector
 * of its own: e = decay * e + (w - x)         (w moved with the deltas merged meanwhile, exactly
 * as x did); then the update must be finished before the next lease begins. */
#ifndef RAVEN_AGENT_UPDATE_REPLICA_H
#define RAVEN_AGENT_UPDATE_REPLICA_H

#include "common/base/pool.h"
#include "common/base/shared.h"
#include "common/base/status.h"
#include "common/codec/codec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPLICA_LEASE_BYTES 32
#define REPLICA_IN_FLIGHT_MAX 16 /* more unanswered updates than any agent may have */

struct replica_settings {
    uint64_t n;
    bool keep_unsent;
    double residual_decay; /* 0 … 1, per lease */
    enum codec_values values;
    struct pool *pool; /* NULL or outlives the replica; used by the training thread's calls only */
};

enum replica_verdict { REPLICA_APPLIED, REPLICA_DROPPED };

struct replica;

enum status replica_create(const struct replica_settings *settings, struct replica **ret,
                           struct error *err) MUST_CHECK;
void replica_free(struct replica *replica); /* NULL is fine */

/* The next three: by the training thread while the packing thread is idle. */
/* The memory that a snapshot is read into; replica_loaded must follow. */
float *replica_load_target(struct replica *replica);
/* w is now version `version` with this hash: x = w, no residual, nothing unanswered. */
void replica_loaded(struct replica *replica, uint64_t version, uint64_t hash);
/* Forgets the parameters (they proved wrong); replica_is_loaded is false afterwards. */
void replica_unload(struct replica *replica);

/* --- any thread --- */
bool replica_is_loaded(const struct replica *replica);
uint64_t replica_version(const struct replica *replica); /* of w */
uint64_t replica_hash(const struct replica *replica);
size_t replica_in_flight(const struct replica *replica);
/* The answer to an update. version: the first one that contains it (REPLICA_APPLIED only). Takes
 * effect with replica_settle. An unknown lease is ignored: it was made before the last snapshot. */
void replica_answer(struct replica *replica, const char *lease, enum replica_verdict verdict,
                    uint64_t version);
/* w as it is: no merge while it is held. */
const float *replica_hold_w(struct replica *replica);
void replica_release_w(struct replica *replica);

/* --- the training thread --- */
float *replica_x(struct replica *replica);
uint64_t replica_x_version(const struct replica *replica); /* what x is based on */
void replica_x_begin_write(struct replica *replica);
void replica_x_end_write(struct replica *replica);
/* Brings x up to w and drops the local copies of updates that x contains now. False: an update is
 * being made from x; call again when it is finished. */
bool replica_settle(struct replica *replica);
/* x may not be ahead of its settling: settles first. */
void replica_begin_lease(struct replica *replica);

/* --- the packing thread --- */
/* w += delta. STATUS_STALE: a version we have (nothing changed). STATUS_STATE: a version is missing
 * in between (nothing changed). STATUS_CORRUPT: damaged payload, or the result's hash differs: the
 * replica is not loaded any more. */
enum status replica_merge(struct replica *replica, const void *delta, size_t delta_bytes,
                          uint64_t version, uint64_t hash, struct error *err) MUST_CHECK;
/* Makes the update of the lease that just ended; the caller gets one reference. Waits until the
 * training thread has settled what was merged. STATUS_NOT_FINITE when the parameters are broken. */
enum status replica_end_lease(struct replica *replica, const char *lease, uint32_t k,
                              struct shared **ret_payload, struct error *err) MUST_CHECK;

#endif
