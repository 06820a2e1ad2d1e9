/* What agents' and dashboards' WebSockets have in common: life signs, message assembly and closing.
 * Service thread. libwebsockets' own pings and timers are not used: they are one O(n) list and
 * closed live peers wrongly at 10,000 connections; one sweep over all peers does their work. Its
 * own way to close (lws_close_reason, then a negative result) is not used either: on libuv,
 * version 4.1 closes the socket before the close frame is written. */
#include "coordinator/hub/hub_internal.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define IDLE_BUFFER_BYTES 4096 /* larger input buffers are given back after a message */
#define PINGS_AT_ONCE 20       /* beyond the rate that is allowed */
#define CLOSE_CODE_BASE 4000
#define WRITE_CLOSE ((enum lws_write_protocol)4) /* LWS_WRITE_CLOSE, left out of its headers */

void plain_copy(char *ret, size_t ret_bytes, const char *text)
{
    text_copy(ret, ret_bytes, text);
    for (char *c = ret; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

void peer_init(struct peer *peer, struct hub *hub, struct lws *wsi, enum peer_kind kind)
{
    int64_t now_us = clock_monotonic_us();
    *peer = (struct peer){.hub = hub,
                          .wsi = wsi,
                          .kind = kind,
                          .next = hub->peers,
                          .opened_us = now_us,
                          .heard_us = now_us,
                          .pinged_us = now_us};
    size_t text = kind == PEER_AGENT ? WIRE_TEXT_BYTES_MAX : VIEWER_TEXT_BYTES_MAX;
    size_t binary = kind == PEER_AGENT ? FRAME_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX : 0;
    buffer_init(&peer->in, text > binary ? text : binary);
    if (hub->peers)
        hub->peers->previous = peer;
    hub->peers = peer;
}

void peer_done(struct peer *peer)
{
    if (peer->previous)
        peer->previous->next = peer->next;
    else
        peer->hub->peers = peer->next;
    if (peer->next)
        peer->next->previous = peer->previous;
    buffer_done(&peer->in);
}

void peer_want_write(struct peer *peer)
{
    if (!peer->wants_write)
        peer->progress_us = clock_monotonic_us();
    peer->wants_write = true;
    lws_callback_on_writable(peer->wsi);
}

bool peer_write_ping(struct peer *peer)
{
    if (!peer->ping_due)
        return false;
    uint8_t ping[LWS_PRE + PING_BYTES] = {0};
    peer->ping_due = false;
    lws_write(peer->wsi, ping + LWS_PRE, PING_BYTES, LWS_WRITE_PING);
    return true;
}

enum collected peer_collect(struct peer *peer, const void *in, size_t bytes, size_t text_bytes_max,
                            size_t binary_bytes_max, const uint8_t **ret_data, size_t *ret_bytes)
{
    bool is_binary = lws_frame_is_binary(peer->wsi);
    size_t bytes_max = is_binary ? binary_bytes_max : text_bytes_max;
    peer->heard_us = clock_monotonic_us();
    if (bytes > bytes_max || peer->in.bytes > bytes_max - bytes)
        return COLLECTED_TOO_LARGE;
    bool is_whole = lws_is_final_fragment(peer->wsi) && !lws_remaining_packet_payload(peer->wsi);
    if (is_whole && peer->in.bytes == 0) { /* in one piece: no copy */
        *ret_data = in;
        *ret_bytes = bytes;
        return is_binary ? COLLECTED_BINARY : COLLECTED_TEXT;
    }
    if (buffer_append(&peer->in, in, bytes))
        return COLLECTED_TOO_LARGE;
    if (!is_whole)
        return COLLECTED_PART;
    *ret_data = peer->in.data;
    *ret_bytes = peer->in.bytes;
    return is_binary ? COLLECTED_BINARY : COLLECTED_TEXT;
}

void peer_collected(struct peer *peer)
{
    if (peer->in.capacity_bytes > IDLE_BUFFER_BYTES)
        buffer_done(&peer->in);
    else
        buffer_clear(&peer->in);
}

bool peer_begin_close(struct peer *peer, enum end_reason reason, const char *detail)
{
    if (peer->is_closing)
        return false;
    peer->is_closing = true;
    peer->closing_us = clock_monotonic_us();
    peer->reason = reason;
    plain_copy(peer->detail, sizeof peer->detail, detail);
    buffer_done(&peer->in);
    return true;
}

int peer_write_close(struct peer *peer)
{
    uint8_t frame[LWS_PRE + 2 + DETAIL_BYTES] = {0};
    int code = CLOSE_CODE_BASE + (int)peer->reason;
    size_t bytes = strlen(peer->detail);
    frame[LWS_PRE] = (uint8_t)(code >> 8);
    frame[LWS_PRE + 1] = (uint8_t)code;
    memcpy(frame + LWS_PRE + 2, peer->detail, bytes);
    peer->close_sent = true;
    return lws_write(peer->wsi, frame + LWS_PRE, 2 + bytes, WRITE_CLOSE) < 0 ? -1 : 0;
}

enum end_reason peer_guess_reason(const struct peer *peer)
{
    if (peer->closed_by_other)
        return END_PEER_CLOSED;
    /* A close frame that nobody here asked for: libwebsockets refused what it read. */
    if (lws_get_close_length(peer->wsi) >= 2) {
        const unsigned char *code = lws_get_close_payload(peer->wsi);
        int number = code[0] << 8 | code[1];
        if (number == LWS_CLOSE_STATUS_PROTOCOL_ERR || number == LWS_CLOSE_STATUS_INVALID_PAYLOAD)
            return END_PROTOCOL_ERROR;
    }
    return END_CONNECTION_LOST;
}

static void close_peer(struct peer *peer, enum end_reason reason, const char *detail)
{
    if (peer->kind == PEER_AGENT)
        agents_close((struct agent *)peer, reason, detail, 0);
    else
        viewers_close((struct viewer *)peer, reason, detail);
}

static void close_flood(struct peer *peer, uint64_t ping_min_ms)
{
    char detail[DETAIL_BYTES];
    snprintf(detail, sizeof detail,
             "pings came faster than one each %llu ms, which the welcome gave as ping_min_ms",
             (unsigned long long)ping_min_ms);
    close_peer(peer, END_PING_FLOOD, detail);
}

/* libwebsockets answers pings by itself and tells nobody. But a socket that is writable though
 * nobody here asked, with nothing held back, has just carried a pong. Pings that hide behind data
 * are not counted; their pongs wait for their turn. */
void peer_note_writable(struct peer *peer)
{
    const struct timers *timers = &peer->hub->options.timers;
    int64_t now_us = clock_monotonic_us(), interval_us = (int64_t)timers->ping_min_ms * 1000;
    bool answered_ping = !peer->wants_write && !peer->holds_back;
    peer->holds_back = false;
    if (!answered_ping || peer->is_closing)
        return;
    if (peer->pings_until_us < now_us)
        peer->pings_until_us = now_us;
    peer->pings_until_us += interval_us;
    if (peer->pings_until_us - now_us > PINGS_AT_ONCE * interval_us)
        close_flood(peer, timers->ping_min_ms);
}

static void kill_peer(struct peer *peer)
{
    lws_set_timeout(peer->wsi, PENDING_TIMEOUT_KILLED_BY_PARENT, LWS_TO_KILL_SYNC);
}

static void sweep_one(struct peer *peer, int64_t now_us)
{
    const struct hub_options *options = &peer->hub->options;
    if (peer->is_closing) {
        if (now_us - peer->closing_us > CLOSE_WAIT_US)
            kill_peer(peer);
    } else if (now_us - peer->heard_us > (int64_t)options->timers.silence_ms * 1000) {
        close_peer(peer, END_SILENCE, end_reason_text(END_SILENCE));
    } else if (!peer->is_ready &&
               now_us - peer->opened_us > (int64_t)options->hello_deadline_ms * 1000) {
        close_peer(peer, END_HANDSHAKE_TIMEOUT, end_reason_text(END_HANDSHAKE_TIMEOUT));
    } else if (peer->wants_write &&
               now_us - peer->progress_us > (int64_t)options->timers.stall_ms * 1000) {
        close_peer(peer, END_SLOW_READER, end_reason_text(END_SLOW_READER));
        kill_peer(peer); /* nothing can be written: no last words */
    } else if (now_us - peer->pinged_us >= (int64_t)options->timers.ping_ms * 1000) {
        peer->pinged_us = now_us;
        peer->ping_due = true;
        peer_want_write(peer);
    }
}

void peers_sweep(struct hub *hub)
{
    int64_t now_us = clock_monotonic_us();
    /* The machine slept or this thread was held up: that is not the peers' silence. */
    bool was_away = now_us - hub->swept_us > (int64_t)hub->options.timers.ping_ms * 1000;
    hub->swept_us = now_us;
    for (struct peer *peer = hub->peers, *next; peer; peer = next) {
        next = peer->next;
        if (was_away) {
            peer->heard_us = now_us;
            peer->progress_us = now_us;
        }
        sweep_one(peer, now_us);
    }
}

void peers_close_all(struct hub *hub)
{
    for (struct peer *peer = hub->peers; peer; peer = peer->next)
        if (peer->kind == PEER_AGENT)
            agents_close((struct agent *)peer, END_DRAINING, end_reason_text(END_DRAINING),
                         AGENT_DRAIN_RETRY_MS);
        else
            viewers_close((struct viewer *)peer, END_DRAINING, end_reason_text(END_DRAINING));
}
