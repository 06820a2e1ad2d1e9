/* The agent's session with its coordinator: connect, prove the key, keep alive, come back after
 * every failure. Lives on one libuv loop; calls and events are on its thread. */
#ifndef RAVEN_AGENT_SESSION_SESSION_H
#define RAVEN_AGENT_SESSION_SESSION_H

#include "agent/session/identity.h"
#include "agent/session/link.h"
#include "agent/session/url.h"
#include "common/base/status.h"
#include "common/wire/frame.h"
#include "common/wire/wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum session_state {
    SESSION_AWAY,       /* backing off */
    SESSION_CONNECTING, /* until the challenge */
    SESSION_PROVING,    /* hello sent */
    SESSION_OPEN,       /* welcomed */
    SESSION_CLOSING,    /* bye is on its way */
    SESSION_STOPPED,    /* for good */
};

struct session_events {
    /* Fills in the machine's description and what replica is held. */
    void (*describe)(void *user, struct wire_hello *hello);
    void (*welcome)(void *user, const struct wire_welcome *welcome);
    void (*message)(void *user, const struct wire_message *message); /* after the welcome */
    void (*frame)(void *user, const struct frame *frame);
    /* Next data frame of at most FRAME_HEADER_BYTES + payload_bytes_max; 0 when there is none, or
     * when window_bytes are on their way already. */
    size_t (*next_frame)(void *user, size_t payload_bytes_max, uint64_t window_bytes, uint8_t *ret);
    /* The session or the attempt ended; the next attempt comes in retry_ms. */
    void (*lost)(void *user, enum end_reason reason, const char *text, int64_t retry_ms);
    /* No further attempt will be made: refused for good, or session_stop is done. */
    void (*stopped)(void *user, enum end_reason reason, const char *text);
};

struct session_settings {
    struct url url;
    const struct identity *identity; /* must outlive the session */
    char invite[129];                /* empty unless this installation enrols now */
    uint64_t seed;                   /* of the back-off's jitter */
    struct link_settings link;       /* proxy, CA file, upload cap */
    int64_t backoff_ms_max;          /* 0: as backoff.h says; tests want less */
};

struct session;

enum status session_create(uv_loop_t *loop, const struct session_settings *settings,
                           const struct session_events *events, void *user, struct session **ret,
                           struct error *err) MUST_CHECK;
/* Ends everything without events and frees it once the loop has run until it is empty. */
void session_free(struct session *session);

void session_start(struct session *session);
/* Says bye with AGENT_STOPPED; stopped follows within about a second. */
void session_stop(struct session *session);
/* Ends the current session with a bye of this reason; the session comes back by itself. */
void session_end(struct session *session, enum end_reason reason, const char *text);

enum session_state session_state(const struct session *session);
/* STATUS_CLOSED when not welcomed (any more): the caller says it again after the next welcome. */
enum status session_send(struct session *session, const struct wire_message *message) MUST_CHECK;
void session_wake(struct session *session); /* next_frame has something now */

/* What the link carries up, 0: not known. Data frames and what may be on its way unacknowledged are
 * sized by it, so that a control message waits at most 250 ms behind data. */
void session_set_goodput(struct session *session, double up_bytes_per_s);

double session_rtt_ms(const struct session *session);     /* 0: not measured */
uint64_t session_stall_ms(const struct session *session); /* of the welcome */
uint64_t session_bytes_up(const struct session *session);
uint64_t session_bytes_down(const struct session *session);

#endif
