/* The WebSocket side of the coordinator: agents on /ws/agent (raven-agent.v1) and dashboards on
 * /ws/live (raven.v1). One libwebsockets service thread on libuv; every callback below runs on that
 * thread and must only post a message and return. Every other function may be called from any
 * thread: it queues and wakes the service thread. Knows nothing of jobs. */
#ifndef RAVEN_COORDINATOR_HUB_HUB_H
#define RAVEN_COORDINATOR_HUB_HUB_H

#include "common/base/shared.h"
#include "common/base/status.h"
#include "common/wire/frame.h"
#include "common/wire/timers.h"
#include "common/wire/wire.h"

#include <stdint.h>
#include <sys/socket.h>

struct hub;

/* What a dashboard's handshake carried; texts are NUL-terminated, empty when absent. */
struct hub_viewer_handshake {
    char cookie[4096]; /* all cookies of this host name, also those of other programs */
    char bearer[128];
    char origin[256];
    char host[256];
};

struct hub_callbacks {
    void *context;
    /* A WebSocket on /ws/agent finished its handshake. peer is never reused. The owner answers with
     * a challenge; hub_agent_accept within hello_deadline_ms or the hub closes it. */
    void (*agent_opened)(void *context, uint64_t peer, const char *address);
    /* message and frame are valid during the call only. Undecodable input never gets here: the hub
     * sends bye PROTOCOL_ERROR and closes. Before hub_agent_accept only `hello` gets here. */
    void (*agent_message)(void *context, uint64_t peer, const struct wire_message *message);
    void (*agent_frame)(void *context, uint64_t peer, const struct frame *frame);
    /* Always called exactly once after agent_opened. */
    void (*agent_closed)(void *context, uint64_t peer, enum end_reason reason, const char *detail);
    /* May this dashboard connect? In memory only, called before the 101 answer. */
    bool (*viewer_allowed)(void *context, const struct hub_viewer_handshake *handshake);
};

struct hub_options {
    struct hub_callbacks callbacks;
    struct timers timers;       /* common/wire/timers.h; lease_ms is not the hub's */
    uint32_t hello_deadline_ms; /* 5,000 */
    uint32_t data_frame_bytes;  /* at most; smaller on slow links; ≤ FRAME_PAYLOAD_BYTES_MAX */
    uint64_t agent_queue_bytes_max; /* shared bytes queued to one agent before it is SLOW_READER */
    uint32_t viewers_max;
};

struct hub_counters {
    uint64_t agents, viewers;
    uint64_t agent_bytes_in, agent_bytes_out; /* WebSocket payload bytes since start */
};

enum status hub_start(const struct hub_options *options, struct hub **ret,
                      struct error *err) MUST_CHECK;
/* Sends bye DRAINING to all, waits up to drain_ms for the queues, stops the thread. After it no
 * callback runs, and the functions below still may be called by other threads: they refuse. */
void hub_drain(struct hub *hub, uint32_t drain_ms);
/* hub_drain, unless that was done, then frees the hub: no other thread may be using it. NULL is
 * fine. */
void hub_stop(struct hub *hub, uint32_t drain_ms);

/* Takes an accepted, non-blocking socket whose unread request begins with "GET /ws/". Always takes
 * ownership of fd. */
void hub_adopt(struct hub *hub, int fd, const char *address);

/* --- agents --- */
void hub_agent_accept(struct hub *hub, uint64_t peer); /* hello was good */
/* Copies message. STATUS_NOT_FOUND when the peer is gone (its agent_closed has been or will be
 * called; also when this message is what makes it a SLOW_READER), STATUS_BUSY when the service
 * thread is far behind. Messages to one peer keep their order. */
enum status hub_send(struct hub *hub, uint64_t peer, const struct wire_message *message);
/* Queues bytes, beginning at `from`, as data frames of kind on stream id, after the message that
 * announces them (which is sent in order); later control messages overtake remaining data frames.
 * Takes a reference of its own: the caller keeps its one. */
enum status hub_send_stream(struct hub *hub, uint64_t peer, enum frame_kind kind, uint32_t stream,
                            struct shared *bytes, uint64_t from);
/* What waits for this peer and the kernel has not taken; UINT64_MAX when the peer is gone. */
uint64_t hub_queued_bytes(struct hub *hub, uint64_t peer);
/* Sends bye {reason, detail, retry_ms} after what is queued as control, then closes. */
void hub_close(struct hub *hub, uint64_t peer, enum end_reason reason, const char *detail,
               uint32_t retry_ms);

/* --- dashboards --- */
/* The channel's newest state (a whole "snap" frame) and how to get there from sequence - 1 (a whole
 * "d" frame, or NULL when there is none: then every subscriber gets the snapshot). sequence grows
 * by one per call and channel. The hub keeps the last 60 deltas for resuming. Takes references of
 * its own. Names: 1 … 63 characters of A-Z a-z 0-9 _ : . - */
void hub_publish(struct hub *hub, const char *channel, uint64_t sequence, struct shared *snapshot,
                 struct shared *delta);
void hub_unpublish(struct hub *hub, const char *channel);
const char *hub_epoch(const struct hub *hub); /* random per start, static until hub_stop */

void hub_read_counters(struct hub *hub, struct hub_counters *ret);

#endif
