/* Inside coordinator/store: as whom PostgreSQL runs, and starting its programs. Called from main
 * only. A child: own session (Ctrl-C reaches only the coordinator), default signals, and SIGINT
 * when the coordinator dies. */
#ifndef RAVEN_COORDINATOR_STORE_CHILD_USER_H
#define RAVEN_COORDINATOR_STORE_CHILD_USER_H

#include "common/base/status.h"

#include <sys/types.h>

#define CHILD_GROUPS_MAX 64

struct child_user {
    bool switches; /* false: the children run as we do */
    char name[33];
    uid_t uid;
    gid_t gid;
    gid_t groups[CHILD_GROUPS_MAX];
    int group_count;
};

/* "postgres" when we are root, else ourselves. */
enum status child_user_find(struct child_user *ret, struct error *err) MUST_CHECK;
/* Gives a file or directory to that user. */
enum status child_user_own(const struct child_user *user, const char *path,
                           struct error *err) MUST_CHECK;
/* Whether that user can enter dir; names the first closed directory on the way, and a cure. */
enum status child_user_can_enter(const struct child_user *user, const char *dir,
                                 struct error *err) MUST_CHECK;
/* argv[0]: absolute path. Output goes to log_path, appended. */
enum status child_start(const struct child_user *user, const char *const argv[],
                        const char *log_path, pid_t *ret, struct error *err) MUST_CHECK;
/* Waits up to timeout_ms for the end; *ret_wait_status as of waitpid. False: it still runs. */
bool child_wait(pid_t pid, int timeout_ms, int *ret_wait_status);

#endif
