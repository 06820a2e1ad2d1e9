/* A fixed table of failures per address and minute. Any thread. Its surprise: only failures are
 * slowed. A request with a good credential passes even from a blocked address, since keys have 256
 * bits and everybody behind one proxy or NAT shares an address. */
#include "coordinator/http/rate.h"

#include "common/base/checksum.h"
#include "common/base/rng.h"

#include <netinet/in.h>
#include <string.h>

#define WINDOW_US (60 * 1000000ll)
#define PROBES 8u

void rate_init(struct rate *rate)
{
    memset(rate, 0, sizeof *rate);
    pthread_mutex_init(&rate->lock, NULL);
    random_bytes(&rate->secret, sizeof rate->secret);
}

void rate_done(struct rate *rate)
{
    pthread_mutex_destroy(&rate->lock);
}

uint64_t rate_key(const struct rate *rate, const struct sockaddr *address)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    uint8_t bytes[8] = {0};
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof v4);
        memcpy(bytes, &v4.sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, address, sizeof v6);
        if (memcmp(&v6.sin6_addr, mapped, sizeof mapped) == 0)
            memcpy(bytes, v6.sin6_addr.s6_addr + 12, 4);
        else
            memcpy(bytes, &v6.sin6_addr, 8);
    }
    uint64_t key = checksum_xxh3_seeded(bytes, sizeof bytes, rate->secret);
    return key ? key : 1;
}

/* The slot of this address, else a free or outdated one, else the oldest of the few probed. */
static struct rate_slot *find_slot(struct rate *rate, uint64_t key, int64_t now_us)
{
    struct rate_slot *oldest = NULL;
    for (uint64_t i = 0; i < PROBES; i++) {
        struct rate_slot *slot = &rate->slots[(key + i) % RATE_SLOTS];
        if (slot->address == key)
            return slot;
        if (!oldest || slot->since_us < oldest->since_us)
            oldest = slot;
    }
    *oldest = (struct rate_slot){.address = key, .since_us = now_us};
    return oldest;
}

bool rate_fail(struct rate *rate, uint64_t key, int64_t now_us)
{
    pthread_mutex_lock(&rate->lock);
    struct rate_slot *slot = find_slot(rate, key, now_us);
    if (now_us - slot->since_us >= WINDOW_US)
        *slot = (struct rate_slot){.address = key, .since_us = now_us};
    bool over = ++slot->failures > RATE_FAILURES_PER_MINUTE;
    pthread_mutex_unlock(&rate->lock);
    return over;
}
