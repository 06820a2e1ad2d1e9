/* Tests of coordinator/store while PostgreSQL stops, hangs or drops connections: what was posted
 * arrives once and in order, and nobody waits for ever. */
#include "tests/unit/coordinator/store/fixture.h"
#include "tests/unit/coordinator/store/proxy.h"

#include "common/base/bytes.h"

#include <signal.h>
#include <stdatomic.h>

#define HANGS_US (INT64_C(10) * 1000000) /* far above the 2 s of a call: only a hang misses it */

static enum status post_number(struct store *store, int number)
{
    struct store_event event = {.type = "test", .severity = "info", .at_ms = 1};
    (void)snprintf(event.text, sizeof event.text, "%d", number);
    return store_post_event(store, &event);
}

/* Events 0 … count - 1 are there, each once, their sequence numbers in this order. */
static void assert_in_order(struct fixture *fixture, int count)
{
    fixture_drain(fixture->store);
    assert_int_equal(store_dropped(fixture->store), 0);
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM events"), count);
    assert_int_equal(fixture_number(fixture->conninfo,
                                    "SELECT count(*) FROM (SELECT text::integer AS n,"
                                    " row_number() OVER (ORDER BY seq) - 1 AS place FROM events)"
                                    " AS placed WHERE n <> place"),
                     0);
}

static void stop_postgres(struct fixture *fixture)
{
    private_postgres_stop(fixture->postgres);
    fixture->postgres = NULL;
}

static void start_postgres(struct fixture *fixture)
{
    struct error err = {0};
    fixture_ok(private_postgres_start(fixture->dir, NULL, &fixture->postgres, &err), &err);
}

/* The server processes of the store's connections. */
static int find_backends(const char *conninfo, pid_t *ret, int count_max)
{
    PGconn *connection = fixture_connect(conninfo);
    PGresult *result = PQexec(connection, "SELECT pid FROM pg_stat_activity WHERE"
                                          " application_name = 'raven-coordinator'");
    int count = PQntuples(result);
    for (int i = 0; i < count && i < count_max; i++)
        ret[i] = (pid_t)strtol(PQgetvalue(result, i, 0), NULL, 10);
    PQclear(result);
    PQfinish(connection);
    return count < count_max ? count : count_max;
}

static int signal_backends(const pid_t *backends, int count, int number)
{
    int reached = 0;
    for (int i = 0; i < count; i++)
        reached += kill(backends[i], number) == 0;
    return reached;
}

static void a_restart_loses_and_repeats_nothing(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(post_number(fixture->store, i), STATUS_OK);
        if (i == 100)
            stop_postgres(fixture);
        if (i == 700)
            start_postgres(fixture);
    }
    assert_in_order(fixture, 1000);
}

static void calls_fail_while_postgres_is_away_and_work_again(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    json_t *page = NULL;
    bool more;
    stop_postgres(fixture);
    assert_int_equal(store_events_page(fixture->store, 0, 1, &page, &more, &err),
                     STATUS_UNAVAILABLE);
    assert_true(strlen(err.text) > 0);
    while (store_is_ready(fixture->store))
        clock_sleep_us(10000);
    assert_int_equal(post_number(fixture->store, 0), STATUS_OK);
    start_postgres(fixture);
    while (!store_is_ready(fixture->store))
        clock_sleep_us(10000);
    enum status status = STATUS_UNAVAILABLE;
    while (status == STATUS_UNAVAILABLE) /* its back-off */
        status = store_events_page(fixture->store, 0, 1, &page, &more, &err);
    fixture_ok(status, &err);
    json_decref(page);
    assert_in_order(fixture, 1);
}

static void no_call_waits_for_a_stopped_backend(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    pid_t backends[16];
    json_t *page = NULL;
    bool more;
    fixture_ok(store_events_page(fixture->store, 0, 1, &page, &more, &err), &err);
    json_decref(page);
    int count = find_backends(fixture->conninfo, backends, 16);
    assert_true(count >= 1);
    int64_t start_us = clock_monotonic_us();
    assert_int_equal(signal_backends(backends, count, SIGSTOP), count);
    for (int i = 0; i < 300; i++)
        assert_int_equal(post_number(fixture->store, i), STATUS_OK);
    assert_int_equal(store_events_page(fixture->store, 0, 1, &page, &more, &err),
                     STATUS_UNAVAILABLE);
    int64_t took_us = clock_monotonic_us() - start_us;
    (void)signal_backends(backends, count, SIGCONT);
    print_message("# answered after %.2f s\n", (double)took_us / 1e6);
    assert_true(took_us < HANGS_US);
    fixture_ok(store_events_page(fixture->store, 0, 1, &page, &more, &err), &err);
    json_decref(page);
    assert_in_order(fixture, 300);
}

