/* A request from its first byte to its answer, driven by libmicrohttpd's callbacks on its epoll
 * threads: framing → Host → route → credential → body → handler → answer. Handlers that may wait
 * run on a worker while the connection is suspended. Its surprise: libmicrohttpd calls the same
 * function for every step and again after each resumption, so `phase` says where a request is; and
 * what is refused before its body was read is answered at once and the connection closed, since the
 * unread body must never be taken for the next request. */
#include "coordinator/http/dispatch.h"

#include "coordinator/http/guard.h"
#include "coordinator/http/hosts.h"
#include "coordinator/http/respond.h"
#include "coordinator/http/static_files.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEADERS_WITHIN_MS 15000      /* of a new connection */
#define NEXT_REQUEST_WITHIN_MS 30000 /* of a kept one */
#define JSON_BODY_WITHIN_MS 30000
#define ANSWER_TAKEN_WITHIN_MS 60000 /* small answers; downloads have the inactivity limit only */
#define STREAM_STALL_MS 30000

void dispatch_connection(void *context, struct MHD_Connection *connection, void **peer,
                         enum MHD_ConnectionNotificationCode code)
{
    struct http *http = context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        peer_close(*peer);
        *peer = NULL;
        return;
    }
    const union MHD_ConnectionInfo *fd =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *address =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct peer *opened = fd ? peer_open(http->peers, fd->connect_fd) : NULL;
    if (opened && address && address->client_addr)
        opened->rate_key = rate_key(&http->rate, address->client_addr);
    if (opened)
        peer_expect(opened, HEADERS_WITHIN_MS);
    *peer = opened;
}

void *dispatch_uri(void *context, const char *uri, struct MHD_Connection *connection)
{
    struct request *request = calloc(1, sizeof *request);
    const union MHD_ConnectionInfo *peer =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (!request || !peer || !peer->socket_context) {
        free(request);
        return NULL;
    }
    request->http = context;
    request->connection = connection;
    request->peer = peer->socket_context;
    request->uri_is_clean = guard_uri_is_clean(uri);
    id_make(request->id, "req");
    buffer_init(&request->body, JSON_BODY_BYTES_MAX);
    return request;
}

void dispatch_completed(void *context, struct MHD_Connection *connection, void **slot,
                        enum MHD_RequestTerminationCode code)
{
    struct request *request = *slot;
    (void)context;
    (void)connection;
    (void)code;
    *slot = NULL;
    if (!request)
        return;
    if (request->sink.release)
        request->sink.release(request->sink.context);
    if (request->response)
        MHD_destroy_response(request->response);
    peer_expect(request->peer, NEXT_REQUEST_WITHIN_MS);
    buffer_done(&request->body);
    free(request);
}

static enum MHD_Result see_header(void *context, enum MHD_ValueKind kind, const char *name,
                                  size_t name_bytes, const char *value, size_t value_bytes)
{
    (void)kind;
    guard_see_header(context, name, name_bytes, value ? value : "", value ? value_bytes : 0);
    return MHD_YES;
}

static void take_request_id(struct request *request)
{
    const char *id = request_header(request, "X-Request-Id");
    size_t bytes = id ? strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                   "0123456789._-")
                      : 0;
    if (bytes > 0 && bytes < sizeof request->id && id[bytes] == 0)
        memcpy(request->id, id, bytes + 1);
}

/* False: answered, and the connection must end. */
static bool check_framing(struct request *request, const char *version)
{
    struct guard guard = {0};
    MHD_get_connection_values_n(request->connection, MHD_HEADER_KIND, see_header, &guard);
    request->content_length = guard.content_length;
    const char *complaint = guard_complaint(&guard, version);
    if (!complaint && !request->uri_is_clean)
        complaint = "The request's target has characters or segments that are not allowed.";
    if (complaint)
        respond_problem(request, PROBLEM_INVALID_REQUEST, "%s", complaint);
    else if (guard.header_bytes > GUARD_HEADERS_BYTES_MAX)
        respond_problem(request, PROBLEM_HEADERS_TOO_LARGE,
                        "%zu bytes of headers came; the limit is %u.", guard.header_bytes,
                        GUARD_HEADERS_BYTES_MAX);
    else
        return true;
    return false;
}

