/* Agents against a running hub over real TCP: order of the opening, everything hostile, streams,
 * closing from both sides, many at once. */
#include "tests/unit/coordinator/hub/hub_fixture.h"

#include "common/base/rng.h"

#define STREAM_BYTES (1u << 20)
#define CHURN_THREADS 4
#define CHURN_EACH 50

static void expect_close(struct world *world, struct ws_client *client, uint64_t peer,
                         enum end_reason reason)
{
    assert_int_equal(ws_read_close(client), 4000 + reason);
    world_wait(world, world->peers[peer].closed_count > 0);
    assert_int_equal(world->peers[peer].reason, reason);
    ws_done(client);
}

static void test_opening_in_order(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    struct wire_message message = {.type = WIRE_request, .request = {.nonce = 42}};
    agent_join(world, &client, "first");
    agent_send(&client, &message);
    agent_read(&client, WIRE_wait, &message);
    assert_int_equal(message.wait.nonce, 42);
    assert_string_equal(world->peers[1].address, "192.0.2.7");
    assert_int_equal(world->peers[1].message_count, 2);
    struct hub_counters counters;
    hub_read_counters(world->hub, &counters);
    assert_int_equal(counters.agents, 1);
    assert_int_equal(counters.viewers, 0);
    assert_true(counters.agent_bytes_in > 100 && counters.agent_bytes_out > 100);
    ws_done(&client);
    world_wait(world, world->peers[1].closed_count > 0);
    assert_int_equal(world->peers[1].reason, END_CONNECTION_LOST);
    assert_int_equal(hub_send(world->hub, 1, &(struct wire_message){.type = WIRE_wait}),
                     STATUS_NOT_FOUND);
    assert_int_equal(hub_send(world->hub, 77, &(struct wire_message){.type = WIRE_wait}),
                     STATUS_NOT_FOUND);
    world_stop(world);
}

static void test_handshake_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *path, *subprotocol;
        int status;
    } cases[] = {
        {"/ws/agent", NULL, 426},
        {"/ws/agent", "raven.v1", 404},
        {"/ws/live", "raven-agent.v1", 404},
        {"/ws/other", "raven-agent.v1", 404},
        {"/ws/agent/x/y/z/0123456789", "raven-agent.v1", 404},
        {"/ws/agent", "http", 426},
        {"/ws/agent", "unknown", 0},
    };
    struct world *world = world_start(world_options());
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct ws_client client;
        assert_true(ws_connect(&client, world->port, 0));
        assert_int_equal(ws_handshake(&client, cases[i].path, cases[i].subprotocol, NULL),
                         cases[i].status);
        assert_false(ws_read(&client));
        ws_done(&client);
    }
    world_stop(world);
}

static void test_requests_that_are_no_websocket(void **state)
{
    (void)state;
    static const char *const requests[] = {
        "GET /ws/agent HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /ws/agent HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade, "
        "HTTP2-Settings\r\n"
        "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        "GET /ws/agent\r\n\r\n",
        "GET /ws/\r\n\r\nGET /ws/agent HTTP/1.1\r\n\r\n",
        "GET /ws/ \x80\xff\x01 HTTP/9.9\r\n:\r\n\r\n",
    };
    struct world *world = world_start(world_options());
    for (size_t i = 0; i < COUNT_OF(requests); i++) {
        struct ws_client client;
        char answer[4096];
        assert_true(ws_connect(&client, world->port, 0));
        assert_true(ws_send_all(&client, requests[i], strlen(requests[i])));
        shutdown(client.fd, SHUT_WR);
        while (recv(client.fd, answer, sizeof answer, 0) > 0)
            ;
        ws_done(&client);
    }
    struct ws_client gone; /* connects and leaves without a word */
    assert_true(ws_connect(&gone, world->port, 0));
    ws_done(&gone);
    struct ws_client client; /* the hub still serves */
    agent_join(world, &client, "after");
    ws_done(&client);
    world_stop(world);
}

static void test_early_message(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    struct wire_message message = {.type = WIRE_request};
    agent_connect(world, &client, 0);
    agent_send(&client, &message);
    agent_read(&client, WIRE_bye, &message);
    assert_int_equal(message.bye.code, END_PROTOCOL_ERROR);
    expect_close(world, &client, 1, END_PROTOCOL_ERROR);
    assert_int_equal(world->peers[1].message_count, 0);
    world_stop(world);
}

