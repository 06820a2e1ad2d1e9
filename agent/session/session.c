/* The session's state machine over one link. Loop thread. Every state is left by time as well as by
 * messages: a tick of at most one second checks the deadlines. Surprising decision: deadlines use
 * the clock that goes on during sleep, so a laptop that wakes reconnects at once. */
#include "agent/session/session.h"

#include "agent/session/backoff.h"
#include "agent/session/link.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/wire/timers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGENT_PATH "/ws/agent"
#define TICK_MS 1000
#define TICKS_PER_PING 16 /* or more: a tick is never longer than TICK_MS */
#define OPENING_MS 30000  /* connect, TLS, challenge, welcome */
#define CLOSING_MS 1000
#define CLOSE_CODE_BASE 4000
#define FRAME_MS 25 /* a data frame takes about that long on the link */
#define FRAME_BYTES_MIN 1024
#define WINDOW_MS 50 /* unacknowledged beyond 5/4 round trips: lost when the line breaks */
#define WINDOW_BYTES_MIN 32768
#define FIRST_WINDOW_BYTES 65536 /* while the goodput is not known */
#define FIRST_FRAME_BYTES 8192

struct session {
    struct session_settings settings;
    const struct session_events *events;
    void *user;
    struct link *link;
    struct backoff backoff;
    uv_timer_t retry_timer, tick_timer;
    unsigned timers_open;
    enum session_state state;
    int64_t state_since_us;
    int64_t heard_us, ping_us;
    uint64_t ping_ms, silence_ms, stall_ms, data_frame_bytes;
    double rtt_ms, rtt_ms_min;
    double up_bytes_per_s;    /* 0: not known */
    enum end_reason last_end; /* of the session before */
    bool had_session;
    bool stopping;
    /* Why the session ends, once that is known. */
    bool ending;
    enum end_reason end_reason;
    char end_text[320];
    uint64_t retry_ms;
};

static void set_state(struct session *session, enum session_state state)
{
    session->state = state;
    session->state_since_us = clock_monotonic_us();
}

/* Remembers the first reason; later ones are consequences. */
static void note_end(struct session *session, enum end_reason reason, const char *text)
{
    if (session->ending)
        return;
    session->ending = true;
    session->end_reason = reason;
    snprintf(session->end_text, sizeof session->end_text, "%s",
             text && text[0] ? text : end_reason_text(reason));
}

static void connect_now(struct session *session)
{
    session->ending = false;
    session->retry_ms = 0;
    session->heard_us = clock_monotonic_us();
    set_state(session, SESSION_CONNECTING);
    link_connect(session->link, &session->settings.url, AGENT_PATH, WIRE_SUBPROTOCOL);
}

static void on_retry(uv_timer_t *timer)
{
    connect_now(timer->data);
}

static void on_tick(uv_timer_t *timer);

static void tick_each(struct session *session, uint64_t interval_ms)
{
    if (interval_ms > TICK_MS)
        interval_ms = TICK_MS;
    uv_timer_start(&session->tick_timer, on_tick, interval_ms, interval_ms);
}

/* The one exit of every session and attempt. */
static void finish(struct session *session)
{
    if (session->state == SESSION_STOPPED || session->state == SESSION_AWAY)
        return;
    backoff_lost(&session->backoff, clock_monotonic_us());
    if (session->had_session)
        session->last_end = session->end_reason;
    if (session->stopping || !end_reason_may_reconnect(session->end_reason)) {
        set_state(session, SESSION_STOPPED);
        uv_timer_stop(&session->tick_timer);
        uv_timer_stop(&session->retry_timer);
        session->events->stopped(session->user, session->end_reason, session->end_text);
        return;
    }
    set_state(session, SESSION_AWAY);
    int64_t wait_ms = backoff_next_ms(&session->backoff, session->retry_ms);
    if (session->settings.backoff_ms_max > 0 && wait_ms > session->settings.backoff_ms_max)
        wait_ms = session->settings.backoff_ms_max;
    uv_timer_start(&session->retry_timer, on_retry, (uint64_t)wait_ms, 0);
    session->events->lost(session->user, session->end_reason, session->end_text, wait_ms);
}

