/* Inside coordinator/store: the files of the private PostgreSQL cluster. Called from main only.
 *   dir/              0700, the database user's
 *   dir/lock          held by the coordinator that uses dir
 *   dir/data/         PostgreSQL's own; made as data.new and renamed, so it is whole or missing
 *   dir/socket/       the socket's directory when its path is short enough, else
 *   dir/socket_dir    names the directory in /tmp or $XDG_RUNTIME_DIR that holds it
 *   dir/postgres.log  what initdb and postgres say; dir/postgres.log.1: what they said before */
#ifndef RAVEN_COORDINATOR_STORE_CLUSTER_H
#define RAVEN_COORDINATOR_STORE_CLUSTER_H

#include "common/base/file.h"
#include "coordinator/store/child_user.h"

#define CLUSTER_ROLE "raven"
#define CLUSTER_PORT "5432" /* names the socket file; nothing listens on TCP */

struct cluster {
    char dir[PATH_BYTES]; /* absolute */
    char data[PATH_BYTES];
    char log[PATH_BYTES];
    char socket_dir[PATH_BYTES];
    bool socket_is_elsewhere;
    char bin[PATH_BYTES]; /* directory of initdb and postgres */
    struct child_user user;
    int lock_fd;
};

typedef void (*cluster_progress_fn)(const char *sentence);

/* Makes or finds dir, takes its lock, waits for a former postgres to end, makes the cluster when it
 * is missing, writes the settings. cluster_close after OK. */
enum status cluster_open(const char *dir, cluster_progress_fn progress, struct cluster *ret,
                         struct error *err) MUST_CHECK;
void cluster_close(struct cluster *cluster);
/* The last words of dir/postgres.log, one line; "" when there are none. */
void cluster_last_words(const struct cluster *cluster, char *ret, size_t ret_bytes);

/* cluster_former.c: waits until no process works in data, and makes it so if it must. */
enum status cluster_end_former(const struct cluster *cluster, cluster_progress_fn progress,
                               struct error *err) MUST_CHECK;

/* cluster_files.c */
enum status cluster_find_bin(struct cluster *cluster, struct error *err) MUST_CHECK;
enum status cluster_make_socket_dir(struct cluster *cluster, struct error *err) MUST_CHECK;
void cluster_remove_socket_dir(const struct cluster *cluster);
enum status cluster_write_settings(const struct cluster *cluster, struct error *err) MUST_CHECK;

#endif
