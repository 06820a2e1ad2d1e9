/* Snapshots: round trip, every truncation and bit flip seen, an older one used, pruning. */
#include "fixture.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "coordinator/ledger/snapshot.h"

#define N 5

static void write_one(const char *dir, uint64_t sequence)
{
    float theta[N] = {1, 2, 3, 4, (float)sequence}, w[N] = {-1, -2, -3, -4, 0.5f};
    uint8_t bytes[7] = {1, 2, 3, 4, 5, 6, (uint8_t)sequence};
    struct snapshot snapshot = {
        .position = {sequence, sequence * 3},
        .version = sequence / 2,
        .layout = 0xabcdef,
        .n = N,
        .theta = theta,
        .w = w,
        .state = bytes,
        .state_bytes = sizeof bytes,
    };
    struct error err = {0};
    assert_int_equal(snapshot_write(dir, &snapshot, &err), STATUS_OK);
}

static void check_one(const struct snapshot *snapshot, uint64_t sequence)
{
    assert_int_equal(snapshot->position.sequence, sequence);
    assert_int_equal(snapshot->position.chain, sequence * 3);
    assert_int_equal(snapshot->version, sequence / 2);
    assert_int_equal(snapshot->layout, 0xabcdef);
    assert_int_equal(snapshot->n, N);
    assert_true(snapshot->theta[N - 1] == (float)sequence);
    assert_true(snapshot->w[0] == -1.0f);
    assert_int_equal(snapshot->state_bytes, 7);
    assert_int_equal(snapshot->state[6], (uint8_t)sequence);
}

static void path_of(const char *dir, uint64_t sequence, char ret[PATH_BYTES])
{
    assert_int_equal(path_format(ret, "%s/snapshot-%020llu.rvs", dir, (unsigned long long)sequence),
                     STATUS_OK);
}

static void test_newest_and_oldest(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    struct snapshot snapshot;
    struct error err = {0};
    uint32_t damaged = 9;
    make_dir(dir);
    assert_int_equal(snapshot_read_newest(dir, UINT64_MAX, &snapshot, &damaged, &err),
                     STATUS_NOT_FOUND);
    assert_int_equal(snapshot_read_oldest(dir, &snapshot, &err), STATUS_NOT_FOUND);
    write_one(dir, 0);
    write_one(dir, 40);
    write_one(dir, 100);
    assert_int_equal(count_names(dir, ".tmp", false), 0);
    assert_int_equal(snapshot_read_newest(dir, UINT64_MAX, &snapshot, &damaged, &err), STATUS_OK);
    check_one(&snapshot, 100);
    assert_int_equal(damaged, 0);
    snapshot_done(&snapshot);
    assert_int_equal(snapshot_read_newest(dir, 99, &snapshot, &damaged, &err), STATUS_OK);
    check_one(&snapshot, 40);
    snapshot_done(&snapshot);
    assert_int_equal(snapshot_read_oldest(dir, &snapshot, &err), STATUS_OK);
    check_one(&snapshot, 0);
    snapshot_done(&snapshot);
    snapshot_done(&snapshot);
    remove_dir(dir);
}

static void test_without_state(void **state)
{
    (void)state;
    char dir[PATH_BYTES];
    float values[2] = {1, 2};
    struct snapshot read, snapshot = {.n = 2, .theta = values, .w = values};
    struct error err = {0};
    make_dir(dir);
    assert_int_equal(snapshot_write(dir, &snapshot, &err), STATUS_OK);
    assert_int_equal(snapshot_read_oldest(dir, &read, &err), STATUS_OK);
    assert_int_equal(read.state_bytes, 0);
    assert_memory_equal(read.w, values, sizeof values);
    snapshot_done(&read);
    remove_dir(dir);
}

/* The damaged newest must be counted and the older one taken; its own bytes stay as they are. */
static void assert_older_used(const char *dir)
{
    struct snapshot snapshot;
    struct error err = {0};
    uint32_t damaged = 0;
    assert_int_equal(snapshot_read_newest(dir, UINT64_MAX, &snapshot, &damaged, &err), STATUS_OK);
    check_one(&snapshot, 10);
    assert_int_equal(damaged, 1);
    snapshot_done(&snapshot);
}