static void test_early_frame_and_second_hello(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    uint8_t data[FRAME_HEADER_BYTES + 4];
    struct frame frame = {
        .kind = FRAME_UPDATE, .payload = (const uint8_t *)"abcd", .payload_bytes = 4};
    size_t bytes = frame_write(&frame, data);
    agent_connect(world, &client, 0);
    assert_true(ws_send(&client, WS_BINARY, data, bytes));
    expect_close(world, &client, 1, END_PROTOCOL_ERROR);
    agent_join(world, &client, "twice");
    agent_hello(&client, "twice");
    expect_close(world, &client, 2, END_PROTOCOL_ERROR);
    assert_int_equal(world->peers[2].message_count, 1);
    world_stop(world);
}

/* Each hostile message on a session that was opened properly. Code 1002: what libwebsockets itself
 * refuses. */
static void test_hostile_input(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    uint8_t frame_data[FRAME_HEADER_BYTES + 4];
    struct frame frame = {
        .kind = FRAME_UPDATE, .payload = (const uint8_t *)"abcd", .payload_bytes = 4};
    size_t frame_bytes = frame_write(&frame, frame_data);
    frame_data[frame_bytes - 1] ^= 1;
    size_t large_bytes = FRAME_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX + 1;
    uint8_t *large = calloc(1, large_bytes);
    memset(large, ' ', large_bytes);
    const struct {
        int first_byte;
        bool is_masked;
        const void *data;
        size_t bytes;
        enum end_reason reason;
        int code;
    } cases[] = {
        {0x81, true, "not json", 8, END_PROTOCOL_ERROR, 4005},
        {0x81, true, "", 0, END_PROTOCOL_ERROR, 4005},
        {0x81, true, "{\"type\":\"welcome\"}", 18, END_PROTOCOL_ERROR, 4005},
        {0x81, true, "\xff\xfe\x00{", 4, END_PROTOCOL_ERROR, 4005},
        {0x82, true, frame_data, frame_bytes, END_PROTOCOL_ERROR, 4005},
        {0x82, true, frame_data, 5, END_PROTOCOL_ERROR, 4005},
        {0x82, true, "", 0, END_PROTOCOL_ERROR, 4005},
        {0x81, true, large, WIRE_TEXT_BYTES_MAX + 1, END_TOO_LARGE, 4006},
        {0x82, true, large, large_bytes, END_TOO_LARGE, 4006},
        {0x83, true, "x", 1, END_PROTOCOL_ERROR, 1002}, /* reserved opcode */
        {0xc1, true, "x", 1, END_PROTOCOL_ERROR, 1002}, /* reserved bit */
        {0x80, true, "x", 1, END_PROTOCOL_ERROR, 1002}, /* continuation of nothing */
        {0x09, true, "x", 1, END_PROTOCOL_ERROR, 1002}, /* fragmented ping */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct ws_client client;
        agent_join(world, &client, "hostile");
        ws_send_frame(&client, cases[i].first_byte, cases[i].is_masked, cases[i].data,
                      cases[i].bytes);
        int code = ws_read_close(&client);
        ws_done(&client);
        world_wait(world, world->peers[i + 1].closed_count > 0);
        if (code != cases[i].code || world->peers[i + 1].reason != cases[i].reason)
            fail_msg("case %zu: code %d, reason %s", i, code,
                     end_reason_name(world->peers[i + 1].reason));
        assert_int_equal(world->peers[i + 1].message_count, 1);
    }
    free(large);
    world_stop(world);
}

static void test_message_in_fragments(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    struct wire_message message;
    agent_join(world, &client, "pieces");
    static const char text[] = "{\"type\":\"request\",\"steps\":0,\"k\":0,\"nonce\":9}";
    assert_true(ws_send_frame(&client, 0x01, true, text, 7));
    assert_true(ws_send_frame(&client, 0x00, true, text + 7, 0));
    assert_true(ws_send(&client, WS_PING, "hi", 2)); /* control frames may come between */
    assert_true(ws_send_frame(&client, 0x00, true, text + 7, 10));
    assert_true(ws_send_frame(&client, 0x80, true, text + 17, strlen(text) - 17));
    agent_read(&client, WIRE_wait, &message);
    assert_int_equal(message.wait.nonce, 9);
    /* Endless small fragments are one message, too. */
    char spaces[4096];
    memset(spaces, ' ', sizeof spaces);
    bool is_sent = ws_send_frame(&client, 0x01, true, spaces, sizeof spaces);
    for (int i = 0; i < 20 && is_sent; i++)
        is_sent = ws_send_frame(&client, 0x00, true, spaces, sizeof spaces);
    expect_close(world, &client, 1, END_TOO_LARGE);
    world_stop(world);
}

