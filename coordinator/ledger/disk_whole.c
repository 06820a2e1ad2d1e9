/* Whole transfers over disk.h: short reads, short writes and EINTR are looped over. Any thread. */
#include "coordinator/ledger/disk.h"

#include <errno.h>

static bool range_fits(uint64_t offset, size_t bytes)
{
    uint64_t end;
    return !__builtin_add_overflow(offset, bytes, &end) && end <= INT64_MAX;
}

enum status disk_read_whole(int fd, void *ret, size_t bytes, uint64_t offset, struct error *err)
{
    uint8_t *out = ret;
    if (!range_fits(offset, bytes))
        return error_set(err, STATUS_INVALID, "no file offset is as large as %llu",
                         (unsigned long long)offset);
    while (bytes > 0) {
        ssize_t got = disk_pread(fd, out, bytes, offset);
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

enum status disk_write_vectors(int fd, struct iovec *vectors, int count, uint64_t offset,
                               struct error *err)
{
    while (count > 0) {
        ssize_t written = disk_pwritev(fd, vectors, count, offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return error_set_errno(err, errno, "cannot write at offset %llu",
                                   (unsigned long long)offset);
        offset += (uint64_t)written;
        size_t left_bytes = (size_t)written;
        while (count > 0 && left_bytes >= vectors->iov_len) {
            left_bytes -= vectors->iov_len;
            vectors++;
            count--;
        }
        if (count > 0) {
            vectors->iov_base = (uint8_t *)vectors->iov_base + left_bytes;
            vectors->iov_len -= left_bytes;
        }
    }
    return STATUS_OK;
}

enum status disk_write_whole(int fd, const void *data, size_t bytes, uint64_t offset,
                             struct error *err)
{
    struct iovec vector = {.iov_base = (void *)data, .iov_len = bytes};
    if (!range_fits(offset, bytes))
        return error_set(err, STATUS_INVALID, "no file offset is as large as %llu",
                         (unsigned long long)offset);
    return bytes > 0 ? disk_write_vectors(fd, &vector, 1, offset, err) : STATUS_OK;
}
