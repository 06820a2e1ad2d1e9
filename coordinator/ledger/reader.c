/* Reads a whole ledger in order, checks every byte of it, and decides what its end means: clean,
 * torn, or damaged. The opening thread. Surprising: intact records may follow a torn one (a power
 * cut keeps any sectors of a write); what tells a torn write from a damaged acknowledged record is
 * whether anything after it states that it was durable. */
#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "coordinator/ledger/ledger_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES ((size_t)256 * 1024)
#define LIVE_ATTEMPTS 5

enum found {
    FOUND_RECORD,
    FOUND_MARK,
    FOUND_UNREADABLE, /* zeros, half a record, or flipped bits: the survey decides */
};

struct segment {
    char path[PATH_BYTES];
    int fd;
    uint64_t file_bytes;
    bool last;
};

static enum status damage(const struct segment *segment, uint64_t offset, const char *what,
                          struct error *err)
{
    return error_set(err, STATUS_CORRUPT,
                     "%s is damaged at offset %llu (%s); nothing was changed: bring the file back "
                     "from a backup",
                     segment->path, (unsigned long long)offset, what);
}

static enum status open_segment(struct reader *reader, uint64_t number, struct segment *ret,
                                struct error *err)
{
    ret->last = number == reader->segments;
    enum status status = segment_path(reader->dir, number, ret->path, err);
    if (status != STATUS_OK)
        return status;
    ret->fd = disk_open(ret->path, O_RDONLY, 0);
    if (ret->fd < 0)
        return error_set_errno(err, errno, "cannot open the ledger segment %s", ret->path);
    if (disk_size(ret->fd, &ret->file_bytes) != 0)
        return error_set_errno(err, errno, "cannot examine the ledger segment %s", ret->path);
    return STATUS_OK;
}

static enum status check_segment_header(struct reader *reader, uint64_t number,
                                        const struct segment *segment, struct error *err)
{
    uint8_t bytes[LEDGER_SEGMENT_HEADER_BYTES];
    struct segment_header header;
    if (segment->file_bytes < sizeof bytes)
        return damage(segment, segment->file_bytes, "the file ends inside its header", err);
    enum status status = disk_read_whole(segment->fd, bytes, sizeof bytes, 0, err);
    if (status != STATUS_OK)
        return status;
    status = format_read_segment(bytes, &header);
    if (status == STATUS_UNSUPPORTED)
        return error_set(err, status, "%s was written by a newer version of this program; use it",
                         segment->path);
    if (status != STATUS_OK)
        return damage(segment, 0, "the segment header is not whole", err);
    if (number == 1)
        reader->ledger_id = header.ledger_id;
    if (header.number != number || header.ledger_id != reader->ledger_id)
        return damage(segment, 0, "the segment belongs elsewhere", err);
    if (header.first_sequence != reader->end.sequence + 1 ||
        header.previous_chain != reader->end.chain)
        return damage(segment, 0, "the segment does not continue the one before", err);
    if (header.file_bytes != segment->file_bytes)
        return damage(segment, segment->file_bytes, "the file does not have its size", err);
    reader->witnessed = reader->end.sequence;
    reader->durable = LEDGER_SEGMENT_HEADER_BYTES;
    return STATUS_OK;
}

static enum status grow_space(struct reader *reader, size_t bytes, struct error *err)
{
    if (bytes <= reader->space_bytes)
        return STATUS_OK;
    uint8_t *space = realloc(reader->space, bytes);
    if (!space)
        return error_set(err, STATUS_NO_MEMORY, "no memory for %zu bytes of the ledger", bytes);
    reader->space = space;
    reader->space_bytes = bytes;
    return STATUS_OK;
}

