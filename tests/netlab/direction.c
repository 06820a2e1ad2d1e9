/* One direction of a link, with the clock passed in. Two stages: a queue in bytes that drains at
 * the rate, in exact virtual time however late the caller is; then the line, a heap of packets by
 * arrival time. Its surprise: jitter is drawn per stretch of time and not per packet, because
 * independent draws with order kept would only add up to a longer delay. */
#include "tests/netlab/direction.h"

#include <stdlib.h>
#include <string.h>

#define JITTER_HOLD_NS INT64_C(10000000)
#define NS_PER_MS 1e6

const char *drop_name(enum drop drop)
{
    static const char *const names[DROP_COUNT] = {
        [DROP_QUEUE] = "queue",   [DROP_LOSS] = "loss",   [DROP_BURST] = "burst",
        [DROP_OUTAGE] = "outage", [DROP_RESET] = "reset", [DROP_MEMORY] = "memory",
        [DROP_DEVICE] = "device",
    };
    return names[drop];
}

enum status direction_init(struct direction *direction, uint64_t seed)
{
    struct packet **line = calloc(DIRECTION_PACKETS_MAX, sizeof *line);
    if (!line)
        return STATUS_NO_MEMORY;
    *direction = (struct direction){.line = line, .queue_bytes_max = UINT64_MAX};
    rng_seed(&direction->rng, seed);
    return STATUS_OK;
}

void direction_done(struct direction *direction)
{
    direction_flush(direction);
    while (direction->spare) {
        struct packet *packet = direction->spare;
        direction->spare = packet->next;
        free(packet);
    }
    free(direction->line);
    *direction = (struct direction){0};
}

struct packet *direction_packet(struct direction *direction)
{
    struct packet *packet = direction->spare;
    if (packet) {
        direction->spare = packet->next;
        return packet;
    }
    if (direction->packets_held == DIRECTION_PACKETS_MAX)
        return NULL;
    packet = malloc(sizeof *packet);
    direction->packets_held += packet != NULL;
    return packet;
}

void direction_recycle(struct direction *direction, struct packet *packet)
{
    packet->next = direction->spare;
    direction->spare = packet;
}

static bool is_before(const struct packet *a, const struct packet *b)
{
    return a->due_ns < b->due_ns || (a->due_ns == b->due_ns && a->order < b->order);
}

/* There is always room: the heap has a place for every packet there can be. */
static void line_push(struct direction *direction, struct packet *packet)
{
    packet->order = direction->order++;
    size_t i = direction->line_count++;
    for (; i && is_before(packet, direction->line[(i - 1) / 2]); i = (i - 1) / 2)
        direction->line[i] = direction->line[(i - 1) / 2];
    direction->line[i] = packet;
}

static struct packet *line_pop(struct direction *direction)
{
    struct packet *first = direction->line[0];
    struct packet *last = direction->line[--direction->line_count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < direction->line_count; i = child) {
        if (child + 1 < direction->line_count &&
            is_before(direction->line[child + 1], direction->line[child]))
            child++;
        if (!is_before(direction->line[child], last))
            break;
        direction->line[i] = direction->line[child];
    }
    direction->line[i] = last;
    return first;
}

static bool chance(struct direction *direction, double probability)
{
    return probability > 0 && rng_uniform(&direction->rng) < probability;
}

/* Does the line eat this packet? Advances the chain of good and bad states. */
static bool is_lost(struct direction *direction)
{
    const struct shape *shape = &direction->shape;
    if (shape->burst_share > 0) {
        if (chance(direction,
                   direction->burst_is_bad ? direction->burst_leave : direction->burst_enter))
            direction->burst_is_bad = !direction->burst_is_bad;
        if (direction->burst_is_bad && chance(direction, shape->burst_loss)) {
            direction->counters.drops[DROP_BURST]++;
            return true;
        }
    }
    if (chance(direction, shape->loss)) {
        direction->counters.drops[DROP_LOSS]++;
        return true;
    }
    return false;
}

static int64_t line_delay_ns(struct direction *direction, int64_t at_ns)
{
    const struct shape *shape = &direction->shape;
    if (shape->jitter_ms > 0 && at_ns >= direction->jitter_until_ns) {
        double share = 2 * rng_uniform(&direction->rng) - 1;
        direction->jitter_ns = (int64_t)(share * shape->jitter_ms * NS_PER_MS);
        direction->jitter_until_ns = at_ns + JITTER_HOLD_NS;
    }
    int64_t delay_ns = (int64_t)(shape->delay_ms * NS_PER_MS);
    delay_ns += shape->jitter_ms > 0 ? direction->jitter_ns : 0;
    return delay_ns > 0 ? delay_ns : 0;
}

static void duplicate(struct direction *direction, const struct packet *packet)
{
    struct packet *copy = direction_packet(direction);
    if (!copy)
        return;
    copy->due_ns = packet->due_ns;
    copy->bytes = packet->bytes;
    memcpy(copy->data, packet->data, packet->bytes);
    line_push(direction, copy);
    direction->counters.duplicates++;
}

