/* Status over a Unix socket; server on its own small thread, client in the command-line tool.
 * Surprising decision: paths are reached through /proc/self/fd/<directory>, because a socket
 * address holds 107 bytes and a state directory's path may be longer. */
#include "agent/status/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_NAME "agent.sock"
#define STACK_BYTES (128 * 1024)
#define PATIENCE_MS 2000

struct status_server {
    struct status_board *board;
    pthread_t thread;
    int dir_fd, listen_fd, stop_fd;
};

static void make_address(int dir_fd, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(ret->sun_path, sizeof ret->sun_path, "/proc/self/fd/%d/" SOCKET_NAME, dir_fd);
}

static void answer(struct status_server *server, int fd)
{
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    struct buffer text;
    buffer_init(&text, 65536);
    if (!status_board_json(server->board, &text)) {
        size_t sent = 0;
        while (sent < text.bytes) {
            ssize_t got = send(fd, text.data + sent, text.bytes - sent, MSG_NOSIGNAL);
            if (got <= 0)
                break;
            sent += (size_t)got;
        }
    }
    buffer_done(&text);
}

static void *serve(void *user)
{
    struct status_server *server = user;
    for (;;) {
        struct pollfd fds[2] = {{.fd = server->stop_fd, .events = POLLIN},
                                {.fd = server->listen_fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if (fds[0].revents)
            return NULL;
        if (!(fds[1].revents & POLLIN))
            continue;
        int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            poll(&fds[0], 1, 100); /* out of descriptors: do not spin */
            continue;
        }
        answer(server, fd);
        close(fd);
    }
}

static enum status open_socket(struct status_server *server, const char *state_dir,
                               struct error *err)
{
    server->dir_fd = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (server->dir_fd < 0)
        return error_set_errno(err, errno, "cannot open %s", state_dir);
    server->stop_fd = eventfd(0, EFD_CLOEXEC);
    server->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (server->stop_fd < 0 || server->listen_fd < 0)
        return error_set_errno(err, errno, "cannot create the status socket");
    struct sockaddr_un address;
    make_address(server->dir_fd, &address);
    unlinkat(server->dir_fd, SOCKET_NAME, 0);
    if (bind(server->listen_fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        chmod(address.sun_path, 0600) < 0 || listen(server->listen_fd, 8) < 0)
        return error_set_errno(err, errno, "cannot listen on %s/" SOCKET_NAME, state_dir);
    return STATUS_OK;
}

static void server_free(struct status_server *server)
{
    if (server->listen_fd >= 0)
        close(server->listen_fd);
    if (server->stop_fd >= 0)
        close(server->stop_fd);
    if (server->dir_fd >= 0)
        close(server->dir_fd);
    free(server);
}

enum status status_server_start(const char *state_dir, struct status_board *board,
                                struct status_server **ret, struct error *err)
{
    struct status_server *server = malloc(sizeof *server);
    if (!server)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the status socket");
    *server = (struct status_server){.board = board, .dir_fd = -1, .listen_fd = -1, .stop_fd = -1};
    enum status status = open_socket(server, state_dir, err);
    if (status) {
        server_free(server);
        return status;
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int failed = pthread_create(&server->thread, &attributes, serve, server);
    pthread_attr_destroy(&attributes);
    if (failed) {
        server_free(server);
        return error_set_errno(err, failed, "cannot start the status thread");
    }
    *ret = server;
    return STATUS_OK;
}

void status_server_stop(struct status_server *server)
{
    if (!server)
        return;
    eventfd_write(server->stop_fd, 1);
    pthread_join(server->thread, NULL);
    unlinkat(server->dir_fd, SOCKET_NAME, 0);
    server_free(server);
}

static enum status receive(int fd, struct buffer *ret, struct error *err)
{
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (;;) {
        char piece[4096];
        ssize_t got = recv(fd, piece, sizeof piece, 0);
        if (got == 0)
            return STATUS_OK;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(err, STATUS_TIMEOUT, "the agent does not answer");
        if (buffer_append(ret, piece, (size_t)got))
            return error_set(err, STATUS_TOO_LARGE, "the agent's answer is too long");
    }
}

enum status status_ask(const char *state_dir, struct buffer *ret, struct error *err)
{
    int dir_fd = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return error_set(err, STATUS_NOT_FOUND, "raven-agent is not running (there is no %s)",
                         state_dir);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address;
    make_address(dir_fd, &address);
    enum status status;
    if (fd < 0)
        status = error_set_errno(err, errno, "cannot create a socket");
    else if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        status = receive(fd, ret, err);
    else if (errno == ENOENT || errno == ECONNREFUSED)
        status = error_set(err, STATUS_NOT_FOUND, "raven-agent is not running on %s", state_dir);
    else
        status = error_set_errno(err, errno, "cannot ask the agent on %s", state_dir);
    if (fd >= 0)
        close(fd);
    close(dir_fd);
    return status;
}
