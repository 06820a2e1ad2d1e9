/* The link against peers that behave, lie, break off, fall silent, and proxies and certificates of
 * every kind: each attempt ends in exactly one event with words a person understands. */
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

static void on_open(void *user)
{
    ((struct watch *)user)->opened++;
}

static void on_text(void *user, const char *text, size_t bytes)
{
    struct watch *watch = user;
    watch->texts++;
    watch->text_bytes = bytes;
    assert_true(bytes < TEXT_BYTES_MAX);
    memcpy(watch->text, text, bytes);
    watch->text[bytes] = '\0';
}

static void on_binary(void *user, const uint8_t *data, size_t bytes)
{
    (void)data;
    struct watch *watch = user;
    watch->binaries++;
    watch->binary_bytes += bytes;
}

static void on_heard(void *user)
{
    ((struct watch *)user)->heard++;
}

static void on_pong(void *user, int64_t round_trip_us)
{
    assert_true(round_trip_us >= 0);
    ((struct watch *)user)->pongs++;
}

static size_t next_binary(void *user, uint8_t *ret, size_t bytes_max)
{
    struct watch *watch = user;
    size_t bytes = watch->send_left < watch->send_piece ? watch->send_left : watch->send_piece;
    assert_true(bytes <= bytes_max);
    memset(ret, 7, bytes);
    watch->send_left -= bytes;
    watch->sent += bytes;
    return bytes;
}

static void on_closed(void *user, uint16_t code, const char *text)
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

static void on_turn(uv_timer_t *timer)
{
    (void)timer; /* it only wakes the loop */
}

static int setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    memset(&place, 0, sizeof place);
    assert_int_equal(uv_loop_init(&place.loop), 0);
    uv_timer_init(&place.loop, &place.turn);
    uv_timer_start(&place.turn, on_turn, TURN_MS, TURN_MS);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    link_free(place.link);
    uv_close((uv_handle_t *)&place.turn, NULL);
    uv_run(&place.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&place.loop), 0);
    return 0;
}

static void make_link(bool tls)
{
    struct error err = {0};
    assert_int_equal(link_create(&place.loop, tls, &events, &place.watch, &place.link, &err),
                     STATUS_OK);
    link_configure(place.link, &place.settings);
}

static void dial_host(bool tls, const char *host, uint16_t port)
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

static void dial_peer(void)
{
    dial_host(false, "127.0.0.1", place.peer.port);
}

static bool run_until(const unsigned *what, unsigned value)
{
    int64_t end_us = clock_monotonic_us() + PATIENCE_US;
    while (*what < value && clock_monotonic_us() < end_us)
        uv_run(&place.loop, UV_RUN_ONCE);
    return *what >= value;
}

static void run_for(int64_t ms)
{
    int64_t end_us = clock_monotonic_us() + ms * 1000;
    while (clock_monotonic_us() < end_us)
        uv_run(&place.loop, UV_RUN_ONCE);
}

/* The attempt ends, once, with these words, and nothing follows. */
static void expect_closed(const char *words)
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
static void echo_on(int in, int out, char head[4096])
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

static void echo(struct peer *peer, int fd)
{
    echo_on(fd, fd, peer->head);
}

static void expect_echo(void)
{
    assert_true(run_until(&place.watch.opened, 1));
    assert_int_equal(link_send_text(place.link, "hello", 5), STATUS_OK);
    assert_true(run_until(&place.watch.texts, 1));
    assert_string_equal(place.watch.text, "hello");
}

