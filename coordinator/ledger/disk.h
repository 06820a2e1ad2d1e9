/* Every way in which the ledger and its snapshots touch the disk: thin names over system calls,
 * with their POSIX meaning (-1 and errno). Any thread. They are gathered here so that the crash
 * tests can link a simulated disk in disk.c's place and see what a power cut leaves at any
 * moment. */
#ifndef RAVEN_COORDINATOR_LEDGER_DISK_H
#define RAVEN_COORDINATOR_LEDGER_DISK_H

#include "common/base/status.h"

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Also its parents; names that it makes are durable. */
int disk_make_dirs(const char *dir);
int disk_open(const char *path, int flags, mode_t mode);
int disk_close(int fd);
int disk_size(int fd, uint64_t *ret_bytes);
ssize_t disk_pread(int fd, void *ret, size_t bytes, uint64_t offset);
ssize_t disk_pwritev(int fd, const struct iovec *vectors, int count, uint64_t offset);
/* Blocks for [0, bytes), read as zeros; the file is at least so long afterwards. */
int disk_allocate(int fd, uint64_t bytes);
int disk_fsync(int fd);
int disk_fdatasync(int fd);
int disk_rename(const char *from, const char *to);
int disk_unlink(const char *path);
int disk_sync_dir(const char *dir);
/* each is called for every name in dir, in any order. */
int disk_list(const char *dir, void (*each)(void *context, const char *name), void *context);
/* An exclusive open-file-description lock, gone with the last descriptor; EAGAIN: another's. */
int disk_lock(int fd);
/* 0 when path still names the file behind fd. */
int disk_is_same(int fd, const char *path);

/* disk_whole.c: loops over short transfers and EINTR. */
/* STATUS_TRUNCATED at the end of the file. */
enum status disk_read_whole(int fd, void *ret, size_t bytes, uint64_t offset,
                            struct error *err) MUST_CHECK;
enum status disk_write_whole(int fd, const void *data, size_t bytes, uint64_t offset,
                             struct error *err) MUST_CHECK;
/* Changes the vectors. */
enum status disk_write_vectors(int fd, struct iovec *vectors, int count, uint64_t offset,
                               struct error *err) MUST_CHECK;

#endif
