/* Files as the rest of RAVEN needs them: whole, atomic, durable. Any thread. */
#ifndef RAVEN_COMMON_BASE_FILE_H
#define RAVEN_COMMON_BASE_FILE_H

#include "common/base/buffer.h"
#include "common/base/status.h"

#include <stdint.h>
#include <sys/types.h>

#define PATH_BYTES 512

/* "a/b" from printf pieces; STATUS_TOO_LARGE when it does not fit. */
enum status path_format(char ret[PATH_BYTES], const char *format, ...) PRINTF_LIKE(2, 3) MUST_CHECK;

/* Creates dir and its parents with mode, each name durable; existing directories are fine. */
enum status file_make_dirs(const char *dir, mode_t mode, struct error *err) MUST_CHECK;
/* Appends the whole file to ret; STATUS_TOO_LARGE when it exceeds ret's maximum. */
enum status file_read(const char *path, struct buffer *ret, struct error *err) MUST_CHECK;
/* Temp file beside path, write, fsync, rename, fsync of the directory: after OK the new content
 * survives a power cut; before it the old content is intact. */
enum status file_write_atomic(const char *path, const void *data, size_t bytes, mode_t mode,
                              struct error *err) MUST_CHECK;
enum status file_sync_dir(const char *dir, struct error *err) MUST_CHECK;
/* Loops over short writes and EINTR. */
enum status file_write_all(int fd, const void *data, size_t bytes, struct error *err) MUST_CHECK;
enum status file_pwrite_all(int fd, const void *data, size_t bytes, uint64_t offset,
                            struct error *err) MUST_CHECK;
/* Exactly bytes, or STATUS_TRUNCATED at the end of the file. */
enum status file_pread_all(int fd, void *ret, size_t bytes, uint64_t offset,
                           struct error *err) MUST_CHECK;
/* Opens (or makes) the file and locks it for this process until *ret_fd is closed or the process
 * ends. STATUS_BUSY without text in err: another process holds it. */
enum status file_take_lock(const char *path, int *ret_fd, struct error *err) MUST_CHECK;
/* Removes dir and everything below it; a missing dir is fine. Never follows symbolic links. */
enum status file_remove_tree(const char *dir, struct error *err) MUST_CHECK;

#endif
