/* A running hub with a listener of its own in front of it, and a record of everything it reported.
 * The callbacks answer as a coordinator would: challenge, welcome (its session is hello's label),
 * and a wait for each request. */
#ifndef RAVEN_TESTS_HUB_FIXTURE_H
#define RAVEN_TESTS_HUB_FIXTURE_H

#include "common/base/bytes.h"
#include "coordinator/hub/hub.h"
#include "tests/unit/coordinator/hub/ws_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <time.h>

#ifndef WORLD_PEERS_MAX
#define WORLD_PEERS_MAX 1024
#endif
#define WORLD_STREAM_BYTES_MAX (1u << 20)

struct world_peer {
    bool opened;
    unsigned closed_count;
    unsigned after_close_count; /* messages and frames after agent_closed: always wrong */
    unsigned message_count;
    enum wire_type last_type;
    size_t frame_bytes;
    enum end_reason reason;
    char detail[200];
    char address[64];
};

struct world {
    struct hub *hub;
    int listener;
    uint16_t port;
    pthread_t acceptor;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct world_peer peers[WORLD_PEERS_MAX]; /* by peer number */
    uint64_t opened_count, closed_count;
    bool accepts_hello; /* answers hello by itself */
    struct hub_viewer_handshake handshake;
    char stream[WORLD_STREAM_BYTES_MAX];
};

static inline struct world_peer *world_peer(struct world *world, uint64_t peer)
{
    assert_true(peer > 0 && peer < WORLD_PEERS_MAX);
    return &world->peers[peer];
}

static inline void world_opened(void *context, uint64_t peer, const char *address)
{
    struct world *world = context;
    pthread_mutex_lock(&world->lock);
    world_peer(world, peer)->opened = true;
    text_copy(world_peer(world, peer)->address, 64, address);
    world->opened_count++;
    pthread_cond_broadcast(&world->changed);
    pthread_mutex_unlock(&world->lock);
    struct wire_message challenge = {.type = WIRE_challenge, .challenge = {.protocol = 1}};
    assert_int_equal(hub_send(world->hub, peer, &challenge), STATUS_OK);
}

static inline void world_answer(struct world *world, uint64_t peer,
                                const struct wire_message *message)
{
    struct wire_message answer = {0};
    if (message->type == WIRE_hello && world->accepts_hello) {
        hub_agent_accept(world->hub, peer);
        answer.type = WIRE_welcome;
        text_copy(answer.welcome.session, sizeof answer.welcome.session, message->hello.label);
    } else if (message->type == WIRE_request) {
        answer.type = WIRE_wait;
        answer.wait.nonce = message->request.nonce;
    }
    if (answer.type) {
        enum status status = hub_send(world->hub, peer, &answer);
        assert_true(status == STATUS_OK || status == STATUS_NOT_FOUND);
    }
}

static inline void world_message(void *context, uint64_t peer, const struct wire_message *message)
{
    struct world *world = context;
    pthread_mutex_lock(&world->lock);
    struct world_peer *seen = world_peer(world, peer);
    seen->after_close_count += seen->closed_count;
    seen->message_count++;
    seen->last_type = message->type;
    pthread_cond_broadcast(&world->changed);
    pthread_mutex_unlock(&world->lock);
    world_answer(world, peer, message);
}

static inline void world_frame(void *context, uint64_t peer, const struct frame *frame)
{
    struct world *world = context;
    pthread_mutex_lock(&world->lock);
    struct world_peer *seen = world_peer(world, peer);
    seen->after_close_count += seen->closed_count;
    seen->frame_bytes += frame->payload_bytes;
    if (frame->offset + frame->payload_bytes <= sizeof world->stream)
        memcpy(world->stream + frame->offset, frame->payload, frame->payload_bytes);
    pthread_cond_broadcast(&world->changed);
    pthread_mutex_unlock(&world->lock);
}

static inline void world_closed(void *context, uint64_t peer, enum end_reason reason,
                                const char *detail)
{
    struct world *world = context;
    pthread_mutex_lock(&world->lock);
    struct world_peer *seen = world_peer(world, peer);
    seen->closed_count++;
    seen->reason = reason;
    text_copy(seen->detail, sizeof seen->detail, detail);
    world->closed_count++;
    pthread_cond_broadcast(&world->changed);
    pthread_mutex_unlock(&world->lock);
}

/* Cookie "good", or bearer "key" without a cookie, may look. */
static inline bool world_allowed(void *context, const struct hub_viewer_handshake *handshake)
{
    struct world *world = context;
    pthread_mutex_lock(&world->lock);
    world->handshake = *handshake;
    pthread_mutex_unlock(&world->lock);
    return strcmp(handshake->cookie, "s=good") == 0 || strcmp(handshake->bearer, "key") == 0;
}

