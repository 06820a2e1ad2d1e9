/* What the hub's own files share. "Service thread": the one thread that runs the uv loop and
 * libwebsockets; everything here belongs to it unless it is guarded by hub->lock or atomic. */
#ifndef RAVEN_COORDINATOR_HUB_HUB_INTERNAL_H
#define RAVEN_COORDINATOR_HUB_HUB_INTERNAL_H

#include "common/base/buffer.h"
#include "coordinator/hub/channels.h"
#include "coordinator/hub/hub.h"
#include "coordinator/hub/pace.h"
#include "coordinator/hub/peer_table.h"

#include <libwebsockets.h>
#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

#define ADDRESS_BYTES 64
#define DETAIL_BYTES 121 /* a close frame has room for 123 bytes of text after its code */
#define EPOCH_BYTES 17
#define PING_BYTES 4
#define VIEWER_SUBSCRIPTIONS_MAX 16
#define VIEWER_TEXT_BYTES_MAX (64u * 1024)
#define VIEWER_MESSAGES_PER_S_MAX 20
#define VIEWER_CHUNK_BYTES (16u * 1024)       /* of a frame, per write */
#define PENDING_BYTES_MAX (64u * 1024 * 1024) /* commands that the service thread has not seen */
#define CLOSE_WAIT_US (5 * 1000 * 1000)       /* for the other side's close frame */
#define AGENT_DRAIN_RETRY_MS 1000
#define VIEWER_DRAIN_RETRY_MS 4000

/* --- one WebSocket, either kind ---------------------------------------------------------- */
enum peer_kind { PEER_AGENT, PEER_VIEWER };

struct peer {
    struct hub *hub;
    struct lws *wsi;
    enum peer_kind kind;
    struct peer *previous, *next;
    int64_t opened_us, heard_us, pinged_us, closing_us;
    int64_t progress_us;    /* when the kernel last took something, or when waiting began */
    int64_t pings_until_us; /* the pings so far are fair up to this moment */
    bool is_ready;          /* agent: hello accepted; viewer: hello seen */
    bool wants_write;
    bool ping_due;
    bool holds_back; /* libwebsockets keeps the rest of a write, and goes on by itself */
    bool is_closing; /* reason is final, input is ignored */
    bool close_sent; /* our close frame is out: nothing may follow it */
    bool closed_by_other;
    enum end_reason reason;
    char detail[DETAIL_BYTES];
    struct buffer in; /* fragments of the message that is arriving */
};

enum collected { COLLECTED_PART, COLLECTED_TEXT, COLLECTED_BINARY, COLLECTED_TOO_LARGE };

void peer_init(struct peer *peer, struct hub *hub, struct lws *wsi, enum peer_kind kind);
void peer_done(struct peer *peer);
void peer_want_write(struct peer *peer);
/* Writes the ping that is due; false when none is. */
bool peer_write_ping(struct peer *peer);
/* The socket takes more: counts the pings that libwebsockets answers, and closes a flood. */
void peer_note_writable(struct peer *peer);
/* Adds what arrived to the message under way; a whole one is *ret_data[*ret_bytes] until
 * peer_collected. */
enum collected peer_collect(struct peer *peer, const void *in, size_t bytes, size_t text_bytes_max,
                            size_t binary_bytes_max, const uint8_t **ret_data, size_t *ret_bytes);
void peer_collected(struct peer *peer);
/* Fixes the reason; false when one was fixed before. The owner then writes its last words and
 * peer_write_close. */
bool peer_begin_close(struct peer *peer, enum end_reason reason, const char *detail);
int peer_write_close(struct peer *peer); /* < 0: failed */
/* The WebSocket is gone: why, if nobody had decided it. */
enum end_reason peer_guess_reason(const struct peer *peer);
void peers_sweep(struct hub *hub);
void peers_close_all(struct hub *hub);
/* Copies text, cut to fit, everything but printable ASCII replaced by '?'. */
void plain_copy(char *ret, size_t ret_bytes, const char *text);

/* --- agents --- */
struct outbound { /* a text frame */
    struct outbound *next;
    size_t bytes;
    uint8_t data[]; /* LWS_PRE bytes for libwebsockets, then the text */
};

struct stream {
    struct stream *next;
    enum frame_kind kind;
    uint32_t id;
    struct shared *bytes;
    size_t sent_bytes;
};

struct agent {
    struct peer peer;
    uint64_t id;
    bool hello_seen;
    bool said_bye;
    enum end_reason bye_reason;
    char bye_detail[DETAIL_BYTES];
    struct outbound *control, **control_end;
    struct stream *streams, **streams_end;
    struct pace pace;
    _Atomic uint64_t queued_bytes; /* from hub_send on until written; other threads add */
    bool is_slow;                  /* guarded by hub->lock: over its maximum, about to be closed */
};

