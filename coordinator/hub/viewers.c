/* Dashboards: one frame in flight per viewer, everything else is a few flags and a sequence number
 * per channel, so that a reader of any slowness costs the same memory. Service thread. Frames go
 * out in fragments: libwebsockets copies what the kernel did not take, and that has to stay small.
 */
#include "coordinator/hub/hub_internal.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define HTTP_FORBIDDEN 403
#define HTTP_UNAVAILABLE 503
#define SMALL_FRAME_BYTES 256

static void copy_header(struct lws *wsi, enum lws_token_indexes token, char *ret, size_t ret_bytes)
{
    ret[0] = '\0';
    if (lws_hdr_copy(wsi, ret, (int)ret_bytes, token) < 0)
        ret[0] = '\0'; /* absent, or too long to be one of ours */
}

int viewers_check(struct hub *hub, struct lws *wsi)
{
    static const char bearer[] = "Bearer ";
    const struct hub_callbacks *callbacks = &hub->options.callbacks;
    struct hub_viewer_handshake handshake;
    char authorization[sizeof handshake.bearer + sizeof bearer];
    if (hub->viewers >= hub->options.viewers_max)
        return HTTP_UNAVAILABLE;
    copy_header(wsi, WSI_TOKEN_HTTP_COOKIE, handshake.cookie, sizeof handshake.cookie);
    copy_header(wsi, WSI_TOKEN_ORIGIN, handshake.origin, sizeof handshake.origin);
    copy_header(wsi, WSI_TOKEN_HOST, handshake.host, sizeof handshake.host);
    copy_header(wsi, WSI_TOKEN_HTTP_AUTHORIZATION, authorization, sizeof authorization);
    handshake.bearer[0] = '\0';
    if (strncmp(authorization, bearer, sizeof bearer - 1) == 0)
        text_copy(handshake.bearer, sizeof handshake.bearer, authorization + sizeof bearer - 1);
    return callbacks->viewer_allowed(callbacks->context, &handshake) ? 0 : HTTP_FORBIDDEN;
}

int viewers_open(struct hub *hub, struct lws *wsi, struct peer **ret)
{
    struct viewer *viewer = calloc(1, sizeof *viewer);
    if (!viewer)
        return -1;
    peer_init(&viewer->peer, hub, wsi, PEER_VIEWER);
    hub->viewers++;
    *ret = &viewer->peer;
    return 0;
}

void viewers_close(struct viewer *viewer, enum end_reason reason, const char *detail)
{
    if (!peer_begin_close(&viewer->peer, reason, detail))
        return;
    viewer->bye_due = reason == END_DRAINING && viewer->peer.is_ready;
    viewer->peer.hub->viewers--;
    peer_want_write(&viewer->peer);
}

void viewers_gone(struct viewer *viewer)
{
    if (!viewer->peer.is_closing)
        viewer->peer.hub->viewers--;
    shared_unref(viewer->out);
    peer_done(&viewer->peer);
    free(viewer);
}

/* --- reading --- */

static bool is_too_fast(struct viewer *viewer)
{
    int64_t now_us = clock_monotonic_us();
    if (now_us - viewer->second_us >= 1000 * 1000) {
        viewer->second_us = now_us;
        viewer->message_count = 0;
    }
    return ++viewer->message_count > VIEWER_MESSAGES_PER_S_MAX;
}

static void take_text(struct viewer *viewer, const uint8_t *data, size_t bytes)
{
    const char *detail = NULL;
    if (is_too_fast(viewer))
        viewers_close(viewer, END_PROTOCOL_ERROR, "too many messages per second");
    else if (!viewer_apply_message(viewer, (const char *)data, bytes, &detail))
        viewers_close(viewer, END_PROTOCOL_ERROR, detail);
    else
        peer_want_write(&viewer->peer);
}

void viewers_receive(struct viewer *viewer, const void *in, size_t bytes)
{
    const uint8_t *data = NULL;
    size_t data_bytes = 0;
    if (viewer->peer.is_closing)
        return;
    if (lws_frame_is_binary(viewer->peer.wsi)) {
        viewers_close(viewer, END_PROTOCOL_ERROR, "a binary message");
        return;
    }
    switch (peer_collect(&viewer->peer, in, bytes, VIEWER_TEXT_BYTES_MAX, 0, &data, &data_bytes)) {
    case COLLECTED_PART:
        return;
    case COLLECTED_TEXT:
        take_text(viewer, data, data_bytes);
        break;
    case COLLECTED_BINARY:
    case COLLECTED_TOO_LARGE:
        viewers_close(viewer, END_TOO_LARGE, end_reason_text(END_TOO_LARGE));
        break;
    }
    peer_collected(&viewer->peer);
}

/* --- writing --- */

static struct shared *small_frame(const char *format, ...) PRINTF_LIKE(1, 2);

