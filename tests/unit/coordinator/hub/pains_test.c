/* Faults that were reported of systems like this one (design/80-known-pains.md), as they would show
 * at the hub: each test carries the name of its row. Real sockets, real clients. */
#define WORLD_PEERS_MAX 65536 /* one for each connection of the churn */
#include "tests/unit/coordinator/hub/hub_fixture.h"

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "tests/support/process.h"

#include <signal.h>
#include <sys/wait.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHURN_TOTAL 4000
#define CUTS 300
#define DOWN_CLIENTS 10
#else
#define CHURN_TOTAL 50000
#define CUTS 1000
#define DOWN_CLIENTS 100
#endif

/* --- E5 --------------------------------------------------------------------------------------- */

#define DOWN_BYTES (64u << 20)
#define DOWN_FRAME_BYTES 65536

/* A process of its own, so that only the hub's memory is measured: joins, says so with a byte, and
 * then reads DOWN_BYTES for each client, one client after the other, so that the others' sockets
 * are full all the while. */
static void read_everything(int told, int say)
{
    static struct ws_client clients[DOWN_CLIENTS];
    struct wire_message message;
    uint16_t port;
    if (read(told, &port, sizeof port) != sizeof port)
        _exit(5);
    for (int i = 0; i < DOWN_CLIENTS; i++) {
        if (!ws_connect(&clients[i], port, 0) ||
            ws_handshake(&clients[i], "/ws/agent", WIRE_SUBPROTOCOL, NULL) != 101)
            _exit(1);
        agent_read(&clients[i], WIRE_challenge, &message);
        agent_hello(&clients[i], "down");
        agent_read(&clients[i], WIRE_welcome, &message);
    }
    if (write(say, "j", 1) != 1)
        _exit(2);
    for (int i = 0; i < DOWN_CLIENTS; i++) {
        struct frame frame;
        for (uint64_t received = 0; received < DOWN_BYTES; received += frame.payload_bytes)
            if (!ws_read(&clients[i]) || frame_read(clients[i].data, clients[i].bytes, &frame) ||
                frame.offset != received || frame.payload_bytes > DOWN_FRAME_BYTES)
                _exit(3);
    }
    char byte;
    if (write(say, "r", 1) != 1 || recv(clients[0].fd, &byte, 1, 0) < 0)
        _exit(4);
    _exit(0); /* when the hub has closed the first one */
}

static char hear(int fd)
{
    char byte = 0;
    assert_int_equal(read(fd, &byte, 1), 1);
    return byte;
}

static struct shared *large_stream(void)
{
    uint8_t *data = malloc(DOWN_BYTES);
    memset(data, 7, DOWN_BYTES);
    return shared_create_take(data, DOWN_BYTES);
}

static void pain_E5_memory_falls_back_after_large_streams(void **state)
{
    (void)state;
    struct hub_options options = world_options();
    options.agent_queue_bytes_max = 2 * (uint64_t)DOWN_BYTES;
    int ends[2], told[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe(told), 0);
    pid_t child = fork(); /* before there are threads, whose locks it would inherit */
    if (child == 0)
        read_everything(told[0], ends[1]);
    close(ends[1]); /* so that a child that dies is heard */
    close(told[0]);
    struct world *world = world_start(options);
    assert_int_equal(write(told[1], &world->port, sizeof world->port), sizeof world->port);
    close(told[1]);
    assert_int_equal(hear(ends[0]), 'j');
    long before_kib = process_rss_kib();
    struct shared *stream = large_stream();
    for (uint64_t peer = 1; peer <= DOWN_CLIENTS; peer++)
        assert_int_equal(hub_send_stream(world->hub, peer, FRAME_DELTA, 1, stream, 0), STATUS_OK);
    shared_unref(stream);
    assert_int_equal(hear(ends[0]), 'r');
    for (uint64_t peer = 1; peer <= DOWN_CLIENTS; peer++)
        assert_int_equal(hub_queued_bytes(world->hub, peer), 0);
    long after_kib = process_rss_kib();
    print_message("           %d times %u MiB sent: %ld KiB before, %ld KiB after\n", DOWN_CLIENTS,
                  DOWN_BYTES >> 20, before_kib, after_kib);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(after_kib <= before_kib * 12 / 10);
#endif
    hub_close(world->hub, 1, END_REPLACED, "done", 0);
    int outcome = -1;
    assert_int_equal(waitpid(child, &outcome, 0), child);
    assert_int_equal(outcome, 0);
    close(ends[0]);
    world_stop(world);
}

