/* The session's timers, from the one that is set: how often a silent peer is asked for a sign of
 * life. They must be ordered, or a later one fires for what an earlier one should have found:
 * ping < silence < stall < lease. Plain functions, any thread. */
#ifndef RAVEN_COMMON_WIRE_TIMERS_H
#define RAVEN_COMMON_WIRE_TIMERS_H

#include "common/base/status.h"

#include <stdint.h>

struct timers {
    uint64_t ping_ms;     /* a ping each so often */
    uint64_t silence_ms;  /* nothing heard, not even a pong: the peer is gone */
    uint64_t stall_ms;    /* data was sent and none of it acknowledged: the path is broken */
    uint64_t lease_ms;    /* the shortest time without progress after which a lease is given away */
    uint64_t ping_min_ms; /* pings that come more often, on average, are refused; 0: none are */
};

/* 20 s gives 37.5 s, 60 s, 80 s and 5 s. Silence is found within two pings, whenever it began: that
 * leaves an eighth for the ticks that look for it. */
void timers_derive(uint64_t ping_ms, struct timers *ret);
/* STATUS_INVALID: err names the two timers that are out of order and their values. */
enum status timers_check(const struct timers *timers, struct error *err) MUST_CHECK;

#endif
