/* A small HTTP server with one file of BYTES bytes, which it hands out in many a manner, and a
 * folder to download it to, for the tests of downloads. Include after cmocka.h. */
#ifndef RAVEN_TESTS_SUPPORT_FILE_SERVER_H
#define RAVEN_TESTS_SUPPORT_FILE_SERVER_H

#include "agent/session/download.h"
#include "common/base/checksum.h"
#include "common/base/file.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SERVER_UNUSED __attribute__((unused))

#define BYTES 300000u

enum manner {
    MANNER_GOOD,       /* 200, or 206 for a range */
    MANNER_NO_RANGE,   /* always 200 with everything */
    MANNER_416,        /* refuses every range */
    MANNER_HTML,       /* 200 with a web page (a captive portal) */
    MANNER_HTML_SIZED, /* the same, padded to the right length, typed as binary */
    MANNER_500,        /* an error page */
    MANNER_401,
    MANNER_TRUNCATED,   /* right head, half the body */
    MANNER_WRONG_RANGE, /* 206 from another offset */
    MANNER_WRONG_ETAG,  /* 206 of whatever it has, ignoring If-Range */
    MANNER_CHUNKED,     /* no length */
    MANNER_REDIRECT,
    MANNER_407,
    MANNER_STALLED, /* right head, half the body, then silence */
    MANNER_DAMAGED, /* one bit is wrong */
    MANNER_LONGER,  /* of another size */
};

struct server {
    int fd;
    uint16_t port;
    pthread_t thread;
    uint8_t *content;
    enum manner manner;
    const char *etag;
    unsigned requests;
    char last_request[4096];
};

struct place {
    struct server server;
    struct server mirrors[2];
    struct download_source sources[3];
    char urls[2][128];
    char dir[64], path[PATH_BYTES], part[PATH_BYTES], url[128];
    uint8_t sha256[SHA256_BYTES];
};

