/* Opens the private cluster's directory: owner, lock, former processes, initdb, settings. On the
 * main thread, at start. Surprising: initdb works in data.new, which becomes data by a rename: a
 * coordinator killed during its first start leaves nothing half-made. */
#include "coordinator/store/cluster.h"

#include "common/base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define INITDB_MS 120000
#define LOG_BYTES_MAX (4 << 20) /* then it becomes postgres.log.1 at the next start */

void cluster_last_words(const struct cluster *cluster, char *ret, size_t ret_bytes)
{
    char tail[512] = "";
    struct stat info;
    ret[0] = '\0';
    int fd = open(cluster->log, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    if (fstat(fd, &info) == 0) {
        off_t from =
            info.st_size > (off_t)sizeof tail - 1 ? info.st_size - (off_t)sizeof tail + 1 : 0;
        ssize_t got = pread(fd, tail, sizeof tail - 1, from);
        tail[got > 0 ? got : 0] = '\0';
    }
    close(fd);
    for (size_t length = strlen(tail); length > 0 && tail[length - 1] == '\n'; length--)
        tail[length - 1] = '\0';
    const char *line = strrchr(tail, '\n');
    (void)text_copy(ret, ret_bytes, line ? line + 1 : tail);
    text_sanitize(ret);
}

/* --- dir --- */

/* Missing parents get 0711: another user must be able to pass, not to look. */
static enum status make_dir(const char *dir, struct cluster *cluster, struct error *err)
{
    char parent[PATH_BYTES], *slash;
    enum status status = path_format(parent, "%s", dir);
    if (status != STATUS_OK)
        return error_set(err, status, "the database's directory has too long a path: %s", dir);
    for (size_t length = strlen(parent); length > 1 && parent[length - 1] == '/'; length--)
        parent[length - 1] = '\0';
    slash = strrchr(parent, '/');
    if (slash && slash != parent) {
        *slash = '\0';
        status = file_make_dirs(parent, 0711, err);
    }
    if (status == STATUS_OK)
        status = file_make_dirs(dir, 0700, err);
    if (status != STATUS_OK)
        return status;
    char *absolute = realpath(dir, NULL);
    if (!absolute)
        return error_set_errno(err, errno, "cannot resolve %s", dir);
    if (path_format(cluster->dir, "%s", absolute) != STATUS_OK ||
        path_format(cluster->data, "%s/data", absolute) != STATUS_OK ||
        path_format(cluster->log, "%s/postgres.log", absolute) != STATUS_OK)
        status = error_set(err, STATUS_TOO_LARGE, "%s: the path is too long", absolute);
    free(absolute);
    return status;
}

static enum status take_lock(struct cluster *cluster, struct error *err)
{
    char path[PATH_BYTES];
    enum status status = path_format(path, "%s/lock", cluster->dir);
    if (status != STATUS_OK)
        return error_set(err, status, "%s: the path is too long", cluster->dir);
    status = file_take_lock(path, &cluster->lock_fd, err);
    if (status == STATUS_BUSY)
        return error_set(err, status, "%s is in use by another coordinator", cluster->dir);
    return status;
}

static void turn_log(const struct cluster *cluster)
{
    struct stat info;
    char old[PATH_BYTES];
    if (stat(cluster->log, &info) == 0 && info.st_size > LOG_BYTES_MAX &&
        path_format(old, "%s.1", cluster->log) == STATUS_OK)
        (void)rename(cluster->log, old);
}

/* --- initdb --- */

static enum status run_initdb(const struct cluster *cluster, const char *data, struct error *err)
{
    char program[PATH_BYTES];
    pid_t pid;
    int wait_status = 0;
    const char *const argv[] = {
        program, "-D", data,   "-U",         CLUSTER_ROLE,       "-A",
        "trust", "-E", "UTF8", "--locale=C", "--data-checksums", "--no-instructions",
        NULL};
    enum status status = path_format(program, "%s/initdb", cluster->bin);
    if (status != STATUS_OK)
        return error_set(err, status, "%s: the path is too long", cluster->bin);
    status = child_start(&cluster->user, argv, cluster->log, &pid, err);
    if (status != STATUS_OK)
        return status;
    if (!child_wait(pid, INITDB_MS, &wait_status)) {
        (void)kill(pid, SIGKILL);
        (void)child_wait(pid, INITDB_MS, &wait_status);
        return error_set(err, STATUS_TIMEOUT, "initdb did not end within %d seconds; see %s",
                         INITDB_MS / 1000, cluster->log);
    }
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0)
        return STATUS_OK;
    char words[200];
    cluster_last_words(cluster, words, sizeof words);
    return error_set(err, STATUS_SYSTEM, "initdb failed: %s (all of it in %s)", words,
                     cluster->log);
}

static enum status make_data(const struct cluster *cluster, cluster_progress_fn progress,
                             struct error *err)
{
    char fresh[PATH_BYTES];
    if (access(cluster->data, F_OK) == 0)
        return STATUS_OK;
    progress("creating the database, about 2 seconds, once");
    enum status status = path_format(fresh, "%s.new", cluster->data);
    if (status != STATUS_OK)
        return error_set(err, status, "%s: the path is too long", cluster->data);
    status = file_remove_tree(fresh, err);
    if (status == STATUS_OK)
        status = run_initdb(cluster, fresh, err);
    if (status == STATUS_OK && rename(fresh, cluster->data) != 0)
        status = error_set_errno(err, errno, "cannot rename %s", fresh);
    return status == STATUS_OK ? file_sync_dir(cluster->dir, err) : status;
}

/* --- all of it --- */

static enum status prepare(struct cluster *cluster, cluster_progress_fn progress, struct error *err)
{
    enum status status = cluster_end_former(cluster, progress, err);
    if (status == STATUS_OK)
        status = cluster_find_bin(cluster, err);
    if (status == STATUS_OK)
        status = cluster_make_socket_dir(cluster, err);
    if (status == STATUS_OK)
        status = make_data(cluster, progress, err);
    if (status == STATUS_OK)
        status = cluster_write_settings(cluster, err);
    return status;
}

enum status cluster_open(const char *dir, cluster_progress_fn progress, struct cluster *ret,
                         struct error *err)
{
    struct cluster cluster = {.lock_fd = -1};
    enum status status = child_user_find(&cluster.user, err);
    if (status == STATUS_OK)
        status = make_dir(dir, &cluster, err);
    if (status == STATUS_OK)
        status = child_user_own(&cluster.user, cluster.dir, err);
    if (status == STATUS_OK)
        status = child_user_can_enter(&cluster.user, cluster.dir, err);
    if (status == STATUS_OK)
        status = take_lock(&cluster, err);
    if (status != STATUS_OK)
        return status;
    turn_log(&cluster);
    status = prepare(&cluster, progress, err);
    if (status != STATUS_OK)
        cluster_close(&cluster);
    else
        *ret = cluster;
    return status;
}

void cluster_close(struct cluster *cluster)
{
    cluster_remove_socket_dir(cluster);
    if (cluster->lock_fd >= 0)
        close(cluster->lock_fd);
    cluster->lock_fd = -1;
}
