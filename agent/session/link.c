/* libwebsockets client on a foreign libuv loop. Loop thread. Surprising decision: a dropped
 * connection is only marked and killed by the library's timer, never freed from inside one of its
 * own callbacks; events of such a leftover are recognised by its pointer and ignored. */
#include "agent/session/link.h"

#include "common/base/buffer.h"
#include "common/base/clock.h"
#include "common/wire/frame.h"
#include "common/wire/wire.h"

#include <libwebsockets.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#define BINARY_BYTES_MAX (FRAME_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX)
#define TEXTS_WAITING_MAX 1024
#define KILL_SECONDS 1
#define OPENING_SECONDS 20 /* for each step until the upgrade; a slow link needs several */
#define CLOSE_TURNS 4
#define UNSENT_BYTES_MIN 4096
#define UNSENT_BYTES_MAX 131072
#define WRITE_CLOSE ((enum lws_write_protocol)4) /* the library's header leaves its name out */

_Static_assert(BINARY_BYTES_MAX >= WIRE_TEXT_BYTES_MAX, "one receive buffer fits both");

struct text_out {
    struct text_out *next;
    size_t bytes;
    uint8_t data[]; /* LWS_PRE, then the text */
};

struct link {
    uv_loop_t *loop;
    struct lws_context *context;
    struct lws_vhost *vhost;
    const struct link_events *events;
    void *user;
    struct lws *wsi; /* the current connection or attempt, else NULL */
    bool open;
    bool closing;
    bool close_sent;
    uint16_t close_code;
    uint16_t peer_close_code;
    char peer_close_text[128];
    bool ping_due;
    int64_t ping_sent_us;
    struct text_out *first, *last;
    size_t texts;
    struct buffer in; /* the message being received */
    uint8_t *out;     /* LWS_PRE + one binary message */
    uint64_t bytes_up, bytes_down;
};

static void forget_connection(struct link *link)
{
    link->wsi = NULL;
    link->open = false;
    link->closing = false;
    link->close_sent = false;
    link->ping_due = false;
    link->ping_sent_us = 0;
    link->peer_close_code = LINK_CLOSE_NONE;
    link->peer_close_text[0] = '\0';
    buffer_done(&link->in);
    while (link->first) {
        struct text_out *next = link->first->next;
        free(link->first);
        link->first = next;
    }
    link->last = NULL;
    link->texts = 0;
}

static void connection_ended(struct link *link, const char *text)
{
    uint16_t code = link->peer_close_code;
    char copy[sizeof link->peer_close_text];
    snprintf(copy, sizeof copy, "%s", link->peer_close_text[0] ? link->peer_close_text : text);
    forget_connection(link);
    link->events->closed(link->user, code, copy);
}

/* --- reading ---------------------------------------------------------------------------------- */

static int receive(struct link *link, struct lws *wsi, const void *data, size_t bytes)
{
    link->bytes_down += bytes;
    link->events->heard(link->user);
    if (lws_is_first_fragment(wsi))
        buffer_clear(&link->in);
    if (buffer_append(&link->in, data, bytes)) {
        link->peer_close_code = 0;
        snprintf(link->peer_close_text, sizeof link->peer_close_text,
                 "a message was larger than %d bytes", BINARY_BYTES_MAX);
        return -1;
    }
    if (!lws_is_final_fragment(wsi) || lws_remaining_packet_payload(wsi) > 0 || link->closing)
        return 0;

    /* The event may drop the connection, so the message is moved out first. */
    uint8_t *message;
    size_t message_bytes;
    bool binary = lws_frame_is_binary(wsi);
    buffer_take(&link->in, &message, &message_bytes);
    if (binary)
        link->events->binary(link->user, message, message_bytes);
    else
        link->events->text(link->user, (const char *)message, message_bytes);
    free(message);
    return link->wsi == wsi ? 0 : -1;
}

static void receive_pong(struct link *link)
{
    link->events->heard(link->user);
    if (link->ping_sent_us > 0)
        link->events->pong(link->user, clock_monotonic_us() - link->ping_sent_us);
    link->ping_sent_us = 0;
}

static void note_peer_close(struct link *link, const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return;
    link->peer_close_code = (uint16_t)(data[0] << 8 | data[1]);
    int text_bytes = (int)(bytes - 2 < 120 ? bytes - 2 : 120);
    snprintf(link->peer_close_text, sizeof link->peer_close_text, "%.*s", text_bytes, data + 2);
}