/* Without a bye: the other side is silent or gone. */
static void cut(struct session *session, enum end_reason reason, const char *text)
{
    note_end(session, reason, text);
    link_drop(session->link);
    finish(session);
}

static enum status send_message(struct session *session, const struct wire_message *message)
{
    struct buffer text;
    buffer_init(&text, WIRE_TEXT_BYTES_MAX);
    enum status status = wire_encode(message, &text);
    if (!status)
        status = link_send_text(session->link, text.data, text.bytes);
    buffer_done(&text);
    if (status == STATUS_BUSY)
        cut(session, END_SLOW_READER, "the coordinator does not read what we send");
    return status;
}

void session_end(struct session *session, enum end_reason reason, const char *text)
{
    if (session->state == SESSION_AWAY || session->state == SESSION_STOPPED ||
        session->state == SESSION_CLOSING)
        return;
    note_end(session, reason, text);
    if (!link_is_open(session->link)) {
        cut(session, reason, text);
        return;
    }
    struct wire_message bye = {.type = WIRE_bye, .bye = {.code = reason}};
    text_copy(bye.bye.reason, sizeof bye.bye.reason, session->end_text);
    if (send_message(session, &bye) == STATUS_BUSY)
        return; /* it has cut the session */
    set_state(session, SESSION_CLOSING);
    link_close(session->link, (uint16_t)(CLOSE_CODE_BASE + reason));
}

/* --- messages --------------------------------------------------------------------------------- */

static void handle_challenge(struct session *session, const struct wire_challenge *challenge)
{
    char text[96];
    if (challenge->protocol != WIRE_PROTOCOL) {
        snprintf(text, sizeof text, "the coordinator speaks protocol %llu, this agent %d",
                 (unsigned long long)challenge->protocol, WIRE_PROTOCOL);
        session_end(session, END_VERSION_UNSUPPORTED, text);
        return;
    }
    struct wire_message message = {.type = WIRE_hello};
    struct wire_hello *hello = &message.hello;
    session->events->describe(session->user, hello);
    hello->protocol = WIRE_PROTOCOL;
    hello->agent_time_ms = (uint64_t)clock_wall_ms();
    memcpy(hello->public_key, session->settings.identity->public_key, sizeof hello->public_key);
    identity_sign_hello(session->settings.identity, challenge->nonce, hello->signature);
    text_copy(hello->invite, sizeof hello->invite, session->settings.invite);
    if (session->had_session)
        text_copy(hello->last_end, sizeof hello->last_end, end_reason_name(session->last_end));
    enum status status = send_message(session, &message);
    explicit_bzero(hello->invite, sizeof hello->invite);
    if (!status)
        set_state(session, SESSION_PROVING);
}

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static void handle_welcome(struct session *session, const struct wire_welcome *welcome)
{
    uint64_t ping_min_ms = clamp(welcome->ping_min_ms, 100, 300000);
    struct timers timers = {.ping_ms = clamp(welcome->ping_ms, ping_min_ms, 300000),
                            .silence_ms = clamp(welcome->silence_ms, 200, 1200000),
                            .stall_ms = clamp(welcome->stall_ms, 300, 2400000),
                            .lease_ms = UINT64_MAX};
    struct error err = {0};
    if (timers_check(&timers, &err)) {
        session_end(session, END_PROTOCOL_ERROR, err.text);
        return;
    }
    session->ping_ms = timers.ping_ms;
    session->silence_ms = timers.silence_ms;
    session->stall_ms = timers.stall_ms;
    session->data_frame_bytes = clamp(welcome->data_frame_bytes, 1, FRAME_PAYLOAD_BYTES_MAX);
    session->ping_us = clock_monotonic_us();
    session->rtt_ms = session->rtt_ms_min = 0;
    session->had_session = true;
    explicit_bzero(session->settings.invite, sizeof session->settings.invite);
    backoff_connected(&session->backoff, welcome->reconnect_spread_ms, session->stall_ms,
                      session->ping_us);
    link_ping(session->link);
    tick_each(session, session->ping_ms / TICKS_PER_PING);
    set_state(session, SESSION_OPEN);
    session->events->welcome(session->user, welcome);
}

