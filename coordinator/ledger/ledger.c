/* The append-only record of a job: open, append, close. Opening and closing run on the caller's
 * thread, writing on the ledger's own (writer.c). Surprising: segments are preallocated with zeros,
 * so the file never ends where the records end; a file that is shorter than its header says was
 * damaged from outside.
 *
 * The byte format, version 1. All integers little-endian; all checksums XXH3-64.
 *
 * A ledger is the files ledger-00000001.rvl, ledger-00000002.rvl … of one directory, and an empty
 * file "lock" that carries an open-file-description lock while somebody may write. A new segment is
 * made under a .tmp name: space reserved (64 MiB, or more for one larger record), header written,
 * fsync, rename, fsync of the directory. Only then are records put in.
 *
 * Segment header, 64 bytes:
 *    0   8  magic "RAVENLDG"
 *    8   2  format = 1
 *   10   2  min_reader = 1: readers older than this must refuse
 *   12   4  header length = 64
 *   16   8  segment number, from 1 without gaps
 *   24   8  sequence of the first record that it will have
 *   32   8  chain of the record before that (0 for the first)
 *   40   8  length of the file, which stays the same for ever
 *   48   8  ledger id, random, the same in all segments
 *   56   8  checksum of bytes 0 … 55
 *
 * Records follow without gaps, each at a multiple of 8. A record is a 64-byte header, the body, and
 * zeros up to the next multiple of 8:
 *    0   4  length of the body, at most 64 MiB
 *    4   4  the same, every bit inverted
 *    8   2  type (enum ledger_type; bodies: records.c)
 *   10   2  flags: bit 0 = critical, a reader that does not know the type must refuse; without it
 *           the record is skipped
 *   12   4  header length = 64
 *   16   8  sequence, dense from 1 over the whole ledger
 *   24   8  the last sequence that was durable when this record was written
 *   32   8  epoch: one more than the highest in the ledger when the writer opened it (0 in ledgers
 *           of the first version); a lower one after a higher one is the trace of two writers
 *   40   8  checksum of body and padding
 *   48   8  chain: checksum of bytes 0 … 47, seeded with the chain of the record before (0 for
 *           the first); the body's checksum is in them, so it covers all that came before
 *   56   8  checksum of bytes 0 … 55, seeded with the ledger id; checked before the length is
 *           used
 *
 * A mark is a header of type 5 without a body, written when nothing came for a second and at a
 * clean close. It has the sequence of the record before it, also as its "durable" field, and is no
 * link of the chain: its own chain field is computed like the next record's, which starts from the
 * same chain as if the mark were not there. It witnesses that everything before it was durable.
 *
 * After the last record of a segment all bytes are zero. In the last segment other bytes that are
 * no whole record are a torn tail unless an intact header follows that states the bad record as
 * durable: one write carries many records and a power cut may keep any of its sectors, but all of
 * them state only what was durable before that write. A torn tail is copied to
 * <segment>.torn-<wall ms> and overwritten with zeros. It was never acknowledged, with one
 * exception: a very last record that is damaged in the second before its mark looks the same;
 * hence the copy, the report, the refusal to end before a snapshot, and the receipts that agents
 * keep. Anything else that does not fit is damage: the ledger does not open and nothing is
 * written. */
