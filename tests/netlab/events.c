/* The ring of events. Pure but for the wall clock. Its surprise: `kind` must be static text. */
#include "tests/netlab/events.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"

struct event *events_add(struct events *events, int64_t at_ms, unsigned link, const char *kind,
                         const char *text)
{
    struct event *event = &events->ring[events->count++ % EVENTS_MAX];
    *event = (struct event){
        .at_ms = at_ms,
        .wall_ms = clock_wall_ms(),
        .link = link,
        .kind = kind,
        .duration_ms = -1,
    };
    (void)text_copy(event->text, sizeof event->text, text);
    return event;
}

uint64_t events_first(const struct events *events)
{
    return events->count > EVENTS_MAX ? events->count - EVENTS_MAX : 0;
}

const struct event *events_at(const struct events *events, uint64_t number)
{
    return &events->ring[number % EVENTS_MAX];
}
