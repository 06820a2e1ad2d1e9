/* The functions that other threads call: each queues a command under the hub's lock and wakes the
 * service thread when the queue was empty. The only other thing done on the caller's thread is to
 * look the peer up and to count its queued bytes, so that a sender learns at once that a peer is
 * gone and a slow reader can never fill memory, however busy the service thread is. */
#include "coordinator/hub/hub_internal.h"

#include "common/base/bytes.h"

#include <stdlib.h>
#include <unistd.h>

/* hub->lock is held. On failure the caller keeps what command holds. */
static enum status enqueue(struct hub *hub, const struct command *command, size_t bytes)
{
    if (hub->is_closed)
        return STATUS_CLOSED;
    if (hub->pending_bytes + bytes > PENDING_BYTES_MAX)
        return STATUS_BUSY;
    struct command *copy = malloc(sizeof *copy);
    if (!copy)
        return STATUS_NO_MEMORY;
    *copy = *command;
    copy->next = NULL;
    bool was_empty = !hub->commands;
    *hub->commands_end = copy;
    hub->commands_end = &copy->next;
    hub->pending_bytes += sizeof *copy + bytes;
    if (was_empty)
        lws_cancel_service(hub->context); /* under the lock: the context cannot go away meanwhile */
    return STATUS_OK;
}

static enum status post(struct hub *hub, const struct command *command, size_t bytes)
{
    pthread_mutex_lock(&hub->lock);
    enum status status = enqueue(hub, command, bytes);
    pthread_mutex_unlock(&hub->lock);
    return status;
}

/* As post, for bytes more in the queue of command->peer. */
static enum status post_to_peer(struct hub *hub, const struct command *command, size_t bytes,
                                size_t pending_bytes)
{
    pthread_mutex_lock(&hub->lock);
    struct agent *agent = peer_table_get(&hub->table, command->peer);
    enum status status = STATUS_NOT_FOUND;
    if (!agent || agent->is_slow)
        goto done;
    if (agent->queued_bytes + bytes > hub->options.agent_queue_bytes_max) {
        struct command slow = {
            .type = COMMAND_CLOSE, .peer = command->peer, .close = {.reason = END_SLOW_READER}};
        text_copy(slow.close.detail, DETAIL_BYTES, end_reason_text(END_SLOW_READER));
        agent->is_slow = enqueue(hub, &slow, 0) == STATUS_OK;
        goto done;
    }
    status = enqueue(hub, command, pending_bytes);
    if (status == STATUS_OK)
        agent->queued_bytes += bytes;
done:
    pthread_mutex_unlock(&hub->lock);
    return status;
}

void hub_adopt(struct hub *hub, int fd, const char *address)
{
    struct command command = {.type = COMMAND_ADOPT, .adopt = {.fd = fd}};
    plain_copy(command.adopt.address, ADDRESS_BYTES, address);
    if (post(hub, &command, 0))
        close(fd);
}

void hub_agent_accept(struct hub *hub, uint64_t peer)
{
    struct command command = {.type = COMMAND_ACCEPT, .peer = peer};
    if (post(hub, &command, 0))
        return; /* stopping, or so far behind that the hello deadline will end this session */
}

enum status hub_send(struct hub *hub, uint64_t peer, const struct wire_message *message)
{
    struct command command = {.type = COMMAND_SEND, .peer = peer};
    enum status status = outbound_create(message, &command.message);
    if (status)
        return status;
    size_t bytes = command.message->bytes;
    status = post_to_peer(hub, &command, bytes, bytes);
    if (status)
        free(command.message);
    return status;
}

enum status hub_send_stream(struct hub *hub, uint64_t peer, enum frame_kind kind, uint32_t stream,
                            struct shared *bytes, uint64_t from)
{
    struct command command = {.type = COMMAND_STREAM, .peer = peer};
    if (from >= shared_bytes(bytes))
        return STATUS_OK; /* no frame is empty: there is nothing to send */
    command.stream = calloc(1, sizeof *command.stream);
    if (!command.stream)
        return STATUS_NO_MEMORY;
    *command.stream = (struct stream){
        .kind = kind, .id = stream, .bytes = shared_ref(bytes), .sent_bytes = (size_t)from};
    size_t rest = shared_bytes(bytes) - (size_t)from;
    enum status status = post_to_peer(hub, &command, rest, sizeof *command.stream);
    if (status) {
        shared_unref(bytes);
        free(command.stream);
    }
    return status;
}

uint64_t hub_queued_bytes(struct hub *hub, uint64_t peer)
{
    pthread_mutex_lock(&hub->lock);
    const struct agent *agent = peer_table_get(&hub->table, peer);
    uint64_t bytes = agent ? atomic_load(&agent->queued_bytes) : UINT64_MAX;
    pthread_mutex_unlock(&hub->lock);
    return bytes;
}

void hub_close(struct hub *hub, uint64_t peer, enum end_reason reason, const char *detail,
               uint32_t retry_ms)
{
    struct command command = {
        .type = COMMAND_CLOSE, .peer = peer, .close = {.reason = reason, .retry_ms = retry_ms}};
    plain_copy(command.close.detail, DETAIL_BYTES, detail);
    if (post_to_peer(hub, &command, 0, 0))
        return; /* gone, or closing for another reason */
}