static void test_upload_arrives_intact(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    struct rng rng;
    uint8_t *bytes = malloc(STREAM_BYTES);
    uint8_t *data = malloc(FRAME_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX);
    rng_seed(&rng, 1);
    for (size_t i = 0; i < STREAM_BYTES; i += 8)
        store_u64(bytes + i, rng_u64(&rng));
    agent_join(world, &client, "upload");
    for (size_t offset = 0; offset < STREAM_BYTES; offset += FRAME_PAYLOAD_BYTES_MAX) {
        struct frame frame = {.kind = FRAME_UPDATE,
                              .stream = 3,
                              .offset = offset,
                              .payload = bytes + offset,
                              .payload_bytes = FRAME_PAYLOAD_BYTES_MAX};
        assert_true(ws_send(&client, WS_BINARY, data, frame_write(&frame, data)));
    }
    world_wait(world, world->peers[1].frame_bytes == STREAM_BYTES);
    assert_memory_equal(world->stream, bytes, STREAM_BYTES);
    free(bytes);
    free(data);
    ws_done(&client);
    world_stop(world);
}

static struct shared *random_bytes_shared(size_t bytes)
{
    struct rng rng;
    uint8_t *data = malloc(bytes);
    rng_seed(&rng, 2);
    for (size_t i = 0; i + 8 <= bytes; i += 8)
        store_u64(data + i, rng_u64(&rng));
    return shared_create_take(data, bytes);
}

/* The client does not read until the control message has been queued behind the stream. */
static void test_stream_is_overtaken_by_control(void **state)
{
    (void)state;
    enum { BYTES = 8 << 20, FRAME_BYTES = 16384 };
    struct hub_options options = world_options();
    options.data_frame_bytes = FRAME_BYTES;
    struct world *world = world_start(options);
    struct shared *stream = random_bytes_shared(BYTES);
    struct ws_client client;
    struct wire_message message = {.type = WIRE_delta, .delta = {.stream = 5, .bytes = BYTES}};
    struct wire_message cancel = {.type = WIRE_cancel};
    agent_connect(world, &client, 16384);
    agent_hello(&client, "x");
    agent_read(&client, WIRE_welcome, &(struct wire_message){0});
    assert_int_equal(hub_send(world->hub, 1, &message), STATUS_OK);
    assert_int_equal(hub_send_stream(world->hub, 1, FRAME_DELTA, 5, stream, 0), STATUS_OK);
    assert_int_equal(hub_send(world->hub, 1, &cancel), STATUS_OK);
    agent_read(&client, WIRE_delta, &message); /* what announces the data still comes first */
    size_t received = 0, received_before_cancel = SIZE_MAX;
    while (received < BYTES || received_before_cancel == SIZE_MAX) {
        struct frame frame;
        assert_true(ws_read(&client));
        if (client.opcode == WS_TEXT) {
            received_before_cancel = received;
            continue;
        }
        assert_int_equal(frame_read(client.data, client.bytes, &frame), STATUS_OK);
        assert_int_equal(frame.kind, FRAME_DELTA);
        assert_int_equal(frame.stream, 5);
        assert_int_equal(frame.offset, received);
        assert_true(frame.payload_bytes <= FRAME_BYTES);
        assert_memory_equal(frame.payload, shared_data(stream) + received, frame.payload_bytes);
        received += frame.payload_bytes;
    }
    assert_true(received_before_cancel < BYTES / 2);
    shared_unref(stream);
    ws_done(&client);
    world_stop(world);
}

