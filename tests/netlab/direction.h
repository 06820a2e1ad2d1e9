/* One direction of a link: a router's queue in front of a line of a given rate, then the line
 * itself with its delay and its faults. Pure: the caller passes the time (nanoseconds of one clock
 * that never goes back) and moves the bytes. One thread. Memory is bounded: DIRECTION_PACKETS_MAX
 * packets. */
#ifndef RAVEN_NETLAB_DIRECTION_H
#define RAVEN_NETLAB_DIRECTION_H

#include "common/base/rng.h"
#include "tests/netlab/shape.h"

#include <stddef.h>
#include <stdint.h>

#define PACKET_BYTES_MAX 1500       /* the devices' MTU */
#define DIRECTION_PACKETS_MAX 32768 /* 48 MB: 1 Gbit/s of full packets for 390 ms */
#define NEVER_NS INT64_MAX

enum drop {
    DROP_QUEUE, /* the router's buffer was full */
    DROP_LOSS,
    DROP_BURST,
    DROP_OUTAGE, /* sent while the link was gone, or under way when it went */
    DROP_RESET,  /* TCP segments answered with RST */
    DROP_MEMORY, /* DIRECTION_PACKETS_MAX reached: the lab is too small for this link */
    DROP_DEVICE, /* the receiving device refused it */
    DROP_COUNT
};

struct packet {
    int64_t due_ns;
    uint64_t order; /* among packets that are due at the same time */
    struct packet *next;
    uint32_t bytes;
    uint8_t data[PACKET_BYTES_MAX];
};

struct counters {
    uint64_t packets_in, bytes_in;
    uint64_t packets_out, bytes_out; /* duplicates count twice */
    uint64_t duplicates, reordered;
    uint64_t drops[DROP_COUNT];
    uint64_t queue_bytes_peak;
};

struct direction {
    struct shape shape; /* read only outside; direction_reshape changes it */
    struct counters counters;
    uint64_t queue_bytes_max;
    uint64_t queue_bytes; /* with the packet on its way into the line */
    struct packet *queue_head, *queue_tail;
    int64_t head_done_ns; /* when the head has left the queue */
    struct packet **line; /* a heap on (due_ns, order) */
    size_t line_count;
    struct packet *spare;
    size_t packets_held;
    uint64_t order;
    int64_t last_due_ns;
    int64_t jitter_until_ns, jitter_ns;
    bool burst_is_bad;
    double burst_enter, burst_leave;
    struct rng rng;
};

const char *drop_name(enum drop drop);

enum status direction_init(struct direction *direction, uint64_t seed) MUST_CHECK;
void direction_done(struct direction *direction);

/* What is in the queue goes on at the new rate; what is in the line stays as it was. */
void direction_reshape(struct direction *direction, const struct shape *shape, double line_mbit,
                       int64_t now_ns);

/* A packet to fill in and hand to direction_offer, direction_drop or direction_recycle; NULL when
 * DIRECTION_PACKETS_MAX are in use. */
struct packet *direction_packet(struct direction *direction) MUST_CHECK;
void direction_recycle(struct direction *direction, struct packet *packet);

/* Counts the packet as come in; then it waits in the queue or is lost. Takes the packet. */
void direction_offer(struct direction *direction, struct packet *packet, int64_t now_ns);
/* Counts it as come in and dropped. Takes the packet. */
void direction_refuse(struct direction *direction, struct packet *packet, enum drop drop);
/* The next packet that has arrived, or NULL. The caller writes it, calls direction_delivered, and
 * owns it until direction_recycle. */
struct packet *direction_take(struct direction *direction, int64_t now_ns);
void direction_delivered(struct direction *direction, const struct packet *packet, bool written);
/* Drops all that is under way. */
void direction_flush(struct direction *direction);

int64_t direction_next_ns(const struct direction *direction); /* NEVER_NS: nothing under way */

#endif
