/* Time from the kernel. Any thread. Surprising: deadlines use CLOCK_BOOTTIME, so that a laptop that
 * slept knows it (CLOCK_MONOTONIC stands still during sleep). */
#include "common/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static int64_t read_ns(clockid_t which)
{
    struct timespec now;
    (void)clock_gettime(which, &now); /* cannot fail for these clocks and a valid pointer */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clock_monotonic_us(void)
{
    return read_ns(CLOCK_BOOTTIME) / 1000;
}

int64_t clock_wall_ms(void)
{
    return read_ns(CLOCK_REALTIME) / 1000000;
}

void clock_format_rfc3339(int64_t wall_ms, char ret[CLOCK_RFC3339_BYTES])
{
    /* Years 0000 … 9999 fit the format; anything else is shown as the nearest of them. */
    const int64_t ms_min = INT64_C(-62167219200000), ms_max = INT64_C(253402300799999);
    wall_ms = wall_ms < ms_min ? ms_min : wall_ms > ms_max ? ms_max : wall_ms;
    int64_t ms = wall_ms % 1000;
    if (ms < 0)
        ms += 1000;
    time_t seconds = (time_t)((wall_ms - ms) / 1000);
    struct tm tm;
    (void)gmtime_r(&seconds, &tm);
    char text[96];
    (void)snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
                   tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)ms);
    (void)snprintf(ret, CLOCK_RFC3339_BYTES, "%.*s", CLOCK_RFC3339_BYTES - 1, text);
}

void clock_sleep_us(int64_t us)
{
    if (us <= 0)
        return;
    struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        continue;
}
