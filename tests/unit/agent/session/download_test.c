/* Downloads against a small real HTTP server that resumes, refuses, lies and breaks off as told. */
#include "agent/session/download.h"

#include "common/base/buffer.h"
#include "common/base/checksum.h"
#include "common/base/file.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

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
    MANNER_CHUNKED,     /* no length */
    MANNER_REDIRECT,
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
    char dir[64], path[PATH_BYTES], part[PATH_BYTES], url[128];
    uint8_t sha256[SHA256_BYTES];
};

static void send_all(int fd, const void *data, size_t bytes)
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

static void send_page(int fd, const char *status, const char *more)
{
    char text[512];
    const char *page = "<html>something is wrong</html>";
    snprintf(text, sizeof text,
             "HTTP/1.1 %s\r\nContent-Type: text/html\r\n%sContent-Length: %zu\r\n\r\n%s", status,
             more, strlen(page), page);
    send_all(fd, text, strlen(text));
}

static void send_content(struct server *server, int fd, size_t from, size_t stated_from,
                         size_t body_bytes, bool partial)
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
    send_all(fd, server->content + from, body_bytes);
}

static void answer(struct server *server, int fd)
{
    size_t from = 0;
    const char *range = strstr(server->last_request, "Range: bytes=");
    if (range)
        from = strtoul(range + 13, NULL, 10);
    const char *condition = strstr(server->last_request, "If-Range: ");
    if (condition && strncmp(condition + 10, server->etag, strlen(server->etag)) != 0)
        from = 0;
    bool partial = from > 0;
    switch (server->manner) {
    case MANNER_GOOD:
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
    case MANNER_HTML_SIZED: {
        uint8_t *page = calloc(1, BYTES);
        memcpy(page, "<html>", 6);
        uint8_t *content = server->content;
        server->content = page;
        send_content(server, fd, 0, 0, BYTES, false);
        server->content = content;
        free(page);
        break;
    }
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
    case MANNER_REDIRECT:
        send_page(fd, "302 Found", "Location: /elsewhere\r\n");
        break;
    }
}

static void *serve(void *user)
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

static int setup(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    struct server *server = &place->server;
    server->content = malloc(BYTES);
    server->etag = "\"one\"";
    for (size_t i = 0; i < BYTES; i++)
        server->content[i] = (uint8_t)(i * 2654435761u >> 13);
    sha256_of(server->content, BYTES, place->sha256);
    server->fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t address_bytes = sizeof address;
    if (bind(server->fd, (struct sockaddr *)&address, sizeof address) || listen(server->fd, 8) ||
        getsockname(server->fd, (struct sockaddr *)&address, &address_bytes))
        return -1;
    server->port = ntohs(address.sin_port);
    pthread_create(&server->thread, NULL, serve, server);
    strcpy(place->dir, "/tmp/raven_download_XXXXXX");
    if (!mkdtemp(place->dir))
        return -1;
    snprintf(place->path, sizeof place->path, "%s/file", place->dir);
    snprintf(place->part, sizeof place->part, "%s/file.part", place->dir);
    snprintf(place->url, sizeof place->url, "http://127.0.0.1:%u/x", server->port);
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    struct place *place = *state;
    shutdown(place->server.fd, SHUT_RDWR);
    pthread_join(place->server.thread, NULL);
    close(place->server.fd);
    free(place->server.content);
    struct error err;
    int failed = file_remove_tree(place->dir, &err) != STATUS_OK;
    free(place);
    return failed;
}

static struct download make_download(struct place *place)
{
    return (struct download){.url = place->url,
                             .token = "rvn_test_token",
                             .path = place->path,
                             .part_path = place->part,
                             .bytes = BYTES,
                             .sha256 = place->sha256};
}

static enum status run(struct place *place, enum manner manner)
{
    place->server.manner = manner;
    struct download download = make_download(place);
    struct error err = {0};
    return download_run(&download, &err);
}

