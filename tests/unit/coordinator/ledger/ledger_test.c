/* The ledger as its users see it: what was appended comes back in order, from real files. */
#include "fixture.h"

#include "common/base/bytes.h"

#define SEGMENT_BYTES 1024

static void test_new_ledger_is_empty(void **state)
{
    (void)state;
    char dir[PATH_BYTES], deeper[PATH_BYTES];
    make_dir(dir);
    assert_int_equal(path_format(deeper, "%s/a/b", dir), STATUS_OK);
    struct ledger_open_report report = {.records = 9};
    struct ledger *ledger = NULL;
    struct error err = {0};
    assert_int_equal(ledger_open(deeper, 0, NULL, NULL, &ledger, &report, &err), STATUS_OK);
    assert_int_equal(report.records, 0);
    assert_int_equal(report.end.sequence, 0);
    assert_int_equal(report.end.chain, 0);
    assert_int_equal(report.torn_bytes, 0);
    ledger_close(ledger);
    ledger_close(NULL);
    struct stat info;
    char path[PATH_BYTES];
    assert_int_equal(segment_path(deeper, 1, path, &err), STATUS_OK);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, LEDGER_SEGMENT_BYTES);
    assert_int_equal(info.st_mode & 0777, 0600);
    remove_dir(dir);
}

static void test_replays_in_order_and_goes_on(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    for (uint64_t round = 0; round < 5; round++) {
        struct seen seen = {0};
        struct done done = DONE_INIT;
        struct ledger_open_report report;
        struct ledger *ledger = open_small(dir, SEGMENT_BYTES * 64, 0, &seen, &report);
        assert_false(seen.wrong);
        assert_int_equal(seen.count, round * 20);
        assert_int_equal(report.records, round * 20);
        assert_int_equal(report.end.sequence, round * 20);
        for (uint64_t i = 1; i <= 20; i++)
            (void)append_next(ledger, round * 20 + i, &done);
        ledger_close(ledger); /* waits for all */
        assert_int_equal(done.count, 20);
        assert_int_equal(done.failed, 0);
    }
    remove_dir(dir);
}

static void test_replay_after_skips_what_a_snapshot_has(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    make_ledger(dir, SEGMENT_BYTES, 30);
    struct seen seen = {0};
    struct ledger_open_report report;
    ledger_close(open_small(dir, SEGMENT_BYTES, 12, &seen, &report));
    assert_int_equal(seen.count, 18);
    assert_int_equal(seen.last, 30);
    assert_int_equal(report.records, 30);
    remove_dir(dir);
}

/* An old copy of the ledger beside a newer snapshot: acknowledged records are gone. */
static void test_refuses_to_end_before_the_snapshot(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    make_ledger(dir, SEGMENT_BYTES, 5);
    struct ledger *ledger = NULL;
    struct error err = {0};
    assert_int_equal(ledger_open(dir, 6, NULL, NULL, &ledger, NULL, &err), STATUS_CORRUPT);
    assert_null(ledger);
    assert_non_null(strstr(err.text, "record 5"));
    assert_int_equal(ledger_open(dir, 5, NULL, NULL, &ledger, NULL, &err), STATUS_OK);
    ledger_close(ledger);
    remove_dir(dir);
}

static void test_rotates_small_segments(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    make_ledger(dir, 512, 60);
    assert_true(count_names(dir, ".rvl", false) > 10);
    assert_int_equal(count_names(dir, ".tmp", false), 0);
    struct seen seen = {0};
    struct ledger *ledger = open_small(dir, 512, 0, &seen, NULL);
    assert_int_equal(seen.count, 60);
    assert_false(seen.wrong);
    for (uint64_t i = 61; i <= 90; i++)
        (void)append_next(ledger, i, NULL);
    ledger_close(ledger);
    seen = (struct seen){0};
    struct error err = {0};
    assert_int_equal(ledger_scan(dir, see, &seen, NULL, &err), STATUS_OK);
    assert_int_equal(seen.count, 90);
    assert_false(seen.wrong);
    remove_dir(dir);
}

static enum status see_size(void *context, const struct ledger_record *record, struct error *err)
{
    (void)err;
    size_t *bytes = context;
    bytes[record->sequence - 1] = record->body_bytes;
    return STATUS_OK;
}

