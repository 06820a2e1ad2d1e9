/* Accepts connections and decides by their first bytes who serves them: the hub ("GET /ws/") or the
 * HTTP server (everything else). One epoll thread. Its surprise: nothing is ever read here. The
 * bytes are peeked, and SO_RCVLOWAT keeps the kernel from waking us again for a prefix that is
 * still undecided, so a client that sends one byte a minute costs one wake-up a byte and, at its
 * absolute deadline, its socket. */
#include "coordinator/front/front.h"

#include "common/base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WEBSOCKET_PREFIX "GET /ws/"
#define PREFIX_BYTES (sizeof WEBSOCKET_PREFIX - 1)
#define LISTEN_BACKLOG 1024
#define ACCEPTS_PER_WAKE 256 /* then the undecided get their turn */
#define EVENTS_PER_WAKE 64
#define BACK_OFF_US 100000 /* after accept failed for want of descriptors or memory */

union endpoint {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Linked in order of arrival: with one deadline for all, the first is always due first. */
struct undecided {
    struct undecided *next, *previous;
    int fd;
    union endpoint peer;
    socklen_t peer_bytes;
    int64_t deadline_us;
};

struct front {
    struct front_options options;
    int listener, epoll, stopper; /* stopper: eventfd, written once by front_stop */
    uint16_t port;
    pthread_t thread;
    bool thread_runs;
    struct undecided *first, *last;
    uint32_t undecided_count;
    int64_t accept_again_us; /* 0: the listener is being watched */
};

static void forget(struct front *front, struct undecided *one)
{
    if (one->previous)
        one->previous->next = one->next;
    else
        front->first = one->next;
    if (one->next)
        one->next->previous = one->previous;
    else
        front->last = one->previous;
    front->undecided_count--;
    free(one);
}

static void drop(struct front *front, struct undecided *one)
{
    close(one->fd);
    forget(front, one);
}

static void address_text(const union endpoint *peer, char ret[INET6_ADDRSTRLEN])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const uint8_t *v6 = peer->v6.sin6_addr.s6_addr;
    ret[0] = 0;
    if (peer->any.sa_family == AF_INET)
        inet_ntop(AF_INET, &peer->v4.sin_addr, ret, INET6_ADDRSTRLEN);
    else if (memcmp(v6, mapped, sizeof mapped) == 0)
        inet_ntop(AF_INET, v6 + sizeof mapped, ret, INET6_ADDRSTRLEN);
    else
        inet_ntop(AF_INET6, v6, ret, INET6_ADDRSTRLEN);
}

static void hand_over(struct front *front, struct undecided *one, bool websocket)
{
    int lowest = 1, on = 1;
    char address[INET6_ADDRSTRLEN];
    epoll_ctl(front->epoll, EPOLL_CTL_DEL, one->fd, NULL);
    setsockopt(one->fd, SOL_SOCKET, SO_RCVLOWAT, &lowest, sizeof lowest);
    setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (websocket) {
        address_text(&one->peer, address);
        front->options.take_websocket(front->options.context, one->fd, address);
    } else {
        front->options.take_http(front->options.context, one->fd, &one->peer.any, one->peer_bytes);
    }
    forget(front, one);
}

static void look_at(struct front *front, struct undecided *one, uint32_t events)
{
    char start[PREFIX_BYTES];
    ssize_t got = recv(one->fd, start, sizeof start, MSG_PEEK);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        drop(front, one);
        return;
    }
    bool alike = memcmp(start, WEBSOCKET_PREFIX, (size_t)got) == 0;
    if (alike && (size_t)got < PREFIX_BYTES) {
        int lowest = (int)got + 1;
        if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) ||
            setsockopt(one->fd, SOL_SOCKET, SO_RCVLOWAT, &lowest, sizeof lowest))
            drop(front, one);
        return;
    }
    hand_over(front, one, alike);
}

/* Takes over fd in every case. */
static void admit(struct front *front, int fd, const union endpoint *peer, socklen_t peer_bytes)
{
    struct undecided *one = calloc(1, sizeof *one);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = one};
    if (!one || epoll_ctl(front->epoll, EPOLL_CTL_ADD, fd, &event)) {
        free(one);
        close(fd);
        return;
    }
    one->fd = fd;
    one->peer = *peer;
    one->peer_bytes = peer_bytes;
    one->deadline_us = clock_monotonic_us() + (int64_t)front->options.decide_deadline_ms * 1000;
    one->previous = front->last;
    if (front->last)
        front->last->next = one;
    else
        front->first = one;
    front->last = one;
    front->undecided_count++;
}

static void watch_listener(struct front *front, bool watch)
{
    struct epoll_event event = {.events = watch ? EPOLLIN : 0, .data.ptr = front};
    epoll_ctl(front->epoll, EPOLL_CTL_MOD, front->listener, &event);
    front->accept_again_us = watch ? 0 : clock_monotonic_us() + BACK_OFF_US;
}

static bool is_shortage(int errnum)
{
    return errnum == EMFILE || errnum == ENFILE || errnum == ENOBUFS || errnum == ENOMEM;
}

