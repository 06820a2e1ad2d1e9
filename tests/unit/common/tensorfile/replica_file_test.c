/* Tests of replica_file.c: round trip, every flipped bit, lies under a right checksum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/tensorfile/replica_file.h"

#include <stdlib.h>

#define N 5u
#define FILE_BYTES (REPLICA_HEADER_BYTES + 4 * N)

static const float parameters[N] = {1, -2, 0.5f, 0, 3e-20f};

static void make_file(uint8_t ret[FILE_BYTES])
{
    memcpy(ret + REPLICA_HEADER_BYTES, parameters, sizeof parameters);
    struct replica_header header = {N, 7, 0xABCD, checksum_xxh3(parameters, sizeof parameters)};
    replica_header_write(&header, ret);
}

static void round_trip(void **state)
{
    (void)state;
    uint8_t file[FILE_BYTES];
    make_file(file);
    struct replica_header header;
    float w[N];
    assert_int_equal(replica_read(file, sizeof file, N, &header, w, NULL), STATUS_OK);
    assert_true(header.n == N && header.version == 7 && header.layout == 0xABCD);
    assert_memory_equal(w, parameters, sizeof w);
    assert_memory_equal(file, "RVW1\1\0\0\0\5\0\0\0\0\0\0\0\7", 17);
    assert_true(load_u64(file + 40) == checksum_xxh3(file, 40));
}

static void damage_is_refused_and_w_untouched(void **state)
{
    (void)state;
    uint8_t file[FILE_BYTES];
    struct replica_header header;
    float w[N] = {9, 9, 9, 9, 9}, before[N] = {9, 9, 9, 9, 9};
    make_file(file);
    for (size_t bit = 0; bit < 8 * sizeof file; bit++) {
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(replica_read(file, sizeof file, N, &header, w, NULL), STATUS_CORRUPT);
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t bytes = 0; bytes < sizeof file; bytes++) {
        uint8_t *cut = malloc(bytes + 1);
        memcpy(cut, file, bytes);
        assert_int_equal(replica_read(cut, bytes, N, &header, w, NULL), STATUS_CORRUPT);
        free(cut);
    }
    assert_memory_equal(w, before, sizeof w);
}

static void lies_under_a_right_checksum_are_refused(void **state)
{
    (void)state;
    uint8_t file[FILE_BYTES];
    struct replica_header header;
    struct error err;
    float w[N];
    make_file(file);
    assert_int_equal(replica_read(file, sizeof file, N + 1, &header, w, &err), STATUS_CORRUPT);
    assert_string_equal(err.text, "replica refused: 5 parameters, expected 6");
    /* n such that 48 + 4n wraps to the file's size */
    const uint64_t n = (UINT64_C(1) << 62) + N;
    store_u64(file + 8, n);
    store_u64(file + 40, checksum_xxh3(file, 40));
    assert_int_equal(replica_read(file, sizeof file, n, &header, w, &err), STATUS_CORRUPT);
    make_file(file);
    store_u32(file + 4, 2);
    store_u64(file + 40, checksum_xxh3(file, 40));
    assert_int_equal(replica_read(file, sizeof file, N, &header, w, &err), STATUS_CORRUPT);
    assert_string_equal(err.text, "replica refused: unknown format version 2");
}

static void an_empty_replica_is_fine(void **state)
{
    (void)state;
    uint8_t file[REPLICA_HEADER_BYTES];
    struct replica_header header = {0, 1, 2, checksum_xxh3("", 0)}, got;
    replica_header_write(&header, file);
    assert_int_equal(replica_read(file, sizeof file, 0, &got, NULL, NULL), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(damage_is_refused_and_w_untouched),
        cmocka_unit_test(lies_under_a_right_checksum_are_refused),
        cmocka_unit_test(an_empty_replica_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
