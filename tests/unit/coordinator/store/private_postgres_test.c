/* Tests of coordinator/store/private_postgres.c: start, stop, a killed coordinator, long and odd
 * paths, directories that the database's user cannot enter. */
#include "tests/unit/coordinator/store/fixture.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int setup(void **state)
{
    static struct fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    strcpy(fixture.dir, "/tmp/raven-private-XXXXXX");
    if (!mkdtemp(fixture.dir) || chmod(fixture.dir, 0711))
        return -1;
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    return fixture_stop(*state);
}

static void start(struct fixture *fixture, const char *dir)
{
    struct error err = {0};
    fixture_ok(private_postgres_start(dir, fixture_progress, &fixture->postgres, &err), &err);
}

static void stop(struct fixture *fixture)
{
    private_postgres_stop(fixture->postgres);
    fixture->postgres = NULL;
}

static void path_in(const struct fixture *fixture, const char *name, char ret[PATH_BYTES])
{
    assert_int_equal(path_format(ret, "%s/%s", fixture->dir, name), STATUS_OK);
}

static void what_is_kept_survives_a_restart(void **state)
{
    struct fixture *fixture = *state;
    char dir[PATH_BYTES];
    path_in(fixture, "new/deeper/postgres", dir); /* its parents are made, too */
    start(fixture, dir);
    const char *conninfo = private_postgres_conninfo(fixture->postgres);
    fixture_exec(conninfo, "CREATE TABLE t AS SELECT 42 AS n");
    assert_int_equal(fixture_number(conninfo, "SELECT count(*) FROM pg_settings WHERE name IN"
                                              " ('fsync', 'synchronous_commit',"
                                              " 'full_page_writes') AND setting = 'on'"),
                     3);
    assert_int_equal(fixture_number(conninfo, "SELECT count(*) FROM pg_settings WHERE"
                                              " name = 'listen_addresses' AND setting = ''"),
                     1);
    stop(fixture);
    start(fixture, dir);
    conninfo = private_postgres_conninfo(fixture->postgres);
    assert_int_equal(fixture_number(conninfo, "SELECT n FROM t"), 42);
}

