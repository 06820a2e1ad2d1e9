/* A link on a loop of its own, a scripted peer, and a record of what the link reported, for the
 * tests of links. */
#ifndef RAVEN_TESTS_LINK_FIXTURE_H
#define RAVEN_TESTS_LINK_FIXTURE_H

#include "agent/session/link.h"

#include "common/base/clock.h"
#include "common/base/file.h"

#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <libwebsockets.h>

#include "tests/support/peer.h"
#include "tests/support/process.h"

#define PATIENCE_US 20000000
#define TEXT_BYTES_MAX 70000
#define TURN_MS 5

struct watch {
    struct link *link;
    unsigned opened, closed, heard, texts, binaries, pongs;
    uint16_t code;
    char why[400];
    char text[TEXT_BYTES_MAX];
    size_t text_bytes, binary_bytes;
    /* what to send */
    size_t send_left, send_piece;
    size_t sent;
};

static struct place {
    uv_loop_t loop;
    uv_timer_t turn;
    struct peer peer;
    struct watch watch;
    struct link *link;
    struct link_settings settings;
} place;

static inline void on_open(void *user)
{
    ((struct watch *)user)->opened++;
}

static inline void on_text(void *user, const char *text, size_t bytes)
{
    struct watch *watch = user;
    watch->texts++;
    watch->text_bytes = bytes;
    assert_true(bytes < TEXT_BYTES_MAX);
    memcpy(watch->text, text, bytes);
    watch->text[bytes] = '\0';
}

static inline void on_binary(void *user, const uint8_t *data, size_t bytes)
{
    (void)data;
    struct watch *watch = user;
    watch->binaries++;
    watch->binary_bytes += bytes;
}

static inline void on_heard(void *user)
{
    ((struct watch *)user)->heard++;
}

static inline void on_pong(void *user, int64_t round_trip_us)
{
    assert_true(round_trip_us >= 0);
    ((struct watch *)user)->pongs++;
}

static inline size_t next_binary(void *user, uint8_t *ret, size_t bytes_max)
{
    struct watch *watch = user;
    size_t bytes = watch->send_left < watch->send_piece ? watch->send_left : watch->send_piece;
    assert_true(bytes <= bytes_max);
    memset(ret, 7, bytes);
    watch->send_left -= bytes;
    watch->sent += bytes;
    return bytes;
}

static inline void on_closed(void *user, uint16_t code, const char *text)
{
    struct watch *watch = user;
    watch->closed++;
    watch->code = code;
    snprintf(watch->why, sizeof watch->why, "%s", text);
}

static const struct link_events events = {
    .open = on_open,
    .text = on_text,
    .binary = on_binary,
    .heard = on_heard,
    .pong = on_pong,
    .next_binary = next_binary,
    .closed = on_closed,
};

static inline void on_turn(uv_timer_t *timer)
{
    (void)timer; /* it only wakes the loop */
}

static inline int setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    memset(&place, 0, sizeof place);
    assert_int_equal(uv_loop_init(&place.loop), 0);
    uv_timer_init(&place.loop, &place.turn);
    uv_timer_start(&place.turn, on_turn, TURN_MS, TURN_MS);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    link_free(place.link);
    uv_close((uv_handle_t *)&place.turn, NULL);
    uv_run(&place.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&place.loop), 0);
    return 0;
}

static inline void make_link(bool tls)
{
    struct error err = {0};
    assert_int_equal(link_create(&place.loop, tls, &events, &place.watch, &place.link, &err),
                     STATUS_OK);
    link_configure(place.link, &place.settings);
}

static inline void dial_host(bool tls, const char *host, uint16_t port)
{
    if (!place.link)
        make_link(tls);
    char text[300];
    struct url url;
    snprintf(text, sizeof text, "%s://%s:%u", tls ? "https" : "http", host, port);
    assert_int_equal(url_parse(text, &url, NULL), STATUS_OK);
    memset(&place.watch, 0, offsetof(struct watch, send_left));
    link_connect(place.link, &url, "/ws/test", "test");
}

static inline void dial_peer(void)
{
    dial_host(false, "127.0.0.1", place.peer.port);
}

static inline bool run_until(const unsigned *what, unsigned value)
{
    int64_t end_us = clock_monotonic_us() + PATIENCE_US;
    while (*what < value && clock_monotonic_us() < end_us)
        uv_run(&place.loop, UV_RUN_ONCE);
    return *what >= value;
}

static inline void run_for(int64_t ms)
{
    int64_t end_us = clock_monotonic_us() + ms * 1000;
    while (clock_monotonic_us() < end_us)
        uv_run(&place.loop, UV_RUN_ONCE);
}

/* The attempt ends, once, with these words, and nothing follows. */
static inline void expect_closed(const char *words)
{
    assert_true(run_until(&place.watch.closed, 1));
    run_for(50);
    assert_int_equal(place.watch.closed, 1);
    assert_false(link_is_open(place.link));
    if (!strstr(place.watch.why, words))
        fail_msg("\"%s\" does not say \"%s\"", place.watch.why, words);
    if (strlen(place.watch.why) > 199)
        fail_msg("too long for the session: %s", place.watch.why);
    print_message("           %s\n", place.watch.why);
}

/* --- peers that behave ------------------------------------------------------------------------ */

/* Sends back what comes, answers pings and a close. */
static inline void echo_on(int in, int out, char head[4096])
{
    static uint8_t data[100000];
    size_t bytes = 0;
    int first;
    if (!peer_upgrade(in, out, head))
        return;
    while ((first = peer_read_frame(in, data, sizeof data, &bytes)) >= 0) {
        if ((first & 15) == 9)
            first = (first & ~15) | 10;
        peer_frame(out, (uint8_t)first, data, bytes);
        if ((first & 15) == 8)
            return;
    }
}

static inline void echo(struct peer *peer, int fd)
{
    echo_on(fd, fd, peer->head);
}

static inline void expect_echo(void)
{
    assert_true(run_until(&place.watch.opened, 1));
    assert_int_equal(link_send_text(place.link, "hello", 5), STATUS_OK);
    assert_true(run_until(&place.watch.texts, 1));
    assert_string_equal(place.watch.text, "hello");
}

static inline void say_404(struct peer *peer, int fd)
{
    peer_read_head(fd, peer->head);
    peer_say(fd, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

static inline void close_at_once(struct peer *peer, int fd)
{
    (void)peer, (void)fd;
}

static inline void forget_environment(void)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY",
                                        "all_proxy",  "ALL_PROXY",   "no_proxy",    "NO_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

#endif
