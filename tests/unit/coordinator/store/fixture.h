/* A real PostgreSQL for one test program: a private cluster in a temporary directory, and small
 * blocking helpers to look into it. Each test may have a fresh database of its own. */
#ifndef RAVEN_TESTS_STORE_FIXTURE_H
#define RAVEN_TESTS_STORE_FIXTURE_H

#include "common/base/clock.h"
#include "common/base/file.h"
#include "coordinator/store/private_postgres.h"
#include "coordinator/store/store.h"

#include <libpq-fe.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SQL_DIR RAVEN_SOURCE_DIR "/sql"

struct fixture {
    char dir[PATH_BYTES];
    struct private_postgres *postgres;
    char conninfo[2 * PATH_BYTES]; /* of the database in use */
    struct store *store;
};

static inline void fixture_ok(enum status status, const struct error *err)
{
    if (status != STATUS_OK)
        fail_msg("%s: %s", status_text(status), err->text);
}

static inline void fixture_progress(const char *sentence)
{
    print_message("# %s\n", sentence);
}

static inline int fixture_start(struct fixture *fixture)
{
    struct error err = {0};
    strcpy(fixture->dir, "/tmp/raven-store-XXXXXX");
    if (!mkdtemp(fixture->dir))
        return -1;
    if (private_postgres_start(fixture->dir, fixture_progress, &fixture->postgres, &err)) {
        print_error("%s\n", err.text);
        return -1;
    }
    (void)snprintf(fixture->conninfo, sizeof fixture->conninfo, "%s",
                   private_postgres_conninfo(fixture->postgres));
    return 0;
}

static inline int fixture_stop(struct fixture *fixture)
{
    struct error err = {0};
    store_close(fixture->store);
    fixture->store = NULL;
    private_postgres_stop(fixture->postgres);
    fixture->postgres = NULL;
    return file_remove_tree(fixture->dir, &err) == STATUS_OK ? 0 : -1;
}

static inline PGconn *fixture_connect(const char *conninfo)
{
    PGconn *connection = PQconnectdb(conninfo);
    if (PQstatus(connection) != CONNECTION_OK)
        fail_msg("%s", PQerrorMessage(connection));
    return connection;
}

static inline void fixture_exec(const char *conninfo, const char *sql)
{
    PGconn *connection = fixture_connect(conninfo);
    PGresult *result = PQexec(connection, sql);
    ExecStatusType outcome = PQresultStatus(result);
    if (outcome != PGRES_COMMAND_OK && outcome != PGRES_TUPLES_OK)
        fail_msg("%s: %s", sql, PQerrorMessage(connection));
    PQclear(result);
    PQfinish(connection);
}

static inline long fixture_number(const char *conninfo, const char *sql)
{
    PGconn *connection = fixture_connect(conninfo);
    PGresult *result = PQexec(connection, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
        fail_msg("%s: %s", sql, PQerrorMessage(connection));
    long number = strtol(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    PQfinish(connection);
    return number;
}

/* A database of this name, empty, in fixture->conninfo from now on. */
static inline void fixture_database(struct fixture *fixture, const char *name)
{
    char sql[128];
    const char *base = private_postgres_conninfo(fixture->postgres);
    (void)snprintf(sql, sizeof sql, "CREATE DATABASE %s TEMPLATE template0", name);
    fixture_exec(base, sql);
    (void)snprintf(fixture->conninfo, sizeof fixture->conninfo, "%s dbname=%s", base, name);
}

static inline void fixture_drain(struct store *store)
{
    while (store_queued(store) > 0)
        clock_sleep_us(2000);
}

/* --- set-up of cmocka groups and tests: one cluster a program, one database a test --- */

static inline int fixture_group_setup(void **state)
{
    static struct fixture fixture;
    *state = &fixture;
    return fixture_start(&fixture);
}

static inline int fixture_group_teardown(void **state)
{
    return fixture_stop(*state);
}

static inline int fixture_setup(void **state)
{
    static int number;
    struct fixture *fixture = *state;
    struct error err = {0};
    char name[32];
    (void)snprintf(name, sizeof name, "test_%d", ++number);
    fixture_database(fixture, name);
    fixture_ok(store_open(fixture->conninfo, SQL_DIR, &fixture->store, &err), &err);
    return 0;
}

static inline int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    store_close(fixture->store);
    fixture->store = NULL;
    return 0;
}

#endif
