/* Damage: every truncation and every single bit flip of small ledgers, lost and foreign segments,
 * newer formats. Nothing may be accepted silently, and what is refused may not be touched. */
#include "fixture.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"

#include <sys/syscall.h>

#define SEGMENT_BYTES 512

/* While set, the next read of a record header at this offset sees what was there before a live
 * writer wrote it: zeros. */
static uint64_t unwritten_offset;

ssize_t pread(int fd, void *ret, size_t bytes, off_t offset)
{
    if (unwritten_offset > 0 && (uint64_t)offset == unwritten_offset) {
        unwritten_offset = 0;
        memset(ret, 0, bytes);
        return (ssize_t)bytes;
    }
    return (ssize_t)syscall(SYS_pread64, fd, ret, bytes, offset);
}

static void segment_of(const char *dir, uint64_t number, char ret[PATH_BYTES])
{
    struct error err;
    assert_int_equal(segment_path(dir, number, ret, &err), STATUS_OK);
}

static enum status try_open(const char *dir, struct seen *seen, struct ledger_open_report *report,
                            struct error *err)
{
    struct ledger_options options = {.segment_bytes = SEGMENT_BYTES};
    struct ledger *ledger = NULL;
    *seen = (struct seen){0};
    enum status status = ledger_open_with(dir, &options, 0, see, seen, &ledger, report, err);
    ledger_close(ledger);
    return status;
}

/* Opening must refuse, name the file, and leave it as it is. */
static void assert_refused(const char *dir, const char *path, const void *data, size_t bytes)
{
    struct seen seen;
    struct error err = {0};
    struct buffer after;
    assert_int_equal(try_open(dir, &seen, NULL, &err), STATUS_CORRUPT);
    assert_non_null(strstr(err.text, path));
    read_whole(path, &after);
    assert_int_equal(after.bytes, bytes);
    assert_memory_equal(after.data, data, bytes);
    buffer_done(&after);
    assert_int_equal(count_names(dir, ".torn-", false), 0);
}

static void test_every_truncation(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    struct buffer whole;
    make_dir(dir);
    make_ledger(dir, SEGMENT_BYTES, 3);
    segment_of(dir, 1, path);
    read_whole(path, &whole);
    assert_int_equal(whole.bytes, SEGMENT_BYTES);
    uint8_t nothing = 0;
    for (size_t bytes = 0; bytes < whole.bytes; bytes++) {
        write_whole(path, whole.data, bytes);
        assert_refused(dir, path, bytes > 0 ? whole.data : &nothing, bytes);
    }
    buffer_done(&whole);
    remove_dir(dir);
}

/* In the first segment of make_ledger. */
static size_t offset_of_record(uint64_t number)
{
    uint8_t body[68];
    size_t offset = LEDGER_SEGMENT_HEADER_BYTES;
    for (uint64_t i = 1; i < number; i++)
        offset +=
            LEDGER_RECORD_HEADER_BYTES + (size_t)format_padded_bytes((uint32_t)body_of(i, body));
    return offset;
}

/* A writer that stopped at any byte of the last record: zeros where it had not written. */
static void test_every_torn_write_is_cut(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    struct buffer whole;
    make_dir(dir);
    make_ledger(dir, SEGMENT_BYTES, 3);
    segment_of(dir, 1, path);
    read_whole(path, &whole);
    uint8_t body[68];
    size_t start = offset_of_record(3);
    size_t end = start + LEDGER_RECORD_HEADER_BYTES + body_of(3, body);
    for (size_t cut = start; cut < end; cut++) {
        uint8_t torn[SEGMENT_BYTES] = {0};
        memcpy(torn, whole.data, cut);
        write_whole(path, torn, sizeof torn);
        struct seen seen;
        struct error err = {0};
        struct ledger_open_report report;
        assert_int_equal(try_open(dir, &seen, &report, &err), STATUS_OK);
        assert_int_equal(seen.count, 2);
        assert_false(seen.wrong);
        assert_int_equal(report.torn_bytes > 0, cut > start);
        assert_int_equal(count_names(dir, ".torn-", true), cut > start);
        assert_int_equal(try_open(dir, &seen, &report, &err), STATUS_OK);
        assert_int_equal(report.torn_bytes, 0);
        assert_int_equal(seen.count, 2);
    }
    buffer_done(&whole);
    remove_dir(dir);
}

