/* See series.h. Plain memory, the core's thread. */
#include "coordinator/job/series.h"

#include <string.h>

void series_init(struct series *series)
{
    memset(series, 0, sizeof *series);
    series->stride = 1;
}

bool series_add(struct series *series, const struct series_entry *entry)
{
    if (series->arrivals++ % series->stride != 0)
        return false;
    if (series->count == SERIES_COUNT_MAX) {
        for (uint32_t i = 0; i < SERIES_COUNT_MAX / 2; i++)
            series->entries[i] = series->entries[2 * i];
        series->count = SERIES_COUNT_MAX / 2;
        series->stride *= 2;
    }
    series->entries[series->count++] = *entry;
    series->appended++;
    return true;
}
