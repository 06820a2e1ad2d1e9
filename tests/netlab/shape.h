/* What one direction of a link does to packets, and the key=value settings that say so. Numbers are
 * kept in the units people write: Mbit/s of IP packets, milliseconds, shares from 0 to 1. */
#ifndef RAVEN_NETLAB_SHAPE_H
#define RAVEN_NETLAB_SHAPE_H

#include "common/base/status.h"

#include <stdint.h>
#include <stdio.h>

enum way { WAY_DOWN, WAY_UP, WAY_COUNT }; /* down: from the hub to the client */
#define WAYS_DOWN (1u << WAY_DOWN)
#define WAYS_UP (1u << WAY_UP)
#define WAYS_BOTH (WAYS_DOWN | WAYS_UP)

struct shape {
    double rate_mbit; /* 0: no limit, and then no queue */
    double delay_ms;  /* one way */
    double jitter_ms; /* up to so much more or less; packets keep their order */
    double loss;
    double burst_share;   /* share of time in the bad state, counted in packets */
    double burst_packets; /* mean length of a bad state */
    double burst_loss;    /* loss in the bad state */
    double reorder;       /* share of packets that arrive early by gap_ms */
    double gap_ms;
    double duplicate;
    double queue_ms; /* of the link's own rate; used when queue_kb is 0 */
    double queue_kb;
};

const char *way_name(enum way way);

/* Applies "key=value" to the shapes of the given ways (WAYS_…); a key may end in -up or -down. base
 * has the link's own rates, for values such as rate=10%. On failure the sentence names field, value
 * and cure. */
enum status shape_set(struct shape shapes[WAY_COUNT], const struct shape base[WAY_COUNT],
                      unsigned ways, const char *setting, struct error *err) MUST_CHECK;

/* The router's buffer: queue_kb, or queue_ms at line_mbit; at least two full packets. */
uint64_t shape_queue_bytes(const struct shape *shape, double line_mbit);

/* The chain of good and bad states: its two probabilities per packet. */
void shape_burst_chain(const struct shape *shape, double *ret_enter, double *ret_leave);

void shape_print_keys(FILE *out); /* the help */

#endif
