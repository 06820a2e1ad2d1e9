/* A cap on a rate that holds on average: a token bucket which may go into debt by one message, so
 * that a message is never cut to fit. The caller brings the time and the thread. */
#ifndef RAVEN_AGENT_SESSION_METER_H
#define RAVEN_AGENT_SESSION_METER_H

#include <stddef.h>
#include <stdint.h>

struct meter {
    uint64_t bytes_per_s; /* 0: no cap */
    double tokens;        /* bytes */
    int64_t filled_us;
};

void meter_init(struct meter *meter, uint64_t bytes_per_s, int64_t now_us);
/* 0: a message may go now; else ask again after that time. */
uint64_t meter_wait_ms(struct meter *meter, int64_t now_us);
void meter_spend(struct meter *meter, size_t bytes);

#endif