/* The body and its padding land in reader->space. */
static enum status read_record(struct reader *reader, const struct segment *segment,
                               uint64_t offset, struct record_header *ret, enum found *ret_found,
                               struct error *err)
{
    uint8_t bytes[LEDGER_RECORD_HEADER_BYTES];
    *ret_found = FOUND_UNREADABLE;
    if (segment->file_bytes - offset < sizeof bytes)
        return STATUS_OK;
    enum status status = disk_read_whole(segment->fd, bytes, sizeof bytes, offset, err);
    if (status != STATUS_OK || !format_read_record(bytes, reader->ledger_id, ret))
        return status;
    bool mark = ret->type == LEDGER_MARK;
    if (ret->sequence != reader->end.sequence + !mark)
        return damage(segment, offset, "the record is not the next one", err);
    if (ret->epoch < reader->epoch)
        return error_set(
            err, STATUS_FENCED,
            "%s has a record of epoch %llu at offset %llu after one of epoch %llu: two "
            "coordinators wrote this ledger; nothing was changed: bring it back from "
            "a backup",
            segment->path, (unsigned long long)ret->epoch, (unsigned long long)offset,
            (unsigned long long)reader->epoch);
    if (ret->chain != format_chain(bytes, reader->end.chain))
        return damage(segment, offset, "the record does not continue the chain", err);
    uint64_t padded_bytes = format_padded_bytes(ret->body_bytes);
    if (ret->body_bytes > LEDGER_BODY_BYTES_MAX ||
        padded_bytes > segment->file_bytes - offset - sizeof bytes)
        return damage(segment, offset, "the record is longer than the file", err);
    status = grow_space(reader, (size_t)padded_bytes, err);
    if (status == STATUS_OK && padded_bytes > 0)
        status = disk_read_whole(segment->fd, reader->space, (size_t)padded_bytes,
                                 offset + sizeof bytes, err);
    if (status == STATUS_OK &&
        checksum_xxh3(reader->space, (size_t)padded_bytes) == ret->body_checksum)
        *ret_found = mark ? FOUND_MARK : FOUND_RECORD;
    return status;
}

static enum status deliver(struct reader *reader, const struct segment *segment, uint64_t offset,
                           const struct record_header *header, struct error *err)
{
    bool known = header->type >= LEDGER_UPDATE && header->type <= LEDGER_CONTROL;
    if (!known && (header->flags & LEDGER_FLAG_CRITICAL))
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s has a record of type %u at offset %llu, which a newer version of this "
                         "program wrote; use it",
                         segment->path, header->type, (unsigned long long)offset);
    if (known && reader->replay && header->sequence > reader->replay_after) {
        struct ledger_record record = {
            .type = (enum ledger_type)header->type,
            .sequence = header->sequence,
            .body = reader->space,
            .body_bytes = header->body_bytes,
        };
        enum status status = reader->replay(reader->context, &record, err);
        if (status != STATUS_OK)
            return status;
    }
    reader->end = (struct ledger_position){header->sequence, header->chain};
    reader->records++;
    return STATUS_OK;
}

struct survey {
    uint64_t nonzero_end; /* after the last byte that is not zero; offset when all are */
    uint64_t witness;     /* offset of a header that states the bad record as durable; 0: none */
};

static void survey_window(const struct reader *reader, uint64_t offset, const uint8_t *window,
                          size_t bytes, uint64_t at, struct survey *survey)
{
    for (size_t i = bytes; i > 0; i--) {
        if (window[i - 1] != 0) {
            survey->nonzero_end = at + i;
            break;
        }
    }
    struct record_header header;
    for (size_t i = 0; i + LEDGER_RECORD_HEADER_BYTES <= bytes && !survey->witness;
         i += LEDGER_ALIGN_BYTES) {
        if (at + i > offset && format_read_record(window + i, reader->ledger_id, &header) &&
            header.synced > reader->end.sequence)
            survey->witness = at + i;
    }
}

