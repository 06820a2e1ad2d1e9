/* Starts and stops the private PostgreSQL, on the main thread. Surprising: postgres lives in its
 * own session, so that Ctrl-C reaches the coordinator alone, which stops it last; and it gets
 * SIGINT from the kernel should the coordinator die without doing so. */
#include "coordinator/store/private_postgres.h"

#include "common/base/clock.h"
#include "coordinator/store/cluster.h"
#include "coordinator/store/pq.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define START_US (INT64_C(120) * 1000000) /* recovery after a crash may take a while */
#define PATIENCE_US (INT64_C(3) * 1000000)
#define ATTEMPT_US (INT64_C(1) * 1000000)
#define STEP_MS 20
#define FAST_MS 10000
#define QUIT_MS 5000
#define CONNINFO_BYTES (2 * PATH_BYTES + 64)

struct private_postgres {
    struct cluster cluster;
    pid_t pid;
    char conninfo[CONNINFO_BYTES];
};

/* host='…' with the socket's directory, quoted for libpq. */
static enum status format_conninfo(char ret[CONNINFO_BYTES], const char *socket_dir,
                                   const char *database, struct error *err)
{
    char quoted[2 * PATH_BYTES];
    size_t used = 0;
    for (const char *at = socket_dir; *at; at++) {
        if (*at == '\'' || *at == '\\')
            quoted[used++] = '\\';
        quoted[used++] = *at;
    }
    quoted[used] = '\0';
    struct buffer text;
    buffer_init(&text, CONNINFO_BYTES - 1);
    enum status status = buffer_printf(&text, "host='%s' port=%s user=%s dbname=%s", quoted,
                                       CLUSTER_PORT, CLUSTER_ROLE, database);
    if (status == STATUS_OK) {
        memcpy(ret, text.data, text.bytes);
        ret[text.bytes] = '\0';
    }
    buffer_done(&text);
    return status ? error_set(err, status, "%s: the path is too long", socket_dir) : STATUS_OK;
}

static enum status start_server(struct private_postgres *postgres, struct error *err)
{
    const struct cluster *cluster = &postgres->cluster;
    char program[PATH_BYTES];
    const char *const argv[] = {program, "-D", cluster->data, NULL};
    enum status status = path_format(program, "%s/postgres", cluster->bin);
    if (status != STATUS_OK)
        return error_set(err, status, "%s: the path is too long", cluster->bin);
    return child_start(&cluster->user, argv, cluster->log, &postgres->pid, err);
}

static enum status report_end(struct private_postgres *postgres, struct error *err)
{
    char words[200];
    postgres->pid = 0;
    cluster_last_words(&postgres->cluster, words, sizeof words);
    return error_set(err, STATUS_SYSTEM, "PostgreSQL ended at once: %s (all of it in %s)", words,
                     postgres->cluster.log);
}

static enum status wait_for_answer(struct private_postgres *postgres, struct pq *pq,
                                   void (*progress)(const char *sentence), struct error *err)
{
    int64_t start_us = clock_monotonic_us();
    bool told = false;
    for (;;) {
        int wait_status;
        int64_t now_us = clock_monotonic_us();
        enum status status = pq_ready(pq, now_us + ATTEMPT_US, err);
        if (status == STATUS_OK)
            return STATUS_OK;
        if (child_wait(postgres->pid, STEP_MS, &wait_status))
            return report_end(postgres, err);
        if (now_us - start_us > START_US)
            return status;
        if (!told && now_us - start_us > PATIENCE_US) {
            progress("the database repairs itself after the last run; this may take minutes");
            told = true;
        }
    }
}

static enum status ensure_database(struct pq *pq, struct error *err)
{
    PGresult *result = NULL;
    int64_t deadline_us = clock_monotonic_us() + PQ_CALL_US;
    enum status status = pq_run(pq, "SELECT 1 FROM pg_database WHERE datname = '" CLUSTER_ROLE "'",
                                NULL, deadline_us, &result, err);
    bool missing = status == STATUS_OK && PQntuples(result) == 0;
    PQclear(result);
    deadline_us = clock_monotonic_us() + START_US;
    if (missing) /* the server's own limit of 2 s is short for it on a slow disk */
        status = pq_run(pq, "SELECT set_config('statement_timeout', '60000', false)", NULL,
                        deadline_us, NULL, err);
    if (missing && status == STATUS_OK)
        status = pq_run(pq, "CREATE DATABASE " CLUSTER_ROLE " TEMPLATE template0", NULL,
                        deadline_us, NULL, err);
    return status;
}

static enum status make_ready(struct private_postgres *postgres,
                              void (*progress)(const char *sentence), struct error *err)
{
    struct pq *pq = NULL;
    const char *socket_dir = postgres->cluster.socket_dir;
    enum status status = format_conninfo(postgres->conninfo, socket_dir, "postgres", err);
    if (status == STATUS_OK)
        status = pq_create(postgres->conninfo, &pq);
    if (status == STATUS_OK)
        status = wait_for_answer(postgres, pq, progress, err);
    if (status == STATUS_OK)
        status = ensure_database(pq, err);
    if (status == STATUS_OK)
        status = format_conninfo(postgres->conninfo, socket_dir, CLUSTER_ROLE, err);
    pq_free(pq);
    return status;
}

static void say_nothing(const char *sentence)
{
    (void)sentence;
}

enum status private_postgres_start(const char *dir, void (*progress)(const char *sentence),
                                   struct private_postgres **ret, struct error *err)
{
    struct private_postgres *postgres = calloc(1, sizeof *postgres);
    if (!postgres)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the private database");
    if (!progress)
        progress = say_nothing;
    enum status status = cluster_open(dir, progress, &postgres->cluster, err);
    if (status != STATUS_OK) {
        free(postgres);
        return status;
    }
    status = start_server(postgres, err);
    if (status == STATUS_OK)
        status = make_ready(postgres, progress, err);
    if (status != STATUS_OK)
        private_postgres_stop(postgres);
    else
        *ret = postgres;
    return status;
}

const char *private_postgres_conninfo(const struct private_postgres *postgres)
{
    return postgres->conninfo;
}

void private_postgres_stop(struct private_postgres *postgres)
{
    if (!postgres)
        return;
    static const struct {
        int number, wait_ms;
    } steps[] = {{SIGINT, FAST_MS}, {SIGQUIT, QUIT_MS}, {SIGKILL, QUIT_MS}};
    for (size_t i = 0; postgres->pid > 0 && i < sizeof steps / sizeof *steps; i++) {
        int wait_status;
        (void)kill(postgres->pid, steps[i].number);
        if (child_wait(postgres->pid, steps[i].wait_ms, &wait_status))
            postgres->pid = 0;
    }
    cluster_close(&postgres->cluster);
    free(postgres);
}
