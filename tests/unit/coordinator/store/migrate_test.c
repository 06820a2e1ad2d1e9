/* Tests of coordinator/store/migrate.c through store_open: applied once, in whole, or refused. */
#include "tests/unit/coordinator/store/fixture.h"

#include <sys/wait.h>

static void write_sql(const struct fixture *fixture, const char *folder, const char *name,
                      const char *text)
{
    char path[2 * PATH_BYTES];
    struct error err = {0};
    (void)snprintf(path, sizeof path, "%s/%s", fixture->dir, folder);
    fixture_ok(file_make_dirs(path, 0755, &err), &err);
    (void)snprintf(path, sizeof path, "%s/%s/%s", fixture->dir, folder, name);
    fixture_ok(file_write_atomic(path, text, strlen(text), 0644, &err), &err);
}

static enum status open_and_close(const struct fixture *fixture, const char *folder,
                                  struct error *err)
{
    char path[2 * PATH_BYTES];
    struct store *store = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", fixture->dir, folder);
    enum status status = store_open(fixture->conninfo, path, &store, err);
    store_close(store);
    return status;
}

/* Without "IF NOT EXISTS": a second application fails. */
static const char create_a[] = "CREATE TABLE a (n integer); INSERT INTO a VALUES (1);";

static void concurrent_openers_apply_each_file_once(void **state)
{
    struct fixture *fixture = *state;
    enum { OPENERS = 4 };
    pid_t openers[OPENERS];
    fixture_database(fixture, "concurrent");
    write_sql(fixture, "many", "0001_a.sql", create_a);
    write_sql(fixture, "many", "0002_b.sql", "SELECT pg_sleep(0.1); ALTER TABLE a ADD b integer;");
    write_sql(fixture, "many", "0003_c.sql", "INSERT INTO a VALUES (3, 3)");
    for (int i = 0; i < OPENERS; i++) {
        openers[i] = fork();
        assert_true(openers[i] >= 0);
        if (openers[i] == 0) {
            struct error err = {0};
            enum status status = open_and_close(fixture, "many", &err);
            if (status != STATUS_OK)
                (void)fprintf(stderr, "# %s\n", err.text);
            _exit((int)status);
        }
    }
    for (int i = 0; i < OPENERS; i++) {
        int wait_status = -1;
        assert_int_equal(waitpid(openers[i], &wait_status, 0), openers[i]);
        assert_int_equal(wait_status, 0);
    }
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM a"), 2);
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM migrations"), 3);
}

static void an_edited_file_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    fixture_database(fixture, "edited");
    write_sql(fixture, "edited", "0001_a.sql", create_a);
    fixture_ok(open_and_close(fixture, "edited", &err), &err);
    fixture_ok(open_and_close(fixture, "edited", &err), &err);
    write_sql(fixture, "edited", "0001_a.sql", "CREATE TABLE a (n bigint);");
    write_sql(fixture, "edited", "0002_b.sql", "CREATE TABLE b ();");
    assert_int_equal(open_and_close(fixture, "edited", &err), STATUS_CORRUPT);
    assert_non_null(strstr(err.text, "0001_a.sql was edited"));
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM migrations"), 1);
}

static void a_newer_schema_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    fixture_database(fixture, "newer");
    write_sql(fixture, "new", "0001_a.sql", create_a);
    write_sql(fixture, "new", "0002_b.sql", "CREATE TABLE b ();");
    write_sql(fixture, "old", "0001_a.sql", create_a);
    fixture_ok(open_and_close(fixture, "new", &err), &err);
    assert_int_equal(open_and_close(fixture, "old", &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "newer"));
    fixture_ok(open_and_close(fixture, "new", &err), &err);
}

static void a_failing_file_leaves_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    fixture_database(fixture, "failing");
    write_sql(fixture, "failing", "0001_a.sql", create_a);
    write_sql(fixture, "failing", "0002_b.sql", "CREATE TABLE b (); SELECT * FROM missing;");
    assert_int_not_equal(open_and_close(fixture, "failing", &err), STATUS_OK);
    assert_non_null(strstr(err.text, "0002_b.sql"));
    assert_non_null(strstr(err.text, "missing"));
    assert_int_equal(
        fixture_number(fixture->conninfo, "SELECT count(*) FROM pg_class WHERE relname = 'b'"), 0);
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM migrations"), 1);
    write_sql(fixture, "failing", "0002_b.sql", "CREATE TABLE b ();");
    fixture_ok(open_and_close(fixture, "failing", &err), &err);
}

static void a_file_cannot_commit_early(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    fixture_database(fixture, "early");
    write_sql(fixture, "early", "0001_a.sql", "CREATE TABLE a (); COMMIT; SELECT * FROM missing;");
    assert_int_not_equal(open_and_close(fixture, "early", &err), STATUS_OK);
    assert_true(strlen(err.text) > 0);
}

static void gaps_and_missing_folders_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    fixture_database(fixture, "gaps");
    write_sql(fixture, "gaps", "0001_a.sql", create_a);
    write_sql(fixture, "gaps", "0003_c.sql", "CREATE TABLE c ();");
    assert_int_equal(open_and_close(fixture, "gaps", &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "0002"));
    write_sql(fixture, "empty", "README", "no migration");
    assert_int_equal(open_and_close(fixture, "empty", &err), STATUS_NOT_FOUND);
    assert_int_equal(open_and_close(fixture, "nowhere", &err), STATUS_NOT_FOUND);
}

static void the_released_files_apply_to_an_empty_database(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    struct store *store = NULL;
    fixture_database(fixture, "released");
    for (int i = 0; i < 2; i++) {
        fixture_ok(store_open(fixture->conninfo, SQL_DIR, &store, &err), &err);
        assert_true(store_is_ready(store));
        store_close(store);
    }
}

static void an_unreachable_database_is_named(void **state)
{
    (void)state;
    struct error err = {0};
    struct store *store = NULL;
    assert_int_equal(store_open("host=/nonexistent dbname=x", SQL_DIR, &store, &err),
                     STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "/nonexistent"));
    assert_int_equal(store_open("no conninfo at all", SQL_DIR, &store, &err), STATUS_UNAVAILABLE);
    assert_null(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(concurrent_openers_apply_each_file_once),
        cmocka_unit_test(an_edited_file_is_refused),
        cmocka_unit_test(a_newer_schema_is_refused),
        cmocka_unit_test(a_failing_file_leaves_nothing),
        cmocka_unit_test(a_file_cannot_commit_early),
        cmocka_unit_test(gaps_and_missing_folders_are_refused),
        cmocka_unit_test(the_released_files_apply_to_an_empty_database),
        cmocka_unit_test(an_unreachable_database_is_named),
    };
    return cmocka_run_group_tests(tests, fixture_group_setup, fixture_group_teardown);
}
