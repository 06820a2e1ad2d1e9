/* Segment files: their names, their creation, and the cutting of a torn tail. Opening thread and
 * writer thread, never both at once. Surprising: a torn tail is overwritten with zeros, not
 * truncated, so that a segment always has the size its header states and any truncation from
 * outside is seen. */
#include "common/base/clock.h"
#include "coordinator/ledger/ledger_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZEROS_BYTES ((size_t)64 * 1024)
#define TORN_NAMES_MAX 1000
#define COPY_BYTES ((size_t)1024 * 1024)

enum status segment_path(const char *dir, uint64_t number, char ret[PATH_BYTES], struct error *err)
{
    enum status status = path_format(ret, "%s/ledger-%08llu.rvl", dir, (unsigned long long)number);
    if (status != STATUS_OK)
        return error_set(err, status, "the ledger's directory name is too long: %s", dir);
    return STATUS_OK;
}

static bool parse_name(const char *name, uint64_t *ret_number)
{
    unsigned long long number;
    char again[32];
    if (sscanf(name, "ledger-%8llu.rvl", &number) != 1)
        return false;
    int length = snprintf(again, sizeof again, "ledger-%08llu.rvl", number);
    if (length <= 0 || strcmp(name, again) != 0)
        return false;
    *ret_number = number;
    return true;
}

struct census {
    uint64_t count, highest;
};

static void count_segment(void *context, const char *name)
{
    struct census *census = context;
    uint64_t number;
    if (!parse_name(name, &number))
        return;
    census->count++;
    census->highest = number > census->highest ? number : census->highest;
}

enum status segment_count(const char *dir, uint64_t *ret, struct error *err)
{
    struct census census = {0};
    if (disk_list(dir, count_segment, &census) != 0)
        return error_set_errno(err, errno, "cannot list the ledger's directory %s", dir);
    if (census.highest != census.count)
        return error_set(err, STATUS_CORRUPT,
                         "%s has %llu ledger segments but the last is number %llu: bring back the "
                         "missing one from a backup",
                         dir, (unsigned long long)census.count, (unsigned long long)census.highest);
    *ret = census.count;
    return STATUS_OK;
}

static enum status unfinished_path(const char *dir, uint64_t number, char ret[PATH_BYTES],
                                   struct error *err)
{
    char path[PATH_BYTES];
    enum status status = segment_path(dir, number, path, err);
    if (status != STATUS_OK)
        return status;
    status = path_format(ret, "%s.tmp", path);
    if (status != STATUS_OK)
        return error_set(err, status, "the ledger's directory name is too long: %s", dir);
    return STATUS_OK;
}

enum status segment_remove_unfinished(const char *dir, uint64_t number, struct error *err)
{
    char path[PATH_BYTES];
    enum status status = unfinished_path(dir, number, path, err);
    if (status == STATUS_OK && disk_unlink(path) != 0 && errno != ENOENT)
        status = error_set_errno(err, errno, "cannot remove the unfinished segment %s", path);
    return status;
}

static enum status fill_segment(int fd, const struct segment_header *header, struct error *err)
{
    uint8_t bytes[LEDGER_SEGMENT_HEADER_BYTES];
    format_write_segment(header, bytes);
    int result;
    do
        result = disk_allocate(fd, header->file_bytes);
    while (result != 0 && errno == EINTR);
    if (result != 0)
        return error_set_errno(err, errno, "cannot reserve %llu bytes for a ledger segment",
                               (unsigned long long)header->file_bytes);
    enum status status = disk_write_whole(fd, bytes, sizeof bytes, 0, err);
    if (status == STATUS_OK && disk_fsync(fd) != 0)
        status = error_set_errno(err, errno, "cannot sync a new ledger segment");
    return status;
}