static void test_slow_reader(void **state)
{
    (void)state;
    struct hub_options options = world_options();
    options.agent_queue_bytes_max = 3u << 20;
    struct world *world = world_start(options);
    struct shared *stream = random_bytes_shared(1u << 20);
    struct ws_client client;
    agent_connect(world, &client, 4096);
    agent_hello(&client, "x");
    agent_read(&client, WIRE_welcome, &(struct wire_message){0});
    enum status status = STATUS_OK;
    for (int i = 0; i < 64 && status == STATUS_OK; i++)
        status = hub_send_stream(world->hub, 1, FRAME_DELTA, 1, stream, 0);
    assert_int_equal(status, STATUS_NOT_FOUND);
    world_wait(world, world->peers[1].closed_count > 0);
    assert_int_equal(world->peers[1].reason, END_SLOW_READER);
    shared_unref(stream);
    ws_done(&client);
    world_stop(world);
}

static void test_close_says_bye(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    struct wire_message message = {.type = WIRE_result, .result = {.version = 3}};
    agent_join(world, &client, "bye");
    assert_int_equal(hub_send(world->hub, 1, &message), STATUS_OK);
    hub_close(world->hub, 1, END_REPLACED, "a newer \n one", 1234);
    hub_close(world->hub, 1, END_INTERNAL, "too late", 1);
    agent_read(&client, WIRE_result, &message);
    agent_read(&client, WIRE_bye, &message);
    assert_int_equal(message.bye.code, END_REPLACED);
    assert_int_equal(message.bye.retry_ms, 1234);
    assert_string_equal(message.bye.reason, "a newer ? one");
    expect_close(world, &client, 1, END_REPLACED);
    assert_string_equal(world->peers[1].detail, "a newer ? one");
    hub_close(world->hub, 1, END_INTERNAL, "gone", 1); /* nothing happens */
    world_stop(world);
}

static void test_agent_leaves(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    struct wire_message bye = {.type = WIRE_bye, .bye = {.code = END_AGENT_STOPPED}};
    text_copy(bye.bye.reason, sizeof bye.bye.reason, "stopped");
    agent_join(world, &client, "one");
    agent_send(&client, &bye);
    assert_true(ws_send(&client, WS_CLOSE, "\x03\xe8", 2));
    assert_int_equal(ws_read_close(&client), 1000);
    ws_done(&client);
    world_wait(world, world->peers[1].closed_count > 0);
    assert_int_equal(world->peers[1].reason, END_AGENT_STOPPED);
    assert_string_equal(world->peers[1].detail, "stopped");
    bye.bye.code = END_REVOKED; /* not an agent's to say */
    agent_join(world, &client, "two");
    agent_send(&client, &bye);
    assert_true(ws_send(&client, WS_CLOSE, "\x03\xe8", 2));
    world_wait(world, world->peers[2].closed_count > 0);
    assert_int_equal(world->peers[2].reason, END_PEER_CLOSED);
    ws_done(&client);
    world_stop(world);
}

static void test_silence(void **state)
{
    (void)state;
    struct hub_options options = world_options();
    options.timers.ping_ms = 100;
    options.timers.silence_ms = 300;
    struct world *world = world_start(options);
    struct ws_client mute, lively;
    agent_join(world, &mute, "mute");
    agent_join(world, &lively, "lively");
    mute.is_mute = true;
    assert_int_equal(ws_read_close(&mute), 4000 + END_SILENCE);
    world_wait(world, world->peers[1].closed_count > 0);
    assert_int_equal(world->peers[1].reason, END_SILENCE);
    ws_done(&mute);
    ws_done(&lively);
    world_stop(world);
}

static void test_hello_deadline(void **state)
{
    (void)state;
    struct hub_options options = world_options();
    options.hello_deadline_ms = 100;
    struct world *world = world_start(options);
    world->accepts_hello = false;
    struct ws_client client;
    agent_connect(world, &client, 0);
    agent_hello(&client, "nobody accepts this");
    expect_close(world, &client, 1, END_HANDSHAKE_TIMEOUT);
    assert_true(ws_connect(&client, world->port, 0)); /* does not even finish the request */
    assert_true(ws_send_all(&client, "GET /ws/agent HTTP/1.1\r\n", 24));
    uint8_t byte;
    assert_int_equal(recv(client.fd, &byte, 1, 0), 0);
    ws_done(&client);
    world_stop(world);
}

struct churn {
    struct world *world;
    int thread;
};

