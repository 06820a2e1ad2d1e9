/* A PostgreSQL connection driven by poll() with our own deadline, on the calling thread.
 * Surprising: no call to PQexec, PQconnectdb or PQcancel: with a stopped server process they hang
 * for ever, whatever tcp_user_timeout says, since the kernel goes on acknowledging. */
#include "coordinator/store/pq.h"

#include "common/base/clock.h"
#include "common/base/rng.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define BACKOFF_US_MIN 50000
#define BACKOFF_US_MAX 1000000

struct pq {
    char *conninfo;
    int64_t claim;      /* the advisory lock that a connection holds, 0: none */
    PGconn *connection; /* NULL: not connected */
    int64_t backoff_us; /* 0 after a success */
    int64_t not_before_us;
};

enum status pq_create(const char *conninfo, struct pq **ret)
{
    struct pq *pq = calloc(1, sizeof *pq);
    if (!pq)
        return STATUS_NO_MEMORY;
    pq->conninfo = strdup(conninfo);
    if (!pq->conninfo) {
        free(pq);
        return STATUS_NO_MEMORY;
    }
    *ret = pq;
    return STATUS_OK;
}

static void drop(struct pq *pq)
{
    PQfinish(pq->connection); /* its farewell is not waited for: the connection is non-blocking */
    pq->connection = NULL;
}

void pq_free(struct pq *pq)
{
    if (!pq)
        return;
    drop(pq);
    free(pq->conninfo);
    free(pq);
}

void pq_claim(struct pq *pq, int64_t key)
{
    pq->claim = key;
}

/* --- waiting --- */

/* False when the deadline passed. */
static bool wait_socket(struct pq *pq, short events, int64_t deadline_us)
{
    struct pollfd poll_fd = {.fd = PQsocket(pq->connection), .events = events};
    for (;;) {
        int64_t left_us = deadline_us - clock_monotonic_us();
        if (left_us <= 0)
            return false;
        int left_ms = left_us > 3600000000 ? 3600000 : (int)(left_us / 1000) + 1;
        int ready = poll(&poll_fd, 1, left_ms);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return false;
    }
}

/* First line only: libpq's texts end in a line feed and may have more lines of hints. */
static enum status unavailable(struct pq *pq, const char *step, const char *reason,
                               struct error *err)
{
    int length = (int)strcspn(reason, "\n");
    enum status status =
        error_set(err, STATUS_UNAVAILABLE, "%s: %.*s", step, length, length ? reason : "no reason");
    drop(pq);
    return status;
}

static enum status timed_out(struct pq *pq, const char *step, struct error *err)
{
    return unavailable(pq, step, "it did not answer in time", err);
}

static const char step_connect[] = "cannot connect to the database";
static const char step_run[] = "the database is not available";

/* --- connecting --- */

static void ignore_notice(void *context, const PGresult *result)
{
    (void)context;
    (void)result;
}

static enum status connect_socket(struct pq *pq, int64_t deadline_us, struct error *err)
{
    const char *const keywords[] = {"dbname", "client_encoding", "fallback_application_name", NULL};
    const char *const values[] = {pq->conninfo, "UTF8", "raven-coordinator", NULL};
    pq->connection = PQconnectStartParams(keywords, values, 1);
    if (!pq->connection)
        return error_set(err, STATUS_NO_MEMORY, "%s: out of memory", step_connect);
    PQsetNoticeReceiver(pq->connection, ignore_notice, NULL);
    if (PQstatus(pq->connection) == CONNECTION_BAD)
        return unavailable(pq, step_connect, PQerrorMessage(pq->connection), err);
    for (PostgresPollingStatusType state = PGRES_POLLING_WRITING; state != PGRES_POLLING_OK;
         state = PQconnectPoll(pq->connection)) {
        if (state == PGRES_POLLING_FAILED)
            return unavailable(pq, step_connect, PQerrorMessage(pq->connection), err);
        short events = state == PGRES_POLLING_READING ? POLLIN : POLLOUT;
        if (!wait_socket(pq, events, deadline_us))
            return timed_out(pq, step_connect, err);
    }
    if (PQsetnonblocking(pq->connection, 1))
        return unavailable(pq, step_connect, PQerrorMessage(pq->connection), err);
    return STATUS_OK;
}

