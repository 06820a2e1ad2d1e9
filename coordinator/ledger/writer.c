/* The writer thread of one open ledger: takes all that waits, writes it with one pwritev, makes it
 * durable with one fdatasync, then tells the owners in order. Surprising: the first failed write or
 * sync ends the ledger for good, since the kernel may have dropped the pages and a second fdatasync
 * would report a success that is not one; opening again reads what is really on the disk. */
#include "coordinator/ledger/ledger_internal.h"

#include <errno.h>
#include <stdlib.h>

#define BATCH_RECORDS_MAX 256
#define BATCH_BYTES_MAX ((size_t)16 * 1024 * 1024)

static struct pending *take_waiting(struct ledger *ledger, enum status *ret_failed)
{
    (void)pthread_mutex_lock(&ledger->mutex);
    while (!ledger->first && !ledger->closing)
        (void)pthread_cond_wait(&ledger->work, &ledger->mutex);
    struct pending *taken = ledger->first;
    ledger->first = NULL;
    ledger->last = &ledger->first;
    *ret_failed = ledger->failed;
    (void)pthread_mutex_unlock(&ledger->mutex);
    return taken;
}

static enum status rotate(struct ledger *ledger, size_t frame_bytes)
{
    uint64_t needed_bytes = LEDGER_SEGMENT_HEADER_BYTES + (uint64_t)frame_bytes;
    struct segment_header header = {
        .number = ledger->number + 1,
        .first_sequence = ledger->end.sequence + 1,
        .previous_chain = ledger->end.chain,
        .file_bytes = ledger->segment_bytes > needed_bytes ? ledger->segment_bytes : needed_bytes,
        .ledger_id = ledger->ledger_id,
    };
    int fd;
    if (header.number > LEDGER_SEGMENTS_MAX)
        return STATUS_TOO_LARGE;
    enum status status = segment_create(ledger->dir, &header, &fd, NULL);
    if (status != STATUS_OK)
        return status;
    (void)disk_close(ledger->fd); /* everything in it is synced */
    ledger->fd = fd;
    ledger->number = header.number;
    ledger->file_bytes = header.file_bytes;
    ledger->offset = LEDGER_SEGMENT_HEADER_BYTES;
    return STATUS_OK;
}

static void seal(struct ledger *ledger, struct pending *pending, struct ledger_position *end)
{
    struct record_header header = {
        .body_bytes = pending->body_bytes,
        .type = pending->type,
        .flags = LEDGER_FLAG_CRITICAL,
        .sequence = pending->sequence,
        .synced = ledger->end.sequence,
        .body_checksum = pending->body_checksum,
    };
    format_write_record(&header, end->chain, ledger->ledger_id, pending->frame);
    *end = (struct ledger_position){header.sequence, header.chain};
}

/* Writes and syncs as many records from the front as fit one segment and one batch; *ret_rest is
 * the first that was not part of it, whatever the status. */
static enum status write_batch(struct ledger *ledger, struct pending *first,
                               struct pending **ret_rest)
{
    struct iovec vectors[BATCH_RECORDS_MAX];
    struct ledger_position end = ledger->end;
    size_t bytes = 0;
    int count = 0;
    enum status status = STATUS_OK;
    *ret_rest = first->next;
    if (first->frame_bytes > ledger->file_bytes - ledger->offset)
        status = rotate(ledger, first->frame_bytes);
    if (status != STATUS_OK)
        return status;
    struct pending *next = first;
    while (next && count < BATCH_RECORDS_MAX &&
           next->frame_bytes <= ledger->file_bytes - ledger->offset - bytes &&
           (count == 0 || bytes + next->frame_bytes <= BATCH_BYTES_MAX)) {
        seal(ledger, next, &end);
        vectors[count].iov_base = next->frame;
        vectors[count].iov_len = next->frame_bytes;
        count++;
        bytes += next->frame_bytes;
        next = next->next;
    }
    *ret_rest = next;
    status = disk_write_vectors(ledger->fd, vectors, count, ledger->offset, NULL);
    if (status == STATUS_OK && disk_fdatasync(ledger->fd) != 0)
        status = error_set_errno(NULL, errno, "cannot sync the ledger");
    if (status == STATUS_OK) {
        ledger->end = end;
        ledger->offset += bytes;
    }
    return status;
}

static void finish(struct ledger *ledger, struct pending *first, const struct pending *rest,
                   enum status status)
{
    size_t bytes = 0;
    while (first != rest) {
        struct pending *next = first->next;
        if (first->done)
            first->done(first->context, first->sequence, status);
        bytes += first->frame_bytes;
        free(first);
        first = next;
    }
    (void)pthread_mutex_lock(&ledger->mutex);
    ledger->waiting_bytes -= bytes;
    (void)pthread_mutex_unlock(&ledger->mutex);
}

static void fail(struct ledger *ledger, enum status status)
{
    (void)pthread_mutex_lock(&ledger->mutex);
    ledger->failed = status;
    (void)pthread_mutex_unlock(&ledger->mutex);
}

void *writer_main(void *context)
{
    struct ledger *ledger = context;
    for (;;) {
        enum status failed;
        struct pending *waiting = take_waiting(ledger, &failed);
        if (!waiting)
            return NULL;
        while (waiting) {
            struct pending *rest = NULL;
            enum status status = failed;
            if (failed == STATUS_OK) {
                status = write_batch(ledger, waiting, &rest);
                if (status != STATUS_OK)
                    fail(ledger, status);
                failed = status;
            }
            finish(ledger, waiting, rest, status);
            waiting = rest;
        }
    }
}
