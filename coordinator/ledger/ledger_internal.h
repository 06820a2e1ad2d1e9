/* What the files of this folder share: the byte format (format.c), segment files (segment.c), the
 * reader (reader.c) and the writer thread (writer.c). Nobody outside the folder and its tests
 * includes this. */
#ifndef RAVEN_COORDINATOR_LEDGER_LEDGER_INTERNAL_H
#define RAVEN_COORDINATOR_LEDGER_LEDGER_INTERNAL_H

#include "common/base/file.h"
#include "coordinator/ledger/disk.h"
#include "coordinator/ledger/ledger.h"

#include <pthread.h>
#include <stdbool.h>

#define LEDGER_FORMAT 1
#define LEDGER_SEGMENT_HEADER_BYTES 64u
#define LEDGER_RECORD_HEADER_BYTES 64u
#define LEDGER_ALIGN_BYTES 8u
#define LEDGER_FLAG_CRITICAL 1u
#define LEDGER_MARK 5u      /* the writer's own; see the format in ledger.c */
#define LEDGER_IDLE_MS 1000 /* then a mark is written, or a full disk is tried again */
#define LEDGER_SEGMENTS_MAX 1000000u
/* Appended and not yet written; more is refused with STATUS_BUSY, so a slow disk cannot fill
 * memory. */
#define LEDGER_WAITING_BYTES_MAX (256u * 1024 * 1024)

/* format.c */
struct segment_header {
    uint64_t number;
    uint64_t first_sequence;
    uint64_t previous_chain;
    uint64_t file_bytes; /* preallocated size, header included */
    uint64_t ledger_id;  /* random, the same in all segments of a ledger */
};

struct record_header {
    uint32_t body_bytes;
    uint16_t type;
    uint16_t flags;
    uint64_t sequence;
    uint64_t synced; /* the last sequence known durable when this was written */
    uint64_t epoch;  /* how often the ledger had been opened for writing */
    uint64_t body_checksum;
    uint64_t chain;
};

void format_write_segment(const struct segment_header *header,
                          uint8_t ret[LEDGER_SEGMENT_HEADER_BYTES]);
/* STATUS_CORRUPT for anything but a whole header, STATUS_UNSUPPORTED for a newer one. */
enum status format_read_segment(const uint8_t data[LEDGER_SEGMENT_HEADER_BYTES],
                                struct segment_header *ret) MUST_CHECK;
/* Fills in chain from previous_chain. */
void format_write_record(struct record_header *header, uint64_t previous_chain, uint64_t ledger_id,
                         uint8_t ret[LEDGER_RECORD_HEADER_BYTES]);
/* False unless the checksum and the complement of the length are right. Any bytes are safe. */
bool format_read_record(const uint8_t data[LEDGER_RECORD_HEADER_BYTES], uint64_t ledger_id,
                        struct record_header *ret) MUST_CHECK;
/* The chain that the header's bytes must carry after a record with previous_chain. */
uint64_t format_chain(const uint8_t data[LEDGER_RECORD_HEADER_BYTES], uint64_t previous_chain);
uint64_t format_padded_bytes(uint32_t body_bytes);

/* segment.c */
enum status segment_path(const char *dir, uint64_t number, char ret[PATH_BYTES],
                         struct error *err) MUST_CHECK;
/* Segments must be numbered 1 … count without a gap; 0 when there are none. */
enum status segment_count(const char *dir, uint64_t *ret, struct error *err) MUST_CHECK;
/* Preallocated, header written, file and name durable before it returns. The caller closes.
 * STATUS_NO_SPACE: nothing has changed. */
enum status segment_create(const char *dir, const struct segment_header *header, int *ret_fd,
                           struct error *err) MUST_CHECK;
/* Removes what a crash inside segment_create left. */
enum status segment_remove_unfinished(const char *dir, uint64_t number,
                                      struct error *err) MUST_CHECK;
/* Writes [from, to) once more and syncs it, and the segment's name: a process that died or whose
 * sync failed may have left bytes that only the page cache has, which no later sync would write. */
enum status segment_make_durable(const char *dir, int fd, uint64_t from, uint64_t to,
                                 struct error *err) MUST_CHECK;
/* Copies [from, to) of path, open as fd, to <path>.torn-<wall ms>, then overwrites it with durable
 * zeros. */
enum status segment_cut(int fd, const char *path, uint64_t from, uint64_t to,
                        struct error *err) MUST_CHECK;

/* reader.c */
struct reader {
    const char *dir;
    bool live; /* somebody else may be appending: look again before calling it damage */
    uint64_t replay_after;
    ledger_replay_fn replay; /* may be NULL */
    void *context;

    /* results */
    struct ledger_position end;
    uint64_t records;
    uint64_t segments;
    uint64_t ledger_id;
    uint64_t epoch;      /* the highest so far */
    uint64_t witnessed;  /* records to this sequence are known durable by what follows them */
    uint64_t file_bytes; /* of the last segment */
    uint64_t offset;     /* after the last whole record of the last segment */
    uint64_t durable;    /* offset in the last segment before which all is known durable */
    uint64_t torn_end;   /* after the last byte that is not zero; == offset when nothing is torn */

    uint8_t *space;
    size_t space_bytes;
};

/* Reads everything, writes nothing. The caller frees with reader_done, also after a failure. */
enum status reader_run(struct reader *reader, struct error *err) MUST_CHECK;
void reader_done(struct reader *reader);

/* writer.c */
struct pending {
    struct pending *next;
    uint64_t sequence;
    uint16_t type;
    uint32_t body_bytes;
    uint64_t body_checksum;
    size_t frame_bytes;
    ledger_done_fn done;
    void *context;
    uint8_t frame[]; /* header, body, padding */
};

struct ledger {
    char dir[PATH_BYTES];
    uint64_t segment_bytes;
    uint64_t ledger_id;
    uint64_t epoch;
    bool threadless;
    int lock_fd;
    char lock_path[PATH_BYTES];
    pthread_t thread;

    pthread_mutex_t mutex; /* guards from here … */
    pthread_cond_t work;
    struct pending *first;
    struct pending **last;
    size_t waiting_bytes;
    uint64_t next_sequence;
    enum status failed; /* OK, or the reason for ever */
    bool full;          /* no space for the next segment, until there is */
    bool closing;       /* … to here */

    /* writer thread only */
    struct ledger_position end;
    uint64_t witnessed; /* as in struct reader */
    int fd;
    uint64_t number;
    uint64_t file_bytes;
    uint64_t offset;
};

void *writer_main(void *ledger);
/* One turn of the thread: writes all that waits; or what is due after wait_ms without work, a mark
 * or another attempt on a full disk. False when the ledger is closing and all is done. */
bool writer_turn(struct ledger *ledger, int64_t wait_ms);

#endif