/* --- writing ---------------------------------------------------------------------------------- */

static int write_message(struct link *link, uint8_t *data, size_t bytes,
                         enum lws_write_protocol kind)
{
    if (lws_write(link->wsi, data, bytes, kind) < (int)bytes)
        return -1;
    link->bytes_up += bytes;
    return 0;
}

/* Written by hand: when a callback of a client returns -1, the library drops the connection without
 * the close frame that it was given. The peer's answer ends the connection. */
static int write_close(struct link *link)
{
    if (link->close_sent)
        return 0;
    link->close_sent = true;
    link->out[LWS_PRE] = (uint8_t)(link->close_code >> 8);
    link->out[LWS_PRE + 1] = (uint8_t)link->close_code;
    return lws_write(link->wsi, link->out + LWS_PRE, 2, WRITE_CLOSE) < 0 ? -1 : 0;
}

static int write_next(struct link *link)
{
    int result = 0;
    struct text_out *text = link->first;
    if (link->ping_due) {
        link->ping_due = false;
        link->ping_sent_us = clock_monotonic_us();
        result = write_message(link, link->out + LWS_PRE, 0, LWS_WRITE_PING);
    } else if (text) {
        link->first = text->next;
        if (!link->first)
            link->last = NULL;
        link->texts--;
        result = write_message(link, text->data + LWS_PRE, text->bytes, LWS_WRITE_TEXT);
        free(text);
    } else if (link->closing) {
        return write_close(link);
    } else {
        size_t bytes = link->events->next_binary(link->user, link->out + LWS_PRE, BINARY_BYTES_MAX);
        if (bytes == 0)
            return 0;
        result = write_message(link, link->out + LWS_PRE, bytes, LWS_WRITE_BINARY);
    }
    lws_callback_on_writable(link->wsi);
    return result;
}

/* The library's own words, but for the one that says nothing. */
static void attempt_failed(struct link *link, const char *why)
{
    char text[160];
    bool vague = !why || !why[0] || strcmp(why, "closed before established") == 0;
    snprintf(text, sizeof text, "%s", vague ? "the connection was refused" : why);
    connection_ended(link, text);
}

/* --- the library's callback ------------------------------------------------------------------- */

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *unused, void *data,
                    size_t bytes)
{
    (void)unused;
    struct lws_context *context = wsi ? lws_get_context(wsi) : NULL;
    struct link *link = context ? lws_context_user(context) : NULL;
    if (!link || link->wsi != wsi) {
        /* A leftover of a dropped connection: end it at the first chance. */
        bool live = reason == LWS_CALLBACK_CLIENT_ESTABLISHED ||
                    reason == LWS_CALLBACK_CLIENT_RECEIVE ||
                    reason == LWS_CALLBACK_CLIENT_WRITEABLE;
        return link && live ? -1 : 0;
    }
    switch (reason) {
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        link->open = true;
        link->events->heard(link->user);
        link->events->open(link->user);
        return 0;
    case LWS_CALLBACK_CLIENT_RECEIVE:
        return receive(link, wsi, data, bytes);
    case LWS_CALLBACK_CLIENT_RECEIVE_PONG:
        receive_pong(link);
        return 0;
    case LWS_CALLBACK_CLIENT_WRITEABLE:
        return link->open ? write_next(link) : 0;
    case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
        note_peer_close(link, data, bytes);
        return link->close_sent ? -1 : 0; /* else the library answers it */
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
        attempt_failed(link, data);
        return 0;
    case LWS_CALLBACK_CLIENT_CLOSED:
    case LWS_CALLBACK_CLOSED_CLIENT_HTTP:
    case LWS_CALLBACK_WSI_DESTROY:
        connection_ended(link, "the connection broke");
        return 0;
    default:
        return 0;
    }
}

/* --- what the session calls ------------------------------------------------------------------- */

enum status link_create(uv_loop_t *loop, bool tls, const struct link_events *events, void *user,
                        struct link **ret, struct error *err)
{
    static const struct lws_protocols protocols[] = {
        {.name = "raven", .callback = on_event, .rx_buffer_size = 16384},
        {.name = NULL},
    };
    struct link *link = calloc(1, sizeof *link);
    uint8_t *out = malloc(LWS_PRE + BINARY_BYTES_MAX);
    if (!link || !out) {
        free(link);
        free(out);
        return error_set(err, STATUS_NO_MEMORY, "no memory for the connection");
    }
    link->loop = loop;
    link->events = events;
    link->user = user;
    link->out = out;
    buffer_init(&link->in, BINARY_BYTES_MAX);

