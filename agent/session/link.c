/* libwebsockets client on a foreign libuv loop. Loop thread. Surprising decisions: libcurl makes
 * the TCP connection (see dial.c) and the library goes on from there; a dropped connection is only
 * marked and killed by the library's timer, never freed from inside one of its own callbacks, and
 * events of such a leftover are recognised by its pointer and ignored. TCP_USER_TIMEOUT is left
 * alone: the session ends a silent link by its own clock, which knows what the coordinator agreed
 * to. */
#include "agent/session/link.h"

#include "agent/session/dial.h"
#include "agent/session/handover.h"
#include "agent/session/meter.h"
#include "common/base/buffer.h"
#include "common/base/clock.h"
#include "common/wire/frame.h"
#include "common/wire/wire.h"

#include <curl/curl.h>
#include <libwebsockets.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BINARY_BYTES_MAX (FRAME_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX)
#define TEXTS_WAITING_MAX 1024
#define OPENING_MS 25000 /* a little less than the session's patience, so that it learns why */
#define LIBRARY_STEP_SECONDS 60 /* more than all of it: our own clock decides */
#define CLOSE_TURNS 4
#define UNSENT_BYTES_MIN 4096
#define UNSENT_BYTES_MAX 131072
#define CONGESTION "bbr"
#define WRITE_CLOSE ((enum lws_write_protocol)4) /* the library's header leaves its name out */

_Static_assert(BINARY_BYTES_MAX >= WIRE_TEXT_BYTES_MAX, "one receive buffer fits both");

struct text_out {
    struct text_out *next;
    size_t bytes;
    uint8_t data[]; /* LWS_PRE, then the text */
};

struct link {
    uv_loop_t *loop;
    bool tls;
    struct link_settings settings;
    struct lws_context *context;
    struct lws_vhost *vhost; /* made for the first connection */
    struct handover handover;
    uv_timer_t opening_timer, meter_timer;
    unsigned timers_open;
    const struct link_events *events;
    void *user;

    /* The current connection or attempt: first dial, then wsi is set; between them socket. */
    struct url url;
    const char *path, *subprotocol;
    struct dial *dial;
    int socket; /* else -1 */
    struct lws *wsi;
    bool open;
    bool closing;
    bool close_sent;
    uint16_t close_code;
    uint16_t peer_close_code;
    struct error peer_close; /* its reason, made printable */
    bool ping_due;
    int64_t ping_sent_us;
    struct text_out *first, *last;
    size_t texts;
    struct buffer in; /* the message being received */
    uint8_t *out;     /* LWS_PRE + one binary message */
    struct meter meter;
    int unsent_bytes;
    uint64_t bytes_up, bytes_down;
};

static void forget_connection(struct link *link)
{
    uv_timer_stop(&link->opening_timer);
    uv_timer_stop(&link->meter_timer);
    dial_cancel(link->dial);
    link->dial = NULL;
    if (link->socket >= 0)
        close(link->socket);
    link->socket = -1;
    link->wsi = NULL;
    link->open = false;
    link->closing = false;
    link->close_sent = false;
    link->ping_due = false;
    link->ping_sent_us = 0;
    link->peer_close_code = LINK_CLOSE_NONE;
    link->peer_close.text[0] = '\0';
    buffer_done(&link->in);
    while (link->first) {
        struct text_out *next = link->first->next;
        free(link->first);
        link->first = next;
    }
    link->last = NULL;
    link->texts = 0;
}

/* text may lie in what is forgotten. */
static void connection_ended(struct link *link, const char *text)
{
    uint16_t code = link->peer_close_code;
    struct error why;
    error_set(&why, STATUS_CLOSED, "%s", link->peer_close.text[0] ? link->peer_close.text : text);
    forget_connection(link);
    link->events->closed(link->user, code, why.text);
}

/* --- reading ---------------------------------------------------------------------------------- */