static void the_files_are_nobody_elses(void **state)
{
    struct fixture *fixture = *state;
    char dir[PATH_BYTES], socket_dir[PATH_BYTES];
    struct stat info;
    path_in(fixture, "postgres", dir);
    path_in(fixture, "postgres/socket", socket_dir);
    start(fixture, dir);
    assert_int_equal(stat(dir, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_true(info.st_uid != 0);
    assert_int_equal(stat(socket_dir, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
}

static void a_long_path_gets_a_short_socket(void **state)
{
    struct fixture *fixture = *state;
    char dir[PATH_BYTES], path[PATH_BYTES], socket_dir[PATH_BYTES] = "";
    path_in(fixture,
            "a-directory-with-a-rather-long-name-0123456789/and-another-one-below-it-0123456789/"
            "postgres",
            dir);
    start(fixture, dir);
    assert_int_equal(fixture_number(private_postgres_conninfo(fixture->postgres), "SELECT 7"), 7);
    assert_int_equal(path_format(path, "%s/socket_dir", dir), STATUS_OK);
    FILE *note = fopen(path, "r");
    assert_non_null(note);
    assert_non_null(fgets(socket_dir, sizeof socket_dir, note));
    (void)fclose(note);
    assert_int_equal(access(socket_dir, F_OK), 0);
    stop(fixture);
    assert_int_not_equal(access(socket_dir, F_OK), 0);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void odd_characters_in_the_path_do_no_harm(void **state)
{
    struct fixture *fixture = *state;
    char dir[PATH_BYTES];
    static const char *const names[] = {"it's \"odd\" \\ $HOME; ü", "with, comma"};
    for (size_t i = 0; i < 2; i++) {
        path_in(fixture, names[i], dir);
        start(fixture, dir);
        assert_int_equal(fixture_number(private_postgres_conninfo(fixture->postgres), "SELECT 7"),
                         7);
        stop(fixture);
    }
}

static void a_second_coordinator_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct private_postgres *second = NULL;
    struct error err = {0};
    start(fixture, fixture->dir);
    assert_int_equal(private_postgres_start(fixture->dir, NULL, &second, &err), STATUS_BUSY);
    assert_non_null(strstr(err.text, "another coordinator"));
    assert_int_equal(fixture_number(private_postgres_conninfo(fixture->postgres), "SELECT 7"), 7);
}

/* A coordinator in a process of its own, killed while it inserts. */
static void run_and_die(const char *dir)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct fixture fixture = {0};
        struct error err = {0};
        if (private_postgres_start(dir, fixture_progress, &fixture.postgres, &err)) {
            (void)fprintf(stderr, "# %s\n", err.text);
            _exit(1);
        }
        PGconn *connection = PQconnectdb(private_postgres_conninfo(fixture.postgres));
        PQclear(PQexec(connection, "CREATE TABLE IF NOT EXISTS t (n integer)"));
        PQclear(PQexec(connection, "INSERT INTO t VALUES (1)"));
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            PQclear(PQexec(connection, "INSERT INTO t VALUES (2)"));
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_killed_coordinator_is_followed_by_the_next(void **state)
{
    struct fixture *fixture = *state;
    for (int round = 0; round < 3; round++)
        run_and_die(fixture->dir);
    start(fixture, fixture->dir);
    assert_int_equal(fixture_number(private_postgres_conninfo(fixture->postgres),
                                    "SELECT count(*) FROM t WHERE n = 1"),
                     3);
}

static void a_stale_pid_file_that_names_a_stranger_is_no_obstacle(void **state)
{
    struct fixture *fixture = *state;
    char path[PATH_BYTES];
    start(fixture, fixture->dir);
    stop(fixture);
    path_in(fixture, "data/postmaster.pid", path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fprintf(file, "%d\n/somewhere/else\n", (int)getpid());
    (void)fclose(file);
    start(fixture, fixture->dir);
    assert_int_equal(fixture_number(private_postgres_conninfo(fixture->postgres), "SELECT 7"), 7);
}

static void a_half_made_cluster_is_made_again(void **state)
{
    struct fixture *fixture = *state;
    char path[PATH_BYTES];
    struct error err = {0};
    path_in(fixture, "data.new/base", path);
    fixture_ok(file_make_dirs(path, 0700, &err), &err);
    start(fixture, fixture->dir);
    assert_int_equal(fixture_number(private_postgres_conninfo(fixture->postgres), "SELECT 7"), 7);
}

static void a_cluster_of_a_missing_version_names_its_package(void **state)
{
    struct fixture *fixture = *state;
    char path[PATH_BYTES];
    struct error err = {0};
    path_in(fixture, "data", path);
    fixture_ok(file_make_dirs(path, 0700, &err), &err);
    path_in(fixture, "data/PG_VERSION", path);
    fixture_ok(file_write_atomic(path, "9\n", 2, 0600, &err), &err);
    assert_int_equal(private_postgres_start(fixture->dir, NULL, &fixture->postgres, &err),
                     STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "postgresql-9"));
}

static void damaged_settings_are_reported_with_the_servers_words(void **state)
{
    struct fixture *fixture = *state;
    char path[PATH_BYTES];
    struct error err = {0};
    start(fixture, fixture->dir);
    stop(fixture);
    path_in(fixture, "data/global/pg_control", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(private_postgres_start(fixture->dir, NULL, &fixture->postgres, &err),
                     STATUS_SYSTEM);
    assert_non_null(strstr(err.text, "PostgreSQL ended"));
}

static void a_closed_parent_is_named_with_its_cure(void **state)
{
    struct fixture *fixture = *state;
    char dir[PATH_BYTES], closed[PATH_BYTES];
    struct error err = {0};
    if (geteuid() != 0)
        skip(); /* nobody but root runs PostgreSQL as another user */
    path_in(fixture, "closed", closed);
    path_in(fixture, "closed/postgres", dir);
    assert_int_equal(mkdir(closed, 0700), 0);
    assert_int_equal(private_postgres_start(dir, NULL, &fixture->postgres, &err), STATUS_DENIED);
    assert_non_null(strstr(err.text, closed));
    assert_non_null(strstr(err.text, "chmod o+x"));
    assert_int_equal(chmod(closed, 0711), 0);
    start(fixture, dir);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DIR(what_is_kept_survives_a_restart),
        WITH_DIR(the_files_are_nobody_elses),
        WITH_DIR(a_long_path_gets_a_short_socket),
        WITH_DIR(odd_characters_in_the_path_do_no_harm),
        WITH_DIR(a_second_coordinator_is_refused),
        WITH_DIR(a_killed_coordinator_is_followed_by_the_next),
        WITH_DIR(a_stale_pid_file_that_names_a_stranger_is_no_obstacle),
        WITH_DIR(a_half_made_cluster_is_made_again),
        WITH_DIR(a_cluster_of_a_missing_version_names_its_package),
        WITH_DIR(damaged_settings_are_reported_with_the_servers_words),
        WITH_DIR(a_closed_parent_is_named_with_its_cure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