/* A stopped process holds its transaction, perhaps with a COMMIT in its socket, until it goes on.
 */
static void a_stopped_transaction_is_written_once(void **state)
{
    struct fixture *fixture = *state;
    int posted = 0;
    for (int round = 0; round < 4; round++) {
        pid_t backends[16];
        for (int i = 0; i < 2000; i++)
            assert_int_equal(post_number(fixture->store, posted++), STATUS_OK);
        int count = find_backends(fixture->conninfo, backends, 16);
        (void)signal_backends(backends, count, SIGSTOP);
        clock_sleep_us(2300000); /* the writer gives up after 2 s and tries again elsewhere */
        (void)signal_backends(backends, count, SIGCONT);
        fixture_drain(fixture->store);
    }
    assert_in_order(fixture, posted);
}

static void terminated_connections_lose_and_repeat_nothing(void **state)
{
    struct fixture *fixture = *state;
    PGconn *connection = fixture_connect(fixture->conninfo);
    int posted = 0;
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < 100; i++)
            assert_int_equal(post_number(fixture->store, posted++), STATUS_OK);
        PQclear(PQexec(connection, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                                   " WHERE application_name = 'raven-coordinator'"));
        clock_sleep_us(round * 700);
    }
    PQfinish(connection);
    assert_in_order(fixture, posted);
}

/* Rounds of events through the proxy, each with one COMMIT whose fate the store cannot know. */
static void lose_commits(struct fixture *fixture, enum proxy_fault fault)
{
    static struct proxy proxy;
    struct error err = {0};
    char conninfo[4 * PATH_BYTES];
    int posted = 0;
    store_close(fixture->store);
    fixture->store = NULL;
    proxy_start(&proxy, fixture->dir);
    (void)snprintf(conninfo, sizeof conninfo, "%s host='%s'", fixture->conninfo, proxy.dir);
    fixture_ok(store_open(conninfo, SQL_DIR, &fixture->store, &err), &err);
    atomic_store(&proxy.fault, fault);
    for (int round = 0; round < 5; round++) {
        atomic_store(&proxy.faults_left, 1);
        for (int i = 0; i < 40; i++)
            assert_int_equal(post_number(fixture->store, posted++), STATUS_OK);
        fixture_drain(fixture->store);
        assert_int_equal(atomic_load(&proxy.faults_left), 0);
    }
    store_close(fixture->store);
    fixture->store = NULL;
    proxy_stop(&proxy);
    fixture_ok(store_open(fixture->conninfo, SQL_DIR, &fixture->store, &err), &err);
    assert_in_order(fixture, posted);
}

static void an_unanswered_commit_is_not_repeated(void **state)
{
    lose_commits(*state, PROXY_SWALLOW);
}

static void a_commit_that_arrives_late_is_waited_for(void **state)
{
    lose_commits(*state, PROXY_DELAY);
}

struct answers {
    atomic_int count;
    atomic_int unavailable;
};

static void on_enrolled(void *context, enum status status, const char *sentence,
                        const struct store_volunteer *volunteer)
{
    struct answers *answers = context;
    if (status == STATUS_UNAVAILABLE && sentence[0] && !volunteer)
        atomic_fetch_add(&answers->unavailable, 1);
    atomic_fetch_add(&answers->count, 1);
}

static void enrolments_are_answered_while_postgres_is_away(void **state)
{
    struct fixture *fixture = *state;
    struct answers answers = {0};
    struct store_volunteer volunteer = {.label = "pc"};
    uint8_t hash[SHA256_BYTES] = {0};
    stop_postgres(fixture);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(post_number(fixture->store, i), STATUS_OK);
        if (i % 10 == 0)
            assert_int_equal(
                store_post_enrol(fixture->store, hash, &volunteer, on_enrolled, &answers),
                STATUS_OK);
    }
    while (atomic_load(&answers.count) < 3)
        clock_sleep_us(2000);
    assert_int_equal(store_queued(fixture->store), 30);
    start_postgres(fixture);
    assert_in_order(fixture, 30);
    assert_int_equal(atomic_load(&answers.count), 3);
    assert_int_equal(atomic_load(&answers.unavailable), 3);
}