static void *churn(void *context)
{
    const struct churn *own = context;
    for (int i = 0; i < CHURN_EACH; i++) {
        struct ws_client client;
        char label[32];
        uint64_t nonce = (uint64_t)(own->thread * 1000 + i);
        struct wire_message message = {.type = WIRE_request, .request = {.nonce = nonce}};
        snprintf(label, sizeof label, "nonce-%d-%d", own->thread, i);
        agent_join(own->world, &client, label);
        agent_send(&client, &message);
        if (i % 3 != 0) { /* every third leaves without waiting for the answer */
            agent_read(&client, WIRE_wait, &message);
            assert_int_equal(message.wait.nonce, nonce);
        }
        if (i % 3 == 1) {
            assert_true(ws_send(&client, WS_CLOSE, "\x03\xe8", 2));
            assert_int_equal(ws_read_close(&client), 1000);
        }
        ws_done(&client);
    }
    return NULL;
}

static void test_churn(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    pthread_t threads[CHURN_THREADS];
    struct churn churns[CHURN_THREADS];
    for (int i = 0; i < CHURN_THREADS; i++) {
        churns[i] = (struct churn){world, i};
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &churns[i]), 0);
    }
    for (int i = 0; i < CHURN_THREADS; i++)
        pthread_join(threads[i], NULL);
    world_wait(world, world->closed_count == CHURN_THREADS * CHURN_EACH);
    struct hub_counters counters;
    hub_read_counters(world->hub, &counters);
    assert_int_equal(counters.agents, 0);
    world_stop(world);
}

static void test_drain(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client polite, rude, undecided;
    struct wire_message message;
    agent_join(world, &polite, "polite");
    agent_join(world, &rude, "rude"); /* never reads again */
    assert_true(ws_connect(&undecided, world->port, 0));
    assert_true(ws_send_all(&undecided, "GET /ws/ag", 10));
    world_stop_accepting(world);
    pthread_t thread;
    assert_int_equal(
        pthread_create(&thread, NULL, (void *(*)(void *))(void *)ws_read_close, &polite), 0);
    hub_drain(world->hub, 500);
    void *code;
    pthread_join(thread, &code);
    assert_int_equal((int)(intptr_t)code, 4000 + END_DRAINING);
    agent_read(&rude, WIRE_bye, &message);
    assert_int_equal(message.bye.code, END_DRAINING);
    assert_int_equal(world->closed_count, 2);
    assert_int_equal(world->peers[1].reason, END_DRAINING);
    /* Other threads may still call; nothing happens. */
    assert_int_equal(hub_send(world->hub, 1, &(struct wire_message){.type = WIRE_wait}),
                     STATUS_NOT_FOUND);
    hub_agent_accept(world->hub, 1);
    hub_close(world->hub, 1, END_INTERNAL, "", 0);
    hub_adopt(world->hub, dup(rude.fd), "x");
    assert_false(ws_read(&undecided));
    ws_done(&polite);
    ws_done(&rude);
    ws_done(&undecided);
    world_stop(world);
}

static void test_options_are_checked(void **state)
{
    (void)state;
    struct error err;
    struct hub *hub = NULL;
    struct hub_options options = world_options();
    assert_int_equal(hub_start(&options, &hub, &err), STATUS_INVALID); /* no callbacks */
    options.callbacks = (struct hub_callbacks){NULL,        world_opened, world_message,
                                               world_frame, world_closed, world_allowed};
    options.timers.silence_ms = options.timers.ping_ms;
    assert_int_equal(hub_start(&options, &hub, &err), STATUS_INVALID);
    options = world_options();
    options.data_frame_bytes = FRAME_PAYLOAD_BYTES_MAX + 1;
    assert_int_equal(hub_start(&options, &hub, &err), STATUS_INVALID);
    assert_null(hub);
    hub_stop(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening_in_order),
        cmocka_unit_test(test_handshake_refusals),
        cmocka_unit_test(test_requests_that_are_no_websocket),
        cmocka_unit_test(test_early_message),
        cmocka_unit_test(test_early_frame_and_second_hello),
        cmocka_unit_test(test_hostile_input),
        cmocka_unit_test(test_message_in_fragments),
        cmocka_unit_test(test_upload_arrives_intact),
        cmocka_unit_test(test_stream_is_overtaken_by_control),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_close_says_bye),
        cmocka_unit_test(test_agent_leaves),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_hello_deadline),
        cmocka_unit_test(test_churn),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_options_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
