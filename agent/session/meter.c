/* Token bucket. No thread of its own. What is not used within a quarter of a second is lost: a link
 * that has been idle must not burst. */
#include "agent/session/meter.h"

#define BURST_PER_SECOND 4
#define WAIT_MS_MAX 1000

void meter_init(struct meter *meter, uint64_t bytes_per_s, int64_t now_us)
{
    *meter = (struct meter){.bytes_per_s = bytes_per_s, .filled_us = now_us};
}

uint64_t meter_wait_ms(struct meter *meter, int64_t now_us)
{
    if (meter->bytes_per_s == 0)
        return 0;
    double rate = (double)meter->bytes_per_s, most = rate / BURST_PER_SECOND;
    meter->tokens += rate * (double)(now_us - meter->filled_us) / 1e6;
    if (meter->tokens > most)
        meter->tokens = most;
    meter->filled_us = now_us;
    if (meter->tokens >= 0)
        return 0;
    double wait_ms = 1000.0 * -meter->tokens / rate;
    return wait_ms > WAIT_MS_MAX ? WAIT_MS_MAX : (uint64_t)wait_ms + 1;
}

void meter_spend(struct meter *meter, size_t bytes)
{
    if (meter->bytes_per_s > 0)
        meter->tokens -= (double)bytes;
}
