/* Goodput of one direction of the link: what the far end has confirmed (going up: acknowledged by
 * the coordinator; coming down: arrived), by the time in which something was under way; writes to
 * a socket prove nothing. Long silences in the middle of a transfer are no measure of the link's
 * rate: they are counted as stalls of their own. Pure; the caller brings the clock. */
#ifndef RAVEN_AGENT_CONTROL_GOODPUT_H
#define RAVEN_AGENT_CONTROL_GOODPUT_H

#include <stdbool.h>
#include <stdint.h>

#define GOODPUT_STALL_US (2 * 1000000ll)        /* silence beyond it is a stall */
#define GOODPUT_MEMORY_US (10 * 60 * 1000000ll) /* the longest stall is forgotten after it */

struct goodput {
    double bytes_per_s; /* 0: not known yet */
    /* the sample under way */
    bool busy;
    int64_t heard_us; /* last confirmation, or when the transfer began */
    int64_t spent_us;
    uint64_t bytes;
    /* stalls */
    uint64_t stalls;
    int64_t longest_stall_us, longest_at_us;
};

void goodput_begin(struct goodput *goodput, int64_t now_us); /* fine when busy */
void goodput_add(struct goodput *goodput, uint64_t bytes, int64_t now_us);
/* Nothing is under way any more. interrupted: the connection broke, what was under way is lost; the
 * silence before it counts as a stall. */
void goodput_end(struct goodput *goodput, bool interrupted, int64_t now_us);
/* A pause of the link seen by other means, from losing a session to the next one. */
void goodput_stalled(struct goodput *goodput, int64_t stall_us, int64_t now_us);
/* Longest stall of the last ten minutes, 0: none. */
int64_t goodput_longest_stall_us(const struct goodput *goodput, int64_t now_us);

#endif
