/* The numbers that weigh an update: staleness and outer rate. Pure functions, any thread.
 * Surprising: there is no momentum anywhere, because with asynchronous arrivals every momentum that
 * was tried learned worse than none (design: 10-training, "Coordinator, one update"). */
#include "coordinator/aggregate/aggregate.h"

#include <math.h>

#define STALE_FACTOR 4
#define K_SPARSE 64  /* density 1/64 of a chunk of 4096 */
#define K_MEDIUM 128 /* density 1/32 */

static uint32_t at_least_one(uint32_t active)
{
    return active > 0 ? active : 1;
}

float aggregate_staleness_weight(uint32_t staleness, uint32_t active)
{
    active = at_least_one(active);
    if (staleness < active)
        return 1.0f;
    return (float)sqrt((double)active / (1.0 + (double)staleness));
}

bool aggregate_is_stale(uint32_t staleness, uint32_t active)
{
    return staleness > (uint64_t)STALE_FACTOR * at_least_one(active);
}

float aggregate_outer_rate(uint32_t active, uint32_t k, double fixed)
{
    double numerator = k <= K_SPARSE ? 2.0 : k <= K_MEDIUM ? 1.4 : 1.0;
    double rate = fmin(1.0, numerator / sqrt((double)at_least_one(active)));
    if (fixed > 0.0)
        rate = fixed;
    return (float)rate;
}