static inline void *world_accept(void *context)
{
    struct world *world = context;
    for (;;) {
        int fd = accept4(world->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return NULL;
        hub_adopt(world->hub, fd, "192.0.2.7");
    }
}

static inline struct hub_options world_options(void)
{
    return (struct hub_options){.timers = {20000, 45000, 60000, 80000, 5000},
                                .hello_deadline_ms = 30000,
                                .data_frame_bytes = FRAME_PAYLOAD_BYTES_MAX,
                                .agent_queue_bytes_max = 64u << 20,
                                .viewers_max = 8};
}

static inline struct world *world_start(struct hub_options options)
{
    struct world *world = calloc(1, sizeof *world);
    pthread_mutex_init(&world->lock, NULL);
    pthread_cond_init(&world->changed, NULL);
    world->accepts_hello = true;
    options.callbacks = (struct hub_callbacks){.context = world,
                                               .agent_opened = world_opened,
                                               .agent_message = world_message,
                                               .agent_frame = world_frame,
                                               .agent_closed = world_closed,
                                               .viewer_allowed = world_allowed};
    struct error err = {0};
    if (hub_start(&options, &world->hub, &err))
        fail_msg("%s", err.text);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    world->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(world->listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(world->listener, 512), 0);
    assert_int_equal(getsockname(world->listener, (struct sockaddr *)&address, &bytes), 0);
    world->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&world->acceptor, NULL, world_accept, world), 0);
    return world;
}

static inline void world_stop_accepting(struct world *world)
{
    if (world->listener < 0)
        return;
    shutdown(world->listener, SHUT_RDWR);
    pthread_join(world->acceptor, NULL);
    close(world->listener);
    world->listener = -1;
}

/* Stops everything and checks what must hold in every test. */
static inline void world_stop(struct world *world)
{
    world_stop_accepting(world);
    hub_stop(world->hub, 0);
    uint64_t opened = 0;
    for (size_t i = 0; i < WORLD_PEERS_MAX; i++) {
        const struct world_peer *peer = &world->peers[i];
        opened += peer->opened;
        assert_int_equal(peer->closed_count, peer->opened ? 1 : 0);
        assert_int_equal(peer->after_close_count, 0);
    }
    assert_int_equal(opened, world->opened_count);
    assert_int_equal(opened, world->closed_count);
    pthread_mutex_destroy(&world->lock);
    pthread_cond_destroy(&world->changed);
    free(world);
}

/* Waits until condition (evaluated under the lock) holds; fails the test after GUARD_S. */
#define world_wait(world, condition)                                                               \
    do {                                                                                           \
        struct timespec until;                                                                     \
        clock_gettime(CLOCK_REALTIME, &until);                                                     \
        until.tv_sec += GUARD_S;                                                                   \
        int error = 0;                                                                             \
        pthread_mutex_lock(&(world)->lock);                                                        \
        while (!(condition) && error == 0)                                                         \
            error = pthread_cond_timedwait(&(world)->changed, &(world)->lock, &until);             \
        bool holds = (condition);                                                                  \
        pthread_mutex_unlock(&(world)->lock);                                                      \
        if (!holds)                                                                                \
            fail_msg("never came true: %s", #condition);                                           \
    } while (0)

/* --- an agent's side --- */

static inline void agent_send(struct ws_client *client, const struct wire_message *message)
{
    struct buffer text;
    buffer_init(&text, WIRE_TEXT_BYTES_MAX);
    assert_int_equal(wire_encode(message, &text), STATUS_OK);
    assert_true(ws_send(client, WS_TEXT, text.data, text.bytes));
    buffer_done(&text);
}

static inline void agent_read(struct ws_client *client, enum wire_type type,
                              struct wire_message *ret)
{
    struct error err = {0};
    assert_true(ws_read(client));
    assert_int_equal(client->opcode, WS_TEXT);
    if (wire_decode((const char *)client->data, client->bytes, WIRE_FROM_COORDINATOR, ret, &err))
        fail_msg("%s", err.text);
    assert_string_equal(wire_type_name(ret->type), wire_type_name(type));
}

static inline void agent_connect(struct world *world, struct ws_client *client, int receive_bytes)
{
    struct wire_message message;
    assert_true(ws_connect(client, world->port, receive_bytes));
    assert_int_equal(ws_handshake(client, "/ws/agent", WIRE_SUBPROTOCOL, NULL), 101);
    agent_read(client, WIRE_challenge, &message);
}

static inline void agent_hello(struct ws_client *client, const char *label)
{
    struct wire_message message = {.type = WIRE_hello};
    text_copy(message.hello.label, sizeof message.hello.label, label);
    agent_send(client, &message);
}

/* Connects, says hello and reads welcome. */
static inline void agent_join(struct world *world, struct ws_client *client, const char *label)
{
    struct wire_message message;
    agent_connect(world, client, 0);
    agent_hello(client, label);
    agent_read(client, WIRE_welcome, &message);
    assert_string_equal(message.welcome.session, label);
}

#endif
