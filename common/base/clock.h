/* Time. Deadlines and intervals use the monotonic clock; wall time is for display only. */
#ifndef RAVEN_COMMON_BASE_CLOCK_H
#define RAVEN_COMMON_BASE_CLOCK_H

#include <stdint.h>

#define CLOCK_RFC3339_BYTES 25 /* "2026-11-30T22:14:39.120Z" and the NUL */

int64_t clock_monotonic_us(void); /* CLOCK_BOOTTIME: goes on while the machine sleeps */
int64_t clock_wall_ms(void);      /* since 1970-01-01T00:00:00Z */
void clock_format_rfc3339(int64_t wall_ms, char ret[CLOCK_RFC3339_BYTES]);
void clock_sleep_us(int64_t us); /* returns early on no signal */

#endif
