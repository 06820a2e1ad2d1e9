/* Dashboards against a running hub over real TCP: who may connect, welcome, snapshot and contiguous
 * deltas, resuming, slow readers, hostile messages, draining. */
#include "tests/unit/coordinator/hub/hub_fixture.h"

#include <jansson.h>
#include <malloc.h>

#define COOKIE "Cookie: s=good\r\n"

/* Publishes snapshot and delta of one sequence as frames of raven.v1, padded to at least bytes. */
static void publish(struct world *world, const char *channel, uint64_t sequence, size_t bytes)
{
    char *padding = calloc(1, bytes + 1);
    memset(padding, 'x', bytes);
    json_t *snap =
        json_pack("{s:s s:s s:s s:I s:{s:s}}", "t", "snap", "ch", channel, "epoch",
                  hub_epoch(world->hub), "seq", (json_int_t)sequence, "d", "pad", padding);
    json_t *d = json_pack("{s:s s:s s:I s:{s:s}}", "t", "d", "ch", channel, "seq",
                          (json_int_t)sequence, "d", "pad", padding);
    char *snap_text = json_dumps(snap, JSON_COMPACT);
    char *d_text = json_dumps(d, JSON_COMPACT);
    struct shared *snapshot = shared_create_take((uint8_t *)snap_text, strlen(snap_text));
    struct shared *delta = shared_create_take((uint8_t *)d_text, strlen(d_text));
    hub_publish(world->hub, channel, sequence, snapshot, delta);
    shared_unref(snapshot);
    shared_unref(delta);
    json_decref(snap);
    json_decref(d);
    free(padding);
}

static void publish_range(struct world *world, uint64_t from, uint64_t to)
{
    for (uint64_t sequence = from; sequence <= to; sequence++)
        publish(world, "overview", sequence, 10);
}

static int viewer_try(struct world *world, struct ws_client *client, const char *headers)
{
    assert_true(ws_connect(client, world->port, 0));
    return ws_handshake(client, "/ws/live", "raven.v1", headers);
}

/* The next message that is no heartbeat; the caller frees it. */
static json_t *read_json(struct ws_client *client)
{
    for (;;) {
        if (!ws_read(client))
            fail_msg("the connection was closed");
        assert_int_equal(client->opcode, WS_TEXT);
        json_t *root = json_loadb((const char *)client->data, client->bytes, 0, NULL);
        assert_non_null(root);
        if (strcmp(json_string_value(json_object_get(root, "t")), "hb") != 0)
            return root;
        assert_true(json_integer_value(json_object_get(root, "ts")) > 1600000000000);
        json_decref(root);
    }
}

/* sequence 0: not looked at. */
static void expect(struct ws_client *client, const char *type, const char *channel,
                   uint64_t sequence)
{
    json_t *root = read_json(client);
    assert_string_equal(json_string_value(json_object_get(root, "t")), type);
    if (channel)
        assert_string_equal(json_string_value(json_object_get(root, "ch")), channel);
    if (sequence)
        assert_int_equal(json_integer_value(json_object_get(root, "seq")), sequence);
    json_decref(root);
}

static void viewer_join(struct world *world, struct ws_client *client, const char *hello)
{
    assert_int_equal(viewer_try(world, client, COOKIE), 101);
    assert_true(ws_send_text(client, hello));
    expect(client, "welcome", NULL, 0);
}

static void test_permission(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    assert_int_equal(viewer_try(world, &client, NULL), 403);
    assert_string_equal(world->handshake.host, "127.0.0.1");
    assert_string_equal(world->handshake.cookie, "");
    ws_done(&client);
    assert_int_equal(viewer_try(world, &client, "Authorization: Basic key\r\n"), 403);
    ws_done(&client);
    assert_int_equal(viewer_try(world, &client, "Cookie: s=bad\r\nOrigin: http://x\r\n"), 403);
    assert_string_equal(world->handshake.origin, "http://x");
    ws_done(&client);
    assert_int_equal(viewer_try(world, &client, "Authorization: Bearer key\r\n"), 101);
    ws_done(&client);
    assert_int_equal(viewer_try(world, &client, COOKIE), 101);
    ws_done(&client);
    world_stop(world);
}

