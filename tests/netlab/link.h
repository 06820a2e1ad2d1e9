/* One client's link: two directions, its profile's script and what was commanded from outside, and
 * the two TUN devices at its ends. Times in nanoseconds since the lab's start. One thread. */
#ifndef RAVEN_NETLAB_LINK_H
#define RAVEN_NETLAB_LINK_H

#include "tests/netlab/direction.h"
#include "tests/netlab/events.h"
#include "tests/netlab/profile.h"

struct link {
    struct plan plan; /* base and script: what `set` and `profile` change */
    struct direction directions[WAY_COUNT];
    int fds[WAY_COUNT]; /* a direction reads from fds[way] and writes to the other */
    int namespace_fd;
    struct events *events;
    /* Commands: */
    bool is_down;
    int64_t outage_until_ns;
    int64_t reset_until_ns;
    /* What the clock and the commands made of it; link_refresh alone changes these: */
    size_t phase;
    bool is_gone;
    bool is_resetting;
    int64_t gone_since_ns, reset_since_ns;
    uint64_t gone_drops, reset_drops; /* when it began */
    int64_t change_ns;                /* when to refresh again */
    uint64_t outage_count;
    int64_t outage_ns; /* of ended outages */
};

/* Takes neither fds nor namespace_fd; they are set by the caller. */
enum status link_init(struct link *link, const struct plan *plan, uint64_t seed,
                      struct events *events) MUST_CHECK;
void link_done(struct link *link);

/* Brings phase, outage and resets up to date; call it after a change of plan or command (with
 * replan) and at change_ns. */
void link_refresh(struct link *link, int64_t now_ns, bool replan);

/* Reads what waits at one end, at most a batch. */
void link_read(struct link *link, enum way way, int64_t now_ns);
/* Writes what has arrived, at most a batch in each direction. */
void link_write(struct link *link, int64_t now_ns);
/* When link_write or link_refresh has something to do. */
int64_t link_next_ns(const struct link *link);

int64_t link_outage_ms(const struct link *link, int64_t now_ns); /* in all, the present one too */

#endif
