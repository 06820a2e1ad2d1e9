/* One epoll loop over all members; see the header. Surprising: timers are a look at every member in
 * each turn, at most every 10 ms: for some thousand members that costs less than a queue is worth,
 * and the real agent's timers are no finer. */
#include "tests/support/fleet.h"

#include "agent/session/backoff.h"
#include "agent/session/identity.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/codec/codec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define TICK_US 10000
#define OPENING_MS 30000 /* as in session.c */
#define CLOSING_MS 1000  /* as in session.c */
#define CLOSE_CODE_BASE 4000
#define IN_BYTES_MAX 2048 /* challenge, welcome, bye and the handshake's answer are far shorter */
#define OUT_BYTES_MAX 4096
#define EVENTS_PER_TURN 256
#define WINDOW_COUNT 16384 /* moments remembered; more than that in a second is not told apart */

enum opcode { OP_TEXT = 1, OP_BINARY = 2, OP_CLOSE = 8, OP_PING = 9, OP_PONG = 10 };

enum member_state {
    MEMBER_AWAY,
    MEMBER_CONNECTING,
    MEMBER_UPGRADING,
    MEMBER_CHALLENGED, /* waiting for it */
    MEMBER_PROVING,
    MEMBER_OPEN,
    MEMBER_CLOSING,
    MEMBER_STOPPED,
};

struct member {
    struct fleet *fleet;
    int fd; /* -1: none */
    enum member_state state;
    int64_t since_us; /* of the state */
    int64_t retry_us; /* when to try again, while away */
    int64_t heard_us, ping_us;
    uint64_t ping_ms, silence_ms;
    struct identity identity;
    struct backoff backoff;
    bool was_welcomed; /* in this session */
    bool had_session;  /* ever */
    bool ending;
    enum end_reason end_reason, last_end;
    uint64_t retry_ms;
    size_t in_bytes;
    uint8_t in[IN_BYTES_MAX];
};

/* The moments of the last second, for the most in any second. */
struct window {
    int64_t times_us[WINDOW_COUNT];
    uint64_t first, end;
};

struct fleet {
    struct sockaddr_in address;
    char invite[129];
    int epoll;
    int64_t ticked_us;
    struct fleet_phase phase;
    struct window accepts, welcomes;
    uint32_t count;
    struct member members[];
};

static uint32_t window_add(struct window *window, int64_t now_us)
{
    window->times_us[window->end++ % WINDOW_COUNT] = now_us;
    while (window->end - window->first > WINDOW_COUNT ||
           window->times_us[window->first % WINDOW_COUNT] <= now_us - 1000000)
        window->first++;
    return (uint32_t)(window->end - window->first);
}

/* --- ends ------------------------------------------------------------------------------------- */

static void set_state(struct member *member, enum member_state state)
{
    member->state = state;
    member->since_us = clock_monotonic_us();
}

/* Remembers the first reason; later ones are consequences. */
static void note_end(struct member *member, enum end_reason reason)
{
    if (!member->ending)
        member->end_reason = reason;
    member->ending = true;
}

static void count_end(struct member *member)
{
    struct fleet_phase *phase = &member->fleet->phase;
    unsigned place = (unsigned)member->end_reason;
    if (place >= FLEET_REASONS)
        place = FLEET_REASONS - 1;
    if (!member->was_welcomed) {
        phase->attempt_fails[place]++;
        return;
    }
    phase->session_ends[place]++;
    phase->counts.losses++;
    phase->connected--;
    phase->complete_time_ms = 0;
    if (phase->connected < phase->connected_min)
        phase->connected_min = phase->connected;
}

