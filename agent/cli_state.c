/* The state directory and its lock. Main thread. Surprising decision: a file system that cannot
 * lock is refused; two agents with one key would throw each other out for ever. */
#include "agent/cli.h"
#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

enum status state_lock_take(const char *state_dir, struct state_lock *ret, struct error *err)
{
    char path[PATH_BYTES];
    enum status status = file_make_dirs(state_dir, 0700, err);
    if (status)
        return status;
    if (path_format(path, "%s/agent.lock", state_dir))
        return error_set(err, STATUS_TOO_LARGE, "the state directory's path is too long");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set_errno(err, errno, "cannot open %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        ret->fd = fd;
        return STATUS_OK;
    }
    int why = errno;
    close(fd);
    if (why == EWOULDBLOCK)
        return error_set(err, STATUS_BUSY, "another raven-agent uses %s; stop it first", state_dir);
    return error_set_errno(err, why,
                           "%s lies on a file system without locks; choose another with "
                           "--state-dir",
                           state_dir);
}

void state_lock_release(struct state_lock *lock)
{
    close(lock->fd);
}
