/* Many scripted agents in one thread, to try a coordinator with a fleet that no test machine could
 * run for real. They speak raven-agent.v1 over plain TCP: handshake, signed hello, pings, bye; they
 * never ask for work. When they come back after a lost session is decided by the real agent's own
 * backoff.c, with the same inputs and at the same moments as in agent/session/session.c. Not
 * thread-safe. */
#ifndef RAVEN_TESTS_FLEET_H
#define RAVEN_TESTS_FLEET_H

#include "common/base/status.h"
#include "common/wire/wire.h"

#include <stdbool.h>
#include <stdint.h>

#define FLEET_MEMBERS_MAX 100000
#define FLEET_REASONS 32 /* numbers of end_reasons.def; the last place: every larger number */

struct fleet;

struct fleet_options {
    const char *host; /* numeric IPv4 address */
    uint16_t port;
    uint32_t count;
    uint32_t starts_per_s; /* how fast the first attempts come, 0: all at once */
    uint64_t seed;         /* keys and jitter: the same seed gives the same volunteers */
    const char *invite;    /* for members that are not enrolled; "" when all are */
};

struct fleet_counts {
    uint64_t attempts; /* connect() was called */
    uint64_t accepts;  /* the TCP connection was established */
    uint64_t welcomes;
    uint64_t losses; /* of sessions that had been welcomed */
};

/* What happened since fleet_begin_phase. */
struct fleet_phase {
    struct fleet_counts counts;
    uint32_t connected;     /* now */
    uint32_t connected_min; /* the fewest at any moment */
    uint32_t stopped;       /* refused for good: they do not come back */
    /* The most in any window of one second, wherever it begins. */
    uint32_t accepts_per_s_max, welcomes_per_s_max;
    int64_t begun_time_ms;
    int64_t complete_time_ms;              /* wall time of the last arrival, 0: some are missing */
    uint64_t session_ends[FLEET_REASONS];  /* of sessions that had been welcomed */
    uint64_t attempt_fails[FLEET_REASONS]; /* of attempts that did not get that far */
};

enum status fleet_create(const struct fleet_options *options, struct fleet **ret,
                         struct error *err) MUST_CHECK;
void fleet_free(struct fleet *fleet); /* drops every connection without a word; NULL is fine */
/* Waits at most wait_ms for something to happen, does it and everything that is due. */
enum status fleet_turn(struct fleet *fleet, int wait_ms, struct error *err) MUST_CHECK;
void fleet_begin_phase(struct fleet *fleet);
const struct fleet_phase *fleet_read_phase(const struct fleet *fleet);

#endif