/* The one exit of every session and attempt: what session.c does in the function of this name. */
static void finish(struct member *member, enum end_reason reason)
{
    note_end(member, reason);
    if (member->fd >= 0)
        close(member->fd);
    member->fd = -1;
    count_end(member);
    int64_t now_us = clock_monotonic_us();
    backoff_lost(&member->backoff, now_us);
    if (member->had_session)
        member->last_end = member->end_reason;
    if (!end_reason_may_reconnect(member->end_reason)) {
        member->fleet->phase.stopped++;
        set_state(member, MEMBER_STOPPED);
        return;
    }
    set_state(member, MEMBER_AWAY);
    member->retry_us = now_us + backoff_next_ms(&member->backoff, member->retry_ms) * 1000;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void send_all(struct member *member, const void *data, size_t bytes)
{
    /* What a member sends fits any socket's buffer, unless the coordinator does not read. */
    if (send(member->fd, data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        finish(member, errno == EAGAIN ? END_SLOW_READER : END_CONNECTION_LOST);
}

static void send_frame(struct member *member, enum opcode opcode, const void *data, size_t bytes)
{
    static const uint8_t mask[4] = {0x5a, 0x17, 0xc3, 0x08};
    uint8_t frame[8 + OUT_BYTES_MAX];
    size_t count = 0;
    if (bytes > OUT_BYTES_MAX) {
        finish(member, END_INTERNAL);
        return;
    }
    frame[count++] = (uint8_t)(0x80 | opcode);
    frame[count++] = (uint8_t)(0x80 | (bytes < 126 ? bytes : 126));
    if (bytes >= 126) {
        frame[count++] = (uint8_t)(bytes >> 8);
        frame[count++] = (uint8_t)bytes;
    }
    memcpy(frame + count, mask, sizeof mask);
    count += sizeof mask;
    for (size_t i = 0; i < bytes; i++)
        frame[count++] = (uint8_t)(((const uint8_t *)data)[i] ^ mask[i & 3]);
    send_all(member, frame, count);
}

static void send_close(struct member *member)
{
    unsigned code = CLOSE_CODE_BASE + (unsigned)member->end_reason;
    uint8_t data[2] = {(uint8_t)(code >> 8), (uint8_t)code};
    set_state(member, MEMBER_CLOSING);
    send_frame(member, OP_CLOSE, data, sizeof data);
}

static void send_request(struct member *member)
{
    static const char text[] = "GET /ws/agent HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
                               "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                               "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                               "Sec-WebSocket-Protocol: " WIRE_SUBPROTOCOL "\r\n\r\n";
    set_state(member, MEMBER_UPGRADING);
    send_all(member, text, sizeof text - 1);
}

/* --- messages --------------------------------------------------------------------------------- */

static void handle_challenge(struct member *member, const struct wire_challenge *challenge)
{
    struct fleet *fleet = member->fleet;
    struct wire_message message = {.type = WIRE_hello};
    struct wire_hello *hello = &message.hello;
    hello->protocol = WIRE_PROTOCOL;
    hello->agent_time_ms = (uint64_t)clock_wall_ms();
    hello->threads = 1;
    hello->memory_bytes = 1u << 30;
    text_copy(hello->agent_version, sizeof hello->agent_version, RAVEN_VERSION);
    text_copy(hello->cpu, sizeof hello->cpu, "scripted");
    text_copy(hello->backend, sizeof hello->backend, "none");
    text_copy(hello->codecs, sizeof hello->codecs, CODEC_NAME);
    snprintf(hello->label, sizeof hello->label, "scripted-%05u",
             (unsigned)(member - fleet->members));
    memcpy(hello->public_key, member->identity.public_key, sizeof hello->public_key);
    identity_sign_hello(&member->identity, challenge->nonce, hello->signature);
    if (member->had_session)
        text_copy(hello->last_end, sizeof hello->last_end, end_reason_name(member->last_end));
    else
        text_copy(hello->invite, sizeof hello->invite, fleet->invite);
    struct buffer text;
    buffer_init(&text, OUT_BYTES_MAX);
    set_state(member, MEMBER_PROVING);
    if (wire_encode(&message, &text))
        finish(member, END_INTERNAL);
    else
        send_frame(member, OP_TEXT, text.data, text.bytes);
    buffer_done(&text);
}

static void handle_welcome(struct member *member, const struct wire_welcome *welcome)
{
    struct fleet *fleet = member->fleet;
    struct fleet_phase *phase = &fleet->phase;
    int64_t now_us = clock_monotonic_us();
    member->ping_ms = welcome->ping_ms;
    member->silence_ms = welcome->silence_ms;
    member->ping_us = now_us;
    member->had_session = true;
    member->was_welcomed = true;
    backoff_connected(&member->backoff, welcome->reconnect_spread_ms, welcome->stall_ms, now_us);
    set_state(member, MEMBER_OPEN);
    phase->counts.welcomes++;
    uint32_t in_second = window_add(&fleet->welcomes, now_us);
    if (in_second > phase->welcomes_per_s_max)
        phase->welcomes_per_s_max = in_second;
    if (++phase->connected == fleet->count)
        phase->complete_time_ms = clock_wall_ms();
    send_frame(member, OP_PING, NULL, 0);
}

static void handle_bye(struct member *member, const struct wire_bye *bye)
{
    note_end(member, (enum end_reason)(bye->code <= 1000 ? bye->code : END_PEER_CLOSED));
    member->retry_ms = bye->retry_ms;
    send_close(member);
}

static void handle_text(struct member *member, const uint8_t *data, size_t bytes)
{
    struct wire_message message;
    struct error err = {0};
    if (wire_decode((const char *)data, bytes, WIRE_FROM_COORDINATOR, &message, &err))
        finish(member, END_PROTOCOL_ERROR);
    else if (message.type == WIRE_spread)
        backoff_spread(&member->backoff, message.spread.reconnect_spread_ms);
    else if (message.type == WIRE_bye)
        handle_bye(member, &message.bye);
    else if (message.type == WIRE_challenge && member->state == MEMBER_CHALLENGED)
        handle_challenge(member, &message.challenge);
    else if (message.type == WIRE_welcome && member->state == MEMBER_PROVING)
        handle_welcome(member, &message.welcome);
    else if (member->state != MEMBER_OPEN)
        finish(member, END_PROTOCOL_ERROR);
}

static void handle_close(struct member *member, const uint8_t *data, size_t bytes)
{
    unsigned code = bytes >= 2 ? (unsigned)(data[0] << 8 | data[1]) : 0;
    bool is_ours = code >= CLOSE_CODE_BASE && code < CLOSE_CODE_BASE + 1000;
    note_end(member, is_ours ? (enum end_reason)(code - CLOSE_CODE_BASE) : END_PEER_CLOSED);
    if (member->state != MEMBER_CLOSING)
        send_close(member);
}

static void handle_frame(struct member *member, unsigned opcode, const uint8_t *data, size_t bytes)
{
    if (opcode == OP_PING)
        send_frame(member, OP_PONG, data, bytes);
    else if (opcode == OP_CLOSE)
        handle_close(member, data, bytes);
    else if (opcode == OP_TEXT && member->state != MEMBER_CLOSING)
        handle_text(member, data, bytes);
    else if (opcode != OP_PONG && opcode != OP_TEXT)
        finish(member, END_PROTOCOL_ERROR); /* nobody sends data to an agent without work */
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The bytes at the start of `in` that were used; 0: more are needed, or it is over. */
static size_t take_answer(struct member *member)
{
    static const char switched[] = "HTTP/1.1 101 ";
    const uint8_t *end = memmem(member->in, member->in_bytes, "\r\n\r\n", 4);
    if (!end)
        return 0;
    if (memcmp(member->in, switched, sizeof switched - 1) != 0) {
        finish(member, END_PEER_CLOSED);
        return 0;
    }
    set_state(member, MEMBER_CHALLENGED);
    return (size_t)(end - member->in) + 4;
}

static size_t take_frame(struct member *member)
{
    const uint8_t *in = member->in;
    if (member->in_bytes < 4 && (member->in_bytes < 2 || in[1] >= 126))
        return 0;
    size_t header = in[1] == 126 ? 4 : 2;
    size_t bytes = in[1] == 126 ? (size_t)(in[2] << 8 | in[3]) : in[1];
    if (in[1] > 126 || !(in[0] & 0x80) || header + bytes > IN_BYTES_MAX) {
        finish(member, END_TOO_LARGE);
        return 0;
    }
    if (member->in_bytes < header + bytes)
        return 0;
    handle_frame(member, in[0] & 15u, in + header, bytes);
    return member->fd < 0 ? 0 : header + bytes;
}

static void take_all(struct member *member)
{
    for (;;) {
        size_t used = member->state == MEMBER_UPGRADING ? take_answer(member) : take_frame(member);
        if (used == 0)
            return;
        member->in_bytes -= used;
        memmove(member->in, member->in + used, member->in_bytes);
    }
}

static void on_readable(struct member *member)
{
    while (member->fd >= 0) {
        size_t room = IN_BYTES_MAX - member->in_bytes;
        ssize_t got = room ? recv(member->fd, member->in + member->in_bytes, room, 0) : 0;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            finish(member, room ? END_CONNECTION_LOST : END_TOO_LARGE);
            return;
        }
        member->heard_us = clock_monotonic_us();
        member->in_bytes += (size_t)got;
        take_all(member);
    }
}

/* --- connecting ------------------------------------------------------------------------------- */

static void on_established(struct member *member)
{
    struct fleet *fleet = member->fleet;
    int failure = 0, on = 1;
    socklen_t bytes = sizeof failure;
    if (getsockopt(member->fd, SOL_SOCKET, SO_ERROR, &failure, &bytes) || failure) {
        finish(member, END_CONNECTION_LOST);
        return;
    }
    fleet->phase.counts.accepts++;
    uint32_t in_second = window_add(&fleet->accepts, clock_monotonic_us());
    if (in_second > fleet->phase.accepts_per_s_max)
        fleet->phase.accepts_per_s_max = in_second;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = member};
    epoll_ctl(fleet->epoll, EPOLL_CTL_MOD, member->fd, &event);
    setsockopt(member->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    send_request(member);
}

static void connect_now(struct member *member)
{
    struct fleet *fleet = member->fleet;
    struct epoll_event event = {.events = EPOLLOUT, .data.ptr = member};
    member->ending = false;
    member->was_welcomed = false;
    member->retry_ms = 0;
    member->in_bytes = 0;
    member->heard_us = clock_monotonic_us();
    fleet->phase.counts.attempts++;
    set_state(member, MEMBER_CONNECTING);
    member->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (member->fd < 0 || epoll_ctl(fleet->epoll, EPOLL_CTL_ADD, member->fd, &event))
        finish(member, END_INTERNAL);
    else if (connect(member->fd, (struct sockaddr *)&fleet->address, sizeof fleet->address) &&
             errno != EINPROGRESS)
        finish(member, END_CONNECTION_LOST);
}

static void tick(struct member *member, int64_t now_us)
{
    int64_t in_state_ms = (now_us - member->since_us) / 1000;
    switch (member->state) {
    case MEMBER_AWAY:
        if (now_us >= member->retry_us)
            connect_now(member);
        break;
    case MEMBER_CONNECTING:
    case MEMBER_UPGRADING:
    case MEMBER_CHALLENGED:
    case MEMBER_PROVING:
        if (in_state_ms > OPENING_MS)
            finish(member, END_HANDSHAKE_TIMEOUT);
        break;
    case MEMBER_OPEN:
        if (now_us - member->heard_us > (int64_t)member->silence_ms * 1000) {
            finish(member, END_SILENCE);
        } else if (now_us - member->ping_us >= (int64_t)member->ping_ms * 1000) {
            member->ping_us = now_us;
            send_frame(member, OP_PING, NULL, 0);
        }
        break;
    case MEMBER_CLOSING:
        if (in_state_ms >= CLOSING_MS)
            finish(member, member->end_reason);
        break;
    case MEMBER_STOPPED:
        break;
    }
}

enum status fleet_turn(struct fleet *fleet, int wait_ms, struct error *err)
{
    struct epoll_event events[EVENTS_PER_TURN];
    int count = epoll_wait(fleet->epoll, events, EVENTS_PER_TURN, wait_ms);
    if (count < 0 && errno != EINTR)
        return error_set_errno(err, errno, "waiting for the fleet's sockets");
    for (int i = 0; i < count; i++) {
        struct member *member = events[i].data.ptr;
        if (member->state == MEMBER_CONNECTING)
            on_established(member);
        else
            on_readable(member);
    }
    int64_t now_us = clock_monotonic_us();
    if (now_us - fleet->ticked_us < TICK_US)
        return STATUS_OK;
    fleet->ticked_us = now_us;
    for (uint32_t i = 0; i < fleet->count; i++)
        tick(&fleet->members[i], now_us);
    return STATUS_OK;
}

/* --- life ------------------------------------------------------------------------------------- */

static void make_member(struct fleet *fleet, uint32_t number, const struct fleet_options *options)
{
    struct member *member = &fleet->members[number];
    uint8_t source[16], seed[crypto_sign_SEEDBYTES];
    store_u64(source, options->seed);
    store_u64(source + 8, number);
    crypto_generichash(seed, sizeof seed, source, sizeof source, NULL, 0);
    crypto_sign_seed_keypair(member->identity.public_key, member->identity.secret_key, seed);
    backoff_init(&member->backoff, load_u64(seed));
    member->fleet = fleet;
    member->fd = -1;
    member->retry_us = clock_monotonic_us();
    if (options->starts_per_s > 0)
        member->retry_us += (int64_t)number * 1000000 / options->starts_per_s;
}

enum status fleet_create(const struct fleet_options *options, struct fleet **ret, struct error *err)
{
    if (options->count == 0 || options->count > FLEET_MEMBERS_MAX)
        return error_set(err, STATUS_INVALID, "a fleet has 1 to %d members", FLEET_MEMBERS_MAX);
    if (sodium_init() < 0)
        return error_set(err, STATUS_SYSTEM, "the cryptographic library does not start");
    struct fleet *fleet = calloc(1, sizeof *fleet + options->count * sizeof fleet->members[0]);
    if (!fleet)
        return error_set(err, STATUS_NO_MEMORY, "no memory for %u members", options->count);
    fleet->count = options->count;
    fleet->address.sin_family = AF_INET;
    fleet->address.sin_port = htons(options->port);
    text_copy(fleet->invite, sizeof fleet->invite, options->invite);
    for (uint32_t i = 0; i < options->count; i++)
        make_member(fleet, i, options);
    fleet->epoll = epoll_create1(EPOLL_CLOEXEC);
    enum status status = STATUS_OK;
    if (fleet->epoll < 0)
        status = error_set_errno(err, errno, "making the fleet's epoll");
    else if (inet_pton(AF_INET, options->host, &fleet->address.sin_addr) != 1)
        status = error_set(err, STATUS_INVALID, "%s is no numeric IPv4 address", options->host);
    if (status) {
        fleet_free(fleet);
        return status;
    }
    fleet_begin_phase(fleet);
    *ret = fleet;
    return STATUS_OK;
}

void fleet_free(struct fleet *fleet)
{
    if (!fleet)
        return;
    for (uint32_t i = 0; i < fleet->count; i++) {
        if (fleet->members[i].fd >= 0)
            close(fleet->members[i].fd);
        identity_wipe(&fleet->members[i].identity);
    }
    if (fleet->epoll >= 0)
        close(fleet->epoll);
    free(fleet);
}

void fleet_begin_phase(struct fleet *fleet)
{
    const struct fleet_phase before = fleet->phase;
    fleet->phase = (struct fleet_phase){.connected = before.connected,
                                        .connected_min = before.connected,
                                        .stopped = before.stopped,
                                        .begun_time_ms = clock_wall_ms(),
                                        .complete_time_ms = before.complete_time_ms};
}

const struct fleet_phase *fleet_read_phase(const struct fleet *fleet)
{
    return &fleet->phase;
}
