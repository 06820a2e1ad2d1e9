/* A proxy on a Unix socket between the store and PostgreSQL, which loses COMMITs in two ways: the
 * client never learns whether its transaction counts. One thread per connection. */
#ifndef RAVEN_TESTS_STORE_PROXY_H
#define RAVEN_TESTS_STORE_PROXY_H

#include "common/base/bytes.h"
#include "tests/unit/coordinator/store/fixture.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum proxy_fault {
    PROXY_NONE,
    PROXY_SWALLOW, /* COMMIT is delivered, its answer is not */
    PROXY_DELAY,   /* the client is cut off at once, COMMIT is delivered PROXY_DELAY_US later */
};

#define PROXY_DELAY_US 700000
#define PROXY_CONNECTIONS_MAX 512

struct proxy {
    char upstream[PATH_BYTES]; /* socket file of the server */
    char dir[PATH_BYTES];      /* holds the proxy's own socket file */
    int listener;
    pthread_t acceptor;
    pthread_t relays[PROXY_CONNECTIONS_MAX];
    int relay_count;
    atomic_int fault;
    atomic_int faults_left;
};

struct proxy_link {
    struct proxy *proxy;
    int client, server;
};

static inline int proxy_take_fault(struct proxy *proxy)
{
    if (atomic_load(&proxy->faults_left) <= 0)
        return PROXY_NONE;
    atomic_fetch_sub(&proxy->faults_left, 1);
    return atomic_load(&proxy->fault);
}

/* True while both sides are open and nothing was cut. */
static inline bool proxy_relay_client(struct proxy_link *link)
{
    char bytes[65536], answer[65536];
    ssize_t got = read(link->client, bytes, sizeof bytes);
    if (got <= 0)
        return false;
    int fault =
        memmem(bytes, (size_t)got, "COMMIT", 7) ? proxy_take_fault(link->proxy) : PROXY_NONE;
    if (fault == PROXY_DELAY) {
        (void)shutdown(link->client, SHUT_RDWR);
        clock_sleep_us(PROXY_DELAY_US);
    }
    if (write(link->server, bytes, (size_t)got) != got)
        return false;
    if (fault != PROXY_NONE && read(link->server, answer, sizeof answer) < 0)
        return false;
    return fault == PROXY_NONE;
}

static inline bool proxy_relay_server(const struct proxy_link *link)
{
    char bytes[65536];
    ssize_t got = read(link->server, bytes, sizeof bytes);
    return got > 0 && write(link->client, bytes, (size_t)got) == got;
}

static inline void *proxy_relay(void *argument)
{
    struct proxy_link *link = argument;
    struct pollfd sides[] = {{.fd = link->client, .events = POLLIN},
                             {.fd = link->server, .events = POLLIN}};
    bool open = true;
    while (open && poll(sides, 2, -1) > 0) {
        if (sides[0].revents)
            open = proxy_relay_client(link);
        if (open && sides[1].revents)
            open = proxy_relay_server(link);
    }
    close(link->client);
    close(link->server);
    free(link);
    return NULL;
}

static inline int proxy_socket(const char *path, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    assert_true(text_copy(ret->sun_path, sizeof ret->sun_path, path));
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static inline void *proxy_accept(void *argument)
{
    struct proxy *proxy = argument;
    struct sockaddr_un address;
    int client;
    while (proxy->relay_count < PROXY_CONNECTIONS_MAX &&
           (client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        int server = proxy_socket(proxy->upstream, &address);
        struct proxy_link *link = malloc(sizeof *link);
        if (!link || connect(server, (struct sockaddr *)&address, sizeof address) != 0) {
            free(link);
            close(client);
            close(server);
            continue;
        }
        *link = (struct proxy_link){.proxy = proxy, .client = client, .server = server};
        if (pthread_create(&proxy->relays[proxy->relay_count++], NULL, proxy_relay, link) != 0)
            abort();
    }
    return NULL;
}

static inline void proxy_start(struct proxy *proxy, const char *dir)
{
    struct sockaddr_un address;
    char path[PATH_BYTES];
    memset(proxy, 0, sizeof *proxy);
    assert_int_equal(path_format(proxy->upstream, "%s/socket/.s.PGSQL.5432", dir), STATUS_OK);
    assert_int_equal(path_format(proxy->dir, "%s/proxy", dir), STATUS_OK);
    assert_int_equal(path_format(path, "%s/.s.PGSQL.5432", proxy->dir), STATUS_OK);
    (void)mkdir(proxy->dir, 0700);
    proxy->listener = proxy_socket(path, &address);
    assert_int_equal(bind(proxy->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(proxy->listener, 16), 0);
    assert_int_equal(pthread_create(&proxy->acceptor, NULL, proxy_accept, proxy), 0);
}

/* After the store is closed: its end of every connection is gone, so the relays end. */
static inline void proxy_stop(struct proxy *proxy)
{
    struct error err = {0};
    (void)shutdown(proxy->listener, SHUT_RDWR);
    pthread_join(proxy->acceptor, NULL);
    for (int i = 0; i < proxy->relay_count; i++)
        pthread_join(proxy->relays[i], NULL);
    close(proxy->listener);
    fixture_ok(file_remove_tree(proxy->dir, &err), &err);
}

#endif
