/* Jittered back-off; see the header. Session thread. */
#include "agent/session/backoff.h"

void backoff_init(struct backoff *backoff, uint64_t seed)
{
    rng_seed(&backoff->rng, seed);
    backoff->ceiling_ms = backoff->first_ms = BACKOFF_FIRST_MS;
    backoff->stable_us = -1;
}

void backoff_spread(struct backoff *backoff, uint64_t spread_ms)
{
    backoff->first_ms = spread_ms <= BACKOFF_FIRST_MS  ? BACKOFF_FIRST_MS
                        : spread_ms >= BACKOFF_LAST_MS ? BACKOFF_LAST_MS
                                                       : (int64_t)spread_ms;
}

void backoff_connected(struct backoff *backoff, uint64_t spread_ms, uint64_t stable_ms,
                       int64_t now_us)
{
    backoff->stable_us = now_us + (int64_t)stable_ms * 1000;
    backoff_spread(backoff, spread_ms);
}

void backoff_lost(struct backoff *backoff, int64_t now_us)
{
    bool stable = backoff->stable_us >= 0 && now_us >= backoff->stable_us;
    if (stable || backoff->ceiling_ms < backoff->first_ms)
        backoff->ceiling_ms = backoff->first_ms;
    backoff->stable_us = -1;
}

int64_t backoff_next_ms(struct backoff *backoff, uint64_t asked_ms)
{
    if (asked_ms > 0) {
        uint64_t wait_ms = asked_ms < BACKOFF_ASKED_MAX_MS ? asked_ms : BACKOFF_ASKED_MAX_MS;
        uint64_t more_ms = (uint64_t)backoff->first_ms;
        if (more_ms < wait_ms / 2)
            more_ms = wait_ms / 2;
        return (int64_t)(wait_ms + rng_below(&backoff->rng, more_ms + 1));
    }
    int64_t wait_ms = (int64_t)rng_below(&backoff->rng, (uint64_t)backoff->ceiling_ms + 1);
    backoff->ceiling_ms *= 2;
    if (backoff->ceiling_ms > BACKOFF_LAST_MS)
        backoff->ceiling_ms = BACKOFF_LAST_MS;
    return wait_ms;
}
