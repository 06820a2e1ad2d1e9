/* Puts the deltas that come down together again: announcements, then data frames, possibly of
 * several streams at once. Delivered whole and in the order in which they were announced. When a
 * session breaks, the part of the next delta that has arrived is kept, so that the next session
 * goes on at that byte. Bounded in count and bytes. Session thread; no network in here. */
#ifndef RAVEN_AGENT_SESSION_DELTAS_H
#define RAVEN_AGENT_SESSION_DELTAS_H

#include "common/base/buffer.h"
#include "common/base/status.h"
#include "common/wire/frame.h"
#include "common/wire/wire.h"

#include <stddef.h>
#include <stdint.h>

#define DELTAS_OPEN_MAX 1024

struct delta_in {
    struct wire_delta announced;
    struct buffer data;
    struct delta_in *next;
};

struct deltas {
    struct delta_in *first, *last; /* in order of announcement */
    size_t count;
    struct delta_in *part; /* of the broken session: what has arrived of the first one */
};

void deltas_init(struct deltas *deltas);
void deltas_done(struct deltas *deltas); /* drops everything */
/* The session has ended: drops all but the arrived part of the oldest delta. */
void deltas_interrupted(struct deltas *deltas);
/* How many bytes of the delta from this version of this job are kept, for the hello. */
uint64_t deltas_part_bytes(const struct deltas *deltas, const char *job, uint64_t have_version);

/* bytes_max: the largest delta that this job can have. delta->from continues the kept part.
 * STATUS_TOO_LARGE, STATUS_BUSY (too many open), STATUS_INVALID (stream number in use, empty delta,
 * a from that does not fit). */
enum status deltas_announce(struct deltas *deltas, const struct wire_delta *delta,
                            uint64_t bytes_max, struct error *err) MUST_CHECK;
/* Frames must come in order, without gaps. STATUS_INVALID for anything else. */
enum status deltas_frame(struct deltas *deltas, const struct frame *frame,
                         struct error *err) MUST_CHECK;
/* The oldest delta if it is complete, else NULL. The caller frees it with delta_in_free. */
struct delta_in *deltas_take(struct deltas *deltas);
void delta_in_free(struct delta_in *delta);

#endif
