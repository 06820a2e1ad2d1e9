/* The append-only record of a job: what is acknowledged is in here, fdatasync'ed. One directory per
 * job, one writer thread per open ledger (group commit: one fdatasync for all that waits).
 * Knows nothing of models; record bodies are bytes. The byte format is at the top of ledger.c. */
#ifndef RAVEN_COORDINATOR_LEDGER_LEDGER_H
#define RAVEN_COORDINATOR_LEDGER_LEDGER_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEDGER_BODY_BYTES_MAX (64u * 1024 * 1024)
#define LEDGER_SEGMENT_BYTES (64u * 1024 * 1024)

enum ledger_type {
    LEDGER_UPDATE = 1,  /* records.h: struct ledger_update, payload */
    LEDGER_COMMIT = 2,  /* records.h: struct ledger_commit */
    LEDGER_VERDICT = 3, /* a stale or refused update: the same retry gets the same answer */
    LEDGER_CONTROL = 4, /* job state changes, clean shutdown */
};

struct ledger_record {
    enum ledger_type type;
    uint64_t sequence; /* dense from 1 over the whole ledger */
    const uint8_t *body;
    size_t body_bytes;
};

struct ledger_position {
    uint64_t sequence; /* last whole record */
    uint64_t chain;    /* its chain checksum: covers every record before it */
};

/* Called for every record in order while opening. A status other than OK stops the opening. */
typedef enum status (*ledger_replay_fn)(void *context, const struct ledger_record *record,
                                        struct error *err);

/* Called on the writer thread, once, when the record is durable (STATUS_OK) or will never be
 * (STATUS_NO_SPACE: the ledger is full for now). Must not block: post a mail. */
typedef void (*ledger_done_fn)(void *context, uint64_t sequence, enum status status);

struct ledger;

struct ledger_open_report {
    struct ledger_position end;
    uint64_t records;
    uint64_t torn_bytes; /* cut from the end (kept in <segment>.torn-<time>): never acknowledged */
};

/* Opens or creates dir/…; replays every record with sequence > replay_after through replay (may be
 * NULL). A torn tail is cut and reported; damage anywhere else, or an end before replay_after, is
 * STATUS_CORRUPT, nothing written, err names file and offset. A newer format is
 * STATUS_UNSUPPORTED. Takes an exclusive lock: a second open gives STATUS_BUSY. */
enum status ledger_open(const char *dir, uint64_t replay_after, ledger_replay_fn replay,
                        void *context, struct ledger **ret, struct ledger_open_report *ret_report,
                        struct error *err) MUST_CHECK;

struct ledger_options {
    uint64_t segment_bytes; /* preallocated; a larger record gets a segment of its own size */
    bool threadless;        /* for tests that call the writer themselves */
};

/* ledger_open has segments of LEDGER_SEGMENT_BYTES and a thread. */
enum status ledger_open_with(const char *dir, const struct ledger_options *options,
                             uint64_t replay_after, ledger_replay_fn replay, void *context,
                             struct ledger **ret, struct ledger_open_report *ret_report,
                             struct error *err) MUST_CHECK;

/* Read-only, takes no lock, repairs nothing: for `verify` beside a live or dead coordinator.
 * STATUS_NOT_FOUND when dir has no ledger. */
enum status ledger_scan(const char *dir, ledger_replay_fn replay, void *context,
                        struct ledger_open_report *ret_report, struct error *err) MUST_CHECK;

/* Any thread; never blocks on the disk. Copies the body. The record's sequence is in *ret_sequence
 * before done can be called. STATUS_IO or STATUS_FENCED once the ledger has failed: it then stays
 * failed (an fsync is never retried as if it had worked). STATUS_NO_SPACE while it is full,
 * STATUS_BUSY while 256 MiB wait for the disk, STATUS_TOO_LARGE beyond LEDGER_BODY_BYTES_MAX:
 * nothing happened then, and the sequence numbers of records that were refused are used again. */
enum status ledger_append(struct ledger *ledger, enum ledger_type type, const void *body,
                          size_t body_bytes, ledger_done_fn done, void *context,
                          uint64_t *ret_sequence) MUST_CHECK;

/* Any thread. There was no space for the next segment; the writer tries again each second and the
 * ledger goes on by itself. */
bool ledger_is_full(struct ledger *ledger);

/* Waits for everything appended, stops the thread, releases the lock. NULL is fine. */
void ledger_close(struct ledger *ledger);

#endif
