/* Agents' sessions as the hub sees them: two queues per agent and the gate before hello. Service
 * thread. Control messages always go before the next data frame, so a cancel overtakes a delta that
 * is on its way; what the kernel has taken already is kept small by TCP_NOTSENT_LOWAT (server.c).
 */
#include "coordinator/hub/hub_internal.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"

#include <stdlib.h>

enum status outbound_create(const struct wire_message *message, struct outbound **ret)
{
    struct buffer text;
    buffer_init(&text, WIRE_TEXT_BYTES_MAX);
    struct outbound *outbound = NULL;
    enum status status = wire_encode(message, &text);
    if (status)
        goto done;
    outbound = malloc(sizeof *outbound + LWS_PRE + text.bytes);
    if (!outbound) {
        status = STATUS_NO_MEMORY;
        goto done;
    }
    outbound->next = NULL;
    outbound->bytes = text.bytes;
    memset(outbound->data, 0, LWS_PRE);
    memcpy(outbound->data + LWS_PRE, text.data, text.bytes);
    *ret = outbound;
done:
    buffer_done(&text);
    return status;
}

static void drop_streams(struct agent *agent)
{
    while (agent->streams) {
        struct stream *stream = agent->streams;
        agent->streams = stream->next;
        shared_unref(stream->bytes);
        free(stream);
    }
    agent->streams_end = &agent->streams;
}

/* From now on nothing of this agent reaches the owner, and the owner nothing of it. */
static void report_closed(struct agent *agent)
{
    struct hub *hub = agent->peer.hub;
    pthread_mutex_lock(&hub->lock);
    peer_table_remove(&hub->table, agent->id);
    pthread_mutex_unlock(&hub->lock);
    hub->agents--;
    hub->options.callbacks.agent_closed(hub->options.callbacks.context, agent->id,
                                        agent->peer.reason, agent->peer.detail);
}

int agents_open(struct hub *hub, struct lws *wsi, const char *address, struct peer **ret)
{
    struct agent *agent = calloc(1, sizeof *agent);
    if (!agent)
        return -1;
    agent->id = ++hub->last_peer;
    agent->control_end = &agent->control;
    agent->streams_end = &agent->streams;
    pthread_mutex_lock(&hub->lock);
    enum status status = peer_table_put(&hub->table, agent->id, agent);
    pthread_mutex_unlock(&hub->lock);
    if (status) {
        free(agent);
        return -1;
    }
    peer_init(&agent->peer, hub, wsi, PEER_AGENT);
    pace_init(&agent->pace, lws_get_socket_fd(wsi));
    hub->agents++;
    *ret = &agent->peer;
    hub->options.callbacks.agent_opened(hub->options.callbacks.context, agent->id, address);
    return 0;
}

void agents_close(struct agent *agent, enum end_reason reason, const char *detail,
                  uint32_t retry_ms)
{
    if (!peer_begin_close(&agent->peer, reason, detail))
        return;
    drop_streams(agent);
    struct wire_message bye = {.type = WIRE_bye};
    bye.bye.code = (uint64_t)reason;
    text_copy(bye.bye.reason, sizeof bye.bye.reason, agent->peer.detail);
    bye.bye.retry_ms = retry_ms;
    struct outbound *message;
    if (outbound_create(&bye, &message) == STATUS_OK) { /* else the close code alone says it */
        agent->queued_bytes += message->bytes;
        agents_queue_message(agent, message);
    }
    report_closed(agent);
    peer_want_write(&agent->peer);
}

void agents_gone(struct agent *agent)
{
    enum end_reason reason = peer_guess_reason(&agent->peer);
    const char *detail = end_reason_text(reason);
    if (agent->said_bye && (reason == END_PEER_CLOSED || reason == END_CONNECTION_LOST)) {
        reason = agent->bye_reason;
        detail = agent->bye_detail[0] ? agent->bye_detail : end_reason_text(reason);
    }
    if (peer_begin_close(&agent->peer, reason, detail))
        report_closed(agent);
    drop_streams(agent);
    while (agent->control) {
        struct outbound *message = agent->control;
        agent->control = message->next;
        free(message);
    }
    peer_done(&agent->peer);
    free(agent);
}

void agents_queue_message(struct agent *agent, struct outbound *message)
{
    message->next = NULL;
    *agent->control_end = message;
    agent->control_end = &message->next;
    peer_want_write(&agent->peer);
}

void agents_queue_stream(struct agent *agent, struct stream *stream)
{
    stream->next = NULL;
    *agent->streams_end = stream;
    agent->streams_end = &stream->next;
    peer_want_write(&agent->peer);
}

/* --- reading --- */

static void note_bye(struct agent *agent, const struct wire_bye *bye)
{
    enum end_reason reason = END_PEER_CLOSED;
    if (bye->code <= END_STORAGE && end_reason_may_reconnect((enum end_reason)bye->code))
        reason = (enum end_reason)bye->code; /* the other reasons are ours to give */
    agent->said_bye = true;
    agent->bye_reason = reason;
    plain_copy(agent->bye_detail, sizeof agent->bye_detail, bye->reason);
}

