/* Deriving and checking the session's timers; see the header. */
#include "common/wire/timers.h"

#include "common/base/bytes.h"

#define PING_MIN_MS 5000 /* a ping each 5 s is always welcome */

void timers_derive(uint64_t ping_ms, struct timers *ret)
{
    *ret = (struct timers){.ping_ms = ping_ms,
                           .silence_ms = ping_ms * 2 - ping_ms / 8,
                           .stall_ms = ping_ms * 3,
                           .lease_ms = ping_ms * 4,
                           .ping_min_ms = ping_ms / 4 < PING_MIN_MS ? ping_ms / 4 : PING_MIN_MS};
}

enum status timers_check(const struct timers *timers, struct error *err)
{
    const struct {
        const char *name;
        uint64_t ms;
    } order[] = {{"ping", timers->ping_ms},
                 {"silence", timers->silence_ms},
                 {"stall", timers->stall_ms},
                 {"lease", timers->lease_ms}};
    for (size_t i = 0; i < COUNT_OF(order); i++) {
        uint64_t before_ms = i > 0 ? order[i - 1].ms : 0;
        if (order[i].ms <= before_ms)
            return error_set(err, STATUS_INVALID,
                             "the timers are out of order: %s is %llu ms, %s is %llu ms and must "
                             "be longer",
                             i > 0 ? order[i - 1].name : "zero", (unsigned long long)before_ms,
                             order[i].name, (unsigned long long)order[i].ms);
    }
    return STATUS_OK;
}