/* --- E7 --------------------------------------------------------------------------------------- */

#define CHURN_THREADS 4

struct churn {
    struct world *world;
    int thread;
    const char *wrong; /* what went wrong first; NULL: nothing. Only main may fail a test. */
};

/* Without TIME_WAIT: 50,000 connections would use up the ports. */
static void drop(struct ws_client *client)
{
    struct linger now = {.l_onoff = 1};
    setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ws_done(client);
}

static bool send_message(struct ws_client *client, const struct wire_message *message)
{
    struct buffer text;
    buffer_init(&text, WIRE_TEXT_BYTES_MAX);
    bool sent =
        wire_encode(message, &text) == STATUS_OK && ws_send(client, WS_TEXT, text.data, text.bytes);
    buffer_done(&text);
    return sent;
}

static bool read_message(struct ws_client *client, enum wire_type type, struct wire_message *ret)
{
    return ws_read(client) && client->opcode == WS_TEXT &&
           wire_decode((const char *)client->data, client->bytes, WIRE_FROM_COORDINATOR, ret,
                       NULL) == STATUS_OK &&
           ret->type == type;
}

/* Most go while something is on its way to them, so that their descriptor belongs to another
 * client by the time that the hub closes its side. */
static const char *churn_once(struct world *world, uint64_t nonce)
{
    struct ws_client client;
    struct wire_message message, hello = {.type = WIRE_hello};
    struct wire_message request = {.type = WIRE_request, .request = {.nonce = nonce}};
    const char *wrong = NULL;
    snprintf(hello.hello.label, sizeof hello.hello.label, "nonce-%llu", (unsigned long long)nonce);
    if (!ws_connect(&client, world->port, 0) ||
        ws_handshake(&client, "/ws/agent", WIRE_SUBPROTOCOL, NULL) != 101)
        wrong = "the connection broke during the handshake";
    else if (!read_message(&client, WIRE_challenge, &message) || !send_message(&client, &hello) ||
             !read_message(&client, WIRE_welcome, &message) || !send_message(&client, &request))
        wrong = "the connection broke before the welcome";
    else if (strcmp(message.welcome.session, hello.hello.label) != 0)
        wrong = "another client's welcome came";
    else if (nonce % 4 != 0 && !read_message(&client, WIRE_wait, &message))
        wrong = "no answer came";
    else if (nonce % 4 != 0 && message.wait.nonce != nonce)
        wrong = "another client's answer came";
    else if (nonce % 4 == 1)
        ws_send(&client, WS_CLOSE, "\x03\xe8", 2);
    drop(&client);
    return wrong;
}

static void *churn(void *context)
{
    struct churn *own = context;
    uint64_t each = CHURN_TOTAL / CHURN_THREADS;
    for (uint64_t i = 0; i < each && !own->wrong; i++)
        own->wrong = churn_once(own->world, (uint64_t)own->thread * each + i);
    return NULL;
}

static void pain_E7_no_cross_talk_while_descriptors_are_reused(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client bystander; /* must not be closed by anybody's second close */
    agent_join(world, &bystander, "bystander");
    pthread_t threads[CHURN_THREADS];
    struct churn churns[CHURN_THREADS];
    int64_t start_us = clock_monotonic_us();
    for (int i = 0; i < CHURN_THREADS; i++) {
        churns[i] = (struct churn){world, i, NULL};
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &churns[i]), 0);
    }
    for (int i = 0; i < CHURN_THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < CHURN_THREADS; i++)
        if (churns[i].wrong)
            fail_msg("thread %d: %s", i, churns[i].wrong);
    world_wait(world, world->closed_count == CHURN_TOTAL);
    print_message("           %d connections in %.1f s\n", CHURN_TOTAL,
                  (double)(clock_monotonic_us() - start_us) / 1e6);
    struct wire_message message = {.type = WIRE_request, .request = {.nonce = 42}};
    agent_send(&bystander, &message);
    agent_read(&bystander, WIRE_wait, &message);
    assert_int_equal(message.wait.nonce, 42);
    ws_done(&bystander);
    world_stop(world); /* checks that each was opened and closed once, and nothing came after */
}