static void test_long_headers(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    char headers[7000];
    int bytes = snprintf(headers, sizeof headers, "Cookie: ");
    memset(headers + bytes, 'c', 4095);
    snprintf(headers + bytes + 4095, 100, "\r\n");
    assert_int_equal(viewer_try(world, &client, headers), 403);
    assert_int_equal(strlen(world->handshake.cookie), 4095);
    ws_done(&client);
    memset(headers + bytes, 'c', 4096); /* one too many: as if there were none */
    snprintf(headers + bytes + 4096, 100, "\r\n");
    assert_int_equal(viewer_try(world, &client, headers), 403);
    assert_string_equal(world->handshake.cookie, "");
    ws_done(&client);
    world_stop(world);
}

static void test_viewers_max(void **state)
{
    (void)state;
    struct hub_options options = world_options();
    options.viewers_max = 2;
    struct world *world = world_start(options);
    struct ws_client clients[3];
    assert_int_equal(viewer_try(world, &clients[0], COOKIE), 101);
    assert_int_equal(viewer_try(world, &clients[1], COOKIE), 101);
    assert_int_equal(viewer_try(world, &clients[2], COOKIE), 503);
    for (int i = 0; i < 3; i++)
        ws_done(&clients[i]);
    struct hub_counters counters;
    do
        hub_read_counters(world->hub, &counters);
    while (counters.viewers > 0);
    assert_int_equal(viewer_try(world, &clients[0], COOKIE), 101);
    ws_done(&clients[0]);
    world_stop(world);
}

static void test_welcome_snapshot_deltas(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    publish_range(world, 1, 3);
    assert_int_equal(viewer_try(world, &client, COOKIE), 101);
    assert_true(ws_send_text(&client, "{\"t\":\"hello\",\"epoch\":\"\",\"seq\":{},"
                                      "\"sub\":[\"overview\",\"job:none\"]}"));
    json_t *welcome = read_json(&client);
    assert_string_equal(json_string_value(json_object_get(welcome, "t")), "welcome");
    assert_string_equal(json_string_value(json_object_get(welcome, "epoch")),
                        hub_epoch(world->hub));
    assert_int_equal(json_integer_value(json_object_get(welcome, "hz")), 1);
    assert_int_equal(json_string_length(json_object_get(welcome, "server_time")), 24);
    json_decref(welcome);
    expect(&client, "gone", "job:none", 0);
    expect(&client, "snap", "overview", 3);
    for (uint64_t sequence = 4; sequence <= 40; sequence++) {
        publish(world, "overview", sequence, 10);
        expect(&client, "d", "overview", sequence);
    }
    ws_done(&client);
    world_stop(world);
}

static void test_sub_resync_gone(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    publish(world, "overview", 1, 10);
    publish(world, "job:a", 7, 10);
    viewer_join(world, &client, "{\"t\":\"hello\",\"sub\":[\"overview\"]}");
    expect(&client, "snap", "overview", 1);
    assert_true(ws_send_text(&client, "{\"t\":\"sub\",\"add\":[\"job:a\",\"job:a\"],"
                                      "\"del\":[\"overview\",\"job:b\"]}"));
    expect(&client, "snap", "job:a", 7);
    publish(world, "overview", 2, 10); /* not wanted any more */
    publish(world, "job:a", 8, 10);
    expect(&client, "d", "job:a", 8);
    assert_true(ws_send_text(&client, "{\"t\":\"resync\",\"ch\":\"job:a\"}"));
    expect(&client, "snap", "job:a", 8);
    hub_unpublish(world->hub, "job:a");
    hub_unpublish(world->hub, "job:never");
    expect(&client, "gone", "job:a", 0);
    publish(world, "job:a", 1, 10); /* a new one: not subscribed */
    assert_true(ws_send_text(&client, "{\"t\":\"sub\",\"add\":[\"overview\"]}"));
    expect(&client, "snap", "overview", 2);
    ws_done(&client);
    world_stop(world);
}

static void resume(struct world *world, struct ws_client *client, const char *epoch, int known)
{
    char hello[200];
    snprintf(hello, sizeof hello,
             "{\"t\":\"hello\",\"epoch\":\"%s\",\"seq\":{\"overview\":%d},\"sub\":[\"overview\"]}",
             epoch, known);
    viewer_join(world, client, hello);
}

