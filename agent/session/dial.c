/* libcurl as a dialler (CONNECT_ONLY). Started and ended on the loop's thread, works on a thread of
 * libuv's pool. Surprising decision: libwebsockets could connect by itself, but its look-up blocks
 * the loop, it tries IPv6 until its time is over where there is none, and all it says of a proxy
 * is "proxy not h1": a 407 and a 403 need different cures. libcurl does all of that well, and
 * downloads go through it too. */
#include "agent/session/dial.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_MS 20000l
#define POLL_MS 1000

struct dial {
    uv_work_t work;
    CURLM *multi;
    CURL *curl;
    struct route route;
    struct url url;
    struct proxy proxy;
    char details[CURL_ERROR_SIZE];
    bool try_tls;
    atomic_bool cancelled;
    dial_done *done; /* loop thread only; NULL when cancelled */
    void *user;
    int socket;
    struct error err;
};

static enum status prepare(struct dial *dial)
{
    char address[URL_BASE_BYTES + 16];
    /* With http the handshake is left to the WebSocket library, which needs the bare socket. */
    snprintf(address, sizeof address, "%s://%s/", dial->try_tls ? "https" : "http",
             dial->url.authority);
    enum status status =
        route_apply(&dial->route, &dial->url, dial->curl, &dial->proxy, &dial->err);
    if (status)
        return status;
    CURL *curl = dial->curl;
    if (curl_easy_setopt(curl, CURLOPT_URL, address) ||
        curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") ||
        curl_easy_setopt(curl, CURLOPT_CONNECT_ONLY, 1l) ||
        curl_easy_setopt(curl, CURLOPT_HTTPPROXYTUNNEL, 1l) ||
        curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1l) ||
        curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1l) || /* do not wait for a name server */
        curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, dial->details) ||
        curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS) ||
        curl_multi_add_handle(dial->multi, curl))
        return error_set(&dial->err, STATUS_NO_MEMORY, "no memory for the connection");
    return STATUS_OK;
}

/* CURLE_ABORTED_BY_CALLBACK stands for cancelled. */
static CURLcode wait_for_end(struct dial *dial)
{
    for (;;) {
        int running = 0, left;
        if (atomic_load(&dial->cancelled) || curl_multi_perform(dial->multi, &running))
            return CURLE_ABORTED_BY_CALLBACK;
        const CURLMsg *message = curl_multi_info_read(dial->multi, &left);
        if (message)
            return message->data.result;
        curl_multi_poll(dial->multi, NULL, 0, POLL_MS, NULL);
    }
}

static void dial_work(uv_work_t *work)
{
    struct dial *dial = work->data;
    if (prepare(dial))
        return;
    CURLcode code = wait_for_end(dial);
    curl_socket_t socket = CURL_SOCKET_BAD;
    if (code == CURLE_OK && !dial->try_tls &&
        (curl_easy_getinfo(dial->curl, CURLINFO_ACTIVESOCKET, &socket) ||
         socket == CURL_SOCKET_BAD || (dial->socket = fcntl(socket, F_DUPFD_CLOEXEC, 0)) < 0))
        error_set(&dial->err, STATUS_SYSTEM, "the connection to %s cannot be used",
                  dial->url.authority);
    else if (code != CURLE_OK)
        route_explain(dial->curl, code, dial->details, &dial->url, &dial->proxy, &dial->err);
    curl_multi_remove_handle(dial->multi, dial->curl);
}

static void dial_free(struct dial *dial)
{
    curl_easy_cleanup(dial->curl);
    if (dial->multi)
        curl_multi_cleanup(dial->multi);
    explicit_bzero(dial, sizeof *dial);
    free(dial);
}

static void dial_after(uv_work_t *work, int status)
{
    (void)status;
    struct dial *dial = work->data;
    int socket = dial->socket;
    if (!dial->done && socket >= 0)
        close(socket);
    else if (dial->done)
        dial->done(dial->user, socket, dial->err.text);
    dial_free(dial);
}

struct dial *dial_start(uv_loop_t *loop, const struct route *route, const struct url *url,
                        bool try_tls, dial_done *done, void *user)
{
    struct dial *dial = calloc(1, sizeof *dial);
    if (!dial)
        return NULL;
    dial->work.data = dial;
    dial->route = *route;
    dial->url = *url;
    dial->try_tls = try_tls;
    dial->done = done;
    dial->user = user;
    dial->socket = -1;
    dial->multi = curl_multi_init();
    dial->curl = curl_easy_init();
    if (!dial->multi || !dial->curl || uv_queue_work(loop, &dial->work, dial_work, dial_after)) {
        dial_free(dial);
        return NULL;
    }
    return dial;
}

void dial_cancel(struct dial *dial)
{
    if (!dial)
        return;
    dial->done = NULL;
    atomic_store(&dial->cancelled, true);
    curl_multi_wakeup(dial->multi);
}