    lws_set_log_level(0, NULL);
    void *loops[] = {loop};
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN,
        .protocols = protocols,
        .gid = -1,
        .uid = -1,
        .options = LWS_SERVER_OPTION_LIBUV | (tls ? LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT : 0),
        .foreign_loops = loops,
        .fd_limit_per_thread = 64,
        .timeout_secs = OPENING_SECONDS,
        .connect_timeout_secs = OPENING_SECONDS,
        .user = link,
    };
    link->context = lws_create_context(&info);
    if (!link->context) {
        free(out);
        free(link);
        return error_set(err, STATUS_SYSTEM,
                         "the WebSocket library does not start (is libwebsockets-evlib-uv "
                         "installed?)");
    }
    *ret = link;
    return STATUS_OK;
}

void link_free(struct link *link)
{
    if (!link)
        return;
    forget_connection(link);
    lws_context_destroy(link->context);
    for (int i = 0; i < CLOSE_TURNS; i++)
        uv_run(link->loop, UV_RUN_NOWAIT);
    lws_context_destroy(link->context);
    free(link->out);
    free(link);
}

void link_connect(struct link *link, const struct url *url, const char *path,
                  const char *subprotocol)
{
    link_drop(link);
    struct lws_client_connect_info info = {
        .context = link->context,
        .address = url->host,
        .port = url->port,
        .ssl_connection = url->tls ? LCCSCF_USE_SSL : 0,
        .path = path,
        .host = url->authority,
        .protocol = subprotocol,
        .local_protocol_name = "raven",
        .ietf_version_or_minus_one = -1,
        .alpn = "http/1.1",
        .pwsi = &link->wsi,
    };
    struct lws *wsi = lws_client_connect_via_info(&info);
    /* On failure the event has usually come from inside that call; then the session has moved on.
     */
    if (!wsi && link->wsi)
        connection_ended(link, "the connection attempt failed");
}

bool link_is_open(const struct link *link)
{
    return link->open && !link->closing;
}

enum status link_send_text(struct link *link, const void *text, size_t bytes)
{
    if (!link_is_open(link))
        return STATUS_CLOSED;
    if (link->texts == TEXTS_WAITING_MAX)
        return STATUS_BUSY;
    struct text_out *item = malloc(sizeof *item + LWS_PRE + bytes);
    if (!item)
        return STATUS_NO_MEMORY;
    item->next = NULL;
    item->bytes = bytes;
    memcpy(item->data + LWS_PRE, text, bytes);
    if (link->last)
        link->last->next = item;
    else
        link->first = item;
    link->last = item;
    link->texts++;
    lws_callback_on_writable(link->wsi);
    return STATUS_OK;
}

void link_wake(struct link *link)
{
    if (link_is_open(link))
        lws_callback_on_writable(link->wsi);
}

void link_pace(struct link *link, uint64_t bytes_per_s)
{
    if (!link_is_open(link))
        return;
    uint64_t unsent = bytes_per_s / 20;
    int bytes = unsent < UNSENT_BYTES_MIN   ? UNSENT_BYTES_MIN
                : unsent > UNSENT_BYTES_MAX ? UNSENT_BYTES_MAX
                                            : (int)unsent;
    (void)setsockopt(lws_get_socket_fd(link->wsi), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes,
                     sizeof bytes);
}

void link_ping(struct link *link)
{
    if (!link_is_open(link))
        return;
    link->ping_due = true;
    lws_callback_on_writable(link->wsi);
}

void link_close(struct link *link, uint16_t close_code)
{
    if (!link_is_open(link))
        return;
    link->closing = true;
    link->close_code = close_code;
    lws_callback_on_writable(link->wsi);
}

void link_drop(struct link *link)
{
    if (link->wsi)
        lws_set_timeout(link->wsi, PENDING_TIMEOUT_USER_OK, KILL_SECONDS);
    forget_connection(link);
}

uint64_t link_bytes_up(const struct link *link)
{
    return link->bytes_up;
}

uint64_t link_bytes_down(const struct link *link)
{
    return link->bytes_down;
}