static SERVER_UNUSED void send_all(int fd, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    while (bytes > 0) {
        ssize_t sent = send(fd, p, bytes, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        p += sent;
        bytes -= (size_t)sent;
    }
}

static SERVER_UNUSED void send_page(int fd, const char *status, const char *more)
{
    char text[512];
    const char *page = "<html>something is wrong</html>";
    snprintf(text, sizeof text,
             "HTTP/1.1 %s\r\nContent-Type: text/html\r\n%sContent-Length: %zu\r\n\r\n%s", status,
             more, strlen(page), page);
    send_all(fd, text, strlen(text));
}

static SERVER_UNUSED void send_bytes(const struct server *server, int fd, const uint8_t *content,
                                     size_t from, size_t stated_from, size_t body_bytes,
                                     bool partial)
{
    char head[512], range[128] = "";
    if (partial)
        snprintf(range, sizeof range, "Content-Range: bytes %zu-%u/%u\r\n", stated_from, BYTES - 1,
                 BYTES);
    snprintf(head, sizeof head,
             "HTTP/1.1 %s\r\nContent-Type: application/octet-stream\r\nETag: %s\r\n%s"
             "Content-Length: %zu\r\n\r\n",
             partial ? "206 Partial Content" : "200 OK", server->etag, range, BYTES - from);
    send_all(fd, head, strlen(head));
    send_all(fd, content + from, body_bytes);
}

static SERVER_UNUSED void send_content(const struct server *server, int fd, size_t from,
                                       size_t stated_from, size_t body_bytes, bool partial)
{
    send_bytes(server, fd, server->content, from, stated_from, body_bytes, partial);
}

static SERVER_UNUSED size_t asked_from(const struct server *server, const char *range)
{
    const char *condition = strstr(server->last_request, "If-Range: ");
    if (server->manner == MANNER_WRONG_ETAG)
        condition = NULL;
    if (!range || (condition && strncmp(condition + 10, server->etag, strlen(server->etag)) != 0))
        return 0;
    return strtoul(range + 13, NULL, 10);
}

static SERVER_UNUSED void send_page_of_that_size(struct server *server, int fd)
{
    uint8_t *page = calloc(1, BYTES);
    memcpy(page, "<html>", 6);
    send_bytes(server, fd, page, 0, 0, BYTES, false);
    free(page);
}

static SERVER_UNUSED void answer(struct server *server, int fd)
{
    const char *range = strstr(server->last_request, "Range: bytes=");
    size_t from = asked_from(server, range);
    bool partial = from > 0;
    switch (server->manner) {
    case MANNER_GOOD:
    case MANNER_WRONG_ETAG:
        if (from >= BYTES)
            send_page(fd, "416 Range Not Satisfiable", "");
        else
            send_content(server, fd, from, from, BYTES - from, partial);
        break;
    case MANNER_NO_RANGE:
        send_content(server, fd, 0, 0, BYTES, false);
        break;
    case MANNER_416:
        if (range)
            send_page(fd, "416 Range Not Satisfiable", "");
        else
            send_content(server, fd, 0, 0, BYTES, false);
        break;
    case MANNER_HTML:
        send_page(fd, "200 OK", "");
        break;
    case MANNER_HTML_SIZED:
        send_page_of_that_size(server, fd);
        break;
    case MANNER_500:
        send_page(fd, "500 Internal Server Error", "");
        break;
    case MANNER_401:
        send_page(fd, "401 Unauthorized", "");
        break;
    case MANNER_TRUNCATED:
        send_content(server, fd, from, from, (BYTES - from) / 2, partial);
        break;
    case MANNER_WRONG_RANGE:
        send_content(server, fd, from, from > 0 ? from - 1 : 0, BYTES - from, partial);
        break;
    case MANNER_CHUNKED: {
        const char *text =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        send_all(fd, text, strlen(text));
        break;
    }
    case MANNER_407:
        send_page(fd, "407 Proxy Authentication Required", "");
        break;
    case MANNER_STALLED: {
        char rest[64];
        send_content(server, fd, from, from, (BYTES - from) / 2, partial);
        while (recv(fd, rest, sizeof rest, 0) > 0)
            ;
        break;
    }
    case MANNER_DAMAGED:
        server->content[BYTES - 5] ^= 4;
        send_content(server, fd, from, from, BYTES - from, partial);
        server->content[BYTES - 5] ^= 4;
        break;
    case MANNER_LONGER:
        send_all(fd, "HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n", 43);
        break;
    case MANNER_REDIRECT:
        send_page(fd, "302 Found", "Location: /elsewhere\r\n");
        break;
    }
}

static SERVER_UNUSED void *serve(void *user)
{
    struct server *server = user;
    int fd;
    while ((fd = accept(server->fd, NULL, NULL)) >= 0) {
        size_t bytes = 0;
        ssize_t got;
        server->last_request[0] = '\0';
        while (!strstr(server->last_request, "\r\n\r\n") &&
               bytes < sizeof server->last_request - 1 &&
               (got = recv(fd, server->last_request + bytes,
                           sizeof server->last_request - 1 - bytes, 0)) > 0) {
            bytes += (size_t)got;
            server->last_request[bytes] = '\0';
        }
        server->requests++;
        answer(server, fd);
        shutdown(fd, SHUT_WR);
        char rest[256];
        while (recv(fd, rest, sizeof rest, 0) > 0)
            ;
        close(fd);
    }
    return NULL;
}

static SERVER_UNUSED int start_server(struct server *server)
{
    server->content = malloc(BYTES);
    server->etag = "\"one\"";
    for (size_t i = 0; i < BYTES; i++)
        server->content[i] = (uint8_t)(i * 2654435761u >> 13);
    server->fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t address_bytes = sizeof address;
    if (bind(server->fd, (struct sockaddr *)&address, sizeof address) || listen(server->fd, 8) ||
        getsockname(server->fd, (struct sockaddr *)&address, &address_bytes))
        return -1;
    server->port = ntohs(address.sin_port);
    return pthread_create(&server->thread, NULL, serve, server);
}

static SERVER_UNUSED void stop_server(struct server *server)
{
    shutdown(server->fd, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->fd);
    free(server->content);
}

static SERVER_UNUSED int setup(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    struct server *server = &place->server;
    if (start_server(server))
        return -1;
    sha256_of(server->content, BYTES, place->sha256);
    strcpy(place->dir, "/tmp/raven_download_XXXXXX");
    if (!mkdtemp(place->dir))
        return -1;
    snprintf(place->path, sizeof place->path, "%s/file", place->dir);
    snprintf(place->part, sizeof place->part, "%s/file.part", place->dir);
    snprintf(place->url, sizeof place->url, "http://127.0.0.1:%u/x", server->port);
    *state = place;
    return 0;
}

static SERVER_UNUSED int teardown(void **state)
{
    struct place *place = *state;
    stop_server(&place->server);
    struct error err;
    int failed = file_remove_tree(place->dir, &err) != STATUS_OK;
    free(place);
    return failed;
}

static SERVER_UNUSED struct download make_download(struct place *place)
{
    place->sources[0] = (struct download_source){place->url, "rvn_test_token"};
    return (struct download){.sources = place->sources,
                             .source_count = 1,
                             .path = place->path,
                             .part_path = place->part,
                             .bytes = BYTES,
                             .sha256 = place->sha256};
}

static SERVER_UNUSED enum status run(struct place *place, enum manner manner)
{
    place->server.manner = manner;
    struct download download = make_download(place);
    struct error err = {0};
    return download_run(&download, &err);
}

static SERVER_UNUSED void put_part(struct place *place, const void *data, size_t bytes)
{
    int fd = open(place->part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, data, bytes), bytes);
    close(fd);
}

static SERVER_UNUSED size_t part_bytes(struct place *place)
{
    int fd = open(place->part, O_RDONLY);
    if (fd < 0)
        return 0;
    off_t bytes = lseek(fd, 0, SEEK_END);
    close(fd);
    return (size_t)bytes;
}

static SERVER_UNUSED void expect_done(struct place *place)
{
    assert_true(download_is_complete(place->path, BYTES, place->sha256));
    assert_int_equal(access(place->part, F_OK), -1);
    assert_int_equal(unlink(place->path), 0);
}

struct watch {
    bool cancel;
    uint64_t last;
    bool wrong;
};

static SERVER_UNUSED void on_progress(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    struct watch *watch = user;
    watch->wrong |= done_bytes > total_bytes || done_bytes < watch->last;
    watch->last = done_bytes;
}

static SERVER_UNUSED bool is_cancelled(void *user)
{
    return ((struct watch *)user)->cancel;
}

static SERVER_UNUSED void forget_environment(void)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY",
                                        "all_proxy",  "ALL_PROXY",   "no_proxy",    "NO_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

#endif