static int receive(struct link *link, struct lws *wsi, const void *data, size_t bytes)
{
    link->bytes_down += bytes;
    link->events->heard(link->user);
    if (lws_is_first_fragment(wsi))
        buffer_clear(&link->in);
    if (buffer_append(&link->in, data, bytes)) {
        link->peer_close_code = LINK_CLOSE_NONE;
        error_set(&link->peer_close, STATUS_TOO_LARGE, "a message was larger than %d bytes",
                  BINARY_BYTES_MAX);
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
    if (bytes > 2)
        error_set(&link->peer_close, STATUS_CLOSED, "%.*s", (int)(bytes - 2), data + 2);
    else
        error_set(&link->peer_close, STATUS_CLOSED, "the other side closed the connection (%u)",
                  (unsigned)link->peer_close_code);
}

/* --- writing ---------------------------------------------------------------------------------- */

static void on_meter(uv_timer_t *timer)
{
    link_wake(timer->data);
}

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

/* Asks the owner only when the cap lets a message through; else the timer asks again. */
static size_t next_binary(struct link *link)
{
    uint64_t wait_ms = meter_wait_ms(&link->meter, clock_monotonic_us());
    if (wait_ms > 0) {
        uv_timer_start(&link->meter_timer, on_meter, wait_ms, 0);
        return 0;
    }
    size_t bytes = link->events->next_binary(link->user, link->out + LWS_PRE, BINARY_BYTES_MAX);
    meter_spend(&link->meter, bytes);
    return bytes;
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
        size_t bytes = next_binary(link);
        if (bytes == 0)
            return 0;
        result = write_message(link, link->out + LWS_PRE, bytes, LWS_WRITE_BINARY);
    }
    lws_callback_on_writable(link->wsi);
    return result;
}

/* --- attempts that fail ----------------------------------------------------------------------- */

static void explain_status(const struct link *link, unsigned status, struct error *ret)
{
    const char *where = link->url.authority;
    if (status == 502 || status == 503 || status == 504)
        error_set(ret, STATUS_UNAVAILABLE,
                  "%s answers %u: the coordinator behind it is not running, or not yet", where,
                  status);
    else if (status == 101)
        error_set(ret, STATUS_UNAVAILABLE, "%s answers, but not as a RAVEN coordinator", where);
    else
        error_set(ret, STATUS_UNAVAILABLE,
                  "%s answers %u instead of opening a session; is it the coordinator's address?",
                  where, status);
}

/* The library's own words are for its developers. */
static void explain_words(const struct link *link, const char *words, struct error *ret)
{
    const char *where = link->url.authority;
    if (strstr(words, "parsing header") || strstr(words, "URI missing"))
        error_set(ret, STATUS_UNAVAILABLE,
                  "what %s answers is not HTTP; is it the coordinator's address and port?", where);
    else
        error_set(ret, STATUS_UNAVAILABLE, "%s closed the connection before a session was open",
                  where);
}

static void on_tls_tried(void *user, int socket, const char *text)
{
    (void)socket;
    struct link *link = user;
    link->dial = NULL;
    struct error why;
    explain_words(link, "", &why);
    connection_ended(link, text[0] ? text : why.text);
}

/* words: the library's. A TLS failure is tried once more by libcurl, for the sentence: all that the
 * library tells of it is a number. */
static void attempt_failed(struct link *link, const char *words, unsigned http_status)
{
    bool handshake = !words || !words[0] || strncmp(words, "connect ", 8) == 0 ||
                     strncmp(words, "server's cert", 13) == 0 ||
                     strcmp(words, "first service failed") == 0;
    if (link->url.tls && http_status == 0 && handshake) {
        link->wsi = NULL;
        link->dial =
            dial_start(link->loop, &link->settings.route, &link->url, true, on_tls_tried, link);
        if (link->dial)
            return;
    }
    struct error why;
    if (http_status > 0)
        explain_status(link, http_status, &why);
    else
        explain_words(link, words ? words : "", &why);
    connection_ended(link, why.text);
}

static void on_opening_timeout(uv_timer_t *timer)
{
    struct link *link = timer->data;
    struct error why;
    const char *where = link->url.authority;
    if (link->wsi)
        error_set(&why, STATUS_TIMEOUT, "%s took the connection but then did not answer", where);
    else
        error_set(&why, STATUS_TIMEOUT, "%s cannot be reached in time", where);
    link_drop(link);
    link->events->closed(link->user, LINK_CLOSE_NONE, why.text);
}