static void put_part(struct place *place, const void *data, size_t bytes)
{
    int fd = open(place->part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, data, bytes), bytes);
    close(fd);
}

static size_t part_bytes(struct place *place)
{
    int fd = open(place->part, O_RDONLY);
    if (fd < 0)
        return 0;
    off_t bytes = lseek(fd, 0, SEEK_END);
    close(fd);
    return (size_t)bytes;
}

static void expect_done(struct place *place)
{
    assert_true(download_is_complete(place->path, BYTES, place->sha256));
    assert_int_equal(access(place->part, F_OK), -1);
    assert_int_equal(unlink(place->path), 0);
}

static void test_whole(void **state)
{
    struct place *place = *state;
    assert_int_equal(run(place, MANNER_GOOD), STATUS_OK);
    assert_non_null(strstr(place->server.last_request, "Authorization: Bearer rvn_test_token\r\n"));
    assert_null(strstr(place->server.last_request, "Range:"));
    expect_done(place);
}

static void test_resume(void **state)
{
    struct place *place = *state;
    put_part(place, place->server.content, 123456);
    assert_int_equal(run(place, MANNER_GOOD), STATUS_OK);
    assert_non_null(strstr(place->server.last_request, "Range: bytes=123456-\r\n"));
    expect_done(place);
    put_part(place, place->server.content, 1000); /* a server that ignores Range */
    assert_int_equal(run(place, MANNER_NO_RANGE), STATUS_OK);
    expect_done(place);
}

/* Pain D1: a 416's text must not end up in the file, and a complete .part needs no request. */
static void test_416(void **state)
{
    struct place *place = *state;
    put_part(place, place->server.content, BYTES);
    unsigned before = place->server.requests;
    assert_int_equal(run(place, MANNER_416), STATUS_OK);
    assert_int_equal(place->server.requests, before);
    expect_done(place);
    put_part(place, place->server.content, 5000);
    assert_int_equal(run(place, MANNER_416), STATUS_TRUNCATED);
    assert_int_equal(part_bytes(place), 0); /* starts again */
    assert_int_equal(run(place, MANNER_416), STATUS_OK);
    expect_done(place);
}

static void test_error_pages(void **state)
{
    struct place *place = *state;
    static const struct {
        enum manner manner;
        enum status status;
    } cases[] = {
        {MANNER_HTML, STATUS_UNAVAILABLE},     {MANNER_500, STATUS_UNAVAILABLE},
        {MANNER_401, STATUS_DENIED},           {MANNER_CHUNKED, STATUS_CORRUPT},
        {MANNER_REDIRECT, STATUS_UNAVAILABLE},
    };
    for (size_t start = 0; start <= 7777; start += 7777) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            put_part(place, place->server.content, start);
            assert_int_equal(run(place, cases[i].manner), cases[i].status);
            assert_int_equal(access(place->path, F_OK), -1);
            assert_int_equal(part_bytes(place), start); /* untouched */
        }
    }
    assert_int_equal(run(place, MANNER_GOOD), STATUS_OK);
    expect_done(place);
}

static void test_wrong_content(void **state)
{
    struct place *place = *state;
    assert_int_equal(run(place, MANNER_HTML_SIZED), STATUS_CORRUPT);
    assert_int_equal(access(place->path, F_OK), -1);
    assert_int_equal(part_bytes(place), 0);
    put_part(place, place->server.content + 1, 40000); /* a .part file of something else */
    assert_int_equal(run(place, MANNER_GOOD), STATUS_CORRUPT);
    assert_int_equal(run(place, MANNER_GOOD), STATUS_OK);
    expect_done(place);
    put_part(place, place->server.content, 40000);
    assert_int_equal(run(place, MANNER_WRONG_RANGE), STATUS_CORRUPT);
    assert_int_equal(access(place->path, F_OK), -1);
    uint8_t *longer = calloc(1, BYTES + 9);
    put_part(place, longer, BYTES + 9);
    free(longer);
    assert_int_equal(run(place, MANNER_GOOD), STATUS_OK);
    expect_done(place);
}

