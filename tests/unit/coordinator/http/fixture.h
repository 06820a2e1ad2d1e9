/* A real HTTP server on loopback, and a client that sends raw bytes and reads whole answers. */
#ifndef RAVEN_TESTS_HTTP_FIXTURE_H
#define RAVEN_TESTS_HTTP_FIXTURE_H

#include "common/base/bytes.h"
#include "common/base/file.h"
#include "coordinator/http/http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ANSWER_BYTES_MAX (4u << 20)

struct site {
    struct http *http;
    int listener;
    uint16_t port;
};

static inline void site_open(struct site *site, const struct http_options *options)
{
    struct error err = {0};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    site->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(site->listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(site->listener, 16), 0);
    assert_int_equal(getsockname(site->listener, (struct sockaddr *)&address, &bytes), 0);
    site->port = ntohs(address.sin_port);
    if (http_start(options, &site->http, &err))
        fail_msg("%s", err.text);
    http_set_port(site->http, site->port);
}

static inline void site_close(struct site *site)
{
    http_stop(site->http);
    close(site->listener);
}

/* A connection whose server end is with libmicrohttpd. */
static inline int site_dial(struct site *site)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(site->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 20};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    int accepted =
        accept4(site->listener, (struct sockaddr *)&address, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(accepted >= 0);
    http_add_connection(site->http, accepted, (struct sockaddr *)&address, bytes);
    return fd;
}

static inline void send_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
        if (sent < 0) /* the server may hang up early; its answer says why */
            return;
        at += sent;
        bytes -= (size_t)sent;
    }
}

struct answer {
    int status; /* 0: closed without one */
    char *head; /* NUL-terminated, with the blank line */
    char *body;
    size_t body_bytes;
};

static inline void answer_done(struct answer *answer)
{
    free(answer->head);
    answer->head = answer->body = NULL;
}

/* Value of a header, or NULL; valid until the next call. */
static inline const char *answer_header(const struct answer *answer, const char *name)
{
    static char value[1024];
    char needle[64];
    snprintf(needle, sizeof needle, "\r\n%s: ", name);
    const char *at = answer->head ? strcasestr(answer->head, needle) : NULL;
    if (!at)
        return NULL;
    at += strlen(needle);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

/* Reads one answer. is_head: it has no body whatever Content-Length says. */
static inline struct answer read_answer(int fd, bool is_head)
{
    struct answer answer = {0};
    size_t bytes = 0, head_bytes = 0, want = SIZE_MAX;
    char *data = malloc(ANSWER_BYTES_MAX + 1);
    assert_non_null(data);
    while (bytes < ANSWER_BYTES_MAX && (head_bytes == 0 || bytes < want)) {
        ssize_t got = recv(fd, data + bytes, head_bytes ? want - bytes : 1, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            assert_true(errno == ECONNRESET || errno == EPIPE); /* never a time-out */
        if (got <= 0)
            break;
        bytes += (size_t)got;
        data[bytes] = 0;
        if (head_bytes == 0 && bytes >= 4 && memcmp(data + bytes - 4, "\r\n\r\n", 4) == 0) {
            answer.head = data;
            const char *length = answer_header(&answer, "Content-Length");
            head_bytes = bytes;
            want = head_bytes + (is_head || !length ? 0 : strtoul(length, NULL, 10));
            assert_true(want <= ANSWER_BYTES_MAX);
        }
    }
    data[bytes] = 0;
    if (head_bytes == 0) {
        free(data);
        answer.head = NULL;
        return answer;
    }
    assert_int_equal(sscanf(data, "HTTP/1.1 %d", &answer.status), 1);
    answer.body = data + head_bytes;
    answer.body_bytes = bytes - head_bytes;
    return answer;
}

/* Checks an answer's status and, unless NULL, that its body contains text; frees the answer. */
static inline void check_answer(struct answer answer, int status, const char *text, int line)
{
    if (answer.status != status || (text && !strstr(answer.body, text)))
        fail_msg("line %d: %d, wanted %d with %s: %s", line, answer.status, status,
                 text ? text : "anything", answer.body ? answer.body : "");
    answer_done(&answer);
}

#define expect(answer, status, text) check_answer(answer, status, text, __LINE__)

/* One request on a connection of its own. head: lines without Host and Content-Length, each with
 * its \r\n; body may be NULL. */
static inline struct answer site_ask(struct site *site, const char *method, const char *path,
                                     const char *head, const void *body, size_t body_bytes)
{
    char text[4096];
    int fd = site_dial(site);
    int length = snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n%s", method,
                          path, site->port, head);
    assert_true(length > 0 && (size_t)length < sizeof text - 64);
    if (body)
        length += snprintf(text + length, sizeof text - (size_t)length, "Content-Length: %zu\r\n",
                           body_bytes);
    length += snprintf(text + length, sizeof text - (size_t)length, "\r\n");
    send_all(fd, text, (size_t)length);
    if (body)
        send_all(fd, body, body_bytes);
    struct answer answer = read_answer(fd, strcmp(method, "HEAD") == 0);
    close(fd);
    return answer;
}

#endif
