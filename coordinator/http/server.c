/* Starts and stops the HTTP server and takes its connections over from the front door. Main's
 * thread; http_add_connection any thread. Its surprise: stopping first drains the workers, because
 * libmicrohttpd must not be stopped while a connection is suspended. */
#include "common/base/bytes.h"
#include "coordinator/http/dispatch.h"
#include "coordinator/http/hosts.h"
#include "coordinator/http/request.h"
#include "coordinator/http/static_files.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOPS 4u
#define WORKERS 8u
#define WORK_QUEUED_MAX 1024u
#define CONNECTIONS_MAX 2048u
#define CONNECTIONS_PER_ADDRESS_MAX 512u /* a proxy is one address */
#define INACTIVE_SECONDS_MAX 30u
#define CONNECTION_MEMORY_BYTES (64u * 1024)

static enum status copy_hosts(struct http *http, const char *const *hosts)
{
    size_t count = 0;
    while (hosts && hosts[count])
        count++;
    http->allowed_hosts = calloc(count + 1, sizeof *http->allowed_hosts);
    if (!http->allowed_hosts)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        if (!(http->allowed_hosts[i] = strdup(hosts[i])))
            return STATUS_NO_MEMORY;
    return STATUS_OK;
}

/* Without MHD_USE_ERROR_LOG libmicrohttpd prints nothing, not even what strangers send. */
static enum status start_daemon(struct http *http, struct error *err)
{
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC |
            MHD_ALLOW_SUSPEND_RESUME,
        0, NULL, NULL, dispatch_request, http, MHD_OPTION_URI_LOG_CALLBACK, dispatch_uri, http,
        MHD_OPTION_NOTIFY_COMPLETED, dispatch_completed, http, MHD_OPTION_NOTIFY_CONNECTION,
        dispatch_connection, http, MHD_OPTION_THREAD_POOL_SIZE, LOOPS, MHD_OPTION_CONNECTION_LIMIT,
        CONNECTIONS_MAX, MHD_OPTION_PER_IP_CONNECTION_LIMIT, CONNECTIONS_PER_ADDRESS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, INACTIVE_SECONDS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (!http->daemon)
        return error_set(err, STATUS_SYSTEM, "cannot start the HTTP server's threads");
    return STATUS_OK;
}

enum status http_start(const struct http_options *options, struct http **ret, struct error *err)
{
    struct http *http = calloc(1, sizeof *http);
    if (!http)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the HTTP server");
    http->core = options->core;
    http->store = options->store;
    http->auth = options->auth;
    http->artifact_bytes_max = options->artifact_bytes_max;
    pthread_mutex_init(&http->lock, NULL);
    rate_init(&http->rate);
    enum status status = copy_hosts(http, options->allowed_hosts);
    if (status)
        error_set(err, status, "no memory for the allowed hosts");
    else if (!text_copy(http->artifacts_dir, sizeof http->artifacts_dir, options->artifacts_dir))
        status = error_set(err, STATUS_TOO_LARGE, "the path of the artifacts is too long");
    if (status == STATUS_OK)
        status = static_files_load(options->web_dir, &http->files, err);
    if (status == STATUS_OK)
        status = peers_start(&http->peers, err);
    if (status == STATUS_OK)
        status = workers_start(WORKERS, WORK_QUEUED_MAX, &http->workers, err);
    if (status == STATUS_OK)
        status = start_daemon(http, err);
    if (status) {
        http_stop(http);
        return status;
    }
    *ret = http;
    return STATUS_OK;
}

void http_set_port(struct http *http, uint16_t port)
{
    atomic_store(&http->port, port);
}

void http_add_connection(struct http *http, int fd, const struct sockaddr *address, socklen_t bytes)
{
    /* On failure libmicrohttpd has closed fd: over a limit, or out of memory. */
    (void)MHD_add_connection(http->daemon, fd, address, bytes);
}

void http_stop(struct http *http)
{
    if (!http)
        return;
    atomic_store(&http->draining, true);
    if (http->workers)
        workers_drain(http->workers);
    if (http->daemon)
        MHD_stop_daemon(http->daemon);
    workers_free(http->workers);
    peers_stop(http->peers);
    static_files_free(http->files);
    for (size_t i = 0; http->allowed_hosts && http->allowed_hosts[i]; i++)
        free((char *)(uintptr_t)http->allowed_hosts[i]);
    free(http->allowed_hosts);
    for (size_t i = 0; i < INVITE_ANSWERS_KEPT; i++)
        free(http->invite_answers[i]);
    rate_done(&http->rate);
    pthread_mutex_destroy(&http->lock);
    free(http);
}

bool http_origin_is_ours(struct http *http, const char *origin, const char *host)
{
    return host_is_allowed(host, http->allowed_hosts) && origin_is_of_host(origin, host);
}