/* Every attempt gets half of the rest: the bytes that came are never asked for again. */
static void test_truncated(void **state)
{
    struct place *place = *state;
    size_t have = 0;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(run(place, MANNER_TRUNCATED), STATUS_TRUNCATED);
        assert_int_equal(access(place->path, F_OK), -1);
        assert_true(part_bytes(place) > have);
        have = part_bytes(place);
    }
    assert_int_equal(run(place, MANNER_GOOD), STATUS_OK);
    expect_done(place);
}

/* A replica changes on the server: a half file of the old one is not continued with the new one. */
static void test_etag(void **state)
{
    struct place *place = *state;
    char etag[DOWNLOAD_ETAG_BYTES] = "";
    struct download download = make_download(place);
    download.sha256 = NULL;
    download.etag = &etag;
    struct error err = {0};
    put_part(place, "left over", 9); /* of unknown content: not used */
    place->server.manner = MANNER_TRUNCATED;
    assert_int_equal(download_run(&download, &err), STATUS_TRUNCATED);
    assert_null(strstr(place->server.last_request, "Range:"));
    assert_string_equal(etag, "\"one\"");
    place->server.content[0] ^= 1;
    sha256_of(place->server.content, BYTES, place->sha256);
    place->server.etag = "\"two\"";
    place->server.manner = MANNER_GOOD;
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    assert_non_null(strstr(place->server.last_request, "If-Range: \"one\""));
    assert_string_equal(etag, "\"two\"");
    expect_done(place);
}

struct watch {
    bool cancel;
    uint64_t last;
    bool wrong;
};

static void on_progress(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    struct watch *watch = user;
    watch->wrong |= done_bytes > total_bytes || done_bytes < watch->last;
    watch->last = done_bytes;
}

static bool is_cancelled(void *user)
{
    return ((struct watch *)user)->cancel;
}

/* Pain D3: progress stays within 0 … 100 %, also with a resume; a removed cache is fetched again.
 */
static void test_progress_and_cancel(void **state)
{
    struct place *place = *state;
    struct watch watch = {.cancel = true};
    struct download download = make_download(place);
    download.progress = on_progress;
    download.is_cancelled = is_cancelled;
    download.user = &watch;
    struct error err = {0};
    place->server.manner = MANNER_GOOD;
    assert_int_equal(download_run(&download, &err), STATUS_CLOSED);
    assert_int_equal(access(place->path, F_OK), -1);
    watch.cancel = false;
    put_part(place, place->server.content, 200000);
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    assert_false(watch.wrong);
    assert_int_equal(watch.last, BYTES);
    expect_done(place); /* removes it */
    watch.last = 0;
    assert_int_equal(download_run(&download, &err), STATUS_OK);
    assert_false(watch.wrong);
    expect_done(place);
}

static void test_nobody_listens(void **state)
{
    struct place *place = *state;
    struct download download = make_download(place);
    struct error err = {0};
    download.url = "http://127.0.0.1:1/x";
    assert_int_equal(download_run(&download, &err), STATUS_UNAVAILABLE);
    download.url = "file:///etc/passwd";
    assert_int_not_equal(download_run(&download, &err), STATUS_OK);
    assert_int_equal(access(place->path, F_OK), -1);
}

int main(void)
{
    unsetenv("http_proxy");
    unsetenv("HTTP_PROXY");
    unsetenv("all_proxy");
    unsetenv("ALL_PROXY");
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_whole),
        TEST(test_resume),
        TEST(test_416),
        TEST(test_error_pages),
        TEST(test_wrong_content),
        TEST(test_truncated),
        TEST(test_etag),
        TEST(test_progress_and_cancel),
        TEST(test_nobody_listens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
