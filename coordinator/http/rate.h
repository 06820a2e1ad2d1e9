/* Counts failed sign-ins per address. Any thread. */
#ifndef RAVEN_COORDINATOR_HTTP_RATE_H
#define RAVEN_COORDINATOR_HTTP_RATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define RATE_FAILURES_PER_MINUTE 20u
#define RATE_SLOTS 1024u

struct rate_slot {
    uint64_t address; /* 0: free */
    int64_t since_us;
    uint32_t failures;
};

struct rate {
    pthread_mutex_t lock;
    uint64_t secret; /* so that nobody can choose addresses that share a slot */
    struct rate_slot slots[RATE_SLOTS];
};

void rate_init(struct rate *rate);
void rate_done(struct rate *rate);

/* The key of an address: IPv4 whole, IPv6 its /64 (one customer has all of it). */
uint64_t rate_key(const struct rate *rate, const struct sockaddr *address);

/* Records one failure; true when this address has now failed too often in this minute. */
bool rate_fail(struct rate *rate, uint64_t key, int64_t now_us);

#endif