/* --- the library's callback ------------------------------------------------------------------- */

static int hand_over(struct link *link, struct lws *wsi)
{
    int socket = link->socket;
    link->socket = -1;
    return handover_replace(&link->handover, socket, lws_get_socket_fd(wsi)) ? -1 : 0;
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *unused, void *data,
                    size_t bytes)
{
    (void)unused;
    struct lws_context *context = wsi ? lws_get_context(wsi) : NULL;
    struct link *link = context ? lws_context_user(context) : NULL;
    if (link && reason == LWS_CALLBACK_WSI_CREATE && link->socket >= 0)
        return hand_over(link, wsi);
    if (!link || link->wsi != wsi) {
        /* A leftover of a dropped connection: end it at the first chance. */
        bool live = reason == LWS_CALLBACK_CLIENT_ESTABLISHED ||
                    reason == LWS_CALLBACK_CLIENT_RECEIVE ||
                    reason == LWS_CALLBACK_CLIENT_WRITEABLE;
        return link && live ? -1 : 0;
    }
    switch (reason) {
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        uv_timer_stop(&link->opening_timer);
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
        attempt_failed(link, data, lws_http_client_http_response(wsi));
        return 0;
    case LWS_CALLBACK_CLIENT_CLOSED:
    case LWS_CALLBACK_CLOSED_CLIENT_HTTP:
    case LWS_CALLBACK_WSI_DESTROY:
        if (link->open)
            connection_ended(link, "the connection broke");
        else
            attempt_failed(link, NULL, 0);
        return 0;
    default:
        return 0;
    }
}

/* --- what the session calls ------------------------------------------------------------------- */

static const struct lws_protocols protocols[] = {
    {.name = "raven", .callback = on_event, .rx_buffer_size = 16384},
    {.name = NULL},
};

static struct lws_context_creation_info make_info(struct link *link, void **loops)
{
    return (struct lws_context_creation_info){
        .port = CONTEXT_PORT_NO_LISTEN,
        .protocols = protocols,
        .gid = -1,
        .uid = -1,
        .options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS |
                   (link->tls ? LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT : 0),
        .foreign_loops = loops,
        .fd_limit_per_thread = 64,
        .timeout_secs = LIBRARY_STEP_SECONDS,
        .connect_timeout_secs = LIBRARY_STEP_SECONDS,
        .http_proxy_address = "", /* else it reads the environment */
        .user = link,
    };
}

static void free_link(struct link *link)
{
    handover_done(&link->handover);
    free(link->out);
    free(link);
}

enum status link_create(uv_loop_t *loop, bool tls, const struct link_events *events, void *user,
                        struct link **ret, struct error *err)
{
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the connection");
    link->loop = loop;
    link->tls = tls;
    link->events = events;
    link->user = user;
    link->socket = -1;
    link->unsent_bytes = UNSENT_BYTES_MAX;
    link->settings.opening_ms = OPENING_MS;
    buffer_init(&link->in, BINARY_BYTES_MAX);
    link->out = malloc(LWS_PRE + BINARY_BYTES_MAX);
    enum status status = handover_init(&link->handover, err);
    if (!status && (!link->out || curl_global_init(CURL_GLOBAL_DEFAULT)))
        status = error_set(err, STATUS_NO_MEMORY, "no memory for the connection");
    if (!status) {
        lws_set_log_level(0, NULL);
        void *loops[] = {loop};
        struct lws_context_creation_info info = make_info(link, loops);
        link->context = lws_create_context(&info);
        if (!link->context)
            status = error_set(err, STATUS_SYSTEM,
                               "the WebSocket library does not start (is libwebsockets-evlib-uv "
                               "installed?)");
    }
    if (status) {
        free_link(link);
        return status;
    }
    uv_timer_init(loop, &link->opening_timer);
    uv_timer_init(loop, &link->meter_timer);
    link->opening_timer.data = link->meter_timer.data = link;
    link->timers_open = 2;
    *ret = link;
    return STATUS_OK;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct link *link = handle->data;
    if (--link->timers_open == 0)
        free_link(link);
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
    uv_close((uv_handle_t *)&link->opening_timer, on_timer_closed);
    uv_close((uv_handle_t *)&link->meter_timer, on_timer_closed);
}