/* The packet enters the line at at_ns. */
static void launch(struct direction *direction, struct packet *packet, int64_t at_ns)
{
    if (is_lost(direction)) {
        direction_recycle(direction, packet);
        return;
    }
    packet->due_ns = at_ns + line_delay_ns(direction, at_ns);
    if (chance(direction, direction->shape.reorder)) {
        packet->due_ns -= (int64_t)(direction->shape.gap_ms * NS_PER_MS);
        if (packet->due_ns < at_ns)
            packet->due_ns = at_ns;
        direction->counters.reordered++;
    } else {
        if (packet->due_ns < direction->last_due_ns)
            packet->due_ns = direction->last_due_ns;
        direction->last_due_ns = packet->due_ns;
    }
    line_push(direction, packet);
    if (chance(direction, direction->shape.duplicate))
        duplicate(direction, packet);
}

static int64_t sending_ns(const struct direction *direction, const struct packet *packet)
{
    if (direction->shape.rate_mbit <= 0)
        return 0;
    return (int64_t)((double)packet->bytes * 8e3 / direction->shape.rate_mbit);
}

static struct packet *queue_pop(struct direction *direction)
{
    struct packet *packet = direction->queue_head;
    direction->queue_head = packet->next;
    if (!direction->queue_head)
        direction->queue_tail = NULL;
    direction->queue_bytes -= packet->bytes;
    return packet;
}

/* Lets the queue drain until now. */
static void drain(struct direction *direction, int64_t now_ns)
{
    while (direction->queue_head && direction->head_done_ns <= now_ns) {
        struct packet *packet = queue_pop(direction);
        int64_t at_ns = direction->head_done_ns;
        if (direction->queue_head)
            direction->head_done_ns += sending_ns(direction, direction->queue_head);
        launch(direction, packet, at_ns);
    }
}

void direction_reshape(struct direction *direction, const struct shape *shape, double line_mbit,
                       int64_t now_ns)
{
    drain(direction, now_ns);
    double old_mbit = direction->shape.rate_mbit;
    if (direction->queue_head && shape->rate_mbit <= 0)
        direction->head_done_ns = now_ns;
    else if (direction->queue_head && old_mbit > 0) /* the rest of the head at the new rate */
        direction->head_done_ns = now_ns + (int64_t)((double)(direction->head_done_ns - now_ns) *
                                                     old_mbit / shape->rate_mbit);
    direction->shape = *shape;
    direction->queue_bytes_max = shape_queue_bytes(shape, line_mbit);
    shape_burst_chain(shape, &direction->burst_enter, &direction->burst_leave);
    if (shape->burst_share <= 0)
        direction->burst_is_bad = false;
    direction->jitter_until_ns = now_ns;
}

void direction_offer(struct direction *direction, struct packet *packet, int64_t now_ns)
{
    direction->counters.packets_in++;
    direction->counters.bytes_in += packet->bytes;
    drain(direction, now_ns);
    if (direction->shape.rate_mbit <= 0) {
        launch(direction, packet, now_ns);
        return;
    }
    if (direction->queue_head &&
        direction->queue_bytes + packet->bytes > direction->queue_bytes_max) {
        direction->counters.drops[DROP_QUEUE]++;
        direction_recycle(direction, packet);
        return;
    }
    packet->next = NULL;
    if (direction->queue_tail)
        direction->queue_tail->next = packet;
    else
        direction->queue_head = packet;
    direction->queue_tail = packet;
    direction->queue_bytes += packet->bytes;
    if (direction->queue_bytes > direction->counters.queue_bytes_peak)
        direction->counters.queue_bytes_peak = direction->queue_bytes;
    if (direction->queue_head == packet)
        direction->head_done_ns = now_ns + sending_ns(direction, packet);
}

void direction_refuse(struct direction *direction, struct packet *packet, enum drop drop)
{
    direction->counters.packets_in++;
    direction->counters.bytes_in += packet->bytes;
    direction->counters.drops[drop]++;
    direction_recycle(direction, packet);
}

struct packet *direction_take(struct direction *direction, int64_t now_ns)
{
    drain(direction, now_ns);
    if (!direction->line_count || direction->line[0]->due_ns > now_ns)
        return NULL;
    return line_pop(direction);
}

void direction_delivered(struct direction *direction, const struct packet *packet, bool written)
{
    if (written) {
        direction->counters.packets_out++;
        direction->counters.bytes_out += packet->bytes;
    } else {
        direction->counters.drops[DROP_DEVICE]++;
    }
}

void direction_flush(struct direction *direction)
{
    while (direction->queue_head) {
        direction_recycle(direction, queue_pop(direction));
        direction->counters.drops[DROP_OUTAGE]++;
    }
    while (direction->line_count) {
        direction_recycle(direction, direction->line[--direction->line_count]);
        direction->counters.drops[DROP_OUTAGE]++;
    }
    direction->last_due_ns = 0;
}

int64_t direction_next_ns(const struct direction *direction)
{
    int64_t next_ns = direction->queue_head ? direction->head_done_ns : NEVER_NS;
    if (direction->line_count && direction->line[0]->due_ns < next_ns)
        next_ns = direction->line[0]->due_ns;
    return next_ns;
}
