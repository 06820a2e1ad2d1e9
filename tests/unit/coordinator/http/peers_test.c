/* Absolute deadlines: an overdue socket is shut down, others are left alone. */
#include "coordinator/http/peers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <unistd.h>

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, timeout_ms) == 1;
}

static void test_only_the_overdue_are_shut(void **state)
{
    struct peers *peers = NULL;
    struct error err = {0};
    struct peer *peer[3];
    int pair[3][2];
    (void)state;
    assert_int_equal(peers_start(&peers, &err), STATUS_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair[i]), 0);
        assert_non_null(peer[i] = peer_open(peers, pair[i][0]));
    }
    peer_expect(peer[0], 3600000);
    peer_expect(peer[1], 1);
    assert_true(is_readable(pair[1][1], 10000)); /* the end of the stream */
    assert_false(is_readable(pair[0][1], 0));
    assert_false(is_readable(pair[2][1], 0));
    peer_close(peer[1]);
    peer_close(peer[2]);
    peer_close(peer[0]);
    peer_close(NULL);
    peers_stop(peers);
    peers_stop(NULL);
    for (int i = 0; i < 3; i++) {
        close(pair[i][0]);
        close(pair[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_overdue_are_shut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