static void test_echo(void **state)
{
    (void)state;
    peer_start(&place.peer, echo);
    dial_peer();
    expect_echo();
    place.watch.send_left = 200000;
    place.watch.send_piece = 50000;
    link_wake(place.link);
    link_ping(place.link);
    assert_true(run_until(&place.watch.binaries, 4));
    assert_int_equal(place.watch.binary_bytes, 200000);
    assert_true(run_until(&place.watch.pongs, 1));
    link_close(place.link, 4000);
    assert_true(run_until(&place.watch.closed, 1));
    assert_int_equal(place.watch.code, 4000);
    for (int i = 0; i < 20; i++) { /* and again, dropping it each time */
        dial_peer();
        assert_true(run_until(&place.watch.opened, 1));
        link_drop(place.link);
        assert_int_equal(link_bytes_unacked(place.link), 0);
    }
    run_for(100); /* until the library has ended the leftovers */
    assert_int_equal(place.watch.closed, 0);
    link_free(place.link);
    place.link = NULL;
    peer_stop(&place.peer);
    assert_non_null(strstr(place.peer.head, "GET /ws/test HTTP/1.1\r\n"));
    char host[64];
    snprintf(host, sizeof host, "Host: 127.0.0.1:%u\r\n", place.peer.port);
    assert_non_null(strcasestr(place.peer.head, host));
}

/* The options on the socket itself: found by its peer address among this process's descriptors. */
static int client_socket(void)
{
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in address;
        socklen_t bytes = sizeof address;
        if (getpeername(fd, (struct sockaddr *)&address, &bytes) == 0 &&
            address.sin_family == AF_INET && ntohs(address.sin_port) == place.peer.port)
            return fd;
    }
    return -1;
}

static void test_socket_options(void **state)
{
    (void)state;
    peer_start(&place.peer, echo);
    make_link(false);
    link_pace(place.link, 1);
    dial_peer();
    expect_echo();
    int fd = client_socket(), value = 0;
    socklen_t bytes = sizeof value;
    assert_true(fd >= 0);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &bytes), 0);
    assert_int_equal(value, 1);
    static const struct {
        uint64_t rate;
        int unsent;
    } cases[] = {{1, 4096}, {1000000, 50000}, {1u << 30, 131072}};
    for (size_t i = 0; i < 3; i++) {
        if (i > 0)
            link_pace(place.link, cases[i].rate);
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &value, &bytes), 0);
        assert_int_equal(value, cases[i].unsent);
    }
    char name[32] = "";
    socklen_t name_bytes = sizeof name - 1;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &name_bytes), 0);
    print_message("           congestion control: %s\n", name);
    link_drop(place.link);
    run_for(100);
    peer_stop(&place.peer);
}

/* 400 kB at 200 kB/s; a text sent in the middle comes back at once. */
static void test_upload_cap(void **state)
{
    (void)state;
    place.settings.upload_bytes_per_s_max = 200000;
    peer_start(&place.peer, echo);
    dial_peer();
    expect_echo();
    int64_t start_us = clock_monotonic_us();
    place.watch.send_left = 400000;
    place.watch.send_piece = 20000;
    link_wake(place.link);
    run_for(500);
    unsigned texts = place.watch.texts;
    int64_t asked_us = clock_monotonic_us();
    assert_int_equal(link_send_text(place.link, "quick", 5), STATUS_OK);
    assert_true(run_until(&place.watch.texts, texts + 1));
    assert_true(clock_monotonic_us() - asked_us < 150000);
    assert_true(run_until(&place.watch.binaries, 20));
    double seconds = (double)(clock_monotonic_us() - start_us) / 1e6;
    print_message("           %.0f kB/s\n", 400.0 / seconds);
    assert_true(seconds > 1.6 && seconds < 3.0);
    link_drop(place.link);
    run_for(100);
    peer_stop(&place.peer);
}

static atomic_bool may_read;

static void read_late(struct peer *peer, int fd)
{
    if (!peer_upgrade(fd, fd, peer->head))
        return;
    while (!atomic_load(&may_read))
        usleep(5000);
    peer_wait_for_end(fd);
}

/* Nothing is asked of the owner that the peer does not take, and the rest is known. */
static void test_slow_reader(void **state)
{
    (void)state;
    atomic_store(&may_read, false);
    peer_start(&place.peer, read_late);
    dial_peer();
    assert_true(run_until(&place.watch.opened, 1));
    assert_int_equal(link_bytes_unacked(place.link), 0);
    place.watch.send_left = 64u << 20;
    place.watch.send_piece = 60000;
    link_wake(place.link);
    run_for(500);
    size_t sent = place.watch.sent;
    assert_true(sent > 0 && place.watch.send_left > 0);
    assert_true(link_bytes_unacked(place.link) > 0);
    run_for(200);
    assert_int_equal(place.watch.sent, sent);
    atomic_store(&may_read, true);
    run_for(200);
    assert_true(place.watch.sent > sent);
    link_drop(place.link);
    run_for(50);
    peer_stop(&place.peer);
}

