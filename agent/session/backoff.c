/* Jittered back-off; see the header. Session thread. */
#include "agent/session/backoff.h"

void backoff_init(struct backoff *backoff, uint64_t seed)
{
    rng_seed(&backoff->rng, seed);
    backoff->ceiling_ms = BACKOFF_FIRST_MS;
    backoff->since_us = -1;
}

void backoff_connected(struct backoff *backoff, int64_t now_us)
{
    backoff->since_us = now_us;
}

void backoff_lost(struct backoff *backoff, int64_t now_us)
{
    if (backoff->since_us >= 0 && now_us - backoff->since_us >= BACKOFF_STABLE_US)
        backoff->ceiling_ms = BACKOFF_FIRST_MS;
    backoff->since_us = -1;
}

int64_t backoff_next_ms(struct backoff *backoff, uint64_t asked_ms)
{
    if (asked_ms > 0) {
        uint64_t wait_ms = asked_ms < BACKOFF_ASKED_MAX_MS ? asked_ms : BACKOFF_ASKED_MAX_MS;
        return (int64_t)(wait_ms + rng_below(&backoff->rng, wait_ms / 2 + 1));
    }
    int64_t wait_ms = (int64_t)rng_below(&backoff->rng, (uint64_t)backoff->ceiling_ms + 1);
    backoff->ceiling_ms *= 2;
    if (backoff->ceiling_ms > BACKOFF_LAST_MS)
        backoff->ceiling_ms = BACKOFF_LAST_MS;
    return wait_ms;
}
