/* IDX files, mapped read-only. Any thread. Surprising: the dimensions are multiplied with overflow
 * checks and must fit the file's size to the byte before anything is believed; a dimension of 0 is
 * refused, so that callers may divide. */
#include "common/tensorfile/idx.h"

#include "common/base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TYPE_UNSIGNED_BYTE 0x08
#define MAGIC_BYTES 4

static uint32_t load_big_endian(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | (uint32_t)b[3];
}

static enum status check_magic(const uint8_t *file, size_t bytes, const char *path,
                               struct error *err)
{
    if (bytes >= 2 && file[0] == 0x1F && file[1] == 0x8B)
        return error_set(err, STATUS_UNSUPPORTED, "%s is a gzip file: unpack it first", path);
    if (bytes < MAGIC_BYTES || file[0] != 0 || file[1] != 0)
        return error_set(err, STATUS_CORRUPT, "%s is no IDX file", path);
    if (file[2] != TYPE_UNSIGNED_BYTE)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s has elements of type 0x%02x, only unsigned bytes (0x08) are read",
                         path, file[2]);
    if (file[3] < 1 || file[3] > IDX_RANK_MAX)
        return error_set(err, STATUS_UNSUPPORTED, "%s has rank %u, only 1 to %d are read", path,
                         file[3], IDX_RANK_MAX);
    return STATUS_OK;
}

/* Fills all but the map; file stays the caller's. */
static enum status parse(const uint8_t *file, size_t bytes, const char *path, struct idx *ret,
                         struct error *err)
{
    enum status status = check_magic(file, bytes, path, err);
    if (status != STATUS_OK)
        return status;
    struct idx idx = {.rank = file[3], .count = 1};
    size_t header_bytes = MAGIC_BYTES + 4 * (size_t)idx.rank;
    if (bytes < header_bytes)
        return error_set(err, STATUS_TRUNCATED, "%s ends inside its header", path);
    for (uint32_t i = 0; i < idx.rank; i++) {
        idx.dims[i] = load_big_endian(file + MAGIC_BYTES + 4 * i);
        if (idx.dims[i] == 0)
            return error_set(err, STATUS_CORRUPT, "%s has an empty dimension", path);
        if (!size_mul(idx.count, idx.dims[i], &idx.count))
            return error_set(err, STATUS_CORRUPT, "%s claims more elements than any file has",
                             path);
    }
    if (idx.count != bytes - header_bytes)
        return error_set(err, STATUS_CORRUPT, "%s has %zu bytes of data, its header says %llu",
                         path, bytes - header_bytes, (unsigned long long)idx.count);
    idx.data = file + header_bytes;
    *ret = idx;
    return STATUS_OK;
}

static enum status map_file(const char *path, int fd, void **ret, size_t *ret_bytes,
                            struct error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return error_set_errno(err, errno, "cannot look at %s", path);
    if (!S_ISREG(info.st_mode))
        return error_set(err, STATUS_INVALID, "%s is no regular file", path);
    if (info.st_size == 0)
        return error_set(err, STATUS_CORRUPT, "%s is empty", path);
    size_t bytes = (size_t)info.st_size;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return error_set_errno(err, errno, "cannot map %s", path);
    *ret = map;
    *ret_bytes = bytes;
    return STATUS_OK;
}

enum status idx_open(const char *path, struct idx *ret, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block us */
    if (fd < 0)
        return error_set_errno(err, errno, "cannot open %s", path);
    void *map = NULL;
    size_t map_bytes = 0;
    enum status status = map_file(path, fd, &map, &map_bytes, err);
    (void)close(fd);
    if (status != STATUS_OK)
        return status;
    status = parse(map, map_bytes, path, ret, err);
    if (status != STATUS_OK) {
        (void)munmap(map, map_bytes);
        return status;
    }
    ret->map = map;
    ret->map_bytes = map_bytes;
    return STATUS_OK;
}

void idx_close(struct idx *idx)
{
    if (idx->map)
        (void)munmap(idx->map, idx->map_bytes);
    *idx = (struct idx){0};
}