int agents_open(struct hub *hub, struct lws *wsi, const char *address, struct peer **ret);
void agents_receive(struct agent *agent, const void *in, size_t bytes);
int agents_write(struct agent *agent);
void agents_gone(struct agent *agent); /* frees it */
/* The bytes are in queued_bytes already. */
void agents_queue_message(struct agent *agent, struct outbound *message);
void agents_queue_stream(struct agent *agent, struct stream *stream);
void agents_close(struct agent *agent, enum end_reason reason, const char *detail,
                  uint32_t retry_ms);
enum status outbound_create(const struct wire_message *message, struct outbound **ret) MUST_CHECK;

/* --- viewers --- */
struct viewer {
    struct peer peer;
    struct subscription subscriptions[VIEWER_SUBSCRIPTIONS_MAX];
    size_t subscription_count;
    size_t turn; /* the subscription that is asked first */
    char gone[VIEWER_SUBSCRIPTIONS_MAX][CHANNEL_NAME_BYTES];
    size_t gone_count;
    bool welcome_due, heartbeat_due, bye_due;
    struct shared *out; /* the one frame in flight */
    size_t out_sent_bytes;
    int64_t second_us; /* start of the second in which message_count is counted */
    unsigned message_count;
};

/* Of a handshake: 0 when it may go on, else the HTTP status that refuses it. */
int viewers_check(struct hub *hub, struct lws *wsi);
int viewers_open(struct hub *hub, struct lws *wsi, struct peer **ret);
void viewers_receive(struct viewer *viewer, const void *in, size_t bytes);
int viewers_write(struct viewer *viewer);
void viewers_gone(struct viewer *viewer); /* frees it */
void viewers_close(struct viewer *viewer, enum end_reason reason, const char *detail);
void viewers_wake(struct hub *hub, const struct channel *channel);
void viewers_drop_channel(struct hub *hub, struct channel *channel);
void viewers_beat(struct hub *hub);
/* Takes one inbound message apart; false: *ret_detail says what was wrong. */
bool viewer_apply_message(struct viewer *viewer, const char *text, size_t bytes,
                          const char **ret_detail);
void viewer_note_gone(struct viewer *viewer, const char *channel);

/* --- commands from other threads --- */
enum command_type {
    COMMAND_ADOPT,
    COMMAND_ACCEPT,
    COMMAND_SEND,
    COMMAND_STREAM,
    COMMAND_CLOSE,
    COMMAND_PUBLISH,
    COMMAND_UNPUBLISH,
    COMMAND_STOP,
};

struct command {
    struct command *next;
    enum command_type type;
    uint64_t peer;
    union {
        struct {
            int fd;
            char address[ADDRESS_BYTES];
        } adopt;
        struct outbound *message;
        struct stream *stream;
        struct {
            enum end_reason reason;
            uint32_t retry_ms;
            char detail[DETAIL_BYTES];
        } close;
        struct {
            char channel[CHANNEL_NAME_BYTES];
            uint64_t sequence;
            struct shared *snapshot, *delta;
        } publish; /* and unpublish */
        uint32_t drain_ms;
    };
};

void commands_run(struct hub *hub);     /* service thread: all that wait */
void commands_discard(struct hub *hub); /* at the end */
/* The last command: nothing is accepted after it. */
void commands_post_stop(struct hub *hub, uint32_t drain_ms);

/* --- the server and its loop --- */
struct hub {
    struct hub_options options;
    char epoch[EPOCH_BYTES];
    pthread_t thread;
    bool is_drained; /* the thread has been joined */
    uv_loop_t loop;
    uv_timer_t sweep_timer, beat_timer, drain_timer;
    struct lws_protocols protocols[4]; /* HTTP, agents, viewers, end */
    struct lws_context *context;
    struct lws_vhost *vhost;

    pthread_mutex_t lock; /* guards the next five */
    struct command *commands, **commands_end;
    size_t pending_bytes;
    bool is_closed; /* commands are refused */
    struct peer_table table;

    struct peer *peers; /* all, closing ones too */
    struct channel *channels;
    struct shared *heartbeat; /* newest hb frame */
    uint64_t last_peer;
    int64_t swept_us;
    bool is_stopping;
    uint8_t *scratch; /* LWS_PRE bytes, then room for one frame */

    _Atomic uint64_t agents, viewers, agent_bytes_in, agent_bytes_out;
};

enum status server_start(struct hub *hub, struct error *err) MUST_CHECK; /* context and vhost */
void server_adopt(struct hub *hub, int fd, const char *address);
void hub_begin_drain(struct hub *hub, uint32_t drain_ms);
void hub_check_drained(struct hub *hub); /* a peer went away */

#endif
