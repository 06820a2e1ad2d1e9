/* The front door on real sockets: who gets which connection, with nothing consumed, whatever the
 * pieces the first bytes come in; deadlines, the limit of the undecided, and running out of
 * descriptors. */
#include "coordinator/front/front.h"

#include "common/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 10000

/* What the front handed over is written into two pipes, so that tests wait without sleeping. */
struct world {
    struct front *front;
    int websocket[2], http[2];
    char address[64];
};

static void take_websocket(void *context, int fd, const char *address)
{
    struct world *world = context;
    strncpy(world->address, address, sizeof world->address - 1);
    assert_int_equal(write(world->websocket[1], &fd, sizeof fd), sizeof fd);
}

static void take_http(void *context, int fd, const struct sockaddr *address, socklen_t bytes)
{
    struct world *world = context;
    assert_int_equal(address->sa_family, AF_INET);
    assert_true(bytes >= sizeof(struct sockaddr_in));
    assert_int_equal(write(world->http[1], &fd, sizeof fd), sizeof fd);
}

static void open_world(struct world *world, uint32_t deadline_ms, uint32_t undecided_max)
{
    struct error err = {0};
    memset(world, 0, sizeof *world);
    assert_int_equal(pipe(world->websocket), 0);
    assert_int_equal(pipe(world->http), 0);
    struct front_options options = {.bind_address = "127.0.0.1",
                                    .decide_deadline_ms = deadline_ms,
                                    .undecided_max = undecided_max,
                                    .context = world,
                                    .take_websocket = take_websocket,
                                    .take_http = take_http};
    assert_int_equal(front_start(&options, &world->front, &err), STATUS_OK);
    assert_true(front_port(world->front) > 0);
}

static void close_world(struct world *world)
{
    front_stop(world->front);
    for (int i = 0; i < 2; i++) {
        close(world->websocket[i]);
        close(world->http[i]);
    }
}

static int dial(const struct world *world)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(front_port(world->front)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, timeout_ms) == 1;
}

static int handed(int pipe_fd)
{
    int fd;
    assert_true(is_readable(pipe_fd, WAIT_MS));
    assert_int_equal(read(pipe_fd, &fd, sizeof fd), sizeof fd);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void expect_closed(int fd)
{
    char byte;
    assert_true(is_readable(fd, WAIT_MS));
    ssize_t got = recv(fd, &byte, 1, 0);
    assert_true(got == 0 || (got < 0 && errno == ECONNRESET));
    close(fd);
}

/* The taker can read every byte, and waking up is normal again (SO_RCVLOWAT is 1). */
static void expect_untouched(int fd, const char *text)
{
    char got[64] = "";
    int lowest = 0;
    socklen_t bytes = sizeof lowest;
    assert_true(is_readable(fd, WAIT_MS));
    assert_int_equal(recv(fd, got, sizeof got, 0), (ssize_t)strlen(text));
    assert_string_equal(got, text);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &lowest, &bytes), 0);
    assert_int_equal(lowest, 1);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void test_first_bytes_decide(void **state)
{
    static const struct {
        const char *text;
        bool websocket;
    } cases[] = {
        {"GET /ws/agent HTTP/1.1\r\n", true},
        {"GET /ws/", true},
        {"GET /ws", false},
        {"GET /", false},
        {"get /ws/a", false},
        {"POST /ws/agent", false},
        {"GET  /ws/agent", false},
        {"\x16\x03\x01", false},
        {"GET /v1/jobs", false},
        {"X", false},
    };
    struct world world;
    (void)state;
    open_world(&world, 60000, 100);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strncmp(cases[i].text, "GET /ws/", strlen(cases[i].text)) == 0 && !cases[i].websocket)
            continue; /* a mere prefix: undecided, other tests */
        int fd = dial(&world);
        say(fd, cases[i].text);
        int taken = handed(cases[i].websocket ? world.websocket[0] : world.http[0]);
        expect_untouched(taken, cases[i].text);
        close(taken);
        close(fd);
    }
    assert_string_equal(world.address, "127.0.0.1");
    close_world(&world);
}