/* Every record was acknowledged and the mark after them says so. */
static void check_flip(const char *dir, const char *path, const uint8_t *flipped, size_t at,
                       size_t mark)
{
    struct seen seen;
    struct error err = {0};
    struct ledger_open_report report = {0};
    write_whole(path, flipped, SEGMENT_BYTES);
    enum status status = try_open(dir, &seen, &report, &err);
    assert_false(seen.wrong);
    if (status == STATUS_CORRUPT) {
        assert_true(at < mark);
        assert_refused(dir, path, flipped, SEGMENT_BYTES);
        return;
    }
    assert_int_equal(status, STATUS_OK);
    assert_true(at >= mark);
    assert_true(report.torn_bytes > 0);
    assert_int_equal(seen.count, 3);
    assert_int_equal(count_names(dir, ".torn-", true), 1);
}

static void test_every_bit_flip(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    struct buffer whole;
    make_dir(dir);
    make_ledger(dir, SEGMENT_BYTES, 3);
    segment_of(dir, 1, path);
    read_whole(path, &whole);
    size_t mark = offset_of_record(4);
    for (size_t at = 0; at < whole.bytes; at++) {
        for (int bit = 0; bit < 8; bit++) {
            uint8_t flipped[SEGMENT_BYTES];
            memcpy(flipped, whole.data, sizeof flipped);
            flipped[at] ^= (uint8_t)(1 << bit);
            check_flip(dir, path, flipped, at, mark);
        }
    }
    buffer_done(&whole);
    remove_dir(dir);
}

/* A segment that another follows is complete: there is no torn tail in it. */
static void test_every_bit_flip_of_a_sealed_segment(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    struct buffer whole;
    make_dir(dir);
    make_ledger(dir, SEGMENT_BYTES, 6);
    assert_true(count_names(dir, ".rvl", false) >= 2);
    segment_of(dir, 1, path);
    read_whole(path, &whole);
    for (size_t at = 0; at < whole.bytes; at++) {
        for (int bit = 0; bit < 8; bit++) {
            whole.data[at] ^= (uint8_t)(1 << bit);
            write_whole(path, whole.data, whole.bytes);
            assert_refused(dir, path, whole.data, whole.bytes);
            whole.data[at] ^= (uint8_t)(1 << bit);
        }
    }
    buffer_done(&whole);
    remove_dir(dir);
}

static void test_lost_segments(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    for (uint64_t lost = 1; lost <= 2; lost++) {
        make_dir(dir);
        make_ledger(dir, SEGMENT_BYTES, 12);
        assert_true(count_names(dir, ".rvl", false) >= 3);
        segment_of(dir, lost, path);
        assert_int_equal(unlink(path), 0);
        struct seen seen;
        struct error err = {0};
        assert_int_equal(try_open(dir, &seen, NULL, &err), STATUS_CORRUPT);
        assert_int_equal(seen.count, 0);
        remove_dir(dir);
    }
}

static void test_foreign_and_swapped_segments(void **state)
{
    (void)state;
    char dir[PATH_BYTES], other[PATH_BYTES], path[PATH_BYTES], other_path[PATH_BYTES];
    struct buffer foreign;
    make_dir(dir);
    make_dir(other);
    make_ledger(dir, SEGMENT_BYTES, 12);
    make_ledger(other, SEGMENT_BYTES, 12);
    segment_of(dir, 2, path);
    segment_of(other, 2, other_path);
    read_whole(other_path, &foreign); /* the same records, another ledger */
    write_whole(path, foreign.data, foreign.bytes);
    assert_refused(dir, path, foreign.data, foreign.bytes);
    segment_of(other, 3, path);
    write_whole(path, foreign.data, foreign.bytes);
    assert_refused(other, path, foreign.data, foreign.bytes);
    buffer_done(&foreign);
    remove_dir(dir);
    remove_dir(other);
}