/* --- E9 --------------------------------------------------------------------------------------- */

/* Nothing is ever inflated: what is not agreed cannot be a bomb, and the limits are on the bytes
 * that a message has. */
static void pain_E9_compression_is_not_agreed_to(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    struct wire_message message;
    assert_true(ws_connect(&client, world->port, 0));
    assert_int_equal(
        ws_handshake(&client, "/ws/agent", WIRE_SUBPROTOCOL,
                     "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"),
        101);
    assert_null(strcasestr(client.answer, "Sec-WebSocket-Extensions"));
    agent_read(&client, WIRE_challenge, &message);
    /* 1 MiB of zeros is about 1 KiB of these; here only the first few bytes. */
    assert_true(ws_send_frame(&client, 0xc1, true, "\xec\xc1\x01\x0d\x00\x00\x00\xc2", 8));
    assert_int_equal(ws_read_close(&client), 1002);
    world_wait(world, world->peers[1].closed_count > 0);
    assert_int_equal(world->peers[1].reason, END_PROTOCOL_ERROR);
    ws_done(&client);
    world_stop(world);
}

/* --- E11 -------------------------------------------------------------------------------------- */

/* Pings and waits for each pong, until the hub closes; how many there were. */
static int ping_until_closed(struct ws_client *client, int most, int64_t interval_us)
{
    for (int i = 0; i < most; i++) {
        uint8_t pong[7];
        if (!ws_send(client, WS_PING, "raven", 5) || !ws_receive_all(client, pong, 2))
            return i;
        if ((pong[0] & 15) != WS_PONG)
            return i; /* a bye or a close: its head is gone, the rest is of no use */
        assert_true(ws_receive_all(client, pong, 5));
        assert_memory_equal(pong, "raven", 5);
        clock_sleep_us(interval_us);
    }
    return most;
}

static void pain_E11_allowed_pings_are_answered(void **state)
{
    (void)state;
    struct hub_options options = world_options();
    options.timers.ping_min_ms = 20;
    struct world *world = world_start(options);
    struct ws_client client;
    agent_join(world, &client, "keen");
    assert_int_equal(ping_until_closed(&client, 100, 22000), 100);
    ws_done(&client);
    world_stop(world);
}

/* At 10 a second: neither a denial of service nor what the welcome allowed. */
static void pain_E11_too_many_pings_are_refused_with_a_reason(void **state)
{
    (void)state;
    struct world *world = world_start(world_options()); /* one each 5 s */
    struct ws_client client;
    agent_join(world, &client, "too keen");
    int pings = ping_until_closed(&client, 60, 20000);
    print_message("           closed after %d pings\n", pings);
    assert_true(pings >= 20 && pings < 60);
    world_wait(world, world->peers[1].closed_count > 0);
    assert_int_equal(world->peers[1].reason, END_PING_FLOOD);
    assert_non_null(strstr(world->peers[1].detail, "faster than one each 5000 ms"));
    ws_done(&client);

    agent_join(world, &client, "flood"); /* as fast as it can, reading what it is told */
    for (int i = 0; i < 100000 && ws_send(&client, WS_PING, "", 0); i++)
        if (i % 100 == 0)
            clock_sleep_us(1000);
    world_wait(world, world->peers[2].closed_count > 0);
    assert_int_equal(world->peers[2].reason, END_PING_FLOOD);
    ws_done(&client);
    agent_join(world, &client, "next"); /* and others are served */
    ws_done(&client);
    world_stop(world);
}

