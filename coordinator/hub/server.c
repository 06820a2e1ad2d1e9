/* The libwebsockets side: context, the three protocols' callbacks, handshakes. Service thread,
 * except for server_start. The path decides what a connection is and the subprotocol has to fit it;
 * refusing happens in FILTER_PROTOCOL_CONNECTION, before 101, with an answer written straight to
 * the socket since libwebsockets sends none from there. */
#include "coordinator/hub/hub_internal.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HEADER_BYTES_MAX 8192
#define RECEIVE_CHUNK_BYTES 4096
#define SEND_CHUNK_BYTES (72 * 1024) /* more than any frame: none is cut in two by the library */
#define VIEWER_SUBPROTOCOL "raven.v1"
#define AGENT_PATH "/ws/agent"
#define VIEWER_PATH "/ws/live"
#define HTTP_NOT_FOUND 404
#define HTTP_UPGRADE_REQUIRED 426

struct session { /* libwebsockets' per-connection memory */
    struct peer *peer;
};

static struct hub *hub_of(struct lws *wsi)
{
    return lws_context_user(lws_get_context(wsi));
}

/* --- arrivals --- */

struct arrival { /* a socket whose handshake is not finished: libwebsockets' opaque pointer */
    char address[ADDRESS_BYTES];
};

static void forget_arrival(struct lws *wsi)
{
    free(lws_get_opaque_user_data(wsi));
    lws_set_opaque_user_data(wsi, NULL);
}

void server_adopt(struct hub *hub, int fd, const char *address)
{
    struct arrival *arrival = calloc(1, sizeof *arrival);
    if (!arrival || hub->is_stopping) {
        free(arrival);
        close(fd);
        return;
    }
    text_copy(arrival->address, sizeof arrival->address, address);
    lws_adopt_desc_t description = {.vh = hub->vhost,
                                    .type = LWS_ADOPT_SOCKET | LWS_ADOPT_HTTP,
                                    .fd = {.sockfd = fd},
                                    .opaque = arrival};
    /* On failure the library has closed fd and called WSI_DESTROY if it got as far as a wsi. */
    lws_adopt_descriptor_vhost_via_info(&description);
}

/* --- handshake --- */