static void take_text(struct agent *agent, const uint8_t *data, size_t bytes)
{
    const struct hub_callbacks *callbacks = &agent->peer.hub->options.callbacks;
    struct wire_message message;
    struct error err;
    if (wire_decode((const char *)data, bytes, WIRE_FROM_AGENT, &message, &err)) {
        agents_close(agent, END_PROTOCOL_ERROR, err.text, 0);
        return;
    }
    bool is_hello = message.type == WIRE_hello;
    if (message.type == WIRE_bye)
        note_bye(agent, &message.bye);
    else if (is_hello ? agent->hello_seen : !agent->peer.is_ready) {
        agents_close(agent, END_PROTOCOL_ERROR,
                     is_hello ? "a second hello" : "a message before the session was opened", 0);
        return;
    }
    if (is_hello)
        agent->hello_seen = true;
    if (is_hello || agent->peer.is_ready)
        callbacks->agent_message(callbacks->context, agent->id, &message);
}

static void take_frame(struct agent *agent, const uint8_t *data, size_t bytes)
{
    const struct hub_callbacks *callbacks = &agent->peer.hub->options.callbacks;
    struct frame frame;
    if (!agent->peer.is_ready)
        agents_close(agent, END_PROTOCOL_ERROR, "data before the session was opened", 0);
    else if (frame_read(data, bytes, &frame))
        agents_close(agent, END_PROTOCOL_ERROR, "a data frame is damaged", 0);
    else
        callbacks->agent_frame(callbacks->context, agent->id, &frame);
}

void agents_receive(struct agent *agent, const void *in, size_t bytes)
{
    const uint8_t *data = NULL;
    size_t data_bytes = 0;
    agent->peer.hub->agent_bytes_in += bytes;
    if (agent->peer.is_closing)
        return;
    switch (peer_collect(&agent->peer, in, bytes, WIRE_TEXT_BYTES_MAX,
                         FRAME_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX, &data, &data_bytes)) {
    case COLLECTED_PART:
        return;
    case COLLECTED_TEXT:
        take_text(agent, data, data_bytes);
        break;
    case COLLECTED_BINARY:
        take_frame(agent, data, data_bytes);
        break;
    case COLLECTED_TOO_LARGE:
        agents_close(agent, END_TOO_LARGE, end_reason_text(END_TOO_LARGE), 0);
        break;
    }
    peer_collected(&agent->peer);
}

/* --- writing --- */

static int write_message(struct agent *agent)
{
    struct outbound *message = agent->control;
    agent->control = message->next;
    if (!agent->control)
        agent->control_end = &agent->control;
    agent->queued_bytes -= message->bytes;
    agent->peer.hub->agent_bytes_out += message->bytes;
    int written =
        lws_write(agent->peer.wsi, message->data + LWS_PRE, message->bytes, LWS_WRITE_TEXT);
    free(message);
    return written < 0 ? -1 : 0;
}

static int write_frame(struct agent *agent)
{
    struct hub *hub = agent->peer.hub;
    struct stream *stream = agent->streams;
    size_t rest_bytes = shared_bytes(stream->bytes) - stream->sent_bytes;
    struct frame frame = {.kind = stream->kind,
                          .stream = stream->id,
                          .offset = stream->sent_bytes,
                          .payload = shared_data(stream->bytes) + stream->sent_bytes,
                          .payload_bytes = rest_bytes};
    pace_update(&agent->pace, lws_get_socket_fd(agent->peer.wsi), hub->options.data_frame_bytes,
                clock_monotonic_us());
    if (frame.payload_bytes > agent->pace.frame_bytes)
        frame.payload_bytes = agent->pace.frame_bytes;
    size_t bytes = frame_write(&frame, hub->scratch + LWS_PRE);
    stream->sent_bytes += frame.payload_bytes;
    agent->queued_bytes -= frame.payload_bytes;
    hub->agent_bytes_out += bytes;
    if (frame.payload_bytes == rest_bytes) {
        agent->streams = stream->next;
        if (!agent->streams)
            agent->streams_end = &agent->streams;
        shared_unref(stream->bytes);
        free(stream);
    }
    return lws_write(agent->peer.wsi, hub->scratch + LWS_PRE, bytes, LWS_WRITE_BINARY) < 0 ? -1 : 0;
}

int agents_write(struct agent *agent)
{
    int result = 0;
    agent->peer.wants_write = false;
    if (agent->peer.close_sent)
        return 0;
    if (peer_write_ping(&agent->peer))
        ;
    else if (agent->control)
        result = write_message(agent);
    else if (agent->peer.is_closing)
        return peer_write_close(&agent->peer);
    else if (agent->streams)
        result = write_frame(agent);
    if (agent->control || agent->streams || agent->peer.is_closing)
        peer_want_write(&agent->peer);
    return result;
}
