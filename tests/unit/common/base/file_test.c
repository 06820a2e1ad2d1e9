/* Tests of file.c in a temporary directory: limits, atomic replacement, links, bad paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int set_up(void **state)
{
    char *dir = strdup("/tmp/raven_file_test.XXXXXX");
    *state = mkdtemp(dir);
    return *state ? 0 : -1;
}

static int tear_down(void **state)
{
    enum status status = file_remove_tree(*state, NULL);
    free(*state);
    return status == STATUS_OK ? 0 : -1;
}

static size_t entries_in(const char *dir)
{
    DIR *stream = opendir(dir);
    assert_non_null(stream);
    size_t count = 0;
    while (readdir(stream))
        count++;
    (void)closedir(stream);
    return count - 2;
}

static void write_then_read_and_replace(void **state)
{
    char path[PATH_BYTES];
    struct error err;
    assert_int_equal(path_format(path, "%s/f", (char *)*state), STATUS_OK);
    assert_int_equal(file_write_atomic(path, "old", 3, 0600, &err), STATUS_OK);
    assert_int_equal(file_write_atomic(path, "newer", 5, 0640, &err), STATUS_OK);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(entries_in(*state), 1); /* no temporary file stays */
    struct buffer buffer;
    buffer_init(&buffer, 5);
    assert_int_equal(file_read(path, &buffer, &err), STATUS_OK);
    assert_string_equal(buffer_text(&buffer), "newer");
    buffer_done(&buffer);
}

static void read_refuses_what_is_too_large_and_keeps_the_buffer(void **state)
{
    char path[PATH_BYTES];
    struct error err;
    assert_int_equal(path_format(path, "%s/f", (char *)*state), STATUS_OK);
    char *large = calloc(1, 200000);
    assert_int_equal(file_write_atomic(path, large, 200000, 0600, &err), STATUS_OK);
    free(large);
    struct buffer buffer;
    buffer_init(&buffer, 199999);
    assert_int_equal(buffer_append(&buffer, "x", 1), STATUS_OK);
    assert_int_equal(file_read(path, &buffer, &err), STATUS_TOO_LARGE);
    assert_int_equal(buffer.bytes, 1);
    buffer_done(&buffer);
    buffer_init(&buffer, 200000);
    assert_int_equal(file_read(path, &buffer, &err), STATUS_OK);
    assert_int_equal(buffer.bytes, 200000);
    assert_int_equal(file_read("/no/such/file", &buffer, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "/no/such/file"));
    assert_int_equal(file_read(*state, &buffer, &err), STATUS_IO); /* a directory */
    buffer_done(&buffer);
}

static void failed_write_leaves_the_old_content(void **state)
{
    char path[PATH_BYTES];
    struct error err;
    assert_int_equal(path_format(path, "%s/dir", (char *)*state), STATUS_OK);
    assert_int_equal(mkdir(path, 0700), 0); /* a file cannot replace a directory */
    assert_int_not_equal(file_write_atomic(path, "x", 1, 0600, &err), STATUS_OK);
    assert_int_equal(entries_in(*state), 1);
    char too_long[PATH_BYTES];
    memset(too_long, 'a', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = '\0';
    assert_int_equal(file_write_atomic(too_long, "x", 1, 0600, &err), STATUS_TOO_LARGE);
}

static void full_device_is_reported_as_no_space(void **state)
{
    (void)state;
    struct error err;
    int fd = open("/dev/full", O_WRONLY);
    if (fd < 0)
        skip();
    assert_int_equal(file_write_all(fd, "x", 1, &err), STATUS_NO_SPACE);
    (void)close(fd);
}

static void positioned_reads_and_writes(void **state)
{
    char path[PATH_BYTES];
    struct error err;
    char got[4] = "";
    assert_int_equal(path_format(path, "%s/f", (char *)*state), STATUS_OK);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(file_pwrite_all(fd, "abc", 3, 1000, &err), STATUS_OK);
    assert_int_equal(file_pread_all(fd, got, 3, 1000, &err), STATUS_OK);
    assert_string_equal(got, "abc");
    assert_int_equal(file_pread_all(fd, got, 4, 1000, &err), STATUS_TRUNCATED);
    assert_int_equal(file_pread_all(fd, got, 1, UINT64_MAX, &err), STATUS_INVALID);
    assert_int_equal(file_pwrite_all(fd, got, 1, INT64_MAX, &err), STATUS_INVALID);
    (void)close(fd);
}

static void make_dirs_and_remove_tree_do_not_follow_links(void **state)
{
    char path[PATH_BYTES], link_path[PATH_BYTES], kept[PATH_BYTES], tree[PATH_BYTES];
    struct error err;
    assert_int_equal(path_format(tree, "%s/a", (char *)*state), STATUS_OK);
    assert_int_equal(path_format(path, "%s/a/b/c", (char *)*state), STATUS_OK);
    assert_int_equal(path_format(link_path, "%s/a/link", (char *)*state), STATUS_OK);
    assert_int_equal(path_format(kept, "%s/kept/file", (char *)*state), STATUS_OK);
    assert_int_equal(file_make_dirs(path, 0700, &err), STATUS_OK);
    assert_int_equal(file_make_dirs(path, 0700, &err), STATUS_OK);
    *strrchr(kept, '/') = '\0';
    assert_int_equal(file_make_dirs(kept, 0700, &err), STATUS_OK);
    assert_int_equal(symlink(kept, link_path), 0);
    kept[strlen(kept)] = '/';
    assert_int_equal(file_write_atomic(kept, "x", 1, 0600, &err), STATUS_OK);
    assert_int_equal(file_remove_tree(tree, &err), STATUS_OK);
    assert_int_equal(file_remove_tree(tree, &err), STATUS_OK); /* missing is fine */
    assert_int_equal(access(kept, F_OK), 0);
    char below[PATH_BYTES];
    assert_int_equal(path_format(below, "%s/x", kept), STATUS_OK);
    assert_int_not_equal(file_make_dirs(below, 0700, &err), STATUS_OK); /* below a file */
}

static void path_format_refuses_long_paths(void **state)
{
    (void)state;
    char path[PATH_BYTES] = "same";
    assert_int_equal(path_format(path, "%512s", "x"), STATUS_TOO_LARGE);
    assert_string_equal(path, "same");
    assert_int_equal(path_format(path, "%511s", "x"), STATUS_OK);
}

static void a_lock_has_one_holder(void **state)
{
    char path[PATH_BYTES];
    struct error err = {0};
    int first = -1, second = -1;
    assert_int_equal(path_format(path, "%s/lock", (char *)*state), STATUS_OK);
    assert_int_equal(file_take_lock(path, &first, &err), STATUS_OK);
    assert_int_equal(file_take_lock(path, &second, &err), STATUS_BUSY);
    assert_int_equal(second, -1);
    close(first);
    assert_int_equal(file_take_lock(path, &second, &err), STATUS_OK);
    close(second);
    assert_int_equal(file_take_lock("/nonexistent/lock", &second, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nonexistent/lock"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(write_then_read_and_replace, set_up, tear_down),
        cmocka_unit_test_setup_teardown(read_refuses_what_is_too_large_and_keeps_the_buffer, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(failed_write_leaves_the_old_content, set_up, tear_down),
        cmocka_unit_test(full_device_is_reported_as_no_space),
        cmocka_unit_test_setup_teardown(positioned_reads_and_writes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(make_dirs_and_remove_tree_do_not_follow_links, set_up,
                                        tear_down),
        cmocka_unit_test(path_format_refuses_long_paths),
        cmocka_unit_test_setup_teardown(a_lock_has_one_holder, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
