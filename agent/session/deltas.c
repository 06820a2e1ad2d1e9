/* A list of open streams; see the header. Memory grows with the bytes that came, not with the bytes
 * that were announced. Session thread. */
#include "agent/session/deltas.h"

#include <stdlib.h>
#include <string.h>

void deltas_init(struct deltas *deltas)
{
    *deltas = (struct deltas){0};
}

void delta_in_free(struct delta_in *delta)
{
    if (!delta)
        return;
    buffer_done(&delta->data);
    free(delta);
}

static void drop_open(struct deltas *deltas)
{
    while (deltas->first) {
        struct delta_in *next = deltas->first->next;
        delta_in_free(deltas->first);
        deltas->first = next;
    }
    deltas->last = NULL;
    deltas->count = 0;
}

void deltas_done(struct deltas *deltas)
{
    drop_open(deltas);
    delta_in_free(deltas->part);
    deltas->part = NULL;
}

void deltas_interrupted(struct deltas *deltas)
{
    struct delta_in *oldest = deltas->first;
    if (oldest && oldest->data.bytes > 0) {
        delta_in_free(deltas->part);
        deltas->part = oldest;
        deltas->first = oldest->next;
    }
    drop_open(deltas);
}

uint64_t deltas_part_bytes(const struct deltas *deltas, const char *job, uint64_t have_version)
{
    const struct delta_in *part = deltas->part;
    bool fits = part && strcmp(part->announced.job, job) == 0 &&
                part->announced.version == have_version + 1;
    return fits ? part->data.bytes : 0;
}

/* The kept part, if this announcement continues it; else NULL and the part is dropped. */
static struct delta_in *take_part(struct deltas *deltas, const struct wire_delta *delta)
{
    struct delta_in *part = deltas->part;
    deltas->part = NULL;
    bool fits = part && delta->from > 0 && strcmp(part->announced.job, delta->job) == 0 &&
                part->announced.version == delta->version &&
                part->announced.bytes == delta->bytes && part->announced.hash == delta->hash &&
                part->data.bytes == delta->from;
    if (fits)
        return part;
    delta_in_free(part);
    return NULL;
}

static struct delta_in *find(const struct deltas *deltas, uint64_t stream)
{
    for (struct delta_in *delta = deltas->first; delta; delta = delta->next)
        if (delta->announced.stream == stream)
            return delta;
    return NULL;
}

enum status deltas_announce(struct deltas *deltas, const struct wire_delta *delta,
                            uint64_t bytes_max, struct error *err)
{
    if (delta->bytes == 0 || delta->stream > UINT32_MAX || find(deltas, delta->stream))
        return error_set(err, STATUS_INVALID, "delta on stream %llu: empty, or stream in use",
                         (unsigned long long)delta->stream);
    if (delta->bytes > bytes_max)
        return error_set(err, STATUS_TOO_LARGE, "delta of %llu bytes, at most %llu are possible",
                         (unsigned long long)delta->bytes, (unsigned long long)bytes_max);
    if (deltas->count == DELTAS_OPEN_MAX)
        return error_set(err, STATUS_BUSY, "%d deltas were announced and not sent",
                         DELTAS_OPEN_MAX);
    struct delta_in *item = take_part(deltas, delta);
    if (!item && delta->from > 0)
        return error_set(err, STATUS_INVALID,
                         "delta to version %llu goes on at byte %llu, which "
                         "does not continue what is here",
                         (unsigned long long)delta->version, (unsigned long long)delta->from);
    if (!item) {
        item = calloc(1, sizeof *item);
        if (!item)
            return error_set(err, STATUS_NO_MEMORY, "no memory for a delta");
        buffer_init(&item->data, (size_t)delta->bytes);
    }
    item->announced = *delta;
    item->next = NULL;
    if (deltas->last)
        deltas->last->next = item;
    else
        deltas->first = item;
    deltas->last = item;
    deltas->count++;
    return STATUS_OK;
}

enum status deltas_frame(struct deltas *deltas, const struct frame *frame, struct error *err)
{
    if (frame->kind != FRAME_DELTA)
        return error_set(err, STATUS_INVALID, "a data frame of kind %d came down", frame->kind);
    struct delta_in *item = find(deltas, frame->stream);
    if (!item)
        return error_set(err, STATUS_INVALID, "data for stream %u, which was not announced",
                         frame->stream);
    if (frame->offset != item->data.bytes)
        return error_set(err, STATUS_INVALID, "stream %u goes on at byte %llu, expected %zu",
                         frame->stream, (unsigned long long)frame->offset, item->data.bytes);
    enum status status = buffer_append(&item->data, frame->payload, frame->payload_bytes);
    if (status)
        return error_set(err, status, "stream %u has more than the %llu bytes announced",
                         frame->stream, (unsigned long long)item->announced.bytes);
    return STATUS_OK;
}

struct delta_in *deltas_take(struct deltas *deltas)
{
    struct delta_in *first = deltas->first;
    if (!first || first->data.bytes < first->announced.bytes)
        return NULL;
    deltas->first = first->next;
    if (!deltas->first)
        deltas->last = NULL;
    deltas->count--;
    first->next = NULL;
    return first;
}