/* Looks at everything from offset, where no whole record starts, to the end of the file. */
static enum status survey_rest(const struct reader *reader, const struct segment *segment,
                               uint64_t offset, struct survey *ret, struct error *err)
{
    uint8_t *window = malloc(WINDOW_BYTES);
    if (!window)
        return error_set(err, STATUS_NO_MEMORY, "no memory to examine %s", segment->path);
    *ret = (struct survey){.nonzero_end = offset};
    enum status status = STATUS_OK;
    uint64_t at = offset;
    while (status == STATUS_OK && at < segment->file_bytes) {
        uint64_t left_bytes = segment->file_bytes - at;
        size_t bytes = left_bytes < WINDOW_BYTES ? (size_t)left_bytes : WINDOW_BYTES;
        status = disk_read_whole(segment->fd, window, bytes, at, err);
        if (status == STATUS_OK)
            survey_window(reader, offset, window, bytes, at, ret);
        if (bytes == left_bytes)
            break;
        at += bytes - LEDGER_RECORD_HEADER_BYTES + LEDGER_ALIGN_BYTES;
    }
    free(window);
    return status;
}

/* No whole record starts at offset: end of the segment, torn tail, or damage. A live writer may
 * have finished the record meanwhile; then *ret_again. */
static enum status judge_end(struct reader *reader, const struct segment *segment, uint64_t offset,
                             bool *ret_again, struct error *err)
{
    struct survey survey = {0};
    enum status status = survey_rest(reader, segment, offset, &survey, err);
    if (status != STATUS_OK)
        return status;
    bool clean = survey.nonzero_end == offset;
    if (!clean && reader->live) {
        struct record_header header;
        enum found found;
        status = read_record(reader, segment, offset, &header, &found, err);
        *ret_again = status == STATUS_OK && (found != FOUND_UNREADABLE || survey.witness);
        if (status != STATUS_OK || *ret_again)
            return status;
    }
    if (survey.witness)
        return damage(segment, offset, "what follows it says that it was durable", err);
    if (!clean && !segment->last)
        return damage(segment, offset, "another segment follows it", err);
    if (segment->last) {
        reader->offset = offset;
        reader->torn_end = survey.nonzero_end;
        reader->file_bytes = segment->file_bytes;
    }
    return STATUS_OK;
}

static enum status read_records(struct reader *reader, const struct segment *segment,
                                struct error *err)
{
    uint64_t offset = LEDGER_SEGMENT_HEADER_BYTES;
    int attempts = 0;
    for (;;) {
        struct record_header header;
        enum found found;
        enum status status = read_record(reader, segment, offset, &header, &found, err);
        if (status == STATUS_OK && found != FOUND_UNREADABLE) {
            reader->epoch = header.epoch;
            reader->witnessed = header.synced;
            if (header.synced == reader->end.sequence)
                reader->durable = offset;
            if (found == FOUND_RECORD)
                status = deliver(reader, segment, offset, &header, err);
            offset += LEDGER_RECORD_HEADER_BYTES + format_padded_bytes(header.body_bytes);
            attempts = 0;
            if (status == STATUS_OK)
                continue;
        }
        if (status != STATUS_OK)
            return status;
        bool again = false;
        bool live = reader->live;
        reader->live = live && ++attempts < LIVE_ATTEMPTS;
        status = judge_end(reader, segment, offset, &again, err);
        reader->live = live;
        if (status != STATUS_OK || !again)
            return status;
    }
}

enum status reader_run(struct reader *reader, struct error *err)
{
    enum status status = segment_count(reader->dir, &reader->segments, err);
    for (uint64_t number = 1; status == STATUS_OK && number <= reader->segments; number++) {
        struct segment segment = {.fd = -1};
        status = open_segment(reader, number, &segment, err);
        if (status == STATUS_OK)
            status = check_segment_header(reader, number, &segment, err);
        if (status == STATUS_OK)
            status = read_records(reader, &segment, err);
        if (segment.fd >= 0)
            (void)disk_close(segment.fd);
    }
    return status;
}

void reader_done(struct reader *reader)
{
    free(reader->space);
    reader->space = NULL;
    reader->space_bytes = 0;
}
