/* One outgoing WebSocket connection on a libuv loop: connect, whole messages in and out, pings,
 * close. Knows nothing of what the messages mean. Every call and every event is on the loop's
 * thread. Text messages overtake binary ones, which are pulled from the owner only when the socket
 * takes more: nothing is buffered without bound. */
#ifndef RAVEN_AGENT_SESSION_LINK_H
#define RAVEN_AGENT_SESSION_LINK_H

#include "agent/session/route.h"
#include "agent/session/url.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define LINK_CLOSE_NONE 0 /* the connection ended without a close frame */

struct link_events {
    void (*open)(void *user);
    void (*text)(void *user, const char *text, size_t bytes);
    void (*binary)(void *user, const uint8_t *data, size_t bytes);
    void (*heard)(void *user); /* anything came, pongs included */
    void (*pong)(void *user, int64_t round_trip_us);
    /* Writes the next binary message to ret[bytes_max]; 0 when there is none. */
    size_t (*next_binary)(void *user, uint8_t *ret, size_t bytes_max);
    /* Once per connect, also for an attempt that failed. close_code: the peer's, or
     * LINK_CLOSE_NONE. text: what happened and the cure, at most 319 bytes. The link can connect
     * again from here on (not inside the call). */
    void (*closed)(void *user, uint16_t close_code, const char *text);
};

struct link_settings {
    struct route route;
    uint64_t upload_bytes_per_s_max; /* for binary messages, on average; 0: no cap */
    uint64_t opening_ms;             /* from connect to open, all steps together; 0: 25 s */
};

struct link;

/* events and user must outlive the link. tls: whether TLS is set up at all (it costs memory). */
enum status link_create(uv_loop_t *loop, bool tls, const struct link_events *events, void *user,
                        struct link **ret, struct error *err) MUST_CHECK;
/* Ends the connection without an event. The owner then runs the loop until it is empty. */
void link_free(struct link *link);

/* Before the first connect; without it there is no cap and the route is the environment's. */
void link_configure(struct link *link, const struct link_settings *settings);

/* path and subprotocol must outlive the connection. */
void link_connect(struct link *link, const struct url *url, const char *path,
                  const char *subprotocol);
bool link_is_open(const struct link *link);
/* STATUS_CLOSED when not open, STATUS_BUSY when the peer takes nothing any more. */
enum status link_send_text(struct link *link, const void *text, size_t bytes) MUST_CHECK;
void link_wake(struct link *link); /* next_binary has something now */
/* What the link carries up, measured; stays set for later connections. The kernel then takes more
 * only while it holds less than 50 ms of it unsent (4 KiB … 128 KiB). With data frames of 100 ms
 * and a window of 125 ms beyond the round trip, which the session sees to, a text message waits at
 * most about 250 ms behind data. */
void link_pace(struct link *link, uint64_t bytes_per_s);
void link_ping(struct link *link);
/* Sends what is queued, then closes with this code; closed follows. */
void link_close(struct link *link, uint16_t close_code);
/* Ends the connection at once; no event follows. */
void link_drop(struct link *link);

uint64_t link_bytes_up(const struct link *link);
uint64_t link_bytes_down(const struct link *link);
/* What the kernel has taken and the peer's kernel has not acknowledged; 0 when not open. */
uint64_t link_bytes_unacked(const struct link *link);

#endif