static bool check_host(struct request *request)
{
    const char *host = request_header(request, MHD_HTTP_HEADER_HOST);
    if (host && host_is_allowed(host, request->http->allowed_hosts))
        return true;
    respond_problem(request, PROBLEM_FORBIDDEN_ORIGIN,
                    "This Host is not served here. Use http://127.0.0.1:%u, or start the "
                    "coordinator with --allow-hosts and the name.",
                    request->http->port);
    return false;
}

static enum MHD_Result check_parameter(void *context, enum MHD_ValueKind kind, const char *name,
                                       const char *value)
{
    struct request *request = context;
    (void)kind;
    if (value && route_allows_query(request->route, name) &&
        request_query(request, name) == value) /* else it came twice */
        return MHD_YES;
    respond_problem(request, PROBLEM_INVALID_REQUEST,
                    "The parameter %.40s is unknown here, has no value or came twice.", name);
    return MHD_NO;
}

static bool find_route(struct request *request)
{
    char allow[64];
    request->route =
        route_find(request->method, request->path, request->parameter, allow, sizeof allow);
    if (!request->route && allow[0]) {
        respond_problem(request, PROBLEM_METHOD_NOT_ALLOWED, "This path has %s.", allow);
        respond_header(request, MHD_HTTP_HEADER_ALLOW, "%s", allow);
        return false;
    }
    if (!request->route) {
        if (!static_files_respond(request->http->files, request))
            respond_problem(request, PROBLEM_NOT_FOUND, "No such path.");
        return false;
    }
    MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, check_parameter, request);
    return request->response == NULL;
}

/* The media type without its parameters. */
static bool has_type(const struct request *request, const char *type)
{
    const char *value = request_header(request, MHD_HTTP_HEADER_CONTENT_TYPE);
    size_t bytes = strlen(type);
    if (!value || strncasecmp(value, type, bytes) != 0)
        return false;
    value += bytes + strspn(value + bytes, " \t");
    return *value == 0 || *value == ';';
}

static bool check_key(struct request *request)
{
    const char *key = request_header(request, "Idempotency-Key");
    if (!(request->route->flags & FLAG_KEY))
        return true;
    size_t bytes = 0;
    while (key && key[bytes] > 0x20 && key[bytes] < 0x7f)
        bytes++;
    if (bytes >= 1 && bytes <= 128 && key[bytes] == 0)
        return true;
    respond_problem(request, PROBLEM_KEY_MISSING,
                    "Send an Idempotency-Key header of 1 to 128 printable characters.");
    return false;
}

static bool check_body(struct request *request)
{
    static const char *const types[] = {
        [BODY_JSON] = "application/json",
        [BODY_STREAM] = "application/offset+octet-stream",
    };
    enum route_body body = request->route->body;
    if (body == BODY_NONE && request->content_length > 0)
        respond_problem(request, PROBLEM_INVALID_REQUEST, "This request takes no body.");
    else if (body == BODY_JSON && request->content_length > JSON_BODY_BYTES_MAX)
        respond_problem(request, PROBLEM_TOO_LARGE, "A JSON body may have %u bytes.",
                        JSON_BODY_BYTES_MAX);
    else if (body != BODY_NONE && !has_type(request, types[body]))
        respond_problem(request, PROBLEM_UNSUPPORTED_FORMAT, "Send Content-Type: %s.", types[body]);
    else
        return true;
    return false;
}

static enum MHD_Result queue(struct request *request)
{
    struct MHD_Response *response = request->response;
    if (!response)
        return MHD_NO;
    request->response = NULL;
    peer_expect(request->peer, request->is_download ? 0 : ANSWER_TAKEN_WITHIN_MS);
    enum MHD_Result result =
        MHD_queue_response(request->connection, (unsigned)request->status, response);
    MHD_destroy_response(response);
    return result;
}