/* Bytes of a volunteer inside a torn record that look like a record must not pass for one. */
static void test_payload_cannot_forge_a_later_record(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    make_dir(dir);
    struct seen seen = {0};
    struct done done = DONE_INIT;
    struct ledger *ledger = open_small(dir, 4096, 0, &seen, NULL);
    (void)append_next(ledger, 1, &done);
    uint8_t forged[LEDGER_RECORD_HEADER_BYTES * 2] = {0};
    struct record_header header = {.body_bytes = 0, .type = LEDGER_COMMIT, .sequence = 7};
    format_write_record(&header, 0, 0, forged);
    assert_int_equal(ledger_append(ledger, LEDGER_UPDATE, forged, sizeof forged, NULL, NULL, NULL),
                     STATUS_OK);
    ledger_close(ledger);
    struct buffer file;
    segment_of(dir, 1, path);
    read_whole(path, &file);
    uint8_t body[68];
    size_t second = LEDGER_SEGMENT_HEADER_BYTES + LEDGER_RECORD_HEADER_BYTES +
                    (size_t)format_padded_bytes((uint32_t)body_of(1, body));
    memset(file.data + second, 0, LEDGER_RECORD_HEADER_BYTES); /* its header never arrived */
    size_t third = second + LEDGER_RECORD_HEADER_BYTES + sizeof forged;
    memset(file.data + third, 0, file.bytes - third); /* nor the mark of the close */
    write_whole(path, file.data, file.bytes);
    struct error err = {0};
    struct ledger_open_report report;
    assert_int_equal(try_open(dir, &seen, &report, &err), STATUS_OK);
    assert_int_equal(report.records, 1);
    assert_true(report.torn_bytes > 0);
    buffer_done(&file);
    remove_dir(dir);
}

/* The record that a scan found unwritten was finished, and the next one too, before it looked at
 * the rest of the file. Without a live writer the same sight is damage. */
static void test_scan_is_overtaken_by_the_writer(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    make_dir(dir);
    make_ledger(dir, SEGMENT_BYTES, 3);
    struct seen seen = {0};
    struct error err = {0};
    unwritten_offset = LEDGER_SEGMENT_HEADER_BYTES;
    assert_int_equal(ledger_scan(dir, see, &seen, NULL, &err), STATUS_OK);
    assert_int_equal(seen.count, 3);
    assert_false(seen.wrong);
    unwritten_offset = LEDGER_SEGMENT_HEADER_BYTES;
    assert_int_equal(try_open(dir, &seen, NULL, &err), STATUS_CORRUPT);
    unwritten_offset = 0;
    remove_dir(dir);
}

/* Appends header, which lacks lengths and checksums, and the body of its sequence to a closed
 * one-segment ledger. */
static void add_header(const char *dir, struct record_header header, uint64_t chain_error)
{
    char path[PATH_BYTES];
    struct buffer file;
    struct segment_header segment;
    struct record_header before = {0};
    uint64_t chain = 0;
    uint8_t body[72] = {0};
    segment_of(dir, 1, path);
    read_whole(path, &file);
    assert_int_equal(format_read_segment(file.data, &segment), STATUS_OK);
    size_t at = LEDGER_SEGMENT_HEADER_BYTES;
    while (format_read_record(file.data + at, segment.ledger_id, &before)) {
        chain = before.type == LEDGER_MARK ? chain : before.chain;
        at += LEDGER_RECORD_HEADER_BYTES + (size_t)format_padded_bytes(before.body_bytes);
    }
    header.body_bytes = (uint32_t)body_of(header.sequence, body);
    size_t padded_bytes = (size_t)format_padded_bytes(header.body_bytes);
    header.body_checksum = checksum_xxh3(body, padded_bytes);
    format_write_record(&header, chain ^ chain_error, segment.ledger_id, file.data + at);
    memcpy(file.data + at + LEDGER_RECORD_HEADER_BYTES, body, padded_bytes);
    write_whole(path, file.data, file.bytes);
    buffer_done(&file);
}