static int refuse(struct lws *wsi, int status)
{
    char answer[96];
    int bytes =
        snprintf(answer, sizeof answer,
                 "HTTP/1.1 %d Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status);
    /* Nothing else was or will be written here; a lost answer only costs the other side its reason.
     */
    (void)!send(lws_get_socket_fd(wsi), answer, (size_t)bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    return -1;
}

static bool path_is(struct lws *wsi, const char *path)
{
    char text[16];
    return lws_hdr_copy(wsi, text, sizeof text, WSI_TOKEN_GET_URI) >= 0 && strcmp(text, path) == 0;
}

/* kind: what the subprotocol says. */
static int filter(struct hub *hub, struct lws *wsi, enum peer_kind kind)
{
    if (lws_get_network_wsi(wsi) != wsi) /* WebSocket inside HTTP/2: not offered */
        return -1;
    if (!path_is(wsi, kind == PEER_AGENT ? AGENT_PATH : VIEWER_PATH))
        return refuse(wsi, HTTP_NOT_FOUND);
    if (lws_hdr_total_length(wsi, WSI_TOKEN_PROTOCOL) <= 0)
        return refuse(wsi, HTTP_UPGRADE_REQUIRED);
    if (kind == PEER_AGENT)
        return 0;
    int status = viewers_check(hub, wsi);
    return status ? refuse(wsi, status) : 0;
}

static int establish(struct hub *hub, struct lws *wsi, struct session *session, enum peer_kind kind)
{
    session->peer = NULL;
    if (hub->is_stopping)
        return -1;
    const struct arrival *arrival = lws_get_opaque_user_data(wsi);
    int result = kind == PEER_VIEWER
                     ? viewers_open(hub, wsi, &session->peer)
                     : agents_open(hub, wsi, arrival ? arrival->address : "", &session->peer);
    forget_arrival(wsi);
    return result;
}

/* --- an open WebSocket --- */

static int write_more(struct peer *peer)
{
    peer_note_writable(peer);
    int result = peer->kind == PEER_AGENT ? agents_write((struct agent *)peer)
                                          : viewers_write((struct viewer *)peer);
    peer->holds_back = lws_partial_buffered(peer->wsi);
    return result;
}

static void receive(struct peer *peer, const void *in, size_t bytes)
{
    if (peer->kind == PEER_AGENT)
        agents_receive((struct agent *)peer, in, bytes);
    else
        viewers_receive((struct viewer *)peer, in, bytes);
}

static void closed(struct hub *hub, struct session *session)
{
    struct peer *peer = session->peer;
    if (!peer)
        return;
    session->peer = NULL;
    if (peer->kind == PEER_AGENT)
        agents_gone((struct agent *)peer);
    else
        viewers_gone((struct viewer *)peer);
    hub_check_drained(hub);
}

static int serve(struct lws *wsi, enum lws_callback_reasons reason, struct session *session,
                 void *in, size_t bytes, enum peer_kind kind)
{
    struct hub *hub = hub_of(wsi);
    struct peer *peer = session ? session->peer : NULL;
    switch (reason) {
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
        return filter(hub, wsi, kind);
    case LWS_CALLBACK_ESTABLISHED:
        return establish(hub, wsi, session, kind);
    case LWS_CALLBACK_RECEIVE:
        if (peer)
            receive(peer, in, bytes);
        return 0;
    case LWS_CALLBACK_RECEIVE_PONG:
        if (peer)
            peer->heard_us = clock_monotonic_us();
        return 0;
    case LWS_CALLBACK_SERVER_WRITEABLE:
        return peer ? write_more(peer) : -1;
    case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
        if (!peer)
            return -1;
        peer->closed_by_other = true;
        return peer->close_sent ? -1 : 0; /* the answer to ours: the end; else it is answered */
    case LWS_CALLBACK_CLOSED:
        closed(hub, session);
        return 0;
    case LWS_CALLBACK_WSI_DESTROY:
        forget_arrival(wsi);
        return 0;
    default:
        return 0;
    }
}

static int serve_agent(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                       size_t bytes)
{
    return serve(wsi, reason, user, in, bytes, PEER_AGENT);
}

static int serve_viewer(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t bytes)
{
    return serve(wsi, reason, user, in, bytes, PEER_VIEWER);
}

/* Requests below /ws/ that are no WebSocket, and events that belong to no connection. */
static int serve_http(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                      size_t bytes)
{
    (void)user, (void)in, (void)bytes;
    switch (reason) {
    case LWS_CALLBACK_EVENT_WAIT_CANCELLED:
        commands_run(hub_of(wsi));
        return 0;
    case LWS_CALLBACK_HTTP:
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION: /* no subprotocol */
        return refuse(wsi, HTTP_UPGRADE_REQUIRED);
    case LWS_CALLBACK_WSI_DESTROY:
        forget_arrival(wsi);
        return 0;
    default:
        return 0;
    }
}

static struct lws_protocols protocol(const char *name, lws_callback_function *callback)
{
    return (struct lws_protocols){.name = name,
                                  .callback = callback,
                                  .per_session_data_size = sizeof(struct session),
                                  .rx_buffer_size = RECEIVE_CHUNK_BYTES,
                                  .tx_packet_size = SEND_CHUNK_BYTES};
}

enum status server_start(struct hub *hub, struct error *err)
{
    lws_set_log_level(0, NULL);
    hub->protocols[0] = protocol("http", serve_http);
    hub->protocols[1] = protocol(WIRE_SUBPROTOCOL, serve_agent);
    hub->protocols[2] = protocol(VIEWER_SUBPROTOCOL, serve_viewer);
    void *loops[1] = {&hub->loop};
    struct lws_context_creation_info info = {
        .options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS | LWS_SERVER_OPTION_LIBUV |
                   LWS_SERVER_OPTION_SKIP_SERVER_CANONICAL_NAME,
        .foreign_loops = loops,
        .gid = -1,
        .uid = -1,
        .pt_serv_buf_size = SEND_CHUNK_BYTES,
        .max_http_header_data = HEADER_BYTES_MAX,
        .user = hub,
    };
    hub->context = lws_create_context(&info);
    if (!hub->context)
        return error_set(err, STATUS_SYSTEM,
                         "starting the WebSocket server: no context (is libwebsockets' libuv "
                         "plug-in installed, and is the limit of open files sane?)");
    info.port = CONTEXT_PORT_NO_LISTEN_SERVER;
    info.protocols = hub->protocols;
    info.vhost_name = "raven";
    info.timeout_secs = 1 + hub->options.hello_deadline_ms / 1000;
    info.timeout_secs_ah_idle = info.timeout_secs;
    hub->vhost = lws_create_vhost(hub->context, &info);
    if (!hub->vhost)
        return error_set(err, STATUS_SYSTEM, "starting the WebSocket server: no virtual host");
    return STATUS_OK;
}
