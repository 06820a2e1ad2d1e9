/* Whole, atomic, durable files. Any thread. Surprising: a failed fsync is never repeated, because
 * the kernel may have dropped the dirty pages and would then report success for data that is gone.
 */
#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_STEP_BYTES ((size_t)64 * 1024)

enum status path_format(char ret[PATH_BYTES], const char *format, ...)
{
    char path[PATH_BYTES];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(path, sizeof path, format, args);
    va_end(args);
    if (length < 0)
        return STATUS_INVALID;
    if (length >= PATH_BYTES)
        return STATUS_TOO_LARGE;
    memcpy(ret, path, (size_t)length + 1);
    return STATUS_OK;
}

enum status file_sync_dir(const char *dir, struct error *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "cannot open the directory %s", dir);
    enum status status = STATUS_OK;
    if (fsync(fd) != 0)
        status = error_set_errno(err, errno, "cannot sync the directory %s", dir);
    (void)close(fd);
    return status;
}

static enum status sync_parent(const char *path, struct error *err)
{
    char dir[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    if (!slash)
        return file_sync_dir(".", err);
    int length = slash == path ? 1 : (int)(slash - path);
    enum status status = path_format(dir, "%.*s", length, path);
    return status == STATUS_OK ? file_sync_dir(dir, err)
                               : error_set(err, status, "path too long: %s", path);
}

/* A new directory's name is durable when this returns: what is synced inside it would be lost with
 * the name. */
static enum status make_dir(const char *dir, mode_t mode, struct error *err)
{
    if (mkdir(dir, mode) == 0)
        return sync_parent(dir, err);
    int errnum = errno;
    struct stat info;
    if (errnum == EEXIST && stat(dir, &info) == 0 && S_ISDIR(info.st_mode))
        return STATUS_OK;
    return error_set_errno(err, errnum, "cannot create the directory %s", dir);
}

enum status file_make_dirs(const char *dir, mode_t mode, struct error *err)
{
    char path[PATH_BYTES];
    enum status status = path_format(path, "%s", dir);
    if (status != STATUS_OK)
        return error_set(err, status, "the directory's path is longer than %d bytes: %s",
                         PATH_BYTES - 1, dir);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        status = make_dir(path, mode, err);
        *slash = '/';
        if (status != STATUS_OK)
            return status;
    }
    return make_dir(path, mode, err);
}

enum status file_take_lock(const char *path, int *ret_fd, struct error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set_errno(err, errno, "cannot open %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        *ret_fd = fd;
        return STATUS_OK;
    }
    int errnum = errno;
    (void)close(fd);
    if (errnum == EWOULDBLOCK)
        return STATUS_BUSY;
    return error_set_errno(err, errnum, "cannot lock %s (its file system must support locks)",
                           path);
}

static enum status read_to_end(int fd, const char *path, struct buffer *ret, struct error *err)
{
    for (;;) {
        size_t room_bytes = ret->bytes_max - ret->bytes;
        uint8_t probe; /* one byte more than fits tells "exactly full" from "too large" */
        size_t step_bytes = room_bytes < READ_STEP_BYTES ? room_bytes : READ_STEP_BYTES;
        enum status status = buffer_reserve(ret, step_bytes);
        if (status != STATUS_OK)
            return error_set(err, status, "cannot read %s: %s", path, status_text(status));
        ssize_t got =
            step_bytes > 0 ? read(fd, ret->data + ret->bytes, step_bytes) : read(fd, &probe, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(err, errno, "cannot read %s", path);
        if (got == 0)
            return STATUS_OK;
        if (step_bytes == 0)
            return error_set(err, STATUS_TOO_LARGE, "%s is larger than its limit of %zu bytes",
                             path, ret->bytes_max);
        ret->bytes += (size_t)got;
    }
}

enum status file_read(const char *path, struct buffer *ret, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "cannot open %s", path);
    size_t bytes_before = ret->bytes;
    enum status status = read_to_end(fd, path, ret, err);
    if (status != STATUS_OK)
        ret->bytes = bytes_before;
    (void)close(fd);
    return status;
}

static enum status write_and_sync(int fd, const void *data, size_t bytes, mode_t mode,
                                  struct error *err)
{
    if (fchmod(fd, mode) != 0)
        return error_set_errno(err, errno, "cannot set the mode of a new file");
    enum status status = file_write_all(fd, data, bytes, err);
    if (status == STATUS_OK && fsync(fd) != 0)
        status = error_set_errno(err, errno, "cannot sync a new file");
    return status;
}

enum status file_write_atomic(const char *path, const void *data, size_t bytes, mode_t mode,
                              struct error *err)
{
    char temp[PATH_BYTES];
    enum status status = path_format(temp, "%s.tmp.XXXXXX", path);
    if (status != STATUS_OK)
        return error_set(err, status, "the path is longer than %d bytes: %s", PATH_BYTES - 12,
                         path);
    int fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "cannot create a temporary file beside %s", path);
    struct error cause = {0};
    status = write_and_sync(fd, data, bytes, mode, &cause);
    if (close(fd) != 0 && status == STATUS_OK)
        status = error_set_errno(&cause, errno, "cannot close a new file");
    if (status == STATUS_OK && rename(temp, path) != 0)
        status = error_set_errno(&cause, errno, "cannot rename a new file");
    if (status != STATUS_OK) {
        (void)unlink(temp);
        return error_set(err, status, "cannot write %s: %s", path, cause.text);
    }
    return sync_parent(path, err);
}

enum status file_write_all(int fd, const void *data, size_t bytes, struct error *err)
{
    const uint8_t *in = data;
    while (bytes > 0) {
        ssize_t written = write(fd, in, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return error_set_errno(err, errno, "cannot write %zu bytes", bytes);
        in += written;
        bytes -= (size_t)written;
    }
    return STATUS_OK;
}

static bool range_fits(uint64_t offset, size_t bytes)
{
    uint64_t end;
    return !__builtin_add_overflow(offset, bytes, &end) && end <= INT64_MAX;
}

enum status file_pwrite_all(int fd, const void *data, size_t bytes, uint64_t offset,
                            struct error *err)
{
    const uint8_t *in = data;
    if (!range_fits(offset, bytes))
        return error_set(err, STATUS_INVALID, "no file offset is as large as %llu",
                         (unsigned long long)offset);
    while (bytes > 0) {
        ssize_t written = pwrite(fd, in, bytes, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return error_set_errno(err, errno, "cannot write %zu bytes at offset %llu", bytes,
                                   (unsigned long long)offset);
        in += written;
        offset += (uint64_t)written;
        bytes -= (size_t)written;
    }
    return STATUS_OK;
}

enum status file_pread_all(int fd, void *ret, size_t bytes, uint64_t offset, struct error *err)
{
    uint8_t *out = ret;
    if (!range_fits(offset, bytes))
        return error_set(err, STATUS_INVALID, "no file offset is as large as %llu",
                         (unsigned long long)offset);
    while (bytes > 0) {
        ssize_t got = pread(fd, out, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(err, errno, "cannot read %zu bytes at offset %llu", bytes,
                                   (unsigned long long)offset);
        if (got == 0)
            return error_set(err, STATUS_TRUNCATED, "the file ends at %llu, %zu bytes too early",
                             (unsigned long long)offset, bytes);
        out += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return STATUS_OK;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *position)
{
    (void)info;
    (void)type;
    (void)position;
    return remove(path); /* unlinks a symbolic link itself */
}

enum status file_remove_tree(const char *dir, struct error *err)
{
    if (nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT)
        return STATUS_OK;
    return error_set_errno(err, errno, "cannot remove the directory %s", dir);
}
