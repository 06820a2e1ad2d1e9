/* Measuring one direction; see the header. Surprising decision: the mean is taken over seconds per
 * byte, so one slow transfer counts at once and one fast transfer does not hide three slow ones. */
#include "agent/control/goodput.h"

#define SAMPLE_BYTES_MIN 16384 /* less says more about delay than about rate */
#define SAMPLE_BYTES 262144
#define SAMPLE_US 1000000
#define NEW_PART 0.5 /* of a new sample in the mean */

static void close_sample(struct goodput *goodput)
{
    if (goodput->bytes >= SAMPLE_BYTES_MIN && goodput->spent_us > 0) {
        double sample = (double)goodput->spent_us / 1e6 / (double)goodput->bytes;
        double mean = sample;
        if (goodput->bytes_per_s > 0)
            mean = NEW_PART * sample + (1 - NEW_PART) / goodput->bytes_per_s;
        goodput->bytes_per_s = 1.0 / mean;
    }
    goodput->bytes = 0;
    goodput->spent_us = 0;
}

void goodput_stalled(struct goodput *goodput, int64_t stall_us, int64_t now_us)
{
    goodput->stalls++;
    if (stall_us >= goodput_longest_stall_us(goodput, now_us)) {
        goodput->longest_stall_us = stall_us;
        goodput->longest_at_us = now_us;
    }
}

int64_t goodput_longest_stall_us(const struct goodput *goodput, int64_t now_us)
{
    bool fresh = now_us - goodput->longest_at_us < GOODPUT_MEMORY_US;
    return fresh ? goodput->longest_stall_us : 0;
}

static void spend(struct goodput *goodput, int64_t now_us)
{
    int64_t gap_us = now_us - goodput->heard_us;
    if (gap_us > GOODPUT_STALL_US) {
        goodput_stalled(goodput, gap_us, now_us);
        gap_us = GOODPUT_STALL_US / 4;
    }
    goodput->spent_us += gap_us;
    goodput->heard_us = now_us;
}

void goodput_begin(struct goodput *goodput, int64_t now_us)
{
    if (goodput->busy)
        return;
    goodput->busy = true;
    goodput->heard_us = now_us;
}

void goodput_add(struct goodput *goodput, uint64_t bytes, int64_t now_us)
{
    goodput_begin(goodput, now_us);
    spend(goodput, now_us);
    goodput->bytes += bytes;
    if (goodput->bytes >= SAMPLE_BYTES ||
        (goodput->spent_us >= SAMPLE_US && goodput->bytes >= SAMPLE_BYTES_MIN))
        close_sample(goodput);
}

void goodput_end(struct goodput *goodput, bool interrupted, int64_t now_us)
{
    if (!goodput->busy)
        return;
    if (interrupted && now_us - goodput->heard_us > GOODPUT_STALL_US)
        goodput_stalled(goodput, now_us - goodput->heard_us, now_us);
    goodput->busy = false;
    close_sample(goodput);
}
