/* Programs, socket directory and settings of the private cluster, on the main thread. Surprising:
 * a socket's path has at most 107 bytes, so below a long data directory the socket moves to a
 * private directory with a short path, and a file remembers it for cleaning up after kill -9. */
#include "coordinator/store/cluster.h"

#include "common/base/bytes.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_FILE ".s.PGSQL." CLUSTER_PORT
#define SOCKET_PATH_MAX (sizeof(((struct sockaddr_un *)0)->sun_path) - 1)
#define ELSEWHERE "raven-pg-"

/* --- programs --- */

static bool has_program(const char *bin, const char *name)
{
    char path[PATH_BYTES];
    return path_format(path, "%s/%s", bin, name) == STATUS_OK && access(path, X_OK) == 0;
}

/* The major version of an existing cluster; 0 when there is none. */
static int version_of_data(const struct cluster *cluster)
{
    char path[PATH_BYTES];
    struct buffer text;
    int version = 0;
    buffer_init(&text, 16);
    if (path_format(path, "%s/PG_VERSION", cluster->data) == STATUS_OK &&
        file_read(path, &text, NULL) == STATUS_OK && buffer_text(&text))
        version = (int)strtol((const char *)text.data, NULL, 10);
    buffer_done(&text);
    return version;
}

enum status cluster_find_bin(struct cluster *cluster, struct error *err)
{
    static const char pattern[] = "/usr/lib/postgresql/*/bin";
    int wanted = version_of_data(cluster), best = 0;
    glob_t found = {0};
    (void)glob(pattern, GLOB_NOSORT, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *bin = found.gl_pathv[i];
        int version = (int)strtol(bin + strlen("/usr/lib/postgresql/"), NULL, 10);
        if (version <= best || (wanted && version != wanted) || !has_program(bin, "initdb") ||
            !has_program(bin, "postgres") || path_format(cluster->bin, "%s", bin) != STATUS_OK)
            continue;
        best = version;
    }
    globfree(&found);
    if (best)
        return STATUS_OK;
    if (wanted)
        return error_set(
            err, STATUS_NOT_FOUND,
            "%s was made by PostgreSQL %d, which is not installed: install the package "
            "postgresql-%d",
            cluster->data, wanted, wanted);
    return error_set(err, STATUS_NOT_FOUND,
                     "no PostgreSQL in %s: install the package postgresql, or give --database-url",
                     pattern);
}

/* --- the socket's directory --- */

static enum status path_of(const struct cluster *cluster, const char *name, char ret[PATH_BYTES],
                           struct error *err)
{
    enum status status = path_format(ret, "%s/%s", cluster->dir, name);
    return status ? error_set(err, status, "%s: the path is too long", cluster->dir) : STATUS_OK;
}

static void empty_socket_dir(const char *socket_dir)
{
    static const char *const names[] = {SOCKET_FILE, SOCKET_FILE ".lock"};
    char path[PATH_BYTES];
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (path_format(path, "%s/%s", socket_dir, names[i]) == STATUS_OK)
            (void)unlink(path);
}

/* Short enough for a socket's address, and no comma: libpq would take it for a list of hosts. */
static bool can_hold_socket(const char *dir, const char *file)
{
    return strlen(dir) + strlen(file) <= SOCKET_PATH_MAX && !strchr(dir, ',');
}

/* What a coordinator that was killed left behind. */
static void remove_former(const char *note)
{
    struct buffer text;
    buffer_init(&text, PATH_BYTES - 1);
    if (file_read(note, &text, NULL) == STATUS_OK && buffer_text(&text) &&
        strstr((const char *)text.data, "/" ELSEWHERE)) {
        empty_socket_dir((const char *)text.data);
        (void)rmdir((const char *)text.data);
    }
    buffer_done(&text);
    (void)unlink(note);
}

static enum status make_elsewhere(struct cluster *cluster, const char *note, struct error *err)
{
    const char *runtime = cluster->user.switches ? NULL : getenv("XDG_RUNTIME_DIR");
    const char *bases[] = {runtime, "/tmp"};
    for (size_t i = 0; i < COUNT_OF(bases); i++) {
        if (!bases[i] || !can_hold_socket(bases[i], "/" ELSEWHERE "XXXXXX/" SOCKET_FILE))
            continue;
        if (path_format(cluster->socket_dir, "%s/" ELSEWHERE "XXXXXX", bases[i]) == STATUS_OK &&
            mkdtemp(cluster->socket_dir)) {
            cluster->socket_is_elsewhere = true;
            return file_write_atomic(note, cluster->socket_dir, strlen(cluster->socket_dir), 0600,
                                     err);
        }
    }
    return error_set_errno(err, errno, "cannot make a directory for the database's socket in /tmp");
}