void hub_publish(struct hub *hub, const char *channel, uint64_t sequence, struct shared *snapshot,
                 struct shared *delta)
{
    struct command command = {.type = COMMAND_PUBLISH, .publish = {.sequence = sequence}};
    if (!channel_name_is_valid(channel) || !snapshot)
        return;
    text_copy(command.publish.channel, CHANNEL_NAME_BYTES, channel);
    command.publish.snapshot = shared_ref(snapshot);
    size_t bytes = shared_bytes(snapshot);
    if (delta) {
        command.publish.delta = shared_ref(delta);
        bytes += shared_bytes(delta);
    }
    if (post(hub, &command, bytes)) { /* the next one will be sent as a snapshot */
        shared_unref(command.publish.snapshot);
        shared_unref(command.publish.delta);
    }
}

void hub_unpublish(struct hub *hub, const char *channel)
{
    struct command command = {.type = COMMAND_UNPUBLISH};
    text_copy(command.publish.channel, CHANNEL_NAME_BYTES, channel);
    if (post(hub, &command, 0))
        return; /* stopping */
}

void commands_post_stop(struct hub *hub, uint32_t drain_ms)
{
    struct command command = {.type = COMMAND_STOP, .drain_ms = drain_ms};
    pthread_mutex_lock(&hub->lock);
    while (enqueue(hub, &command, 0)) { /* out of memory or full: the service thread frees some */
        pthread_mutex_unlock(&hub->lock);
        usleep(1000);
        pthread_mutex_lock(&hub->lock);
    }
    hub->is_closed = true;
    pthread_mutex_unlock(&hub->lock);
}

/* --- service thread --- */

static struct command *take_all(struct hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    struct command *first = hub->commands;
    hub->commands = NULL;
    hub->commands_end = &hub->commands;
    hub->pending_bytes = 0;
    pthread_mutex_unlock(&hub->lock);
    return first;
}

/* Gives back what a command holds that was not handed on. */
static void discard(struct command *command)
{
    switch (command->type) {
    case COMMAND_ADOPT:
        close(command->adopt.fd);
        break;
    case COMMAND_SEND:
        free(command->message);
        break;
    case COMMAND_STREAM:
        shared_unref(command->stream->bytes);
        free(command->stream);
        break;
    case COMMAND_PUBLISH:
        shared_unref(command->publish.snapshot);
        shared_unref(command->publish.delta);
        break;
    case COMMAND_ACCEPT:
    case COMMAND_CLOSE:
    case COMMAND_UNPUBLISH:
    case COMMAND_STOP:
        break;
    }
}

static void publish(struct hub *hub, const struct command *command)
{
    struct channel *channel;
    if (channel_publish(&hub->channels, command->publish.channel, command->publish.sequence,
                        command->publish.snapshot, command->publish.delta, &channel))
        return; /* out of memory: the next publication tries again */
    viewers_wake(hub, channel);
}

static void unpublish(struct hub *hub, const char *name)
{
    struct channel *channel = channel_find(hub->channels, name);
    if (!channel)
        return;
    viewers_drop_channel(hub, channel);
    channel_remove(&hub->channels, channel);
}

static void run_for_agent(struct agent *agent, const struct command *command)
{
    switch (command->type) {
    case COMMAND_ACCEPT:
        agent->peer.is_ready = true;
        break;
    case COMMAND_SEND:
        agents_queue_message(agent, command->message);
        break;
    case COMMAND_STREAM:
        agents_queue_stream(agent, command->stream);
        break;
    default:
        agents_close(agent, command->close.reason, command->close.detail, command->close.retry_ms);
        break;
    }
}

static void run(struct hub *hub, struct command *command)
{
    struct agent *agent;
    switch (command->type) {
    case COMMAND_ADOPT:
        server_adopt(hub, command->adopt.fd, command->adopt.address);
        break;
    case COMMAND_PUBLISH:
        publish(hub, command);
        discard(command);
        break;
    case COMMAND_UNPUBLISH:
        unpublish(hub, command->publish.channel);
        break;
    case COMMAND_STOP:
        hub_begin_drain(hub, command->drain_ms);
        break;
    case COMMAND_ACCEPT:
    case COMMAND_SEND:
    case COMMAND_STREAM:
    case COMMAND_CLOSE:
        /* Only this thread changes the table, so it may read it without the lock. */
        agent = peer_table_get(&hub->table, command->peer);
        if (agent)
            run_for_agent(agent, command);
        else
            discard(command);
        break;
    }
}

void commands_run(struct hub *hub)
{
    for (struct command *command = take_all(hub), *next; command; command = next) {
        next = command->next;
        run(hub, command);
        free(command);
    }
}

void commands_discard(struct hub *hub)
{
    for (struct command *command = take_all(hub), *next; command; command = next) {
        next = command->next;
        discard(command);
        free(command);
    }
}