static void test_resumption(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    publish_range(world, 1, 100);
    resume(world, &client, hub_epoch(world->hub), 40); /* more than 8 behind, but in the ring */
    for (uint64_t sequence = 41; sequence <= 100; sequence++)
        expect(&client, "d", "overview", sequence);
    publish(world, "overview", 101, 10);
    expect(&client, "d", "overview", 101);
    ws_done(&client);
    resume(world, &client, hub_epoch(world->hub), 101); /* missed nothing */
    publish(world, "overview", 102, 10);
    expect(&client, "d", "overview", 102);
    ws_done(&client);
    resume(world, &client, hub_epoch(world->hub), 41); /* out of the ring */
    expect(&client, "snap", "overview", 102);
    ws_done(&client);
    resume(world, &client, "another run", 101);
    expect(&client, "snap", "overview", 102);
    ws_done(&client);
    resume(world, &client, hub_epoch(world->hub), -5);
    expect(&client, "snap", "overview", 102);
    ws_done(&client);
    world_stop(world);
}

static size_t allocated_bytes(void) /* 0 under a sanitizer, whose allocator does not count */
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* A viewer that does not read while 40 MB go by: it gets a few old frames out of the kernel's
 * buffers, then the newest state. */
static void test_slow_viewer_is_conflated(void **state)
{
    (void)state;
    enum { LAST = 400, BYTES = 100000 };
    struct world *world = world_start(world_options());
    struct ws_client slow, quick;
    publish(world, "overview", 1, BYTES);
    assert_true(ws_connect(&slow, world->port, 16384));
    assert_int_equal(ws_handshake(&slow, "/ws/live", "raven.v1", COOKIE), 101);
    assert_true(ws_send_text(&slow, "{\"t\":\"hello\",\"sub\":[\"overview\"]}"));
    expect(&slow, "welcome", NULL, 0);
    viewer_join(world, &quick, "{\"t\":\"hello\",\"sub\":[\"overview\"]}");
    expect(&quick, "snap", "overview", 1);
    size_t before_bytes = allocated_bytes();
    for (uint64_t sequence = 2; sequence <= LAST; sequence++) {
        publish(world, "overview", sequence, BYTES);
        expect(&quick, "d", "overview", sequence); /* keeps the pace: each delta is processed */
    }
    /* The channel's 60 deltas are 6 MB, what the slow viewer missed is 40 MB. */
    assert_true(allocated_bytes() < before_bytes + (12u << 20));
    unsigned count = 0;
    json_int_t sequence = 0;
    while (sequence < LAST) {
        json_t *root = read_json(&slow);
        json_int_t next = json_integer_value(json_object_get(root, "seq"));
        bool is_delta = strcmp(json_string_value(json_object_get(root, "t")), "d") == 0;
        assert_true(is_delta ? next == sequence + 1 : next > sequence);
        sequence = next;
        count++;
        json_decref(root);
    }
    assert_true(count < 60);
    assert_true(slow.fragment_count > 1); /* large frames go out in pieces */
    ws_done(&slow);
    ws_done(&quick);
    world_stop(world);
}

static void test_heartbeat(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    viewer_join(world, &client, "{\"t\":\"hello\",\"sub\":[]}");
    for (int i = 0; i < 2; i++) {
        assert_true(ws_read(&client));
        assert_non_null(strstr((const char *)client.data, "{\"t\":\"hb\",\"ts\":"));
    }
    ws_done(&client);
    world_stop(world);
}

static void test_hostile_messages(void **state)
{
    (void)state;
    static const char *const messages[] = {
        "",
        "[]",
        "7",
        "{\"t\":\"hello\"",
        "{\"t\":\"hello\"}",
        "{\"t\":7}",
        "{\"t\":\"rate\"}",
        "{\"t\":\"hello\",\"t\":\"hello\",\"sub\":[]}",
        "{\"t\":\"hello\",\"sub\":[7]}",
        "{\"t\":\"hello\",\"sub\":{}}",
        "{\"t\":\"hello\",\"sub\":[],\"epoch\":7}",
        "{\"t\":\"hello\",\"sub\":[],\"seq\":7}",
        "{\"t\":\"hello\",\"sub\":[],\"seq\":{\"overview\":\"1\"}}",
        "{\"t\":\"hello\",\"sub\":[\"over\\\"view\"]}",
        "{\"t\":\"hello\",\"sub\":[\"\"]}",
        "{\"t\":\"hello\",\"sub\":[\"over\\u0000view\"]}",
        "{\"t\":\"hello\",\"sub\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\","
        "\"11\","
        "\"12\",\"13\",\"14\",\"15\",\"16\",\"17\"]}",
        "{\"t\":\"sub\",\"add\":[\"overview\"]}", /* before hello */
        "{\"t\":\"resync\",\"ch\":\"overview\"}", /* before hello */
        "\xff\xfe",
    };
    struct world *world = world_start(world_options());
    publish(world, "overview", 1, 10);
    for (size_t i = 0; i < COUNT_OF(messages); i++) {
        struct ws_client client;
        assert_int_equal(viewer_try(world, &client, COOKIE), 101);
        assert_true(ws_send_text(&client, messages[i]));
        int code = ws_read_close(&client);
        if (code != 4005)
            fail_msg("message %zu: code %d", i, code);
        ws_done(&client);
    }
    world_stop(world);
}