/* --- peers that do not ------------------------------------------------------------------------ */

static void say_502(struct peer *peer, int fd)
{
    peer_read_head(fd, peer->head);
    peer_say(fd, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nno!");
    peer_wait_for_end(fd);
}

static void say_404(struct peer *peer, int fd)
{
    peer_read_head(fd, peer->head);
    peer_say(fd, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

static void redirect(struct peer *peer, int fd)
{
    peer_read_head(fd, peer->head);
    peer_say(fd, "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/x\r\n"
                 "Content-Length: 0\r\n\r\n");
    peer_wait_for_end(fd);
}

static void portal(struct peer *peer, int fd)
{
    peer_read_head(fd, peer->head);
    peer_say(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 11\r\n\r\n"
                 "<html>login");
    peer_wait_for_end(fd);
}

static void close_at_once(struct peer *peer, int fd)
{
    (void)peer, (void)fd;
}

static void close_after_request(struct peer *peer, int fd)
{
    peer_read_head(fd, peer->head);
}

static void reset_at_once(struct peer *peer, int fd)
{
    (void)peer;
    peer_arm_reset(fd);
}

static void reset_after_request(struct peer *peer, int fd)
{
    peer_read_head(fd, peer->head);
    peer_arm_reset(fd);
}

static void garbage(struct peer *peer, int fd)
{
    (void)peer;
    char noise[8192];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)(i * 2654435761u >> 7);
    peer_send(fd, noise, sizeof noise);
    peer_wait_for_end(fd);
}

static void half_an_answer(struct peer *peer, int fd)
{
    peer_read_head(fd, peer->head);
    peer_say(fd, "HTTP/1.1 101 Switching Proto");
}

static void wrong_accept(struct peer *peer, int fd)
{
    peer_read_head(fd, peer->head);
    peer_say(fd, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                 "Connection: Upgrade\r\nSec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n"
                 "Sec-WebSocket-Protocol: test\r\n\r\n");
    peer_wait_for_end(fd);
}

static void say_nothing(struct peer *peer, int fd)
{
    (void)peer;
    peer_wait_for_end(fd);
}

static void expect_refusal(void (*script)(struct peer *, int), const char *words)
{
    place.settings.opening_ms = 2000;
    peer_start(&place.peer, script);
    dial_peer();
    expect_closed(words);
    assert_int_equal(place.watch.opened, 0);
    run_for(50); /* the library lets go */
    peer_stop(&place.peer);
}

static void pain_A9_every_refusal_ends_in_words(void **state)
{
    (void)state;
    static const struct {
        void (*script)(struct peer *, int);
        const char *words;
    } cases[] = {
        {say_502, "answers 502: the coordinator behind it is not running"},
        {say_404, "answers 404 instead of opening a session"},
        {redirect, "answers 302 instead"},
        {portal, "answers 200 instead"},
        {close_at_once, "closed the connection before a session was open"},
        {close_after_request, "closed the connection before"},
        {reset_at_once, "127.0.0.1:"}, /* the dialler may see it first */
        {reset_after_request, "closed the connection before"},
        {garbage, "is not HTTP"},
        {peer_mail_server, "127.0.0.1:"},
        {half_an_answer, "closed the connection before"},
        {wrong_accept, "not as a RAVEN coordinator"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refusal(cases[i].script, cases[i].words);
    dial_host(false, "127.0.0.1", peer_dead_port());
    expect_closed("cannot reach 127.0.0.1:");
    dial_host(false, "no-such-host.invalid", 80);
    expect_closed("no address is known for the host name no-such-host.invalid");
}

static void pain_A21_a_peer_that_says_nothing_is_given_up(void **state)
{
    (void)state;
    expect_refusal(say_nothing, "took the connection but then did not answer");
}

/* --- peers that end a session ----------------------------------------------------------------- */

#define FRAGMENT_BYTES 600

/* 50 of 100 fragments, then a close with a reason, all in one piece. */
static void close_in_message(struct peer *peer, int fd)
{
    if (!peer_upgrade(fd, fd, peer->head))
        return;
    static uint8_t all[60 * FRAGMENT_BYTES];
    size_t bytes = 0;
    for (int i = 0; i < 50; i++) {
        all[bytes] = i == 0 ? 2 : 0;
        all[bytes + 1] = 126;
        all[bytes + 2] = FRAGMENT_BYTES >> 8;
        all[bytes + 3] = FRAGMENT_BYTES & 255;
        bytes += 4 + FRAGMENT_BYTES;
    }
    static const char reason[] = "maintenance\n<b>\xff";
    all[bytes++] = 0x88;
    all[bytes++] = 2 + sizeof reason - 1;
    all[bytes++] = 4007 >> 8;
    all[bytes++] = 4007 & 255;
    memcpy(all + bytes, reason, sizeof reason - 1);
    bytes += sizeof reason - 1;
    peer_send(fd, all, bytes);
    peer_wait_for_end(fd);
}

static void whole_in_fragments(struct peer *peer, int fd)
{
    static uint8_t data[FRAGMENT_BYTES];
    if (!peer_upgrade(fd, fd, peer->head))
        return;
    memset(data, 'a', sizeof data);
    for (int i = 0; i < 100; i++) {
        peer_frame(fd, (uint8_t)((i == 0 ? 1 : 0) | (i == 99 ? 0x80 : 0)), data, sizeof data);
        if (i == 50)
            peer_frame(fd, 0x89, "ping", 4);
    }
    peer_frame(fd, 0x88, "\x03\xe9", 2);
    peer_wait_for_end(fd);
}

static void too_large(struct peer *peer, int fd)
{
    static uint8_t data[60000];
    if (!peer_upgrade(fd, fd, peer->head))
        return;
    for (int i = 0; i < 3; i++)
        peer_frame(fd, i == 0 ? 2 : 0, data, sizeof data);
    peer_wait_for_end(fd);
}

static void reset_in_message(struct peer *peer, int fd)
{
    static uint8_t data[1000];
    if (!peer_upgrade(fd, fd, peer->head))
        return;
    peer_frame(fd, 2, data, sizeof data);
    usleep(100000);
    peer_arm_reset(fd);
}

static void masked_garbage(struct peer *peer, int fd)
{
    if (!peer_upgrade(fd, fd, peer->head))
        return;
    uint8_t noise[512];
    memset(noise, 0xff, sizeof noise);
    peer_send(fd, noise, sizeof noise);
    peer_wait_for_end(fd);
}

/* A compressed message, though nobody offered or agreed to compress. */
static void compressed(struct peer *peer, int fd)
{
    if (!peer_upgrade(fd, fd, peer->head))
        return;
    peer_frame(fd, 0xc2, "\xca\x48\xcd\xc9\xc9\x07\x00", 7);
    peer_wait_for_end(fd);
}

static void expect_end(void (*script)(struct peer *, int), uint16_t code, const char *words)
{
    peer_start(&place.peer, script);
    dial_peer();
    expect_closed(words);
    assert_int_equal(place.watch.opened, 1);
    assert_int_equal(place.watch.code, code);
    run_for(50);
    peer_stop(&place.peer);
}

static void pain_E3_close_in_the_middle_of_a_message(void **state)
{
    (void)state;
    expect_end(close_in_message, 4007, "maintenance?<b>?");
    assert_int_equal(place.watch.binaries, 0);
}

static void pain_E9_compression_is_neither_offered_nor_taken(void **state)
{
    (void)state;
    expect_end(compressed, LINK_CLOSE_NONE, "the connection broke");
    assert_int_equal(place.watch.binaries, 0);
    assert_null(strcasestr(place.peer.head, "Sec-WebSocket-Extensions"));
}

static void test_endings(void **state)
{
    (void)state;
    expect_end(whole_in_fragments, 1001, "closed the connection (1001)");
    assert_int_equal(place.watch.texts, 1);
    assert_int_equal(place.watch.text_bytes, 100 * FRAGMENT_BYTES);
    expect_end(too_large, LINK_CLOSE_NONE, "a message was larger than");
    expect_end(reset_in_message, LINK_CLOSE_NONE, "the connection broke");
    expect_end(masked_garbage, LINK_CLOSE_NONE, "the connection broke");
}

/* --- proxies ---------------------------------------------------------------------------------- */

static void forget_environment(void)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY",
                                        "all_proxy",  "ALL_PROXY",   "no_proxy",    "NO_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

static void expect_no_secret(void)
{
    assert_null(strstr(place.watch.why, "s3cret"));
    assert_null(strstr(place.watch.why, "anna"));
}

static void pain_E13_proxies(void **state)
{
    (void)state;
    struct peer proxy;
    peer_start(&place.peer, echo);
    peer_start(&proxy, peer_proxy);
    char text[128];
    proxy.wanted = "Basic YW5uYTpzM2NyZXQ6"; /* anna:s3cret: */
    snprintf(text, sizeof text, "http://anna:s3cret%%3a@127.0.0.1:%u", proxy.port);
    setenv("http_proxy", text, 1);
    dial_peer();
    expect_echo();
    assert_int_equal(proxy.connections, 1);
    assert_non_null(strstr(proxy.head, "CONNECT 127.0.0.1:"));
    link_drop(place.link);
    run_for(100);

    setenv("no_proxy", "example.org, 127.0.0.0/8", 1);
    dial_peer();
    expect_echo();
    assert_int_equal(proxy.connections, 1);
    link_drop(place.link);
    run_for(100);
    unsetenv("no_proxy");

    proxy.wanted = "Basic xyz";
    dial_peer();
    expect_closed("does not accept the user name and password it was given (407)");
    expect_no_secret();
    snprintf(text, sizeof text, "127.0.0.1:%u", proxy.port);
    setenv("http_proxy", text, 1);
    dial_peer();
    expect_closed("wants a user name and password (407)");
    proxy.wanted = NULL;
    dial_host(false, "127.0.0.1", peer_dead_port());
    expect_closed("refuses this connection (502)");
    peer_stop(&proxy);
    dial_peer();
    expect_closed("cannot reach the proxy 127.0.0.1:");
    peer_start(&proxy, peer_forbid);
    snprintf(text, sizeof text, "http://127.0.0.1:%u", proxy.port);
    setenv("all_proxy", text, 1);
    unsetenv("http_proxy");
    dial_peer();
    expect_closed("refuses this connection (403); ask who runs it");
    setenv("all_proxy", "http://anna:s3cret@no-such-host.invalid:3128", 1);
    dial_peer();
    expect_closed("no address is known for the proxy no-such-host.invalid:3128");
    expect_no_secret();
    setenv("all_proxy", "ftp://anna:s3cret@a:1", 1);
    dial_peer();
    expect_closed("all_proxy: the proxy's scheme is not known");
    expect_no_secret();
    forget_environment();
    peer_stop(&proxy);
    peer_stop(&place.peer);
}

/* --- TLS -------------------------------------------------------------------------------------- */

static void expect_tls(const char *dir, const char *certificate, const char *host,
                       const char *words)
{
    struct peer_tls tls;
    peer_tls_start(&tls, dir, certificate, "-quiet");
    dial_host(true, host, tls.port);
    expect_closed(words);
    peer_tls_stop(&tls);
}

struct tls_echo {
    struct peer_tls *tls;
    char head[4096];
};

static void *tls_echo_thread(void *user)
{
    struct tls_echo *echo_state = user;
    echo_on(echo_state->tls->in, echo_state->tls->out, echo_state->head);
    return NULL;
}

static void pain_E15_each_wrong_certificate_in_its_own_words(void **state)
{
    (void)state;
    char dir[] = "/tmp/raven_link_XXXXXX";
    assert_non_null(mkdtemp(dir));
    peer_make_certificate(dir, "good", "localhost", -2, 30);
    peer_make_certificate(dir, "old", "localhost", -30, -2);
    peer_make_certificate(dir, "new", "localhost", 700, 800);
    peer_make_certificate(dir, "other", "other.example", -2, 30);

    expect_tls(dir, "good", "localhost", "no authority that this PC knows signed");
    link_free(place.link);
    place.link = NULL;
    snprintf(place.settings.route.ca_file, sizeof place.settings.route.ca_file, "%s/ca.pem", dir);
    expect_tls(dir, "old", "localhost", "has expired");
    expect_tls(dir, "new", "localhost", "is not valid yet: set this PC's clock");
    expect_tls(dir, "other", "localhost", "is for another host name");
    peer_start(&place.peer, peer_mail_server);
    dial_host(true, "localhost", place.peer.port);
    expect_closed("does not speak TLS: is http:// meant");
    peer_stop(&place.peer);
    peer_start(&place.peer, close_at_once);
    dial_host(true, "localhost", place.peer.port);
    expect_closed("closed the connection during the TLS handshake");
    peer_stop(&place.peer);
    dial_host(true, "[::1]", 443);
    expect_closed("a host name is needed, not an IPv6 address");

    struct peer_tls tls;
    peer_tls_start(&tls, dir, "good", "-quiet");
    struct tls_echo echo_state = {.tls = &tls};
    pthread_t thread;
    pthread_create(&thread, NULL, tls_echo_thread, &echo_state);
    dial_host(true, "localhost", tls.port);
    expect_echo();
    link_close(place.link, 4000);
    assert_true(run_until(&place.watch.closed, 1));
    kill(tls.pid, SIGKILL); /* which ends the thread */
    pthread_join(thread, NULL);
    peer_tls_stop(&tls);
    struct error err;
    assert_int_equal(file_remove_tree(dir, &err), STATUS_OK);
}

static void test_bad_ca_file(void **state)
{
    (void)state;
    strcpy(place.settings.route.ca_file, "/no/such/file.pem");
    dial_host(true, "localhost", 443);
    expect_closed("cannot read the setting ca_file = /no/such/file.pem");
}

/* --- leaks ------------------------------------------------------------------------------------ */

static void attempt(uint16_t port)
{
    dial_host(false, "127.0.0.1", port);
    assert_true(run_until(&place.watch.closed, 1));
}

/* No memory is lost however often the coordinator cannot be reached. */
static void expect_no_growth(const char *what, uint16_t port, int warm_up, int attempts)
{
    for (int i = 0; i < warm_up; i++)
        attempt(port);
    run_for(100);
    long before = process_rss_kib();
    int files = process_open_files();
    int64_t start_us = clock_monotonic_us();
    for (int i = 0; i < attempts; i++)
        attempt(port);
    double seconds = (double)(clock_monotonic_us() - start_us) / 1e6;
    run_for(100);
    print_message("           %d attempts (%s) in %.1f s: %+ld KiB, %+d descriptors\n", attempts,
                  what, seconds, process_rss_kib() - before, process_open_files() - files);
    assert_true(process_open_files() <= files);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(process_rss_kib() - before < 1024);
#endif
}

static void pain_E19_attempts_in_vain_leave_nothing_behind(void **state)
{
    (void)state;
    expect_no_growth("refused", peer_dead_port(), 500, 10000);
    peer_start(&place.peer, close_at_once);
    expect_no_growth("closed at once", place.peer.port, 500, 2000);
    peer_stop(&place.peer);
    peer_start(&place.peer, say_404);
    expect_no_growth("404", place.peer.port, 500, 2000);
    peer_stop(&place.peer);
}

int main(void)
{
    forget_environment();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_echo),
        TEST(test_socket_options),
        TEST(test_upload_cap),
        TEST(test_slow_reader),
        TEST(pain_A9_every_refusal_ends_in_words),
        TEST(pain_A21_a_peer_that_says_nothing_is_given_up),
        TEST(pain_E3_close_in_the_middle_of_a_message),
        TEST(pain_E9_compression_is_neither_offered_nor_taken),
        TEST(test_endings),
        TEST(pain_E13_proxies),
        TEST(pain_E15_each_wrong_certificate_in_its_own_words),
        TEST(test_bad_ca_file),
        TEST(pain_E19_attempts_in_vain_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