static void test_byte_by_byte(void **state)
{
    static const char text[] = "GET /ws/";
    struct world world;
    (void)state;
    open_world(&world, 60000, 100);
    int fd = dial(&world);
    for (size_t i = 0; i + 1 < sizeof text - 1; i++) {
        char one[2] = {text[i], 0};
        say(fd, one);
        assert_false(is_readable(world.websocket[0], 2));
        assert_false(is_readable(world.http[0], 0));
    }
    say(fd, "/");
    int taken = handed(world.websocket[0]);
    expect_untouched(taken, text);
    close(taken);
    close(fd);

    fd = dial(&world); /* decided by the last possible byte, for HTTP */
    say(fd, "GET /w");
    assert_false(is_readable(world.http[0], 2));
    say(fd, "x");
    taken = handed(world.http[0]);
    expect_untouched(taken, "GET /wx");
    close(taken);
    close(fd);
    close_world(&world);
}

static void test_a_prefix_and_an_end_is_closed(void **state)
{
    struct world world;
    (void)state;
    open_world(&world, 60000, 100);
    int fd = dial(&world);
    say(fd, "GET /");
    shutdown(fd, SHUT_WR);
    expect_closed(fd);
    fd = dial(&world);
    shutdown(fd, SHUT_WR);
    expect_closed(fd);
    close_world(&world);
}

static void test_silence_ends_at_the_deadline(void **state)
{
    struct world world;
    (void)state;
    open_world(&world, 50, 100);
    int silent = dial(&world), slow = dial(&world);
    say(slow, "GET ");
    expect_closed(silent);
    expect_closed(slow);
    assert_false(is_readable(world.http[0], 0));
    close_world(&world);
}

static void test_the_oldest_undecided_makes_room(void **state)
{
    struct world world;
    int fds[5];
    (void)state;
    open_world(&world, 60000, 4);
    for (int i = 0; i < 5; i++)
        fds[i] = dial(&world);
    expect_closed(fds[0]);
    for (int i = 1; i < 5; i++) { /* the others are still served */
        say(fds[i], "POST /v1/jobs");
        close(handed(world.http[0]));
        close(fds[i]);
    }
    close_world(&world);
}

/* With no descriptor left the front must wait without spinning, and go on when there are some. */
static void test_out_of_descriptors(void **state)
{
    struct world world;
    struct rlimit limit, low;
    int hold[64], count = 0;
    struct timespec before, after;
    (void)state;
    open_world(&world, 60000, 100);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = 40;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (count < 64 && (hold[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(front_port(world.front)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    say(fd, "POST /");
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    assert_false(is_readable(world.http[0], 300));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    int64_t used_us =
        (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000;
    for (int i = 0; i < count; i++)
        close(hold[i]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(handed(world.http[0]));
    assert_true(used_us < 150000); /* spinning would have used all 300 ms */
    close(fd);
    close_world(&world);
}

static void test_bad_addresses(void **state)
{
    struct world world;
    struct front *front = NULL;
    struct error err = {0};
    (void)state;
    open_world(&world, 60000, 100);
    struct front_options options = {.bind_address = "localhost", .undecided_max = 1};
    assert_int_equal(front_start(&options, &front, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "localhost"));
    options.bind_address = "127.0.0.1";
    options.port = front_port(world.front); /* taken */
    assert_int_not_equal(front_start(&options, &front, &err), STATUS_OK);
    assert_non_null(strstr(err.text, "127.0.0.1"));
    assert_null(front);
    front_stop(NULL);
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_bytes_decide),
        cmocka_unit_test(test_byte_by_byte),
        cmocka_unit_test(test_a_prefix_and_an_end_is_closed),
        cmocka_unit_test(test_silence_ends_at_the_deadline),
        cmocka_unit_test(test_the_oldest_undecided_makes_room),
        cmocka_unit_test(test_out_of_descriptors),
        cmocka_unit_test(test_bad_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