#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/base/rng.h"
#include "coordinator/ledger/ledger_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static enum status take_lock(const char *dir, char ret_path[PATH_BYTES], int *ret_fd,
                             struct error *err)
{
    enum status status = path_format(ret_path, "%s/lock", dir);
    if (status != STATUS_OK)
        return error_set(err, status, "the ledger's directory name is too long: %s", dir);
    int fd = disk_open(ret_path, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return error_set_errno(err, errno, "cannot open the lock %s", ret_path);
    if (disk_lock(fd) != 0) {
        int errnum = errno;
        (void)disk_close(fd);
        if (errnum == EAGAIN)
            return error_set(err, STATUS_BUSY, "another process has the ledger in %s open", dir);
        return error_set_errno(
            err, errnum, "cannot lock %s (the directory must be on a local file system)", ret_path);
    }
    *ret_fd = fd;
    return STATUS_OK;
}

static enum status check_end(const struct reader *reader, struct error *err)
{
    if (reader->end.sequence >= reader->replay_after)
        return STATUS_OK;
    return error_set(err, STATUS_CORRUPT,
                     "the ledger in %s ends at record %llu but a snapshot contains record %llu: "
                     "acknowledged records are missing; bring the ledger back from a backup",
                     reader->dir, (unsigned long long)reader->end.sequence,
                     (unsigned long long)reader->replay_after);
}

static void report_from(const struct reader *reader, struct ledger_open_report *ret)
{
    *ret = (struct ledger_open_report){
        .end = reader->end,
        .records = reader->records,
        .torn_bytes = reader->torn_end - reader->offset,
    };
}

/* Leaves ledger->fd at the segment that takes the next record. */
static enum status open_for_writing(struct ledger *ledger, const struct reader *reader,
                                    struct error *err)
{
    enum status status = segment_remove_unfinished(ledger->dir, reader->segments + 1, err);
    if (status != STATUS_OK)
        return status;
    if (reader->segments == 0) {
        struct segment_header header = {.number = 1, .first_sequence = 1};
        random_bytes(&header.ledger_id, sizeof header.ledger_id);
        header.file_bytes = ledger->segment_bytes;
        ledger->ledger_id = header.ledger_id;
        ledger->number = 1;
        ledger->file_bytes = header.file_bytes;
        ledger->offset = LEDGER_SEGMENT_HEADER_BYTES;
        return segment_create(ledger->dir, &header, &ledger->fd, err);
    }
    char path[PATH_BYTES];
    status = segment_path(ledger->dir, reader->segments, path, err);
    if (status != STATUS_OK)
        return status;
    ledger->fd = disk_open(path, O_RDWR, 0);
    if (ledger->fd < 0)
        return error_set_errno(err, errno, "cannot open the ledger segment %s", path);
    if (reader->torn_end > reader->offset)
        status = segment_cut(ledger->fd, path, reader->offset, reader->torn_end, err);
    if (status == STATUS_OK)
        status =
            segment_make_durable(ledger->dir, ledger->fd, reader->durable, reader->offset, err);
    if (status != STATUS_OK)
        return status;
    ledger->ledger_id = reader->ledger_id;
    ledger->number = reader->segments;
    ledger->file_bytes = reader->file_bytes;
    ledger->offset = reader->offset;
    return STATUS_OK;
}

static enum status start(struct ledger *ledger, struct error *err)
{
    (void)pthread_mutex_init(&ledger->mutex, NULL);
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&ledger->work, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    ledger->last = &ledger->first;
    ledger->next_sequence = ledger->end.sequence + 1;
    int errnum =
        ledger->threadless ? 0 : pthread_create(&ledger->thread, NULL, writer_main, ledger);
    if (errnum == 0)
        return STATUS_OK;
    (void)pthread_cond_destroy(&ledger->work);
    (void)pthread_mutex_destroy(&ledger->mutex);
    return error_set_errno(err, errnum, "cannot start the ledger's thread");
}

static enum status open_locked(struct ledger *ledger, struct reader *reader,
                               struct ledger_open_report *ret_report, struct error *err)
{
    struct ledger_open_report report;
    enum status status = reader_run(reader, err);
    if (status == STATUS_OK)
        status = check_end(reader, err);
    if (status != STATUS_OK)
        return status;
    report_from(reader, &report);
    ledger->end = reader->end;
    ledger->witnessed = reader->witnessed;
    ledger->epoch = reader->epoch + 1;
    status = open_for_writing(ledger, reader, err);
    if (status == STATUS_OK)
        status = start(ledger, err);
    if (status == STATUS_OK && ret_report)
        *ret_report = report;
    return status;
}

enum status ledger_open_with(const char *dir, const struct ledger_options *options,
                             uint64_t replay_after, ledger_replay_fn replay, void *context,
                             struct ledger **ret, struct ledger_open_report *ret_report,
                             struct error *err)
{
    struct reader reader = {
        .dir = dir, .replay_after = replay_after, .replay = replay, .context = context};
    struct ledger *ledger = calloc(1, sizeof *ledger);
    if (!ledger)
        return error_set(err, STATUS_NO_MEMORY, "no memory to open the ledger in %s", dir);
    ledger->fd = -1;
    ledger->lock_fd = -1;
    ledger->segment_bytes = options->segment_bytes;
    ledger->threadless = options->threadless;
    enum status status = path_format(ledger->dir, "%s", dir);
    if (status != STATUS_OK)
        (void)error_set(err, status, "the ledger's directory name is too long: %s", dir);
    if (status == STATUS_OK && disk_make_dirs(dir) != 0)
        status = error_set_errno(err, errno, "cannot make the ledger's directory %s", dir);
    if (status == STATUS_OK)
        status = take_lock(dir, ledger->lock_path, &ledger->lock_fd, err);
    if (status == STATUS_OK)
        status = open_locked(ledger, &reader, ret_report, err);
    reader_done(&reader);
    if (status == STATUS_OK) {
        *ret = ledger;
        return STATUS_OK;
    }
    if (ledger->fd >= 0)
        (void)disk_close(ledger->fd);
    if (ledger->lock_fd >= 0)
        (void)disk_close(ledger->lock_fd);
    free(ledger);
    return status;
}

enum status ledger_open(const char *dir, uint64_t replay_after, ledger_replay_fn replay,
                        void *context, struct ledger **ret, struct ledger_open_report *ret_report,
                        struct error *err)
{
    struct ledger_options options = {.segment_bytes = LEDGER_SEGMENT_BYTES};
    return ledger_open_with(dir, &options, replay_after, replay, context, ret, ret_report, err);
}

enum status ledger_scan(const char *dir, ledger_replay_fn replay, void *context,
                        struct ledger_open_report *ret_report, struct error *err)
{
    struct reader reader = {.dir = dir, .live = true, .replay = replay, .context = context};
    enum status status = reader_run(&reader, err);
    if (status == STATUS_OK && reader.segments == 0)
        status = error_set(err, STATUS_NOT_FOUND, "there is no ledger in %s", dir);
    if (status == STATUS_OK && ret_report)
        report_from(&reader, ret_report);
    reader_done(&reader);
    return status;
}

static enum status enqueue(struct ledger *ledger, struct pending *pending, uint64_t *ret_sequence)
{
    (void)pthread_mutex_lock(&ledger->mutex);
    enum status status = ledger->failed;
    if (status == STATUS_OK && ledger->full)
        status = STATUS_NO_SPACE;
    if (status == STATUS_OK &&
        pending->frame_bytes > LEDGER_WAITING_BYTES_MAX - ledger->waiting_bytes)
        status = STATUS_BUSY;
    if (status == STATUS_OK) {
        pending->sequence = ledger->next_sequence++;
        if (ret_sequence)
            *ret_sequence = pending->sequence;
        ledger->waiting_bytes += pending->frame_bytes;
        *ledger->last = pending;
        ledger->last = &pending->next;
        (void)pthread_cond_signal(&ledger->work);
    }
    (void)pthread_mutex_unlock(&ledger->mutex);
    return status;
}

enum status ledger_append(struct ledger *ledger, enum ledger_type type, const void *body,
                          size_t body_bytes, ledger_done_fn done, void *context,
                          uint64_t *ret_sequence)
{
    if (body_bytes > LEDGER_BODY_BYTES_MAX)
        return STATUS_TOO_LARGE;
    size_t padded_bytes = (size_t)format_padded_bytes((uint32_t)body_bytes);
    struct pending *pending = malloc(sizeof *pending + LEDGER_RECORD_HEADER_BYTES + padded_bytes);
    if (!pending)
        return STATUS_NO_MEMORY;
    uint8_t *copy = pending->frame + LEDGER_RECORD_HEADER_BYTES;
    if (body_bytes > 0)
        memcpy(copy, body, body_bytes);
    memset(copy + body_bytes, 0, padded_bytes - body_bytes);
    *pending = (struct pending){
        .type = (uint16_t)type,
        .body_bytes = (uint32_t)body_bytes,
        .body_checksum = checksum_xxh3(copy, padded_bytes),
        .frame_bytes = LEDGER_RECORD_HEADER_BYTES + padded_bytes,
        .done = done,
        .context = context,
    };
    enum status status = enqueue(ledger, pending, ret_sequence);
    if (status != STATUS_OK)
        free(pending);
    return status;
}

bool ledger_is_full(struct ledger *ledger)
{
    (void)pthread_mutex_lock(&ledger->mutex);
    bool full = ledger->full;
    (void)pthread_mutex_unlock(&ledger->mutex);
    return full;
}

void ledger_close(struct ledger *ledger)
{
    if (!ledger)
        return;
    (void)pthread_mutex_lock(&ledger->mutex);
    ledger->closing = true;
    (void)pthread_cond_signal(&ledger->work);
    (void)pthread_mutex_unlock(&ledger->mutex);
    if (!ledger->threadless)
        (void)pthread_join(ledger->thread, NULL);
    while (ledger->threadless && writer_turn(ledger, 0))
        ;
    (void)pthread_cond_destroy(&ledger->work);
    (void)pthread_mutex_destroy(&ledger->mutex);
    (void)disk_close(ledger->fd);
    (void)disk_close(ledger->lock_fd);
    free(ledger);
}
