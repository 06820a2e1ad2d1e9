/* A bounded series of measurements over a whole run: when full, every second entry is dropped and
 * from then on only every 2nd, 4th, … arrival is kept, so the shape of the run stays. */
#ifndef RAVEN_COORDINATOR_JOB_SERIES_H
#define RAVEN_COORDINATOR_JOB_SERIES_H

#include <stdbool.h>
#include <stdint.h>

#define SERIES_COUNT_MAX 600

struct series_entry {
    int64_t at_ms;
    uint64_t version;
    double first, second;
};

struct series {
    struct series_entry entries[SERIES_COUNT_MAX];
    uint32_t count;
    uint32_t stride; /* every stride-th arrival is kept */
    uint64_t arrivals;
    uint64_t appended; /* entries ever kept: lets a reader see what is new */
};

void series_init(struct series *series);
/* True when the entry was kept. */
bool series_add(struct series *series, const struct series_entry *entry);

#endif