enum status cluster_make_socket_dir(struct cluster *cluster, struct error *err)
{
    char note[PATH_BYTES];
    enum status status = path_of(cluster, "socket_dir", note, err);
    if (status == STATUS_OK)
        status = path_of(cluster, "socket", cluster->socket_dir, err);
    if (status != STATUS_OK)
        return status;
    remove_former(note);
    if (!can_hold_socket(cluster->socket_dir, "/" SOCKET_FILE))
        status = make_elsewhere(cluster, note, err);
    else
        status = file_make_dirs(cluster->socket_dir, 0700, err);
    if (status == STATUS_OK)
        status = child_user_own(&cluster->user, cluster->socket_dir, err);
    if (status == STATUS_OK)
        empty_socket_dir(cluster->socket_dir);
    return status;
}

void cluster_remove_socket_dir(const struct cluster *cluster)
{
    char note[PATH_BYTES];
    if (!cluster->socket_is_elsewhere)
        return;
    empty_socket_dir(cluster->socket_dir);
    (void)rmdir(cluster->socket_dir);
    if (path_of(cluster, "socket_dir", note, NULL) == STATUS_OK)
        (void)unlink(note);
}

/* --- settings --- */

/* Sized for one coordinator with five connections; nothing here trades safety for speed. */
static const char settings[] = "# Written by raven-coordinator at every start.\n"
                               "listen_addresses = ''\n"
                               "port = " CLUSTER_PORT "\n"
                               "unix_socket_permissions = 0700\n"
                               "max_connections = 24\n"
                               "superuser_reserved_connections = 2\n"
                               "shared_buffers = 32MB\n"
                               "huge_pages = off\n"
                               "work_mem = 4MB\n"
                               "maintenance_work_mem = 32MB\n"
                               "wal_level = minimal\n"
                               "max_wal_senders = 0\n"
                               "max_wal_size = 256MB\n"
                               "min_wal_size = 32MB\n"
                               "wal_compression = on\n"
                               "checkpoint_timeout = 15min\n"
                               "autovacuum_max_workers = 1\n"
                               "max_worker_processes = 2\n"
                               "max_parallel_workers = 0\n"
                               "max_parallel_workers_per_gather = 0\n"
                               "max_logical_replication_workers = 0\n"
                               "jit = off\n"
                               "logging_collector = off\n"
                               "log_destination = stderr\n"
                               "timezone = 'UTC'\n"
                               "log_timezone = 'UTC'\n"
                               "fsync = on\n"
                               "synchronous_commit = on\n"
                               "full_page_writes = on\n";

/* Whoever can enter the 0700 socket directory is the cluster's owner, or root. */
static const char access_rules[] = "local all " CLUSTER_ROLE " trust\n";

static enum status write_one(const struct cluster *cluster, const char *name, const char *text,
                             size_t bytes, struct error *err)
{
    char path[PATH_BYTES];
    enum status status = path_format(path, "%s/%s", cluster->data, name);
    if (status != STATUS_OK)
        return error_set(err, status, "%s: the path is too long", cluster->data);
    status = file_write_atomic(path, text, bytes, 0600, err);
    return status == STATUS_OK ? child_user_own(&cluster->user, path, err) : status;
}

/* A list setting: the path in double quotes, within single quotes; both doubled inside. */
static enum status append_socket_dir(struct buffer *text, const char *socket_dir)
{
    enum status status = buffer_append_text(text, "unix_socket_directories = '\"");
    for (const char *at = socket_dir; *at && status == STATUS_OK; at++) {
        if (*at == '\'' || *at == '"')
            status = buffer_append(text, at, 1);
        if (status == STATUS_OK && *at == '\\')
            status = buffer_append(text, at, 1);
        if (status == STATUS_OK)
            status = buffer_append(text, at, 1);
    }
    return status == STATUS_OK ? buffer_append_text(text, "\"'\n") : status;
}

enum status cluster_write_settings(const struct cluster *cluster, struct error *err)
{
    struct buffer text;
    buffer_init(&text, 16384);
    enum status status = buffer_append_text(&text, settings);
    if (status == STATUS_OK)
        status = append_socket_dir(&text, cluster->socket_dir);
    if (status != STATUS_OK)
        (void)error_set(err, status, "the database's settings: %s", status_text(status));
    if (status == STATUS_OK)
        status = write_one(cluster, "postgresql.conf", (const char *)text.data, text.bytes, err);
    if (status == STATUS_OK)
        status = write_one(cluster, "pg_hba.conf", access_rules, sizeof access_rules - 1, err);
    buffer_done(&text);
    return status;
}