static void add_record(const char *dir, uint16_t type, uint16_t flags, uint64_t sequence,
                       uint64_t chain_error)
{
    struct record_header header = {
        .type = type, .flags = flags, .sequence = sequence, .epoch = 10 * sequence};
    add_header(dir, header, chain_error);
}

#define BATCH 3

/* An acknowledged record and its mark, three of one write, and one that knows how many of the
 * three were durable. */
static void make_batch(const char *dir, uint64_t synced_at_last)
{
    make_ledger(dir, 2 * SEGMENT_BYTES, 1);
    for (uint64_t i = 2; i <= 2 + BATCH; i++) {
        struct record_header header = {.type = LEDGER_UPDATE,
                                       .flags = LEDGER_FLAG_CRITICAL,
                                       .sequence = i,
                                       .synced = i < 2 + BATCH ? 1 : synced_at_last,
                                       .epoch = 1};
        add_header(dir, header, 0);
    }
}

/* Zeros over those records of the batch whose bit is set in lost. */
static void lose(const char *dir, unsigned lost)
{
    char path[PATH_BYTES];
    struct buffer file;
    segment_of(dir, 1, path);
    read_whole(path, &file);
    for (unsigned i = 0; i < BATCH; i++) {
        size_t from = offset_of_record(2 + i) + LEDGER_RECORD_HEADER_BYTES; /* after the mark */
        size_t to = offset_of_record(3 + i) + LEDGER_RECORD_HEADER_BYTES;
        if (lost & 1u << i)
            memset(file.data + from, 0, to - from);
    }
    write_whole(path, file.data, file.bytes);
    buffer_done(&file);
}

/* A power cut keeps any sectors of one write: what follows the first lost record goes with it. */
static void test_any_part_of_a_torn_batch_is_cut(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    for (unsigned lost = 1; lost < 1u << BATCH; lost++) {
        struct seen seen;
        struct error err = {0};
        struct ledger_open_report report;
        make_dir(dir);
        make_batch(dir, 1);
        lose(dir, lost);
        assert_int_equal(try_open(dir, &seen, &report, &err), STATUS_OK);
        assert_int_equal(report.end.sequence, 1 + (uint64_t)__builtin_ctz(lost));
        assert_true(report.torn_bytes > 0);
        assert_int_equal(count_names(dir, ".torn-", false), 1);
        assert_false(seen.wrong);
        remove_dir(dir);
    }
}

/* The same bytes are damage when a later write says that they had been durable. */
static void test_a_lost_acknowledged_record_is_damage(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    for (unsigned lost = 1; lost < 1u << BATCH; lost++) {
        struct buffer before;
        make_dir(dir);
        make_batch(dir, 1 + BATCH);
        lose(dir, lost);
        segment_of(dir, 1, path);
        read_whole(path, &before);
        assert_refused(dir, path, before.data, before.bytes);
        buffer_done(&before);
        remove_dir(dir);
    }
}

static void test_lower_epoch_after_a_higher_one(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    struct seen seen;
    struct error err = {0};
    make_dir(dir);
    make_ledger(dir, SEGMENT_BYTES, 2);
    struct record_header header = {
        .type = LEDGER_UPDATE, .flags = LEDGER_FLAG_CRITICAL, .sequence = 3, .epoch = 0};
    add_header(dir, header, 0);
    assert_int_equal(try_open(dir, &seen, NULL, &err), STATUS_FENCED);
    assert_non_null(strstr(err.text, "two coordinators"));
    remove_dir(dir);
}

