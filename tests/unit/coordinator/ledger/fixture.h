/* What the ledger's tests share: a scratch directory (in memory where there is one: thousands of
 * opens would otherwise wait for a disk), whole files as bytes, records with known bodies. */
#ifndef RAVEN_TESTS_LEDGER_FIXTURE_H
#define RAVEN_TESTS_LEDGER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/file.h"
#include "coordinator/ledger/ledger_internal.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

static UNUSED void make_dir(char ret[PATH_BYTES])
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    assert_int_equal(path_format(ret, "%s/raven-ledger-XXXXXX", base), STATUS_OK);
    assert_non_null(mkdtemp(ret));
}

static UNUSED void remove_dir(const char *dir)
{
    struct error err;
    assert_int_equal(file_remove_tree(dir, &err), STATUS_OK);
}

static UNUSED void read_whole(const char *path, struct buffer *ret)
{
    struct error err;
    buffer_init(ret, 1 << 24);
    assert_int_equal(file_read(path, ret, &err), STATUS_OK);
}

static UNUSED void write_whole(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* How many directory entries contain part; they are deleted when remove is set. */
static UNUSED int count_names(const char *dir, const char *part, bool remove_them)
{
    DIR *stream = opendir(dir);
    assert_non_null(stream);
    int count = 0;
    for (struct dirent *entry = readdir(stream); entry; entry = readdir(stream)) {
        char path[PATH_BYTES];
        if (!strstr(entry->d_name, part))
            continue;
        count++;
        assert_int_equal(path_format(path, "%s/%s", dir, entry->d_name), STATUS_OK);
        if (remove_them)
            assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(closedir(stream), 0);
    return count;
}

/* Body of record number sequence: 8 + sequence % 60 bytes that depend on it. */
static UNUSED size_t body_of(uint64_t sequence, uint8_t ret[68])
{
    size_t bytes = 8 + sequence % 60;
    for (size_t i = 0; i < bytes; i++)
        ret[i] = (uint8_t)(sequence * 31 + i * 7 + 1);
    return bytes;
}

struct seen {
    uint64_t count;
    uint64_t last;
    bool wrong;
};

static UNUSED enum status see(void *context, const struct ledger_record *record, struct error *err)
{
    (void)err;
    struct seen *seen = context;
    uint8_t body[68];
    size_t bytes = body_of(record->sequence, body);
    if (record->body_bytes != bytes || memcmp(record->body, body, bytes) != 0)
        seen->wrong = true;
    if (seen->count > 0 && record->sequence != seen->last + 1)
        seen->wrong = true;
    seen->count++;
    seen->last = record->sequence;
    return STATUS_OK;
}

/* Counts done callbacks; wait_done blocks until so many came. */
struct done {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t count;
    uint64_t last;
    uint64_t failed;
    enum status status; /* of the last one */
    bool disordered;
};

#define DONE_INIT                                                                                  \
    {                                                                                              \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER                    \
    }

static UNUSED void on_done(void *context, uint64_t sequence, enum status status)
{
    struct done *done = context;
    (void)pthread_mutex_lock(&done->mutex);
    if (sequence <= done->last)
        done->disordered = true;
    done->last = sequence;
    done->status = status;
    done->failed += status != STATUS_OK;
    done->count++;
    (void)pthread_cond_broadcast(&done->changed);
    (void)pthread_mutex_unlock(&done->mutex);
}

static UNUSED void wait_done(struct done *done, uint64_t count)
{
    (void)pthread_mutex_lock(&done->mutex);
    while (done->count < count)
        (void)pthread_cond_wait(&done->changed, &done->mutex);
    (void)pthread_mutex_unlock(&done->mutex);
}

/* Appends the record whose body belongs to the next sequence; single-threaded tests only. */
static UNUSED uint64_t append_next(struct ledger *ledger, uint64_t expected, struct done *done)
{
    uint8_t body[68];
    uint64_t sequence = 0;
    size_t bytes = body_of(expected, body);
    assert_int_equal(
        ledger_append(ledger, LEDGER_UPDATE, body, bytes, done ? on_done : NULL, done, &sequence),
        STATUS_OK);
    assert_int_equal(sequence, expected);
    return sequence;
}

static UNUSED struct ledger *open_small(const char *dir, uint64_t segment_bytes,
                                        uint64_t replay_after, struct seen *seen,
                                        struct ledger_open_report *report)
{
    struct ledger_options options = {.segment_bytes = segment_bytes};
    struct ledger *ledger = NULL;
    struct error err = {0};
    enum status status =
        ledger_open_with(dir, &options, replay_after, see, seen, &ledger, report, &err);
    if (status != STATUS_OK)
        print_error("%s\n", err.text);
    assert_int_equal(status, STATUS_OK);
    return ledger;
}

/* A closed ledger of count records, each made durable before the next. */
static UNUSED void make_ledger(const char *dir, uint64_t segment_bytes, uint64_t count)
{
    struct seen seen = {0};
    struct done done = DONE_INIT;
    struct ledger *ledger = open_small(dir, segment_bytes, 0, &seen, NULL);
    for (uint64_t i = 1; i <= count; i++) {
        (void)append_next(ledger, i, &done);
        wait_done(&done, i);
    }
    ledger_close(ledger);
    assert_int_equal(done.failed, 0);
}

#endif