/* The server's own limits end what our dropped connections leave behind. */
static enum status set_limits(struct pq *pq, int64_t deadline_us, struct error *err)
{
    return pq_run(pq,
                  "SELECT set_config('statement_timeout', '2000', false),"
                  " set_config('lock_timeout', '1500', false),"
                  " set_config('idle_in_transaction_session_timeout', '10000', false),"
                  " set_config('tcp_keepalives_idle', '10', false),"
                  " set_config('tcp_keepalives_interval', '5', false),"
                  " set_config('tcp_keepalives_count', '3', false),"
                  " set_config('standard_conforming_strings', 'on', false),"
                  " set_config('extra_float_digits', '1', false)",
                  NULL, deadline_us, NULL, err);
}

static enum status take_claim(struct pq *pq, int64_t deadline_us, struct error *err)
{
    PGresult *result = NULL;
    struct pq_args args = {0};
    pq_add_i64(&args, pq->claim);
    enum status status =
        pq_run(pq, "SELECT pg_try_advisory_lock($1)", &args, deadline_us, &result, err);
    if (status == STATUS_OK && pq_text(result, 0, 0)[0] != 't')
        status = error_set(err, STATUS_BUSY,
                           "the database %s is in use by another coordinator: stop that one, or "
                           "give this one a database of its own",
                           PQdb(pq->connection));
    PQclear(result);
    return status;
}

static void lengthen_backoff(struct pq *pq)
{
    uint32_t random;
    random_bytes(&random, sizeof random);
    pq->backoff_us = pq->backoff_us ? 2 * pq->backoff_us : BACKOFF_US_MIN;
    if (pq->backoff_us > BACKOFF_US_MAX)
        pq->backoff_us = BACKOFF_US_MAX;
    pq->not_before_us = clock_monotonic_us() + pq->backoff_us / 2 + random % (pq->backoff_us / 2);
}

/* An idle connection has nothing to say: what can be read is the end, or news about it. */
static bool is_usable(struct pq *pq)
{
    struct pollfd poll_fd = {.fd = PQsocket(pq->connection), .events = POLLIN};
    return PQstatus(pq->connection) == CONNECTION_OK &&
           PQtransactionStatus(pq->connection) == PQTRANS_IDLE && poll(&poll_fd, 1, 0) == 0;
}

enum status pq_ready(struct pq *pq, int64_t deadline_us, struct error *err)
{
    if (pq->connection && is_usable(pq))
        return STATUS_OK;
    drop(pq);
    if (clock_monotonic_us() < pq->not_before_us)
        return error_set(err, STATUS_UNAVAILABLE,
                         "the database did not answer a moment ago; try again in a second");
    enum status status = connect_socket(pq, deadline_us, err);
    if (status == STATUS_OK)
        status = set_limits(pq, deadline_us, err);
    if (status == STATUS_OK && pq->claim)
        status = take_claim(pq, deadline_us, err);
    if (status == STATUS_OK) {
        pq->backoff_us = 0;
        pq->not_before_us = 0;
        return STATUS_OK;
    }
    drop(pq);
    if (status != STATUS_BUSY)
        lengthen_backoff(pq);
    return status;
}

/* --- statements --- */

static enum status status_of_sqlstate(const char *state)
{
    static const char *const values_refused[] = {"22", "23", "54"};
    static const char *const statement_refused[] = {"42", "0A", "26", "34", "3D", "3F"};
    for (size_t i = 0; state && i < sizeof values_refused / sizeof *values_refused; i++)
        if (strncmp(state, values_refused[i], 2) == 0)
            return STATUS_INVALID;
    for (size_t i = 0; state && i < sizeof statement_refused / sizeof *statement_refused; i++)
        if (strncmp(state, statement_refused[i], 2) == 0)
            return STATUS_SYSTEM;
    return STATUS_UNAVAILABLE;
}

