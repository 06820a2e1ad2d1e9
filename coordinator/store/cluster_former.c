/* After kill -9 of a coordinator its postgres got SIGINT from the kernel and may still be writing
 * its last checkpoint. On the main thread; the lock of dir is held, so whoever still works in the
 * data directory is such an orphan. Surprising: orphans are found by their working directory, not
 * by the number in postmaster.pid, which another process may have by now. */
#include "coordinator/store/cluster.h"

#include "common/base/clock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_US 20000
#define WAIT_US (INT64_C(10) * 1000000)
#define ORPHANS_MAX 64

static int find_orphans(const char *data, pid_t ret[ORPHANS_MAX])
{
    int count = 0;
    DIR *processes = opendir("/proc");
    if (!processes)
        return 0;
    for (struct dirent *entry; count < ORPHANS_MAX && (entry = readdir(processes));) {
        char link[300], cwd[PATH_BYTES + 1];
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        (void)snprintf(link, sizeof link, "/proc/%s/cwd", entry->d_name);
        ssize_t length = readlink(link, cwd, sizeof cwd - 1);
        if (length <= 0)
            continue;
        cwd[length] = '\0';
        if (strcmp(cwd, data) == 0)
            ret[count++] = (pid_t)strtol(entry->d_name, NULL, 10);
    }
    closedir(processes);
    return count;
}

static bool wait_for_none(const char *data)
{
    pid_t orphans[ORPHANS_MAX];
    int64_t until_us = clock_monotonic_us() + WAIT_US;
    while (find_orphans(data, orphans) > 0) {
        if (clock_monotonic_us() >= until_us)
            return false;
        clock_sleep_us(STEP_US);
    }
    return true;
}

static void signal_orphans(const char *data, int number)
{
    pid_t orphans[ORPHANS_MAX];
    int count = find_orphans(data, orphans);
    for (int i = 0; i < count; i++)
        (void)kill(orphans[i], number);
}

/* With nobody at work these files only name dead processes, or strangers with their numbers. */
static enum status remove_stale(const struct cluster *cluster, struct error *err)
{
    char path[PATH_BYTES];
    enum status status = path_format(path, "%s/postmaster.pid", cluster->data);
    if (status != STATUS_OK)
        return error_set(err, status, "the path of the data directory is too long");
    if (unlink(path) != 0 && errno != ENOENT)
        return error_set_errno(err, errno, "cannot remove the stale %s", path);
    return STATUS_OK;
}

enum status cluster_end_former(const struct cluster *cluster, cluster_progress_fn progress,
                               struct error *err)
{
    static const int steps[] = {0, SIGINT, SIGQUIT};
    pid_t orphans[ORPHANS_MAX];
    if (find_orphans(cluster->data, orphans) > 0)
        progress("waiting for the database of the last run to stop");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (steps[i])
            signal_orphans(cluster->data, steps[i]);
        if (wait_for_none(cluster->data))
            return remove_stale(cluster, err);
    }
    int count = find_orphans(cluster->data, orphans);
    return error_set(err, STATUS_BUSY,
                     "process %d still works in %s and does not stop: end it, then start again",
                     count ? (int)orphans[0] : 0, cluster->data);
}
