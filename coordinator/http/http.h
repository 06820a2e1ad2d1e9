/* The REST API and the dashboard's files, on libmicrohttpd. Requests are parsed on its epoll
 * threads; a handler that waits for the database or the core runs on a worker thread while the
 * connection is suspended. One table of routes (routes.def) drives dispatch and authorisation. */
#ifndef RAVEN_COORDINATOR_HTTP_HTTP_H
#define RAVEN_COORDINATOR_HTTP_HTTP_H

#include "common/base/status.h"
#include "coordinator/auth/auth.h"
#include "coordinator/core.h"
#include "coordinator/store/store.h"

#include <stdint.h>
#include <sys/socket.h>

struct http;

struct http_options {
    struct core *core;
    struct store *store;
    struct auth *auth;
    const char *web_dir;       /* built dashboard; NULL: a small built-in page says so */
    const char *artifacts_dir; /* content-addressed files live here, named by their SHA-256 */
    uint64_t artifact_bytes_max;
    const char *const
        *allowed_hosts; /* Host values accepted besides the bound address; NULL-ended */
};

enum status http_start(const struct http_options *options, struct http **ret,
                       struct error *err) MUST_CHECK;
/* After front_start, so that Host and Origin checks know the port. */
void http_set_port(struct http *http, uint16_t port);
/* Takes ownership of fd. Any thread. */
void http_add_connection(struct http *http, int fd, const struct sockaddr *address,
                         socklen_t bytes);
void http_stop(struct http *http); /* lets running requests end; NULL is fine */

/* Is this Origin our own, given the request's Host? For the dashboard's WebSocket. */
bool http_origin_is_ours(struct http *http, const char *origin, const char *host);

#endif
