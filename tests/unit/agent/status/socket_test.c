/* Asking a running agent: answered, not running, an old socket file, a very long path. */
#include "agent/status/socket.h"

#include "common/base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void ask_twice(const char *dir)
{
    struct status_board *board;
    struct status_server *server;
    struct error err = {0};
    struct buffer answer;
    buffer_init(&answer, 65536);
    assert_int_equal(status_ask(dir, &answer, &err), STATUS_NOT_FOUND);
    assert_int_equal(status_board_create(&board), STATUS_OK);
    strcpy(status_board_lock(board)->state, "waiting");
    status_board_unlock(board);
    assert_int_equal(status_server_start(dir, board, &server, &err), STATUS_OK);
    for (int i = 0; i < 2; i++) {
        buffer_clear(&answer);
        assert_int_equal(status_ask(dir, &answer, &err), STATUS_OK);
        assert_non_null(strstr(buffer_text(&answer), "\"state\":\"waiting\""));
    }
    status_server_stop(server);
    buffer_clear(&answer);
    assert_int_equal(status_ask(dir, &answer, &err), STATUS_NOT_FOUND);
    status_board_free(board);
    buffer_done(&answer);
}

static void test_answers(void **state)
{
    (void)state;
    char dir[] = "/tmp/raven_socket_XXXXXX", path[PATH_BYTES];
    struct error err = {0};
    assert_non_null(mkdtemp(dir));
    ask_twice(dir);
    ask_twice(dir);
    assert_int_equal(path_format(path, "%s/agent.sock", dir), STATUS_OK);
    assert_int_equal(file_write_atomic(path, "", 0, 0600, &err), STATUS_OK); /* left over */
    struct buffer answer;
    buffer_init(&answer, 100);
    assert_int_equal(status_ask(dir, &answer, &err), STATUS_NOT_FOUND);
    assert_int_equal(status_ask("/nonexistent/raven", &answer, &err), STATUS_NOT_FOUND);
    buffer_done(&answer);
    assert_int_equal(file_remove_tree(dir, &err), STATUS_OK);
}

static void test_long_path(void **state)
{
    (void)state;
    char dir[] = "/tmp/raven_socket_XXXXXX", path[PATH_BYTES];
    struct error err = {0};
    assert_non_null(mkdtemp(dir));
    char name[151] = "";
    memset(name, 'd', 150);
    assert_int_equal(path_format(path, "%s/%s", dir, name), STATUS_OK);
    assert_int_equal(file_make_dirs(path, 0700, &err), STATUS_OK);
    ask_twice(path);
    assert_int_equal(file_remove_tree(dir, &err), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_long_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
