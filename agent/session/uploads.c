/* The table of unanswered updates. Session thread. Surprising decision: a finished transfer stays
 * in the table until its answer comes, because only the answer is durable. */
#include "agent/session/uploads.h"

#include "common/base/checksum.h"
#include "common/wire/frame.h"

#include <string.h>

void uploads_init(struct uploads *uploads)
{
    *uploads = (struct uploads){.next_stream = 1};
}

void uploads_done(struct uploads *uploads)
{
    for (size_t i = 0; i < uploads->count; i++)
        shared_unref(uploads->items[i].payload);
    uploads->count = 0;
}

enum status uploads_add(struct uploads *uploads, const struct wire_offer *offer,
                        struct shared *payload, struct upload **ret)
{
    if (uploads->count == UPLOADS_MAX)
        return STATUS_BUSY;
    struct upload *item = &uploads->items[uploads->count++];
    *item = (struct upload){.offer = *offer, .payload = payload};
    item->offer.stream = uploads->next_stream++;
    item->offer.bytes = shared_bytes(payload);
    sha256_of(shared_data(payload), shared_bytes(payload), item->offer.sha256);
    *ret = item;
    return STATUS_OK;
}

struct upload *uploads_find(struct uploads *uploads, const char *lease)
{
    for (size_t i = 0; i < uploads->count; i++)
        if (strcmp(uploads->items[i].offer.lease, lease) == 0)
            return &uploads->items[i];
    return NULL;
}

static struct upload *by_stream(struct uploads *uploads, uint64_t stream)
{
    for (size_t i = 0; i < uploads->count; i++)
        if (uploads->items[i].offer.stream == stream)
            return &uploads->items[i];
    return NULL;
}

void uploads_rewind(struct uploads *uploads)
{
    for (size_t i = 0; i < uploads->count; i++)
        uploads->items[i].wanted = false;
}

enum status uploads_want(struct uploads *uploads, uint64_t stream, uint64_t from, int64_t now_us)
{
    struct upload *item = by_stream(uploads, stream);
    if (!item)
        return STATUS_NOT_FOUND;
    if (from > item->offer.bytes)
        return STATUS_INVALID;
    item->wanted = true;
    item->position = item->acked = from;
    uploads->progress_us = now_us;
    return STATUS_OK;
}

uint64_t uploads_ack(struct uploads *uploads, uint64_t stream, uint64_t received, int64_t now_us)
{
    struct upload *item = by_stream(uploads, stream);
    if (!item || !item->wanted || received <= item->acked || received > item->position)
        return 0;
    uint64_t news = received - item->acked;
    item->acked = received;
    uploads->progress_us = now_us;
    return news;
}

uint64_t uploads_unacked_bytes(const struct uploads *uploads)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < uploads->count; i++)
        if (uploads->items[i].wanted)
            bytes += uploads->items[i].position - uploads->items[i].acked;
    return bytes;
}

static const struct upload *next_to_send(const struct uploads *uploads)
{
    for (size_t i = 0; i < uploads->count; i++) {
        const struct upload *item = &uploads->items[i];
        if (item->wanted && item->position < item->offer.bytes)
            return item;
    }
    return NULL;
}

bool uploads_have_data(const struct uploads *uploads)
{
    return next_to_send(uploads) != NULL;
}

size_t uploads_next_frame(struct uploads *uploads, size_t payload_bytes_max, uint64_t window_bytes,
                          int64_t now_us, uint8_t *ret)
{
    const struct upload *found = next_to_send(uploads);
    uint64_t unacked = uploads_unacked_bytes(uploads);
    if (!found || payload_bytes_max == 0 || unacked >= window_bytes)
        return 0;
    if (unacked == 0)
        uploads->progress_us = now_us;
    struct upload *item = &uploads->items[found - uploads->items];
    uint64_t left = item->offer.bytes - item->position;
    size_t bytes = left < payload_bytes_max ? (size_t)left : payload_bytes_max;
    if (bytes > FRAME_PAYLOAD_BYTES_MAX)
        bytes = FRAME_PAYLOAD_BYTES_MAX;
    struct frame frame = {
        .kind = FRAME_UPDATE,
        .stream = (uint32_t)item->offer.stream,
        .offset = item->position,
        .payload = shared_data(item->payload) + item->position,
        .payload_bytes = bytes,
    };
    item->position += bytes;
    return frame_write(&frame, ret);
}

bool uploads_answer(struct uploads *uploads, const char *lease, struct upload *ret)
{
    struct upload *item = uploads_find(uploads, lease);
    if (!item)
        return false;
    *ret = *item;
    uploads->count--;
    size_t behind = uploads->count - (size_t)(item - uploads->items);
    memmove(item, item + 1, behind * sizeof *item);
    return true;
}
