/* The link against peers that behave, lie, break off and fall silent: each attempt ends in exactly
 * one event with words a person understands. */
#include "tests/unit/agent/session/link_fixture.h"

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
    expect_refusal(say_nothing, "took the connection but then did not answer");
    (void)state;
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