static struct shared *small_frame(const char *format, ...)
{
    char text[SMALL_FRAME_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (bytes < 0 || (size_t)bytes >= sizeof text)
        return NULL;
    return shared_create(text, (size_t)bytes);
}

static struct shared *make_welcome(const struct hub *hub)
{
    char now[CLOCK_RFC3339_BYTES];
    clock_format_rfc3339(clock_wall_ms(), now);
    return small_frame("{\"t\":\"welcome\",\"epoch\":\"%s\",\"server_time\":\"%s\",\"hz\":1}",
                       hub->epoch, now);
}

static struct shared *take_channel_frame(struct viewer *viewer)
{
    for (size_t i = 0; i < viewer->subscription_count; i++) {
        size_t turn = (viewer->turn + i) % viewer->subscription_count;
        struct shared *frame = subscription_take_frame(&viewer->subscriptions[turn]);
        if (frame) {
            viewer->turn = turn + 1;
            return frame;
        }
    }
    return NULL;
}

/* What this viewer needs most, with a reference of its own; NULL: it has everything. */
static struct shared *take_frame(struct viewer *viewer)
{
    struct hub *hub = viewer->peer.hub;
    if (viewer->peer.is_closing) {
        bool bye_due = viewer->bye_due;
        viewer->bye_due = false;
        return bye_due ? small_frame("{\"t\":\"bye\",\"code\":\"%s\",\"retry_ms\":%d}",
                                     end_reason_name(viewer->peer.reason), VIEWER_DRAIN_RETRY_MS)
                       : NULL;
    }
    if (viewer->welcome_due) {
        viewer->welcome_due = false;
        return make_welcome(hub);
    }
    if (viewer->heartbeat_due && hub->heartbeat) {
        viewer->heartbeat_due = false;
        return shared_ref(hub->heartbeat);
    }
    if (viewer->gone_count > 0) {
        const char *channel = viewer->gone[--viewer->gone_count];
        return small_frame("{\"t\":\"gone\",\"ch\":\"%s\"}", channel);
    }
    return take_channel_frame(viewer);
}

static int write_chunk(struct viewer *viewer)
{
    struct hub *hub = viewer->peer.hub;
    size_t rest_bytes = shared_bytes(viewer->out) - viewer->out_sent_bytes;
    size_t bytes = rest_bytes < VIEWER_CHUNK_BYTES ? rest_bytes : VIEWER_CHUNK_BYTES;
    bool is_first = viewer->out_sent_bytes == 0;
    bool is_last = bytes == rest_bytes;
    memcpy(hub->scratch + LWS_PRE, shared_data(viewer->out) + viewer->out_sent_bytes, bytes);
    viewer->out_sent_bytes += bytes;
    if (is_last) {
        shared_unref(viewer->out);
        viewer->out = NULL;
        viewer->out_sent_bytes = 0;
    }
    int flags = lws_write_ws_flags(LWS_WRITE_TEXT, is_first, is_last);
    int written =
        lws_write(viewer->peer.wsi, hub->scratch + LWS_PRE, bytes, (enum lws_write_protocol)flags);
    return written < 0 ? -1 : 0;
}

static bool has_work(const struct viewer *viewer)
{
    if (viewer->out || viewer->peer.is_closing)
        return true;
    if (!viewer->peer.is_ready)
        return false;
    bool has = viewer->welcome_due || viewer->heartbeat_due || viewer->gone_count > 0;
    for (size_t i = 0; i < viewer->subscription_count && !has; i++)
        has = subscription_has_frame(&viewer->subscriptions[i]);
    return has;
}

int viewers_write(struct viewer *viewer)
{
    int result = 0;
    viewer->peer.wants_write = false;
    if (viewer->peer.close_sent)
        return 0;
    if (!peer_write_ping(&viewer->peer)) {
        if (!viewer->out)
            viewer->out = take_frame(viewer);
        if (viewer->out)
            result = write_chunk(viewer);
        else if (viewer->peer.is_closing)
            return peer_write_close(&viewer->peer);
    }
    if (has_work(viewer))
        peer_want_write(&viewer->peer);
    return result;
}

/* --- channels --- */

void viewer_note_gone(struct viewer *viewer, const char *channel)
{
    if (viewer->gone_count == VIEWER_SUBSCRIPTIONS_MAX)
        viewers_close(viewer, END_SLOW_READER, end_reason_text(END_SLOW_READER));
    else
        text_copy(viewer->gone[viewer->gone_count++], CHANNEL_NAME_BYTES, channel);
}

void viewers_wake(struct hub *hub, const struct channel *channel)
{
    for (struct peer *peer = hub->peers; peer; peer = peer->next) {
        const struct viewer *viewer = (const struct viewer *)peer;
        if (peer->kind != PEER_VIEWER || peer->is_closing)
            continue;
        for (size_t i = 0; i < viewer->subscription_count; i++)
            if (viewer->subscriptions[i].channel == channel)
                peer_want_write(peer);
    }
}

void viewers_drop_channel(struct hub *hub, struct channel *channel)
{
    for (struct peer *peer = hub->peers; peer; peer = peer->next) {
        struct viewer *viewer = (struct viewer *)peer;
        if (peer->kind != PEER_VIEWER)
            continue;
        for (size_t i = viewer->subscription_count; i-- > 0;) {
            if (viewer->subscriptions[i].channel != channel)
                continue;
            viewer->subscriptions[i] = viewer->subscriptions[--viewer->subscription_count];
            viewer_note_gone(viewer, channel->name);
            peer_want_write(peer);
        }
    }
}

void viewers_beat(struct hub *hub)
{
    struct shared *heartbeat =
        small_frame("{\"t\":\"hb\",\"ts\":%lld}", (long long)clock_wall_ms());
    if (!heartbeat)
        return;
    shared_unref(hub->heartbeat);
    hub->heartbeat = heartbeat;
    for (struct peer *peer = hub->peers; peer; peer = peer->next) {
        if (peer->kind != PEER_VIEWER || peer->is_closing || !peer->is_ready)
            continue;
        ((struct viewer *)peer)->heartbeat_due = true;
        peer_want_write(peer);
    }
}
