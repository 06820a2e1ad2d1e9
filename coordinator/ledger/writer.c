/* The writer thread of one open ledger: takes all that waits, writes it with one pwritev, makes it
 * durable with one fdatasync, then tells the owners in order. Surprising: the first failed write or
 * sync ends the ledger for good, since the kernel may have dropped the pages and a second fdatasync
 * would report a success that is not one; opening again reads what is really on the disk. Space
 * is reserved by segments, so a full disk is met before anything is written: that refuses all that
 * waits and is tried again. */
#include "common/base/checksum.h"
#include "coordinator/ledger/ledger_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define BATCH_RECORDS_MAX 256
#define BATCH_BYTES_MAX ((size_t)16 * 1024 * 1024)

struct wakeup {
    struct pending *waiting;
    enum status failed;
    bool closing;
};

/* Until there is work or the ledger closes, at most wait_ms; a negative wait_ms has no end. */
static struct wakeup take_waiting(struct ledger *ledger, int64_t wait_ms)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += wait_ms / 1000;
    (void)pthread_mutex_lock(&ledger->mutex);
    int errnum = 0;
    while (!ledger->first && !ledger->closing && errnum == 0)
        errnum = wait_ms < 0 ? pthread_cond_wait(&ledger->work, &ledger->mutex)
                             : pthread_cond_timedwait(&ledger->work, &ledger->mutex, &until);
    struct wakeup wakeup = {ledger->first, ledger->failed, ledger->closing};
    ledger->first = NULL;
    ledger->last = &ledger->first;
    (void)pthread_mutex_unlock(&ledger->mutex);
    return wakeup;
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
    ledger->witnessed = ledger->end.sequence;
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
        .epoch = ledger->epoch,
        .body_checksum = pending->body_checksum,
    };
    format_write_record(&header, end->chain, ledger->ledger_id, pending->frame);
    *end = (struct ledger_position){header.sequence, header.chain};
}

/* What is not durable yet must not be acknowledged, and neither what another coordinator, which
 * holds a newer lock file, does not know of. */
static enum status make_durable(const struct ledger *ledger)
{
    if (disk_fdatasync(ledger->fd) != 0)
        return STATUS_IO;
    return disk_is_same(ledger->lock_fd, ledger->lock_path) == 0 ? STATUS_OK : STATUS_FENCED;
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
    if (disk_write_vectors(ledger->fd, vectors, count, ledger->offset, NULL) != STATUS_OK)
        return STATUS_IO;
    status = make_durable(ledger);
    if (status == STATUS_OK) {
        ledger->witnessed = ledger->end.sequence;
        ledger->end = end;
        ledger->offset += bytes;
    }
    return status;
}

/* Witnesses the last records, which no later record does yet. */
static enum status write_mark(struct ledger *ledger)
{
    uint8_t frame[LEDGER_RECORD_HEADER_BYTES];
    if (sizeof frame > ledger->file_bytes - ledger->offset)
        return rotate(ledger, 0); /* the next segment's header is as good */
    struct record_header header = {
        .type = LEDGER_MARK,
        .sequence = ledger->end.sequence,
        .synced = ledger->end.sequence,
        .epoch = ledger->epoch,
        .body_checksum = checksum_xxh3(NULL, 0),
    };
    format_write_record(&header, ledger->end.chain, ledger->ledger_id, frame);
    if (disk_write_whole(ledger->fd, frame, sizeof frame, ledger->offset, NULL) != STATUS_OK)
        return STATUS_IO;
    enum status status = make_durable(ledger);
    if (status == STATUS_OK) {
        ledger->witnessed = ledger->end.sequence;
        ledger->offset += sizeof frame;
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

/* Nothing that waits will be written; the next record takes the first of their sequences. */
static void refuse_all(struct ledger *ledger, struct pending *waiting)
{
    (void)pthread_mutex_lock(&ledger->mutex);
    struct pending **end = &waiting;
    while (*end)
        end = &(*end)->next;
    *end = ledger->first;
    ledger->first = NULL;
    ledger->last = &ledger->first;
    ledger->next_sequence = ledger->end.sequence + 1;
    ledger->full = true;
    (void)pthread_mutex_unlock(&ledger->mutex);
    finish(ledger, waiting, NULL, STATUS_NO_SPACE);
}

/* Only after everybody whose record was refused has been told. */
static void try_for_space(struct ledger *ledger)
{
    enum status status = rotate(ledger, 0);
    (void)pthread_mutex_lock(&ledger->mutex);
    if (status == STATUS_OK)
        ledger->full = false;
    else if (status != STATUS_NO_SPACE)
        ledger->failed = status;
    (void)pthread_mutex_unlock(&ledger->mutex);
}

static void write_waiting(struct ledger *ledger, struct pending *waiting, enum status failed)
{
    while (waiting) {
        struct pending *rest = NULL;
        enum status status = failed;
        if (failed == STATUS_OK) {
            status = write_batch(ledger, waiting, &rest);
            if (status == STATUS_NO_SPACE) {
                refuse_all(ledger, waiting);
                return;
            }
            if (status != STATUS_OK)
                fail(ledger, status);
            failed = status;
        }
        finish(ledger, waiting, rest, status);
        waiting = rest;
    }
}

bool writer_turn(struct ledger *ledger, int64_t wait_ms)
{
    bool full = ledger->full; /* only this thread changes it */
    bool mark = !full && ledger->witnessed < ledger->end.sequence;
    struct wakeup wakeup = take_waiting(ledger, full || mark ? wait_ms : -1);
    if (wakeup.waiting) {
        write_waiting(ledger, wakeup.waiting, wakeup.failed);
        return true;
    }
    if (full && !wakeup.closing && wakeup.failed == STATUS_OK) {
        try_for_space(ledger);
    } else if (mark && wakeup.failed == STATUS_OK) {
        enum status status = write_mark(ledger);
        if (status != STATUS_OK && status != STATUS_NO_SPACE)
            fail(ledger, status);
    }
    return !wakeup.closing;
}

void *writer_main(void *ledger)
{
    while (writer_turn(ledger, LEDGER_IDLE_MS))
        ;
    return NULL;
}
