/* The system calls of disk.h. Surprising: nothing here loops or decides; what a failure means is
 * the business of the callers, which the crash tests run unchanged. */
#include "coordinator/ledger/disk.h"

#include "common/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int disk_make_dirs(const char *dir)
{
    return file_make_dirs(dir, 0700, NULL) == STATUS_OK ? 0 : -1;
}

int disk_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags | O_CLOEXEC, mode);
}

int disk_close(int fd)
{
    return close(fd);
}

int disk_size(int fd, uint64_t *ret_bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return -1;
    *ret_bytes = (uint64_t)info.st_size;
    return 0;
}

ssize_t disk_pread(int fd, void *ret, size_t bytes, uint64_t offset)
{
    return pread(fd, ret, bytes, (off_t)offset);
}

ssize_t disk_pwritev(int fd, const struct iovec *vectors, int count, uint64_t offset)
{
    return pwritev(fd, vectors, count, (off_t)offset);
}

int disk_allocate(int fd, uint64_t bytes)
{
    int errnum = posix_fallocate(fd, 0, (off_t)bytes);
    if (errnum == 0)
        return 0;
    errno = errnum;
    return -1;
}

int disk_fsync(int fd)
{
    return fsync(fd);
}

int disk_fdatasync(int fd)
{
    return fdatasync(fd);
}

int disk_rename(const char *from, const char *to)
{
    return rename(from, to);
}

int disk_unlink(const char *path)
{
    return unlink(path);
}

int disk_sync_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int result = fsync(fd), errnum = errno;
    (void)close(fd);
    errno = errnum;
    return result;
}

int disk_list(const char *dir, void (*each)(void *context, const char *name), void *context)
{
    DIR *stream = opendir(dir);
    if (!stream)
        return -1;
    errno = 0;
    for (struct dirent *entry = readdir(stream); entry; entry = readdir(stream)) {
        each(context, entry->d_name);
        errno = 0;
    }
    int errnum = errno;
    (void)closedir(stream);
    errno = errnum;
    return errnum == 0 ? 0 : -1;
}

int disk_lock(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int result = fcntl(fd, F_OFD_SETLK, &lock);
    if (result != 0 && errno == EACCES)
        errno = EAGAIN;
    return result;
}

int disk_is_same(int fd, const char *path)
{
    struct stat held, named;
    if (fstat(fd, &held) != 0 || stat(path, &named) != 0)
        return -1;
    if (held.st_dev == named.st_dev && held.st_ino == named.st_ino)
        return 0;
    errno = ESTALE;
    return -1;
}