static void handle_bye(struct session *session, const struct wire_bye *bye)
{
    enum end_reason reason = (enum end_reason)(bye->code <= 1000 ? bye->code : END_PEER_CLOSED);
    session->retry_ms = bye->retry_ms;
    note_end(session, reason, bye->reason);
    set_state(session, SESSION_CLOSING);
    link_close(session->link, (uint16_t)(CLOSE_CODE_BASE + reason));
}

static void dispatch(struct session *session, const struct wire_message *message)
{
    if (message->type == WIRE_bye)
        handle_bye(session, &message->bye);
    else if (message->type == WIRE_challenge && session->state == SESSION_CONNECTING)
        handle_challenge(session, &message->challenge);
    else if (message->type == WIRE_welcome && session->state == SESSION_PROVING)
        handle_welcome(session, &message->welcome);
    else if (message->type == WIRE_spread && session->state == SESSION_OPEN)
        backoff_spread(&session->backoff, message->spread.reconnect_spread_ms);
    else if (session->state == SESSION_OPEN && message->type != WIRE_challenge &&
             message->type != WIRE_welcome)
        session->events->message(session->user, message);
    else
        session_end(session, END_PROTOCOL_ERROR, "a message came at the wrong moment");
}

/* --- events of the link ----------------------------------------------------------------------- */

static void on_open(void *user)
{
    (void)user; /* the coordinator speaks first */
}

static void on_text(void *user, const char *text, size_t bytes)
{
    struct session *session = user;
    if (session->state == SESSION_CLOSING)
        return;
    struct wire_message message;
    struct error err = {0};
    if (wire_decode(text, bytes, WIRE_FROM_COORDINATOR, &message, &err))
        session_end(session, END_PROTOCOL_ERROR, err.text);
    else
        dispatch(session, &message);
}

static void on_binary(void *user, const uint8_t *data, size_t bytes)
{
    struct session *session = user;
    if (session->state == SESSION_CLOSING)
        return;
    struct frame frame;
    if (session->state != SESSION_OPEN || frame_read(data, bytes, &frame))
        session_end(session, END_PROTOCOL_ERROR, "a damaged data frame came");
    else
        session->events->frame(session->user, &frame);
}

static void on_heard(void *user)
{
    struct session *session = user;
    session->heard_us = clock_monotonic_us();
}

static void on_pong(void *user, int64_t round_trip_us)
{
    struct session *session = user;
    double sample_ms = (double)round_trip_us / 1000.0;
    session->rtt_ms = session->rtt_ms > 0 ? 0.875 * session->rtt_ms + 0.125 * sample_ms : sample_ms;
    if (session->rtt_ms_min <= 0 || sample_ms < session->rtt_ms_min)
        session->rtt_ms_min = sample_ms;
}

static size_t on_next_binary(void *user, uint8_t *ret, size_t bytes_max)
{
    struct session *session = user;
    if (session->state != SESSION_OPEN)
        return 0;
    size_t payload_max = bytes_max - FRAME_HEADER_BYTES;
    if (payload_max > session->data_frame_bytes)
        payload_max = (size_t)session->data_frame_bytes;
    uint64_t frame = FIRST_FRAME_BYTES, window = FIRST_WINDOW_BYTES;
    if (session->up_bytes_per_s > 0) {
        double window_ms = 1.25 * session->rtt_ms_min + WINDOW_MS;
        frame = clamp((uint64_t)(session->up_bytes_per_s * FRAME_MS / 1e3), FRAME_BYTES_MIN,
                      FRAME_PAYLOAD_BYTES_MAX);
        window = clamp((uint64_t)(session->up_bytes_per_s * window_ms / 1e3), WINDOW_BYTES_MIN,
                       UINT64_MAX);
    }
    if (payload_max > frame)
        payload_max = (size_t)frame;
    return session->events->next_frame(session->user, payload_max, window, ret);
}

static void on_closed(void *user, uint16_t close_code, const char *text)
{
    struct session *session = user;
    if (close_code >= CLOSE_CODE_BASE && close_code < CLOSE_CODE_BASE + 1000)
        note_end(session, (enum end_reason)(close_code - CLOSE_CODE_BASE), text);
    note_end(session, close_code == LINK_CLOSE_NONE ? END_CONNECTION_LOST : END_PEER_CLOSED, text);
    finish(session);
}

