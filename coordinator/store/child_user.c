/* Starts PostgreSQL's programs as the right user, on the main thread (the kernel sends a child's
 * parent-death signal when the thread that forked ends). Surprising: everything that may allocate
 * happens before fork(); the child makes plain system calls only, then exec. */
#include "coordinator/store/child_user.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_US 5000
#define DEPTH_MAX 64

enum status child_user_find(struct child_user *ret, struct error *err)
{
    struct child_user user = {.switches = geteuid() == 0, .uid = geteuid(), .gid = getegid()};
    if (user.switches) {
        struct passwd *entry = getpwnam("postgres");
        if (!entry)
            return error_set(err, STATUS_NOT_FOUND,
                             "PostgreSQL cannot run as root and there is no user \"postgres\": "
                             "install the package postgresql, or start as another user");
        user.uid = entry->pw_uid;
        user.gid = entry->pw_gid;
        user.group_count = CHILD_GROUPS_MAX;
        if (getgrouplist("postgres", user.gid, user.groups, &user.group_count) < 0)
            return error_set(err, STATUS_TOO_LARGE, "the user \"postgres\" is in too many groups");
        (void)text_copy(user.name, sizeof user.name, "postgres");
    } else {
        (void)snprintf(user.name, sizeof user.name, "uid %u", (unsigned)user.uid);
    }
    *ret = user;
    return STATUS_OK;
}

enum status child_user_own(const struct child_user *user, const char *path, struct error *err)
{
    if (user->switches && lchown(path, user->uid, user->gid) != 0)
        return error_set_errno(err, errno, "cannot give %s to the user %s", path, user->name);
    return STATUS_OK;
}

/* In a child of fork(). */
static bool become(const struct child_user *user)
{
    if (!user->switches)
        return true;
    return setgroups((size_t)user->group_count, user->groups) == 0 && setgid(user->gid) == 0 &&
           setuid(user->uid) == 0;
}

/* --- may the user enter? --- */

/* In a child of fork(): the exit status is the number of the first closed one, from 1; 0: none. */
__attribute__((noreturn)) static void try_to_enter(const struct child_user *user,
                                                   char prefixes[DEPTH_MAX][PATH_BYTES], int count)
{
    if (!become(user))
        _exit(DEPTH_MAX + 1);
    for (int i = 0; i < count; i++)
        if (access(prefixes[i], X_OK) != 0)
            _exit(i + 1);
    _exit(0);
}

enum status child_user_can_enter(const struct child_user *user, const char *dir, struct error *err)
{
    char prefixes[DEPTH_MAX][PATH_BYTES];
    int count = 0;
    for (const char *slash = strchr(dir + 1, '/'); count < DEPTH_MAX - 1;
         slash = strchr(slash + 1, '/')) {
        int length = slash ? (int)(slash - dir) : (int)strlen(dir);
        (void)snprintf(prefixes[count++], PATH_BYTES, "%.*s", length, dir);
        if (!slash)
            break;
    }
    pid_t pid = fork();
    if (pid == 0)
        try_to_enter(user, prefixes, count);
    int wait_status = 0;
    if (pid < 0 || waitpid(pid, &wait_status, 0) != pid)
        return error_set_errno(err, errno, "cannot start a process to check %s", dir);
    int closed = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : DEPTH_MAX + 1;
    if (closed == 0)
        return STATUS_OK;
    if (closed > count)
        return error_set(err, STATUS_SYSTEM, "cannot become the user %s", user->name);
    return error_set(err, STATUS_DENIED,
                     "PostgreSQL runs as %s, who cannot enter %s: choose a data directory "
                     "elsewhere (such as /var/lib/raven), or chmod o+x %s",
                     user->name, prefixes[closed - 1], prefixes[closed - 1]);
}

/* --- children --- */

static void reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (int number = 1; number < NSIG; number++)
        (void)signal(number, SIG_DFL); /* fails for SIGKILL, SIGSTOP and libc's own */
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

__attribute__((noreturn)) static void run_child(const struct child_user *user,
                                                const char *const argv[], char *const environment[],
                                                int log_fd, pid_t parent)
{
    int null_fd = open("/dev/null", O_RDWR);
    reset_signals();
    (void)setsid();
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0 ||
        dup2(log_fd, STDERR_FILENO) < 0 || !become(user))
        _exit(126);
    (void)umask(077);
    /* After setuid, which would clear it; and our parent may have died before. */
    if (prctl(PR_SET_PDEATHSIG, SIGINT) != 0 || getppid() != parent || chdir("/") != 0)
        _exit(126);
    (void)close_range(3, ~0u, 0);
    execve(argv[0], (char *const *)argv, environment);
    _exit(127);
}

enum status child_start(const struct child_user *user, const char *const argv[],
                        const char *log_path, pid_t *ret, struct error *err)
{
    char path[PATH_BYTES + 64];
    char locale[] = "LC_ALL=C", zone[] = "TZ=UTC";
    char *const environment[] = {path, locale, zone, NULL};
    (void)snprintf(path, sizeof path, "PATH=%.*s:/usr/bin:/bin",
                   (int)(strrchr(argv[0], '/') - argv[0]), argv[0]);
    int log_fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (log_fd < 0)
        return error_set_errno(err, errno, "cannot open %s", log_path);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        run_child(user, argv, environment, log_fd, parent);
    int errnum = errno;
    close(log_fd);
    if (pid < 0)
        return error_set_errno(err, errnum, "cannot start %s", argv[0]);
    *ret = pid;
    return STATUS_OK;
}

bool child_wait(pid_t pid, int timeout_ms, int *ret_wait_status)
{
    int64_t until_us = clock_monotonic_us() + (int64_t)timeout_ms * 1000;
    for (;;) {
        int wait_status = 0;
        pid_t ended = waitpid(pid, &wait_status, WNOHANG);
        if (ended == pid || (ended < 0 && errno == ECHILD)) {
            *ret_wait_status = wait_status;
            return true;
        }
        if (clock_monotonic_us() >= until_us)
            return false;
        clock_sleep_us(POLL_US);
    }
}