/* The same number of frames, but data: no ping, no flood. */
static void pain_E11_data_both_ways_is_no_flood(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    struct wire_message message = {.type = WIRE_request};
    agent_join(world, &client, "busy");
    struct shared *stream = large_stream();
    assert_int_equal(hub_send_stream(world->hub, 1, FRAME_DELTA, 1, stream, 0), STATUS_OK);
    shared_unref(stream);
    for (int i = 0; i < 200; i++)
        agent_send(&client, &message);
    int waits = 0;
    for (size_t received = 0; received < DOWN_BYTES || waits < 200;) {
        struct frame frame = {0};
        assert_true(ws_read(&client));
        if (client.opcode == WS_BINARY)
            assert_int_equal(frame_read(client.data, client.bytes, &frame), STATUS_OK);
        else
            waits += client.opcode == WS_TEXT;
        received += frame.payload_bytes;
    }
    ws_done(&client);
    world_wait(world, world->peers[1].closed_count > 0);
    assert_int_equal(world->peers[1].reason, END_CONNECTION_LOST);
    world_stop(world);
}

/* --- E21 -------------------------------------------------------------------------------------- */

#define CUT_STREAM_BYTES (1u << 20)
#define CUT_PAYLOAD_BYTES 16384 /* more than the hub is given in one piece */
#define CUT_FRAME_BYTES (8 + FRAME_HEADER_BYTES + CUT_PAYLOAD_BYTES)
#define CUT_RAW_BYTES (3 * CUT_FRAME_BYTES)

/* What reached the owner of the hub, over all connections so far. */
static size_t delivered(struct world *world)
{
    size_t bytes = 0;
    for (uint64_t peer = 1; peer <= world->opened_count; peer++)
        bytes += world->peers[peer].frame_bytes;
    return bytes;
}

/* One connection that goes on at `from` and is cut after `raw_bytes` bytes. */
static void send_and_cut(struct world *world, const uint8_t *stream, size_t from, size_t raw_bytes)
{
    struct ws_client client;
    static uint8_t raw[CUT_RAW_BYTES + CUT_FRAME_BYTES];
    uint8_t data[FRAME_HEADER_BYTES + CUT_PAYLOAD_BYTES];
    size_t filled = 0;
    while (filled < raw_bytes && from < CUT_STREAM_BYTES) {
        struct frame frame = {.kind = FRAME_UPDATE,
                              .stream = 3,
                              .offset = from,
                              .payload = stream + from,
                              .payload_bytes = CUT_PAYLOAD_BYTES};
        from += frame.payload_bytes;
        size_t bytes = frame_write(&frame, data);
        raw[filled++] = 0x82;
        raw[filled++] = 0x80 | 126;
        raw[filled++] = (uint8_t)(bytes >> 8);
        raw[filled++] = (uint8_t)bytes;
        memset(raw + filled, 0, 4); /* a mask that changes nothing */
        memcpy(raw + filled + 4, data, bytes);
        filled += 4 + bytes;
    }
    agent_join(world, &client, "cut");
    assert_true(ws_send_all(&client, raw, raw_bytes < filled ? raw_bytes : filled));
    ws_done(&client);
}

static void pain_E21_a_stream_decodes_after_cuts_at_any_byte(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct rng rng;
    static uint8_t stream[CUT_STREAM_BYTES];
    rng_seed(&rng, 21);
    for (size_t i = 0; i < sizeof stream; i += 8)
        store_u64(stream + i, rng_u64(&rng));
    uint64_t cuts = 0;
    while (delivered(world) < sizeof stream || cuts < CUTS) {
        size_t from = delivered(world) % sizeof stream;
        send_and_cut(world, stream, from, 1 + (size_t)rng_below(&rng, CUT_RAW_BYTES));
        cuts++;
        world_wait(world, world->closed_count == cuts);
        assert_int_not_equal(world->peers[cuts].reason, END_PROTOCOL_ERROR);
    }
    print_message("           %llu cuts\n", (unsigned long long)cuts);
    assert_memory_equal(world->stream, stream, sizeof stream);
    world_stop(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pain_E5_memory_falls_back_after_large_streams),
        cmocka_unit_test(pain_E7_no_cross_talk_while_descriptors_are_reused),
        cmocka_unit_test(pain_E9_compression_is_not_agreed_to),
        cmocka_unit_test(pain_E11_allowed_pings_are_answered),
        cmocka_unit_test(pain_E11_too_many_pings_are_refused_with_a_reason),
        cmocka_unit_test(pain_E11_data_both_ways_is_no_flood),
        cmocka_unit_test(pain_E21_a_stream_decodes_after_cuts_at_any_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