static void test_sizes_from_nothing_to_larger_than_a_segment(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 7, 8, 9, 5000, 300000, 3};
    char dir[PATH_BYTES];
    make_dir(dir);
    uint8_t *body = calloc(1, 300000);
    assert_non_null(body);
    struct seen seen = {0};
    struct done done = DONE_INIT;
    struct ledger *ledger = open_small(dir, 512, 0, &seen, NULL);
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        assert_int_equal(
            ledger_append(ledger, LEDGER_CONTROL, body, sizes[i], on_done, &done, NULL), STATUS_OK);
    assert_int_equal(ledger_append(ledger, LEDGER_CONTROL, body, LEDGER_BODY_BYTES_MAX + 1, on_done,
                                   &done, NULL),
                     STATUS_TOO_LARGE);
    ledger_close(ledger);
    assert_int_equal(done.count, COUNT_OF(sizes));
    size_t got[COUNT_OF(sizes)] = {1};
    struct error err = {0};
    assert_int_equal(ledger_scan(dir, see_size, got, NULL, &err), STATUS_OK);
    assert_memory_equal(got, sizes, sizeof sizes);
    free(body);
    remove_dir(dir);
}

static void test_second_open_is_busy(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    struct seen seen = {0};
    struct ledger *ledger = open_small(dir, SEGMENT_BYTES, 0, &seen, NULL), *second = NULL;
    struct error err = {0};
    assert_int_equal(ledger_open(dir, 0, NULL, NULL, &second, NULL, &err), STATUS_BUSY);
    assert_null(second);
    ledger_close(ledger);
    assert_int_equal(ledger_open(dir, 0, NULL, NULL, &second, NULL, &err), STATUS_OK);
    ledger_close(second);
    remove_dir(dir);
}

static enum status refuse_third(void *context, const struct ledger_record *record,
                                struct error *err)
{
    (void)context;
    return record->sequence == 3 ? error_set(err, STATUS_STATE, "not this one") : STATUS_OK;
}

static void test_replay_can_stop_the_opening(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    make_ledger(dir, SEGMENT_BYTES, 5);
    struct ledger *ledger = NULL;
    struct error err = {0};
    assert_int_equal(ledger_open(dir, 0, refuse_third, NULL, &ledger, NULL, &err), STATUS_STATE);
    assert_null(ledger);
    assert_string_equal(err.text, "not this one");
    remove_dir(dir);
}

static void test_scan_without_a_ledger(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    struct error err = {0};
    assert_int_equal(ledger_scan(dir, NULL, NULL, NULL, &err), STATUS_NOT_FOUND);
    assert_int_equal(count_names(dir, "lock", false), 0);
    remove_dir(dir);
}

struct appender {
    struct ledger *ledger;
    struct done *done;
    int count;
};

static void *append_many(void *context)
{
    struct appender *appender = context;
    for (int i = 0; i < appender->count; i++) {
        uint8_t body[16] = {1, 2, 3};
        if (ledger_append(appender->ledger, LEDGER_VERDICT, body, sizeof body, on_done,
                          appender->done, NULL) != STATUS_OK)
            return appender;
    }
    return NULL;
}

static enum status count_only(void *context, const struct ledger_record *record, struct error *err)
{
    (void)record;
    (void)err;
    ++*(uint64_t *)context;
    return STATUS_OK;
}

/* A scan runs beside the writer all the time: it must never take the growing end for damage. */
static void test_four_threads_and_a_scan(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    struct seen seen = {0};
    struct done done = DONE_INIT;
    struct ledger *ledger = open_small(dir, 8192, 0, &seen, NULL);
    struct appender appender = {ledger, &done, 250};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, append_many, &appender), 0);
    uint64_t scanned = 0;
    while (scanned < 1000) {
        struct error err = {0};
        scanned = 0;
        enum status status = ledger_scan(dir, count_only, &scanned, NULL, &err);
        if (status != STATUS_OK)
            print_error("%s\n", err.text);
        assert_int_equal(status, STATUS_OK);
    }
    for (int i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    ledger_close(ledger);
    assert_int_equal(done.count, 1000);
    assert_int_equal(done.failed, 0);
    assert_false(done.disordered);
    assert_int_equal(done.last, 1000);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_ledger_is_empty),
        cmocka_unit_test(test_replays_in_order_and_goes_on),
        cmocka_unit_test(test_replay_after_skips_what_a_snapshot_has),
        cmocka_unit_test(test_refuses_to_end_before_the_snapshot),
        cmocka_unit_test(test_rotates_small_segments),
        cmocka_unit_test(test_sizes_from_nothing_to_larger_than_a_segment),
        cmocka_unit_test(test_second_open_is_busy),
        cmocka_unit_test(test_replay_can_stop_the_opening),
        cmocka_unit_test(test_scan_without_a_ledger),
        cmocka_unit_test(test_four_threads_and_a_scan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