static void expect_close_after(struct world *world, int opcode, const void *data, size_t bytes,
                               unsigned times, int code)
{
    struct ws_client client;
    viewer_join(world, &client, "{\"t\":\"hello\",\"sub\":[]}");
    for (unsigned i = 0; i < times; i++)
        if (!ws_send(&client, opcode, data, bytes))
            break;
    assert_int_equal(ws_read_close(&client), code);
    ws_done(&client);
}

static void test_limits(void **state)
{
    (void)state;
    static const char sub[] = "{\"t\":\"sub\",\"add\":[]}";
    static const char hello[] = "{\"t\":\"hello\",\"sub\":[]}";
    struct world *world = world_start(world_options());
    char *large = calloc(1, 65537);
    memset(large, '[', 65537);
    expect_close_after(world, WS_TEXT, large, 65537, 1, 4006);
    expect_close_after(world, WS_TEXT, large, 65536, 1, 4005);
    expect_close_after(world, WS_BINARY, "x", 1, 1, 4005);
    expect_close_after(world, WS_TEXT, hello, sizeof hello - 1, 1, 4005); /* a second hello */
    expect_close_after(world, WS_TEXT, sub, sizeof sub - 1, 100, 4005);   /* too many a second */
    free(large);
    world_stop(world);
}

static void test_hello_deadline_and_silence(void **state)
{
    (void)state;
    struct hub_options options = world_options();
    options.hello_deadline_ms = 100;
    options.timers.ping_ms = 100;
    options.timers.silence_ms = 300;
    struct world *world = world_start(options);
    struct ws_client client;
    assert_int_equal(viewer_try(world, &client, COOKIE), 101);
    assert_int_equal(ws_read_close(&client), 4000 + END_HANDSHAKE_TIMEOUT);
    ws_done(&client);
    viewer_join(world, &client, "{\"t\":\"hello\",\"sub\":[]}");
    client.is_mute = true;
    assert_int_equal(ws_read_close(&client), 4000 + END_SILENCE);
    ws_done(&client);
    world_stop(world);
}

static void *drain(void *context)
{
    hub_drain(((struct world *)context)->hub, 20000);
    return NULL;
}

static void test_drain(void **state)
{
    (void)state;
    struct world *world = world_start(world_options());
    struct ws_client client;
    pthread_t thread;
    viewer_join(world, &client, "{\"t\":\"hello\",\"sub\":[]}");
    world_stop_accepting(world);
    assert_int_equal(pthread_create(&thread, NULL, drain, world), 0);
    json_t *bye = read_json(&client);
    assert_string_equal(json_string_value(json_object_get(bye, "t")), "bye");
    assert_string_equal(json_string_value(json_object_get(bye, "code")), "draining");
    assert_int_equal(json_integer_value(json_object_get(bye, "retry_ms")), 4000);
    json_decref(bye);
    assert_int_equal(ws_read_close(&client), 4000 + END_DRAINING);
    pthread_join(thread, NULL);
    publish(world, "overview", 1, 10); /* nothing happens */
    hub_unpublish(world->hub, "overview");
    ws_done(&client);
    world_stop(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permission),
        cmocka_unit_test(test_long_headers),
        cmocka_unit_test(test_viewers_max),
        cmocka_unit_test(test_welcome_snapshot_deltas),
        cmocka_unit_test(test_sub_resync_gone),
        cmocka_unit_test(test_resumption),
        cmocka_unit_test(test_slow_viewer_is_conflated),
        cmocka_unit_test(test_heartbeat),
        cmocka_unit_test(test_hostile_messages),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_hello_deadline_and_silence),
        cmocka_unit_test(test_drain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
