/* The writer thread on a bad day: failing syncs, no space, short writes, kill -9. This program
 * defines fdatasync, posix_fallocate and pwritev itself and lets them fail on demand. */
#include "fixture.h"

#include "common/base/clock.h"
#include "common/base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

static atomic_int sync_calls, sync_fails_from, sync_errno, allocate_fails, short_writes;
static atomic_bool sync_held;

int fdatasync(int fd)
{
    int call = ++sync_calls;
    while (sync_held)
        clock_sleep_us(200);
    if (sync_fails_from > 0 && call >= sync_fails_from) {
        errno = sync_errno;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

int posix_fallocate(int fd, off_t offset, off_t length)
{
    if (allocate_fails)
        return ENOSPC;
    return syscall(SYS_fallocate, fd, 0, offset, length) == 0 ? 0 : errno;
}

ssize_t pwritev(int fd, const struct iovec *vectors, int count, off_t offset)
{
    if (!short_writes)
        return syscall(SYS_pwritev, fd, vectors, count, offset, 0);
    if (++short_writes % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    size_t bytes = vectors->iov_len < 13 ? vectors->iov_len : 13;
    return (ssize_t)syscall(SYS_pwrite64, fd, vectors->iov_base, bytes, offset);
}

static void reset_faults(void)
{
    sync_calls = 0;
    sync_fails_from = 0;
    sync_errno = EIO;
    allocate_fails = 0;
    short_writes = 0;
    sync_held = false;
}

static void wait_for_sync(int call)
{
    while (sync_calls < call)
        clock_sleep_us(200);
}

/* While one sync runs, all that arrives waits and then shares the next ones. */
static void test_group_commit(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    reset_faults();
    struct seen seen = {0};
    struct done done = DONE_INIT;
    struct ledger *ledger = open_small(dir, 1 << 20, 0, &seen, NULL);
    sync_held = true;
    (void)append_next(ledger, 1, &done);
    wait_for_sync(1);
    for (uint64_t i = 2; i <= 201; i++)
        (void)append_next(ledger, i, &done);
    assert_int_equal(done.count, 0); /* nothing is acknowledged before its sync */
    sync_held = false;
    ledger_close(ledger);
    assert_int_equal(sync_calls, 3); /* two batches and the mark of the close */
    assert_int_equal(done.count, 201);
    assert_int_equal(done.failed, 0);
    assert_false(done.disordered);
    remove_dir(dir);
}

static void check_failed_for_good(int errnum, enum status expected)
{
    char dir[PATH_BYTES];
    make_dir(dir);
    reset_faults();
    sync_errno = errnum;
    sync_fails_from = 3;
    struct seen seen = {0};
    struct done done = DONE_INIT;
    struct ledger *ledger = open_small(dir, 1 << 16, 0, &seen, NULL);
    for (uint64_t i = 1; i <= 2; i++) {
        (void)append_next(ledger, i, &done);
        wait_done(&done, i);
        assert_int_equal(done.status, STATUS_OK);
    }
    sync_held = true;
    (void)append_next(ledger, 3, &done);
    wait_for_sync(3);
    (void)append_next(ledger, 4, &done); /* waits behind the one that fails */
    sync_held = false;
    wait_done(&done, 4);
    assert_int_equal(done.failed, 2);
    assert_int_equal(done.status, expected);
    sync_fails_from = 0; /* the device is "well" again: too late */
    assert_int_equal(ledger_append(ledger, LEDGER_COMMIT, "x", 1, on_done, &done, NULL), expected);
    ledger_close(ledger);
    assert_int_equal(sync_calls, 3); /* never tried again */
    assert_int_equal(done.count, 4);
    seen = (struct seen){0};
    ledger_close(open_small(dir, 1 << 16, 0, &seen, NULL));
    assert_true(seen.count >= 2); /* record 3 may or may not have reached the disk */
    assert_false(seen.wrong);
    remove_dir(dir);
}

static void test_failed_sync_is_final(void **state)
{
    (void)state;
    check_failed_for_good(EIO, STATUS_IO);
    check_failed_for_good(ENOSPC, STATUS_IO); /* the space had been reserved: it is no full disk */
    check_failed_for_good(EDQUOT, STATUS_IO);
}

static uint64_t fill_until_refused(struct ledger *ledger, struct done *done)
{
    uint64_t appended = 0;
    while (done->failed == 0) {
        (void)append_next(ledger, ++appended, done);
        wait_done(done, appended);
    }
    assert_int_equal(done->status, STATUS_NO_SPACE);
    return appended;
}

/* Refused, told so, and by itself going on with the same sequence when there is space. */
static void test_no_space_for_a_segment(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    reset_faults();
    struct seen seen = {0};
    struct done done = DONE_INIT;
    struct ledger *ledger = open_small(dir, 512, 0, &seen, NULL);
    allocate_fails = 1;
    uint64_t appended = fill_until_refused(ledger, &done);
    assert_true(appended > 2);
    assert_true(ledger_is_full(ledger));
    assert_int_equal(ledger_append(ledger, LEDGER_COMMIT, "x", 1, on_done, &done, NULL),
                     STATUS_NO_SPACE);
    assert_int_equal(count_names(dir, ".tmp", false), 0);
    assert_int_equal(count_names(dir, ".rvl", false), 1);
    allocate_fails = 0;
    while (ledger_is_full(ledger))
        clock_sleep_us(10000);
    done.last = appended - 1;
    (void)append_next(ledger, appended, &done);
    ledger_close(ledger);
    assert_int_equal(done.status, STATUS_OK);
    assert_int_equal(done.failed, 1);
    seen = (struct seen){0};
    ledger_close(open_small(dir, 512, 0, &seen, NULL));
    assert_int_equal(seen.count, appended);
    assert_false(seen.wrong);
    remove_dir(dir);
}

/* What waits behind the first that has no space is refused with it, in order. */
static void test_no_space_refuses_all_that_waits(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    reset_faults();
    struct seen seen = {0};
    struct done done = DONE_INIT;
    struct ledger *ledger = open_small(dir, 512, 0, &seen, NULL);
    sync_held = true;
    (void)append_next(ledger, 1, &done);
    wait_for_sync(1);
    for (uint64_t i = 2; i <= 30; i++)
        (void)append_next(ledger, i, &done);
    allocate_fails = 1;
    sync_held = false;
    wait_done(&done, 30);
    uint64_t kept = 30 - done.failed;
    assert_true(kept >= 1 && kept < 30);
    assert_false(done.disordered);
    ledger_close(ledger); /* a full disk does not hold up the end */
    allocate_fails = 0;
    seen = (struct seen){0};
    ledger_close(open_small(dir, 512, 0, &seen, NULL));
    assert_int_equal(seen.count, kept);
    remove_dir(dir);
}

static void test_no_space_for_a_new_ledger(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    struct ledger *ledger = NULL;
    struct error err = {0};
    make_dir(dir);
    reset_faults();
    allocate_fails = 1;
    assert_int_equal(ledger_open(dir, 0, NULL, NULL, &ledger, NULL, &err), STATUS_NO_SPACE);
    reset_faults();
    remove_dir(dir);
}

static void test_short_writes(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    reset_faults();
    short_writes = 1;
    struct seen seen = {0};
    struct done done = DONE_INIT;
    struct ledger *ledger = open_small(dir, 2048, 0, &seen, NULL);
    for (uint64_t i = 1; i <= 100; i++)
        (void)append_next(ledger, i, &done);
    ledger_close(ledger);
    assert_int_equal(done.count, 100);
    assert_int_equal(done.failed, 0);
    reset_faults();
    struct error err = {0};
    assert_int_equal(ledger_scan(dir, see, &seen, NULL, &err), STATUS_OK);
    assert_int_equal(seen.count, 100);
    assert_false(seen.wrong);
    remove_dir(dir);
}

/* Somebody replaced the directory's content, so the lock says nothing any more: no false ack. */
static void test_replaced_lock_is_fenced(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    make_dir(dir);
    reset_faults();
    struct seen seen = {0};
    struct done done = DONE_INIT;
    struct ledger *ledger = open_small(dir, 4096, 0, &seen, NULL);
    (void)append_next(ledger, 1, &done);
    wait_done(&done, 1);
    assert_int_equal(done.status, STATUS_OK);
    assert_int_equal(path_format(path, "%s/lock", dir), STATUS_OK);
    assert_int_equal(unlink(path), 0);
    write_whole(path, "", 0);
    (void)append_next(ledger, 2, &done);
    wait_done(&done, 2);
    assert_int_equal(done.status, STATUS_FENCED);
    assert_int_equal(ledger_append(ledger, LEDGER_COMMIT, "x", 1, on_done, &done, NULL),
                     STATUS_FENCED);
    ledger_close(ledger);
    remove_dir(dir);
}

static bool has_mark(const char *dir, uint64_t sequence)
{
    struct error err;
    char path[PATH_BYTES];
    struct buffer file;
    struct segment_header segment;
    bool found = false;
    assert_int_equal(segment_path(dir, 1, path, &err), STATUS_OK);
    read_whole(path, &file);
    assert_int_equal(format_read_segment(file.data, &segment), STATUS_OK);
    for (size_t at = 0; at + LEDGER_RECORD_HEADER_BYTES <= file.bytes; at += LEDGER_ALIGN_BYTES) {
        struct record_header header;
        if (format_read_record(file.data + at, segment.ledger_id, &header))
            found = found || (header.type == LEDGER_MARK && header.synced == sequence);
    }
    buffer_done(&file);
    return found;
}

/* So that damage to the last acknowledged record is told from a torn write, also after a kill. */
static void test_idle_ledger_marks_its_end(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    reset_faults();
    struct seen seen = {0};
    struct done done = DONE_INIT;
    struct ledger *ledger = open_small(dir, 4096, 0, &seen, NULL);
    (void)append_next(ledger, 1, &done);
    int64_t until_us = clock_monotonic_us() + 20 * 1000000;
    while (!has_mark(dir, 1) && clock_monotonic_us() < until_us)
        clock_sleep_us(20000);
    assert_true(has_mark(dir, 1));
    (void)append_next(ledger, 2, &done);
    ledger_close(ledger);
    assert_true(has_mark(dir, 2));
    ledger_close(open_small(dir, 4096, 0, &seen, NULL));
    assert_int_equal(seen.count, 2);
    remove_dir(dir);
}

/* A crash inside the creation of a segment leaves a .tmp that nobody may read. */
static void test_unfinished_segment_is_ignored(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    make_dir(dir);
    reset_faults();
    make_ledger(dir, 4096, 3);
    assert_int_equal(path_format(path, "%s/ledger-00000002.rvl.tmp", dir), STATUS_OK);
    write_whole(path, "half", 4);
    struct seen seen = {0};
    ledger_close(open_small(dir, 4096, 0, &seen, NULL));
    assert_int_equal(seen.count, 3);
    assert_int_equal(count_names(dir, ".tmp", false), 0);
    remove_dir(dir);
}

static void report_durable(void *context, uint64_t sequence, enum status status)
{
    int fd = *(int *)context;
    if (status == STATUS_OK && write(fd, &sequence, sizeof sequence) != sizeof sequence)
        _exit(3);
}

/* Appends until it is killed; every durable sequence goes into the pipe. */
static void run_victim(const char *dir, int fd)
{
    struct ledger_options options = {.segment_bytes = 4096};
    struct ledger *ledger = NULL;
    struct ledger_open_report report;
    struct error err;
    if (ledger_open_with(dir, &options, 0, NULL, NULL, &ledger, &report, &err) != STATUS_OK)
        _exit(4);
    for (uint64_t i = report.end.sequence + 1;; i++) {
        uint8_t body[68];
        size_t bytes = body_of(i, body);
        enum status status = STATUS_BUSY;
        while (status == STATUS_BUSY)
            status = ledger_append(ledger, LEDGER_UPDATE, body, bytes, report_durable, &fd, NULL);
        if (status != STATUS_OK)
            _exit(5);
        if (i % 16 == 0)
            clock_sleep_us(100); /* so that batches differ in size */
    }
}

/* Kills the child after delay_us; the last sequence that it saw acknowledged, 0 for none. */
static uint64_t kill_after(const char *dir, int64_t delay_us)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(ends[0]);
        run_victim(dir, ends[1]);
    }
    (void)close(ends[1]);
    uint64_t acked = 0, sequence;
    int64_t deadline_us = 0; /* runs from the first acknowledgement */
    while (deadline_us == 0 || clock_monotonic_us() < deadline_us) {
        if (read(ends[0], &sequence, sizeof sequence) != sizeof sequence)
            break;
        acked = sequence;
        if (deadline_us == 0)
            deadline_us = clock_monotonic_us() + delay_us;
    }
    struct ledger *second = NULL;
    struct error err = {0};
    assert_int_equal(ledger_open(dir, 0, NULL, NULL, &second, NULL, &err), STATUS_BUSY);
    assert_int_equal(kill(child, SIGKILL), 0);
    while (read(ends[0], &sequence, sizeof sequence) == sizeof sequence)
        acked = sequence;
    int outcome;
    assert_int_equal(waitpid(child, &outcome, 0), child);
    assert_true(WIFSIGNALED(outcome));
    (void)close(ends[0]);
    return acked;
}

static void test_kill_9_loses_nothing_acknowledged(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    reset_faults();
    struct rng rng;
    rng_seed(&rng, (uint64_t)getpid());
    print_message("seed %d\n", (int)getpid());
    uint64_t acked_before = 0;
    for (int cycle = 0; cycle < 30; cycle++) {
        uint64_t acked = kill_after(dir, (int64_t)rng_below(&rng, 10000));
        assert_true(acked > acked_before);
        acked_before = acked;
        struct seen seen = {0};
        ledger_close(open_small(dir, 4096, 0, &seen, NULL));
        assert_false(seen.wrong);
        assert_true(seen.last >= acked);
        assert_int_equal(seen.count, seen.last);
    }
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_commit),
        cmocka_unit_test(test_failed_sync_is_final),
        cmocka_unit_test(test_no_space_for_a_segment),
        cmocka_unit_test(test_no_space_refuses_all_that_waits),
        cmocka_unit_test(test_no_space_for_a_new_ledger),
        cmocka_unit_test(test_short_writes),
        cmocka_unit_test(test_replaced_lock_is_fenced),
        cmocka_unit_test(test_idle_ledger_marks_its_end),
        cmocka_unit_test(test_unfinished_segment_is_ignored),
        cmocka_unit_test(test_kill_9_loses_nothing_acknowledged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
