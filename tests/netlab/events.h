/* What happened to the links, for a bench to lay beside its own measurements. A ring of the latest
 * EVENTS_MAX. One thread. */
#ifndef RAVEN_NETLAB_EVENTS_H
#define RAVEN_NETLAB_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#define EVENTS_MAX 4096
#define EVENT_TEXT_BYTES 144

struct event {
    int64_t at_ms; /* since the lab's start */
    int64_t wall_ms;
    unsigned link; /* number; 0: the lab itself */
    const char *kind;
    int64_t duration_ms;      /* of what ended here; -1: nothing did */
    uint64_t packets_dropped; /* because of it */
    char text[EVENT_TEXT_BYTES];
};

struct events {
    struct event ring[EVENTS_MAX];
    uint64_t count; /* ever */
};

/* A blank event of that kind, made now, for the caller to add to. text may be cut. */
struct event *events_add(struct events *events, int64_t at_ms, unsigned link, const char *kind,
                         const char *text);
uint64_t events_first(const struct events *events); /* the oldest kept; its number from 0 */
const struct event *events_at(const struct events *events, uint64_t number);

#endif