static void on_tick(uv_timer_t *timer)
{
    struct session *session = timer->data;
    int64_t now_us = clock_monotonic_us();
    int64_t in_state_ms = (now_us - session->state_since_us) / 1000;
    switch (session->state) {
    case SESSION_CONNECTING:
    case SESSION_PROVING:
        if (in_state_ms > OPENING_MS)
            cut(session, END_HANDSHAKE_TIMEOUT, "the coordinator did not answer in time");
        break;
    case SESSION_OPEN:
        if (now_us - session->heard_us > (int64_t)session->silence_ms * 1000) {
            cut(session, END_SILENCE, NULL);
        } else if (now_us - session->ping_us >= (int64_t)session->ping_ms * 1000) {
            session->ping_us = now_us;
            link_ping(session->link);
        }
        break;
    case SESSION_CLOSING:
        if (in_state_ms >= CLOSING_MS)
            cut(session, session->end_reason, NULL);
        break;
    case SESSION_AWAY:
    case SESSION_STOPPED:
        break;
    }
}

void session_set_goodput(struct session *session, double up_bytes_per_s)
{
    session->up_bytes_per_s = up_bytes_per_s;
    if (up_bytes_per_s > 0)
        link_pace(session->link, (uint64_t)up_bytes_per_s);
    link_wake(session->link);
}

/* --- life ------------------------------------------------------------------------------------- */

static const struct link_events link_events = {
    .open = on_open,
    .text = on_text,
    .binary = on_binary,
    .heard = on_heard,
    .pong = on_pong,
    .next_binary = on_next_binary,
    .closed = on_closed,
};

enum status session_create(uv_loop_t *loop, const struct session_settings *settings,
                           const struct session_events *events, void *user, struct session **ret,
                           struct error *err)
{
    struct session *session = calloc(1, sizeof *session);
    if (!session)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the session");
    session->settings = *settings;
    session->events = events;
    session->user = user;
    session->state = SESSION_AWAY;
    backoff_init(&session->backoff, settings->seed);
    enum status status =
        link_create(loop, settings->url.tls, &link_events, session, &session->link, err);
    if (status) {
        free(session);
        return status;
    }
    link_configure(session->link, &settings->link);
    uv_timer_init(loop, &session->retry_timer);
    uv_timer_init(loop, &session->tick_timer);
    session->timers_open = 2;
    session->retry_timer.data = session;
    session->tick_timer.data = session;
    *ret = session;
    return STATUS_OK;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct session *session = handle->data;
    if (--session->timers_open > 0)
        return;
    explicit_bzero(session->settings.invite, sizeof session->settings.invite);
    free(session);
}

void session_free(struct session *session)
{
    if (!session)
        return;
    session->state = SESSION_STOPPED;
    uv_timer_stop(&session->retry_timer);
    uv_timer_stop(&session->tick_timer);
    link_free(session->link);
    uv_close((uv_handle_t *)&session->retry_timer, on_timer_closed);
    uv_close((uv_handle_t *)&session->tick_timer, on_timer_closed);
}

void session_start(struct session *session)
{
    tick_each(session, TICK_MS);
    connect_now(session);
}

void session_stop(struct session *session)
{
    if (session->stopping || session->state == SESSION_STOPPED)
        return;
    session->stopping = true;
    if (session->state == SESSION_AWAY) {
        note_end(session, END_AGENT_STOPPED, NULL);
        set_state(session, SESSION_CONNECTING);
        cut(session, END_AGENT_STOPPED, NULL);
    } else {
        session_end(session, END_AGENT_STOPPED, NULL);
    }
}

enum session_state session_state(const struct session *session)
{
    return session->state;
}

enum status session_send(struct session *session, const struct wire_message *message)
{
    return session->state == SESSION_OPEN ? send_message(session, message) : STATUS_CLOSED;
}

void session_wake(struct session *session)
{
    if (session->state == SESSION_OPEN)
        link_wake(session->link);
}

double session_rtt_ms(const struct session *session)
{
    return session->rtt_ms;
}

uint64_t session_bytes_up(const struct session *session)
{
    return link_bytes_up(session->link);
}

uint64_t session_bytes_down(const struct session *session)
{
    return link_bytes_down(session->link);
}

uint64_t session_stall_ms(const struct session *session)
{
    return session->stall_ms;
}