enum status segment_create(const char *dir, const struct segment_header *header, int *ret_fd,
                           struct error *err)
{
    char path[PATH_BYTES], unfinished[PATH_BYTES];
    enum status status = segment_path(dir, header->number, path, err);
    if (status == STATUS_OK)
        status = unfinished_path(dir, header->number, unfinished, err);
    if (status != STATUS_OK)
        return status;
    int fd = disk_open(unfinished, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0)
        return error_set_errno(err, errno, "cannot create the ledger segment %s", unfinished);
    status = fill_segment(fd, header, err);
    if (status == STATUS_OK && disk_rename(unfinished, path) != 0)
        status = error_set_errno(err, errno, "cannot rename the ledger segment %s", unfinished);
    if (status != STATUS_OK)
        (void)disk_unlink(unfinished);
    else if (disk_sync_dir(dir) != 0)
        status =
            error_set(err, STATUS_IO, "cannot sync the directory %s: %s", dir, strerror(errno));
    if (status != STATUS_OK) {
        (void)disk_close(fd);
        return status;
    }
    *ret_fd = fd;
    return STATUS_OK;
}

static enum status write_again(int fd, uint64_t from, uint64_t to, struct error *err)
{
    uint8_t *copy = malloc(COPY_BYTES);
    enum status status = STATUS_OK;
    if (!copy)
        return error_set(err, STATUS_NO_MEMORY, "no memory to make a ledger segment durable");
    while (status == STATUS_OK && from < to) {
        size_t bytes = to - from < COPY_BYTES ? (size_t)(to - from) : COPY_BYTES;
        status = disk_read_whole(fd, copy, bytes, from, err);
        if (status == STATUS_OK)
            status = disk_write_whole(fd, copy, bytes, from, err);
        from += bytes;
    }
    free(copy);
    if (status == STATUS_OK && disk_fsync(fd) != 0)
        status = error_set_errno(err, errno, "cannot sync a ledger segment");
    return status;
}

enum status segment_make_durable(const char *dir, int fd, uint64_t from, uint64_t to,
                                 struct error *err)
{
    enum status status = write_again(fd, from, to, err);
    if (status == STATUS_OK && disk_sync_dir(dir) != 0)
        status = error_set_errno(err, errno, "cannot sync the directory %s", dir);
    return status;
}

/* The clock may have been set back, so its name may be taken: then the next millisecond's. */
static enum status create_torn(const char *path, int *ret_fd, struct error *err)
{
    char torn[PATH_BYTES];
    int64_t now_ms = clock_wall_ms();
    for (int64_t i = 0; i < TORN_NAMES_MAX; i++) {
        enum status status = path_format(torn, "%s.torn-%lld", path, (long long)(now_ms + i));
        if (status != STATUS_OK)
            return error_set(err, status, "the ledger's directory name is too long: %s", path);
        *ret_fd = disk_open(torn, O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (*ret_fd >= 0)
            return STATUS_OK;
        if (errno != EEXIST)
            break;
    }
    return error_set_errno(err, errno, "cannot create %s", torn);
}

static enum status keep_torn(int fd, const char *path, uint64_t from, uint64_t to,
                             struct error *err)
{
    int torn_fd = -1;
    size_t bytes = (size_t)(to - from);
    uint8_t *copy = malloc(bytes);
    if (!copy)
        return error_set(err, STATUS_NO_MEMORY, "no memory for %zu torn bytes of %s", bytes, path);
    enum status status = disk_read_whole(fd, copy, bytes, from, err);
    if (status == STATUS_OK)
        status = create_torn(path, &torn_fd, err);
    if (status == STATUS_OK) {
        status = disk_write_whole(torn_fd, copy, bytes, 0, err);
        if (status == STATUS_OK && disk_fsync(torn_fd) != 0)
            status = error_set_errno(err, errno, "cannot sync the copy of a torn tail of %s", path);
        (void)disk_close(torn_fd);
    }
    free(copy);
    return status;
}

static enum status write_zeros(int fd, uint64_t from, uint64_t to, struct error *err)
{
    static const uint8_t zeros[ZEROS_BYTES];
    while (from < to) {
        size_t step_bytes = to - from < ZEROS_BYTES ? (size_t)(to - from) : ZEROS_BYTES;
        enum status status = disk_write_whole(fd, zeros, step_bytes, from, err);
        if (status != STATUS_OK)
            return status;
        from += step_bytes;
    }
    if (disk_fdatasync(fd) != 0)
        return error_set_errno(err, errno, "cannot sync the cut of a torn ledger tail");
    return STATUS_OK;
}

enum status segment_cut(int fd, const char *path, uint64_t from, uint64_t to, struct error *err)
{
    enum status status = keep_torn(fd, path, from, to, err);
    return status == STATUS_OK ? write_zeros(fd, from, to, err) : status;
}