static void resume(struct request *request)
{
    struct MHD_Connection *connection = request->connection;
    MHD_resume_connection(connection); /* from here on the request may be gone */
}

static void run_handler(struct work *work)
{
    struct request *request = (struct request *)work;
    request->route->handle(request);
    resume(request);
}

static void run_finish(struct work *work)
{
    struct request *request = (struct request *)work;
    request->sink.finish(request);
    resume(request);
}

/* Suspends first: the worker may be done before this returns. */
static enum MHD_Result hand_to_worker(struct request *request, enum request_phase phase,
                                      void (*run)(struct work *))
{
    request->phase = phase;
    request->work.run = run;
    peer_expect(request->peer, 0);
    MHD_suspend_connection(request->connection);
    if (!workers_submit(request->http->workers, &request->work)) {
        respond_problem(request, PROBLEM_UNAVAILABLE, "The coordinator is overloaded or stopping.");
        MHD_resume_connection(request->connection);
    }
    return MHD_YES;
}

/* Answers before the body. With a body to come (or framing that cannot be trusted) at once, which
 * is the last of this connection; else at the next call, for libmicrohttpd hangs up after an answer
 * that is queued in the first one. */
static enum MHD_Result refuse(struct request *request, bool hang_up)
{
    if (!hang_up && request->content_length == 0) {
        request->phase = PHASE_ANSWERED;
        return MHD_YES;
    }
    respond_header(request, MHD_HTTP_HEADER_CONNECTION, "close");
    return queue(request);
}

static enum MHD_Result begin(struct request *request, const char *path, const char *method,
                             const char *version)
{
    request->path = path;
    request->method = method;
    take_request_id(request);
    if (!check_framing(request, version))
        return refuse(request, true);
    if (!check_host(request) || !find_route(request) || !request_authorise(request) ||
        !check_body(request) || !check_key(request))
        return refuse(request, false);
    if (request->route->body == BODY_STREAM)
        return hand_to_worker(request, PHASE_OPENING, run_handler);
    request->phase = PHASE_BODY;
    peer_expect(request->peer, JSON_BODY_WITHIN_MS);
    return MHD_YES;
}

static enum MHD_Result take_body(struct request *request, const char *data, size_t *bytes)
{
    if (request->sink.data) {
        request->sink.data(request->sink.context, data, *bytes);
        peer_expect(request->peer, STREAM_STALL_MS);
    } else if (buffer_append(&request->body, data, *bytes)) {
        return MHD_NO; /* memory is out: Content-Length was within the maximum */
    }
    *bytes = 0;
    return MHD_YES;
}

static enum MHD_Result handle(struct request *request)
{
    if (request->sink.finish)
        return hand_to_worker(request, PHASE_HANDLING, run_finish);
    if (!(request->route->flags & FLAG_INLINE))
        return hand_to_worker(request, PHASE_HANDLING, run_handler);
    request->route->handle(request);
    return queue(request);
}

static enum MHD_Result go_on(struct request *request, const char *data, size_t *bytes)
{
    switch (request->phase) {
    case PHASE_OPENING:
        if (!request->sink.finish)
            return refuse(request, false);
        request->phase = PHASE_BODY;
        peer_expect(request->peer, STREAM_STALL_MS);
        return MHD_YES;
    case PHASE_BODY:
        return *bytes > 0 ? take_body(request, data, bytes) : handle(request);
    case PHASE_HANDLING:
    case PHASE_ANSWERED:
        return queue(request);
    case PHASE_HEADERS:
        break;
    }
    return MHD_NO;
}

enum MHD_Result dispatch_request(void *context, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *data,
                                 size_t *data_bytes, void **slot)
{
    struct request *request = *slot;
    (void)context;
    (void)connection;
    if (!request)
        return MHD_NO;
    if (request->phase == PHASE_HEADERS)
        return begin(request, url, method, version);
    return go_on(request, data, data_bytes);
}
