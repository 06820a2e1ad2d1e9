/* Tests of idx.c: good files, hostile headers, things that are no files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/tensorfile/idx.h"

#include <stdlib.h>
#include <sys/stat.h>

static int set_up(void **state)
{
    char *dir = strdup("/tmp/raven_idx_test.XXXXXX");
    *state = mkdtemp(dir);
    return *state ? 0 : -1;
}

static int tear_down(void **state)
{
    enum status status = file_remove_tree(*state, NULL);
    free(*state);
    return status == STATUS_OK ? 0 : -1;
}

static enum status open_bytes(void **state, const void *data, size_t bytes, struct idx *ret,
                              struct error *err)
{
    char path[PATH_BYTES];
    assert_int_equal(path_format(path, "%s/x.idx", (char *)*state), STATUS_OK);
    assert_int_equal(file_write_atomic(path, data, bytes, 0600, err), STATUS_OK);
    return idx_open(path, ret, err);
}

static void good_file_is_mapped(void **state)
{
    const uint8_t file[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};
    struct idx idx;
    struct error err;
    assert_int_equal(open_bytes(state, file, sizeof file, &idx, &err), STATUS_OK);
    assert_int_equal(idx.rank, 3);
    assert_true(idx.dims[0] == 2 && idx.dims[1] == 1 && idx.dims[2] == 3 && idx.count == 6);
    assert_memory_equal(idx.data, file + 16, 6);
    idx_close(&idx);
    assert_null(idx.data);
    idx_close(&idx);
}

static void hostile_headers_are_refused(void **state)
{
    const struct {
        const char *reason;
        size_t bytes;
        uint8_t file[24];
        enum status status;
    } cases[] = {
        {"is empty", 0, {0}, STATUS_CORRUPT},
        {"is no IDX file", 3, {0, 0, 8}, STATUS_CORRUPT},
        {"is no IDX file", 8, {'<', 'h', 't', 'm', 'l', '>', ' ', ' '}, STATUS_CORRUPT},
        {"unpack it first", 8, {0x1F, 0x8B, 8, 0, 0, 0, 0, 0}, STATUS_UNSUPPORTED},
        {"type 0x0d", 9, {0, 0, 0x0D, 1, 0, 0, 0, 1, 7}, STATUS_UNSUPPORTED},
        {"rank 0", 5, {0, 0, 8, 0, 1}, STATUS_UNSUPPORTED},
        {"rank 5", 24, {0, 0, 8, 5, 0, 0, 0, 1}, STATUS_UNSUPPORTED},
        {"rank 255", 24, {0, 0, 8, 255, 0, 0, 0, 1}, STATUS_UNSUPPORTED},
        {"inside its header", 11, {0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0}, STATUS_TRUNCATED},
        {"empty dimension", 12, {0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 0}, STATUS_CORRUPT},
        {"its header says 2", 9, {0, 0, 8, 1, 0, 0, 0, 2, 7}, STATUS_CORRUPT},
        {"its header says 2", 11, {0, 0, 8, 1, 0, 0, 0, 2, 7, 7, 7}, STATUS_CORRUPT},
        {"more elements",
         24,
         {0, 0, 8, 4, 128, 0, 0, 0, 128, 0, 0, 0, 128, 0, 0, 0, 128, 0, 0, 0},
         STATUS_CORRUPT},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct idx idx = {.rank = 99};
        struct error err;
        enum status status = open_bytes(state, cases[i].file, cases[i].bytes, &idx, &err);
        assert_int_equal(status, cases[i].status);
        if (!strstr(err.text, cases[i].reason))
            fail_msg("case %zu: %s", i, err.text);
        assert_int_equal(idx.rank, 99);
    }
}

static void things_that_are_no_files_are_refused(void **state)
{
    struct idx idx;
    struct error err;
    char path[PATH_BYTES];
    assert_int_equal(idx_open(*state, &idx, &err), STATUS_INVALID);
    assert_int_equal(path_format(path, "%s/none", (char *)*state), STATUS_OK);
    assert_int_equal(idx_open(path, &idx, &err), STATUS_NOT_FOUND);
    assert_int_equal(path_format(path, "%s/fifo", (char *)*state), STATUS_OK);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(idx_open(path, &idx, &err), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(good_file_is_mapped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hostile_headers_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(things_that_are_no_files_are_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