static void accept_waiting(struct front *front)
{
    for (int i = 0; i < ACCEPTS_PER_WAKE; i++) {
        union endpoint peer = {0};
        socklen_t bytes = sizeof peer;
        int fd = accept4(front->listener, &peer.any, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            admit(front, fd, &peer, bytes);
            continue;
        }
        if (is_shortage(errno))
            watch_listener(front, false);
        if (errno == EAGAIN || is_shortage(errno))
            return;
    }
}

/* Only after the batch of events: an event may still point at a socket that makes room. */
static void drop_overdue(struct front *front)
{
    int64_t now = clock_monotonic_us();
    while (front->first && (front->first->deadline_us <= now ||
                            front->undecided_count > front->options.undecided_max))
        drop(front, front->first);
    if (front->accept_again_us && front->accept_again_us <= now)
        watch_listener(front, true);
}

static int wait_ms(const struct front *front)
{
    int64_t due = front->accept_again_us;
    if (front->first && (due == 0 || front->first->deadline_us < due))
        due = front->first->deadline_us;
    if (due == 0)
        return -1;
    int64_t left_us = due - clock_monotonic_us();
    return left_us <= 0 ? 0 : (int)(left_us / 1000) + 1;
}

static void *run(void *argument)
{
    struct front *front = argument;
    struct epoll_event events[EVENTS_PER_WAKE];
    for (;;) {
        bool listener_ready = false;
        int count = epoll_wait(front->epoll, events, EVENTS_PER_WAKE, wait_ms(front));
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == &front->stopper)
                return NULL;
            if (events[i].data.ptr == front)
                listener_ready = true;
            else
                look_at(front, events[i].data.ptr, events[i].events);
        }
        if (listener_ready)
            accept_waiting(front);
        drop_overdue(front);
    }
}

static bool parse_address(const char *text, uint16_t port, union endpoint *ret,
                          socklen_t *ret_bytes)
{
    union endpoint endpoint = {0};
    if (inet_pton(AF_INET, text, &endpoint.v4.sin_addr) == 1) {
        endpoint.v4.sin_family = AF_INET;
        endpoint.v4.sin_port = htons(port);
        *ret_bytes = sizeof endpoint.v4;
    } else if (inet_pton(AF_INET6, text, &endpoint.v6.sin6_addr) == 1) {
        endpoint.v6.sin6_family = AF_INET6;
        endpoint.v6.sin6_port = htons(port);
        *ret_bytes = sizeof endpoint.v6;
    } else {
        return false;
    }
    *ret = endpoint;
    return true;
}

static enum status open_listener(struct front *front, struct error *err)
{
    const char *text = front->options.bind_address;
    uint16_t port = front->options.port;
    union endpoint address;
    socklen_t bytes;
    int on = 1, off = 0;
    if (!parse_address(text, port, &address, &bytes))
        return error_set(err, STATUS_INVALID,
                         "cannot listen on %s: give a numeric address such as 127.0.0.1 or ::1",
                         text);
    front->listener = socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (front->listener < 0)
        return error_set_errno(err, errno, "cannot make a socket for %s", text);
    setsockopt(front->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.any.sa_family == AF_INET6)
        setsockopt(front->listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(front->listener, &address.any, bytes) || listen(front->listener, LISTEN_BACKLOG))
        return error_set_errno(err, errno, "cannot listen on %s port %u (choose another --port?)",
                               text, port);
    if (getsockname(front->listener, &address.any, &bytes))
        return error_set_errno(err, errno, "cannot read the port of %s", text);
    front->port =
        ntohs(address.any.sa_family == AF_INET ? address.v4.sin_port : address.v6.sin6_port);
    return STATUS_OK;
}

static enum status start_thread(struct front *front, struct error *err)
{
    struct epoll_event listener = {.events = EPOLLIN, .data.ptr = front};
    struct epoll_event stopper = {.events = EPOLLIN, .data.ptr = &front->stopper};
    front->epoll = epoll_create1(EPOLL_CLOEXEC);
    front->stopper = eventfd(0, EFD_CLOEXEC);
    if (front->epoll < 0 || front->stopper < 0 ||
        epoll_ctl(front->epoll, EPOLL_CTL_ADD, front->listener, &listener) ||
        epoll_ctl(front->epoll, EPOLL_CTL_ADD, front->stopper, &stopper))
        return error_set_errno(err, errno, "cannot watch the listening socket");
    int failed = pthread_create(&front->thread, NULL, run, front);
    if (failed)
        return error_set_errno(err, failed, "cannot start the listening thread");
    front->thread_runs = true;
    return STATUS_OK;
}

enum status front_start(const struct front_options *options, struct front **ret, struct error *err)
{
    struct front *front = calloc(1, sizeof *front);
    if (!front)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the listening socket");
    front->options = *options;
    front->listener = front->epoll = front->stopper = -1;
    front->options.bind_address = options->bind_address;
    enum status status = open_listener(front, err);
    if (status == STATUS_OK)
        status = start_thread(front, err);
    front->options.bind_address = NULL;
    if (status) {
        front_stop(front);
        return status;
    }
    *ret = front;
    return STATUS_OK;
}

uint16_t front_port(const struct front *front)
{
    return front->port;
}

void front_stop(struct front *front)
{
    if (!front)
        return;
    if (front->thread_runs) {
        eventfd_write(front->stopper, 1);
        pthread_join(front->thread, NULL);
    }
    while (front->first)
        drop(front, front->first);
    int fds[] = {front->listener, front->epoll, front->stopper};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(front);
}
