/* Live channels: the newest snapshot of each and its last deltas, all shared frames. Service thread
 * only. */
#ifndef RAVEN_COORDINATOR_HUB_CHANNELS_H
#define RAVEN_COORDINATOR_HUB_CHANNELS_H

#include "common/base/shared.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define CHANNEL_NAME_BYTES 64 /* with the NUL */
#define CHANNEL_DELTAS 60     /* kept for viewers that come back */
#define CHANNEL_BEHIND_MAX 8  /* further behind: one snapshot instead of the deltas */

struct channel {
    struct channel *next;
    char name[CHANNEL_NAME_BYTES];
    uint64_t sequence; /* of snapshot */
    struct shared *snapshot;
    struct shared *deltas[CHANNEL_DELTAS]; /* delta of sequence s: [s % CHANNEL_DELTAS] */
    uint64_t delta_first; /* deltas delta_first … sequence are kept; sequence + 1: none */
};

/* One viewer's place in one channel. */
struct subscription {
    struct channel *channel;
    uint64_t next;         /* sequence the viewer needs next */
    uint64_t replay_until; /* up to here deltas are sent however far behind (resumption) */
    bool snapshot_due;
};

/* 1 … 63 characters of A-Z a-z 0-9 _ : . -, so that a name needs no escaping in JSON. */
bool channel_name_is_valid(const char *name);

struct channel *channel_find(struct channel *first, const char *name);
/* Creates the channel when it is new. Takes own references; snapshot is not NULL. */
enum status channel_publish(struct channel **first, const char *name, uint64_t sequence,
                            struct shared *snapshot, struct shared *delta,
                            struct channel **ret) MUST_CHECK;
void channel_remove(struct channel **first, struct channel *channel); /* frees it */

/* Starts at the newest snapshot, or after known when the deltas since then are still here. */
void subscription_init(struct subscription *subscription, struct channel *channel, bool resumes,
                       uint64_t known);
bool subscription_has_frame(const struct subscription *subscription);
/* The next frame with its own reference, NULL when the viewer is up to date. Moves on. */
struct shared *subscription_take_frame(struct subscription *subscription);

#endif