void link_configure(struct link *link, const struct link_settings *settings)
{
    link->settings = *settings;
    if (settings->opening_ms == 0)
        link->settings.opening_ms = OPENING_MS;
    meter_init(&link->meter, settings->upload_bytes_per_s_max, clock_monotonic_us());
}

/* --- connecting ------------------------------------------------------------------------------- */

static bool make_vhost(struct link *link)
{
    if (link->vhost)
        return true;
    struct lws_context_creation_info info = make_info(link, NULL);
    if (link->settings.route.ca_file[0])
        info.client_ssl_ca_filepath = link->settings.route.ca_file;
    link->vhost = lws_create_vhost(link->context, &info);
    return link->vhost != NULL;
}

/* What the system does not know is done without. */
static void tune_socket(const struct link *link)
{
    int yes = 1;
    (void)setsockopt(link->socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)setsockopt(link->socket, IPPROTO_TCP, TCP_CONGESTION, CONGESTION, strlen(CONGESTION));
    (void)setsockopt(link->socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &link->unsent_bytes,
                     sizeof link->unsent_bytes);
}

static void on_dialled(void *user, int socket, const char *text)
{
    struct link *link = user;
    link->dial = NULL;
    if (socket < 0) {
        connection_ended(link, text);
        return;
    }
    link->socket = socket;
    tune_socket(link);
    struct lws_client_connect_info info = {
        .context = link->context,
        .vhost = link->vhost,
        .address = link->handover.address,
        .port = link->url.port,
        .ssl_connection = LCCSCF_HTTP_NO_FOLLOW_REDIRECT | (link->url.tls ? LCCSCF_USE_SSL : 0),
        .path = link->path,
        .host = link->url.authority,
        .protocol = link->subprotocol,
        .local_protocol_name = "raven",
        .ietf_version_or_minus_one = -1,
        .alpn = "http/1.1",
        .pwsi = &link->wsi,
    };
    /* Inside that call the library does not say why it fails. */
    if (!lws_client_connect_via_info(&info)) {
        link->wsi = NULL;
        attempt_failed(link, NULL, 0);
    }
}

void link_connect(struct link *link, const struct url *url, const char *path,
                  const char *subprotocol)
{
    link_drop(link);
    link->url = *url;
    link->path = path;
    link->subprotocol = subprotocol;
    struct error why = {0};
    if (url->tls && strchr(url->host, ':'))
        error_set(&why, STATUS_UNSUPPORTED,
                  "%s: with https:// a host name is needed, not an IPv6 address", url->authority);
    else if (route_check_ca_file(&link->settings.route, &why))
        ;
    else if (!make_vhost(link) || !(link->dial = dial_start(link->loop, &link->settings.route, url,
                                                            false, on_dialled, link)))
        error_set(&why, STATUS_NO_MEMORY, "no memory for the connection");
    if (link->dial)
        uv_timer_start(&link->opening_timer, on_opening_timeout, link->settings.opening_ms, 0);
    else
        connection_ended(link, why.text);
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
    uint64_t unsent = bytes_per_s / 20;
    link->unsent_bytes = unsent < UNSENT_BYTES_MIN   ? UNSENT_BYTES_MIN
                         : unsent > UNSENT_BYTES_MAX ? UNSENT_BYTES_MAX
                                                     : (int)unsent;
    if (link_is_open(link))
        (void)setsockopt(lws_get_socket_fd(link->wsi), IPPROTO_TCP, TCP_NOTSENT_LOWAT,
                         &link->unsent_bytes, sizeof link->unsent_bytes);
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
    if (link->wsi) {
        lws_set_timeout(link->wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
        lws_cancel_service(link->context); /* it looks at its timers only after an event */
    }
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

uint64_t link_bytes_unacked(const struct link *link)
{
    int bytes = 0;
    if (!link->open || ioctl(lws_get_socket_fd(link->wsi), SIOCOUTQ, &bytes) < 0 || bytes < 0)
        return 0;
    return (uint64_t)bytes;
}