static void test_unknown_types(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    struct seen seen;
    struct error err = {0};
    struct ledger_open_report report;
    make_dir(dir);
    make_ledger(dir, SEGMENT_BYTES, 2);
    add_record(dir, 77, 0, 3, 0);
    assert_int_equal(try_open(dir, &seen, &report, &err), STATUS_OK);
    assert_int_equal(seen.count, 2);
    assert_int_equal(report.end.sequence, 3);
    add_record(dir, 77, LEDGER_FLAG_CRITICAL, 4, 0);
    assert_int_equal(try_open(dir, &seen, &report, &err), STATUS_UNSUPPORTED);
    remove_dir(dir);
}

/* Its checksums are right and it sits at the end, so it was not torn: it does not belong here. */
static void test_intact_record_with_a_wrong_sequence(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    struct seen seen;
    struct error err = {0};
    make_dir(dir);
    make_ledger(dir, SEGMENT_BYTES, 2);
    add_record(dir, LEDGER_COMMIT, LEDGER_FLAG_CRITICAL, 2, 0);
    assert_int_equal(try_open(dir, &seen, NULL, &err), STATUS_CORRUPT);
    remove_dir(dir);
}

/* A record from another history of the same ledger, for example out of a restored backup. */
static void test_intact_record_of_another_chain(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    struct seen seen;
    struct error err = {0};
    make_dir(dir);
    make_ledger(dir, SEGMENT_BYTES, 2);
    add_record(dir, LEDGER_COMMIT, LEDGER_FLAG_CRITICAL, 3, 1);
    assert_int_equal(try_open(dir, &seen, NULL, &err), STATUS_CORRUPT);
    assert_non_null(strstr(err.text, "chain"));
    remove_dir(dir);
}

static void test_newer_min_reader(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    struct buffer file;
    struct seen seen;
    struct error err = {0};
    make_dir(dir);
    make_ledger(dir, SEGMENT_BYTES, 2);
    segment_of(dir, 1, path);
    read_whole(path, &file);
    store_u16(file.data + 10, LEDGER_FORMAT + 1);
    store_u64(file.data + 56, checksum_xxh3(file.data, 56));
    write_whole(path, file.data, file.bytes);
    assert_int_equal(try_open(dir, &seen, NULL, &err), STATUS_UNSUPPORTED);
    buffer_done(&file);
    remove_dir(dir);
}

/* The golden file was written by the first version and must open for ever. */
static void test_golden_segment(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    struct buffer golden;
    struct seen seen;
    struct error err = {0};
    struct ledger_open_report report;
    make_dir(dir);
    read_whole(RAVEN_SOURCE_DIR "/tests/golden/ledger/ledger-v1.rvl", &golden);
    segment_of(dir, 1, path);
    write_whole(path, golden.data, golden.bytes);
    assert_int_equal(try_open(dir, &seen, &report, &err), STATUS_OK);
    assert_int_equal(seen.count, 3);
    assert_false(seen.wrong);
    assert_int_equal(report.torn_bytes, 0);
    buffer_done(&golden);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_every_torn_write_is_cut),
        cmocka_unit_test(test_every_bit_flip),
        cmocka_unit_test(test_every_bit_flip_of_a_sealed_segment),
        cmocka_unit_test(test_lost_segments),
        cmocka_unit_test(test_foreign_and_swapped_segments),
        cmocka_unit_test(test_payload_cannot_forge_a_later_record),
        cmocka_unit_test(test_any_part_of_a_torn_batch_is_cut),
        cmocka_unit_test(test_a_lost_acknowledged_record_is_damage),
        cmocka_unit_test(test_lower_epoch_after_a_higher_one),
        cmocka_unit_test(test_unknown_types),
        cmocka_unit_test(test_intact_record_with_a_wrong_sequence),
        cmocka_unit_test(test_intact_record_of_another_chain),
        cmocka_unit_test(test_scan_is_overtaken_by_the_writer),
        cmocka_unit_test(test_newer_min_reader),
        cmocka_unit_test(test_golden_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