static enum status status_of_result(struct pq *pq, const PGresult *result, struct error *err)
{
    ExecStatusType outcome = PQresultStatus(result);
    if (outcome == PGRES_COMMAND_OK || outcome == PGRES_TUPLES_OK)
        return STATUS_OK;
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    enum status status = status_of_sqlstate(state);
    if (status == STATUS_UNAVAILABLE)
        return unavailable(pq, step_run, text ? text : PQresultErrorMessage(result), err);
    return error_set(err, status, "the database refuses this: %s (SQLSTATE %s)", text ? text : "?",
                     state);
}

static enum status flush(struct pq *pq, int64_t deadline_us, struct error *err)
{
    int more;
    while ((more = PQflush(pq->connection)) > 0) {
        if (!wait_socket(pq, POLLIN | POLLOUT, deadline_us))
            return timed_out(pq, step_run, err);
        if (!PQconsumeInput(pq->connection))
            return unavailable(pq, step_run, PQerrorMessage(pq->connection), err);
    }
    return more < 0 ? unavailable(pq, step_run, PQerrorMessage(pq->connection), err) : STATUS_OK;
}

static enum status next_result(struct pq *pq, int64_t deadline_us, PGresult **ret,
                               struct error *err)
{
    while (PQisBusy(pq->connection)) {
        if (!wait_socket(pq, POLLIN, deadline_us))
            return timed_out(pq, step_run, err);
        if (!PQconsumeInput(pq->connection))
            return unavailable(pq, step_run, PQerrorMessage(pq->connection), err);
    }
    *ret = PQgetResult(pq->connection);
    return STATUS_OK;
}

/* Reads all results of what was sent; keeps the last good one, or reports the first bad one. */
static enum status finish(struct pq *pq, int64_t deadline_us, PGresult **ret, struct error *err)
{
    PGresult *kept = NULL;
    enum status outcome = STATUS_OK;
    enum status status = flush(pq, deadline_us, err);
    while (status == STATUS_OK) {
        PGresult *result = NULL;
        status = next_result(pq, deadline_us, &result, err);
        if (status != STATUS_OK || !result)
            break;
        if (outcome == STATUS_OK)
            outcome = status_of_result(pq, result, err);
        PQclear(kept);
        kept = result;
        if (!pq->connection)
            break;
    }
    if (status == STATUS_OK)
        status = outcome;
    if (status == STATUS_OK && ret)
        *ret = kept;
    else
        PQclear(kept);
    return status;
}

enum status pq_run(struct pq *pq, const char *sql, const struct pq_args *args, int64_t deadline_us,
                   PGresult **ret, struct error *err)
{
    static const struct pq_args none;
    if (!args)
        args = &none;
    if (!pq->connection)
        return error_set(err, STATUS_UNAVAILABLE, "the connection to the database is lost");
    if (!PQsendQueryParams(pq->connection, sql, args->count, NULL, args->values, args->lengths,
                           args->formats, 0))
        return unavailable(pq, step_run, PQerrorMessage(pq->connection), err);
    return finish(pq, deadline_us, ret, err);
}

enum status pq_run_script(struct pq *pq, const char *sql, int64_t deadline_us, struct error *err)
{
    if (!pq->connection)
        return error_set(err, STATUS_UNAVAILABLE, "the connection to the database is lost");
    if (!PQsendQuery(pq->connection, sql))
        return unavailable(pq, step_run, PQerrorMessage(pq->connection), err);
    return finish(pq, deadline_us, NULL, err);
}

enum status pq_commit(struct pq *pq, int64_t deadline_us, struct error *err)
{
    PGresult *result = NULL;
    enum status status = pq_run(pq, "COMMIT", NULL, deadline_us, &result, err);
    if (status == STATUS_OK && strcmp(PQcmdStatus(result), "COMMIT") != 0)
        status = unavailable(pq, step_run, "the transaction was rolled back", err);
    PQclear(result);
    return status;
}

void pq_rollback(struct pq *pq, int64_t deadline_us)
{
    if (pq->connection && pq_run(pq, "ROLLBACK", NULL, deadline_us, NULL, NULL) != STATUS_OK)
        drop(pq);
}
