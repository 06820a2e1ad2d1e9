/* How long to wait before the next attempt to connect: full jitter (uniform in 0 … ceiling), the
 * ceiling doubling from 0.5 s to 60 s, and falling back only after a session that was stable, so
 * that a coordinator that accepts and drops at once is not hammered. A coordinator with many agents
 * asks for a larger first ceiling, its spread. Pure; the caller brings the clock. */
#ifndef RAVEN_AGENT_SESSION_BACKOFF_H
#define RAVEN_AGENT_SESSION_BACKOFF_H

#include "common/base/rng.h"

#include <stdbool.h>
#include <stdint.h>

#define BACKOFF_FIRST_MS 500
#define BACKOFF_LAST_MS 60000
#define BACKOFF_ASKED_MAX_MS (10 * 60000) /* of bye.retry_ms */

struct backoff {
    struct rng rng;
    int64_t ceiling_ms, first_ms;
    int64_t stable_us; /* -1: no session, or when the one of now counts as stable */
};

void backoff_init(struct backoff *backoff, uint64_t seed);
/* stable_ms: how long this session must last to be stable; the timers' stall_ms. */
void backoff_connected(struct backoff *backoff, uint64_t spread_ms, uint64_t stable_ms,
                       int64_t now_us);
/* The coordinator has changed its mind about the spread. */
void backoff_spread(struct backoff *backoff, uint64_t spread_ms);
void backoff_lost(struct backoff *backoff, int64_t now_us);
/* asked_ms: what the coordinator's bye asked for, 0 when nothing; it then waits that long and up to
 * half as long again, or up to the spread. */
int64_t backoff_next_ms(struct backoff *backoff, uint64_t asked_ms);

#endif