static void test_every_truncation_and_bit_flip(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    struct buffer whole;
    make_dir(dir);
    write_one(dir, 10);
    write_one(dir, 20);
    path_of(dir, 20, path);
    read_whole(path, &whole);
    for (size_t bytes = 0; bytes < whole.bytes; bytes++) {
        write_whole(path, whole.data, bytes);
        assert_older_used(dir);
    }
    for (size_t at = 0; at < whole.bytes; at++) {
        for (int bit = 0; bit < 8; bit++) {
            whole.data[at] ^= (uint8_t)(1 << bit);
            write_whole(path, whole.data, whole.bytes);
            assert_older_used(dir);
            whole.data[at] ^= (uint8_t)(1 << bit);
        }
    }
    assert_int_equal(buffer_append(&whole, "x", 1), STATUS_OK);
    write_whole(path, whole.data, whole.bytes);
    assert_older_used(dir);
    buffer_done(&whole);
    remove_dir(dir);
}

static void test_all_damaged(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    struct snapshot snapshot;
    struct error err = {0};
    make_dir(dir);
    path_of(dir, 3, path);
    write_whole(path, "not a snapshot", 14);
    assert_int_equal(snapshot_read_newest(dir, UINT64_MAX, &snapshot, NULL, &err),
                     STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(snapshot_read_oldest(dir, &snapshot, &err), STATUS_CORRUPT);
    remove_dir(dir);
}

/* A copied file under another number would claim records that it does not contain. */
static void test_renamed_snapshot(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES], other[PATH_BYTES];
    make_dir(dir);
    write_one(dir, 10);
    write_one(dir, 20);
    path_of(dir, 20, path);
    path_of(dir, 30, other);
    assert_int_equal(rename(path, other), 0);
    assert_older_used(dir);
    remove_dir(dir);
}

static void test_newer_format(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    struct buffer file;
    struct snapshot snapshot;
    struct error err = {0};
    make_dir(dir);
    write_one(dir, 10);
    write_one(dir, 20);
    path_of(dir, 20, path);
    read_whole(path, &file);
    store_u16(file.data + 10, 2);
    store_u64(file.data + 72, checksum_xxh3(file.data, 72));
    write_whole(path, file.data, file.bytes);
    assert_int_equal(snapshot_read_newest(dir, UINT64_MAX, &snapshot, NULL, &err),
                     STATUS_UNSUPPORTED);
    buffer_done(&file);
    remove_dir(dir);
}

static void test_prune_keeps_first_and_newest(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    struct error err = {0};
    make_dir(dir);
    for (uint64_t sequence = 0; sequence <= 60; sequence += 10)
        write_one(dir, sequence);
    assert_int_equal(snapshot_prune(dir, 2, &err), STATUS_OK);
    assert_int_equal(count_names(dir, ".rvs", false), 3);
    static const uint64_t kept[] = {0, 50, 60};
    for (size_t i = 0; i < COUNT_OF(kept); i++) {
        path_of(dir, kept[i], path);
        assert_int_equal(access(path, F_OK), 0);
    }
    assert_int_equal(snapshot_prune(dir, 10, &err), STATUS_OK);
    assert_int_equal(count_names(dir, ".rvs", false), 3);
    remove_dir(dir);
}

static void test_failed_write_leaves_nothing(void **state)
{
    (void)state;
    float values[1] = {1};
    struct snapshot snapshot = {.n = 1, .theta = values, .w = values};
    struct error err = {0};
    assert_int_equal(snapshot_write("/nonexistent/raven", &snapshot, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nonexistent/raven"));
}

static void test_golden(void **state)
{
    (void)state;
    char dir[PATH_BYTES], path[PATH_BYTES];
    struct buffer golden, now;
    struct snapshot snapshot;
    struct error err = {0};
    make_dir(dir);
    read_whole(RAVEN_SOURCE_DIR "/tests/golden/ledger/snapshot-v1.rvs", &golden);
    path_of(dir, 40, path);
    write_whole(path, golden.data, golden.bytes);
    assert_int_equal(snapshot_read_oldest(dir, &snapshot, &err), STATUS_OK);
    check_one(&snapshot, 40);
    snapshot_done(&snapshot);
    write_one(dir, 40);
    read_whole(path, &now);
    assert_int_equal(now.bytes, golden.bytes);
    assert_memory_equal(now.data, golden.data, golden.bytes);
    buffer_done(&now);
    buffer_done(&golden);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newest_and_oldest),
        cmocka_unit_test(test_without_state),
        cmocka_unit_test(test_every_truncation_and_bit_flip),
        cmocka_unit_test(test_all_damaged),
        cmocka_unit_test(test_renamed_snapshot),
        cmocka_unit_test(test_newer_format),
        cmocka_unit_test(test_prune_keeps_first_and_newest),
        cmocka_unit_test(test_failed_write_leaves_nothing),
        cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