static void the_queue_is_bounded_and_closing_ends(void **state)
{
    struct fixture *fixture = *state;
    struct answers answers = {0};
    struct store_volunteer volunteer = {.label = "pc"};
    uint8_t hash[SHA256_BYTES] = {0};
    stop_postgres(fixture);
    assert_int_equal(store_post_enrol(fixture->store, hash, &volunteer, on_enrolled, &answers),
                     STATUS_OK);
    int posted = 0;
    while (post_number(fixture->store, posted) == STATUS_OK)
        posted++;
    assert_true(posted >= 65535 && posted <= 65536);
    assert_int_equal(post_number(fixture->store, posted), STATUS_BUSY);
    int64_t start_us = clock_monotonic_us();
    store_close(fixture->store);
    fixture->store = NULL;
    assert_true(clock_monotonic_us() - start_us < 2 * HANGS_US);
    assert_int_equal(atomic_load(&answers.count), 1);
    assert_int_equal(atomic_load(&answers.unavailable), 1);
    start_postgres(fixture);
}

static void closing_writes_what_waits(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 1500; i++)
        assert_int_equal(post_number(fixture->store, i), STATUS_OK);
    store_close(fixture->store);
    fixture->store = NULL;
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM events"), 1500);
}

#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

static void wait_for_number(const char *conninfo, const char *sql, long wanted)
{
    while (fixture_number(conninfo, sql) != wanted)
        clock_sleep_us(10000);
}

static const char advisory_locks[] =
    "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
    " WHERE l.locktype = 'advisory' AND d.datname = current_database() AND NOT l.granted";

/* A second coordinator is refused; and one that lost its connection, so that another could come in
 * between, writes nothing before the other is gone. */
static void pain_A7_a_database_has_one_coordinator(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    struct store *second = NULL;
    assert_int_equal(store_open(fixture->conninfo, SQL_DIR, &second, &err), STATUS_BUSY);
    assert_non_null(strstr(err.text, "in use by another coordinator"));

    PGconn *other = fixture_connect(fixture->conninfo);
    assert_int_equal(PQsendQuery(other, "SELECT pg_advisory_lock((classid::bigint << 32) | "
                                        "objid::bigint) FROM pg_locks WHERE locktype = 'advisory' "
                                        "AND database = (SELECT oid FROM pg_database WHERE datname "
                                        "= current_database())"),
                     1);
    (void)PQflush(other);
    wait_for_number(fixture->conninfo, advisory_locks, 1);
    fixture_exec(fixture->conninfo, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                                    " WHERE application_name = 'raven-coordinator'"
                                    " AND datname = current_database()");
    PGresult *result = PQgetResult(other);
    assert_int_equal(PQresultStatus(result), PGRES_TUPLES_OK);
    PQclear(result);
    assert_int_equal(post_number(fixture->store, 0), STATUS_OK);
    while (store_is_ready(fixture->store))
        clock_sleep_us(10000);
    clock_sleep_us(300000); /* several tries */
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM events"), 0);
    PQfinish(other);
    assert_in_order(fixture, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(a_restart_loses_and_repeats_nothing),
        WITH_STORE(calls_fail_while_postgres_is_away_and_work_again),
        WITH_STORE(no_call_waits_for_a_stopped_backend),
        WITH_STORE(a_stopped_transaction_is_written_once),
        WITH_STORE(terminated_connections_lose_and_repeat_nothing),
        WITH_STORE(an_unanswered_commit_is_not_repeated),
        WITH_STORE(a_commit_that_arrives_late_is_waited_for),
        WITH_STORE(enrolments_are_answered_while_postgres_is_away),
        WITH_STORE(the_queue_is_bounded_and_closing_ends),
        WITH_STORE(closing_writes_what_waits),
        WITH_STORE(pain_A7_a_database_has_one_coordinator),
    };
    return cmocka_run_group_tests(tests, fixture_group_setup, fixture_group_teardown);
}
