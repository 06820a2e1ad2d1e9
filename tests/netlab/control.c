/* The server side of the control socket. On the emulator's thread, hence never waits for a client:
 * a new one takes the place of an old one when all are taken. Its surprise: without --control the
 * socket's file is removed at once and reached as /proc/1/fd/N, so that not even SIGKILL leaves
 * it. */
#include "tests/netlab/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_BYTES_MAX (4u << 20)

enum status control_address(const char *path, struct sockaddr_un *ret, struct error *err)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof ret->sun_path)
        return error_set(err, STATUS_TOO_LARGE,
                         "the control socket's path '%s' is longer than %zu "
                         "characters; choose a shorter one",
                         path, sizeof ret->sun_path - 1);
    memcpy(ret->sun_path, path, strlen(path));
    return STATUS_OK;
}

/* Removes a socket that nobody listens on any more (its lab was killed). */
static enum status remove_stale(const struct sockaddr_un *address, struct error *err)
{
    struct stat info;
    if (lstat(address->sun_path, &info) != 0)
        return STATUS_OK;
    if (!S_ISSOCK(info.st_mode))
        return error_set(err, STATUS_EXISTS, "--control: %s is a file; choose another path",
                         address->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(err, errno, "no socket");
    bool answered = connect(fd, (const struct sockaddr *)address, sizeof *address) == 0;
    (void)close(fd);
    if (answered)
        return error_set(err, STATUS_EXISTS,
                         "--control: another lab listens on %s; choose another "
                         "path",
                         address->sun_path);
    (void)unlink(address->sun_path);
    return STATUS_OK;
}

static enum status listen_at(struct control *control, const char *path, struct error *err)
{
    struct sockaddr_un address;
    enum status status = control_address(path, &address, err);
    if (status == STATUS_OK)
        status = remove_stale(&address, err);
    if (status != STATUS_OK)
        return status;
    control->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (control->listen_fd < 0)
        return error_set_errno(err, errno, "no control socket");
    mode_t mask = umask(0077);
    int failed = bind(control->listen_fd, (struct sockaddr *)&address, sizeof address);
    int errnum = errno;
    (void)umask(mask);
    if (failed || listen(control->listen_fd, CONTROL_CONNECTIONS_MAX) != 0)
        return error_set_errno(err, failed ? errnum : errno, "cannot listen on %s", path);
    return STATUS_OK;
}

/* Listens in a folder of its own, keeps the inode and removes both names. */
static enum status listen_unnamed(struct control *control, struct error *err)
{
    char folder[] = "/tmp/raven-netlab-XXXXXX", path[sizeof folder + 16];
    if (!mkdtemp(folder))
        return error_set_errno(err, errno, "no folder for the control socket in /tmp");
    (void)snprintf(path, sizeof path, "%s/control", folder);
    enum status status = listen_at(control, path, err);
    if (status == STATUS_OK) {
        control->path_fd = open(path, O_PATH | O_CLOEXEC);
        if (control->path_fd < 0)
            status = error_set_errno(err, errno, "%s cannot be opened", path);
        (void)snprintf(control->path, sizeof control->path, "/proc/1/fd/%d", control->path_fd);
    }
    (void)unlink(path);
    (void)rmdir(folder);
    return status;
}

static enum status listen_named(struct control *control, const char *path, struct error *err)
{
    char folder[4096] = "";
    if (path[0] != '/' && !getcwd(folder, sizeof folder - 1))
        return error_set_errno(err, errno, "the current folder has no name");
    size_t needed = (size_t)snprintf(control->path, sizeof control->path, "%s%s%s", folder,
                                     folder[0] ? "/" : "", path);
    if (needed >= sizeof control->path)
        return error_set(err, STATUS_TOO_LARGE,
                         "--control: the path of %s has %zu characters, more "
                         "than %zu; choose a shorter one",
                         path, needed, sizeof control->path - 1);
    enum status status = listen_at(control, control->path, err);
    control->owns_path = status == STATUS_OK;
    return status;
}

enum status control_open(struct control *control, const char *path, struct error *err)
{
    *control = (struct control){.listen_fd = -1, .path_fd = -1};
    for (size_t i = 0; i < CONTROL_CONNECTIONS_MAX; i++) {
        control->connections[i].fd = -1;
        buffer_init(&control->connections[i].answer, ANSWER_BYTES_MAX);
    }
    enum status status = path ? listen_named(control, path, err) : listen_unnamed(control, err);
    if (status != STATUS_OK)
        control_close(control);
    return status;
}

static void hang_up(struct connection *connection)
{
    if (connection->fd >= 0)
        (void)close(connection->fd); /* also leaves epoll */
    connection->fd = -1;
    buffer_done(&connection->answer);
}

void control_close(struct control *control)
{
    for (size_t i = 0; i < CONTROL_CONNECTIONS_MAX; i++)
        hang_up(&control->connections[i]);
    if (control->listen_fd >= 0)
        (void)close(control->listen_fd);
    if (control->path_fd >= 0)
        (void)close(control->path_fd);
    if (control->owns_path)
        (void)unlink(control->path);
    control->listen_fd = control->path_fd = -1;
    control->owns_path = false;
}

void control_accept(struct control *control, int epoll_fd, uint64_t first_data)
{
    int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    size_t index = control->next;
    for (size_t i = 0; i < CONTROL_CONNECTIONS_MAX; i++)
        if (control->connections[i].fd < 0)
            index = i;
    control->next = (index + 1) % CONTROL_CONNECTIONS_MAX;
    struct connection *connection = &control->connections[index];
    hang_up(connection);
    connection->fd = fd;
    connection->request_bytes = connection->sent_bytes = 0;
    connection->pass_fd = -1;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = first_data + index};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        hang_up(connection);
}

/* A process outside would outlive the lab in one of its namespaces. */
static bool is_inside(int fd)
{
    struct ucred peer = {0};
    socklen_t bytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.pid > 0;
}

static void answer_request(struct connection *connection, struct links *links, int64_t now_ns)
{
    char *words[REQUEST_WORDS_MAX + 3], *save;
    size_t count = 0;
    connection->request[connection->request_bytes] = 0;
    char *word = strtok_r(connection->request, "\n", &save);
    for (; word && count < REQUEST_WORDS_MAX + 3; word = strtok_r(NULL, "\n", &save))
        words[count++] = word;
    struct error err = {0};
    struct buffer *answer = &connection->answer;
    enum status status = buffer_append_text(answer, "ok\n");
    if (status == STATUS_OK)
        status = requests_handle(links, words, count, now_ns, answer, &connection->pass_fd, &err);
    if (status == STATUS_OK && connection->pass_fd >= 0 && !is_inside(connection->fd))
        status = error_set(&err, STATUS_DENIED,
                           "exec is for processes of the lab; from outside use "
                           "nsenter");
    if (status == STATUS_OK)
        return;
    connection->pass_fd = -1;
    buffer_clear(answer);
    if (buffer_printf(answer, "error\n%s\n", err.text[0] ? err.text : status_text(status)) !=
        STATUS_OK)
        buffer_clear(answer); /* the client then says that the lab gave no answer */
}

/* False: the connection is over. */
static bool send_answer(struct connection *connection)
{
    struct buffer *answer = &connection->answer;
    while (connection->sent_bytes < answer->bytes) {
        struct iovec part = {.iov_base = answer->data + connection->sent_bytes,
                             .iov_len = answer->bytes - connection->sent_bytes};
        union {
            struct cmsghdr header;
            char space[CMSG_SPACE(sizeof(int))];
        } ancillary = {0};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        if (connection->pass_fd >= 0) {
            message.msg_control = &ancillary;
            message.msg_controllen = sizeof ancillary;
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(header), &connection->pass_fd, sizeof(int));
        }
        ssize_t sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
        if (sent < 0)
            return errno == EAGAIN;
        connection->pass_fd = -1;
        connection->sent_bytes += (size_t)sent;
    }
    return false;
}

/* True when the whole request is there; *ret_over: the connection is not to be served further. */
static bool read_request(struct connection *connection, bool *ret_over)
{
    *ret_over = false;
    for (;;) {
        size_t room = sizeof connection->request - 1 - connection->request_bytes;
        ssize_t bytes =
            room ? read(connection->fd, connection->request + connection->request_bytes, room) : -1;
        if (bytes == 0)
            return true;
        if (bytes < 0) {
            *ret_over = !room || errno != EAGAIN;
            return false;
        }
        connection->request_bytes += (size_t)bytes;
    }
}

void control_serve(struct control *control, size_t index, int epoll_fd, uint64_t first_data,
                   struct links *links, int64_t now_ns)
{
    struct connection *connection = &control->connections[index];
    if (connection->fd < 0)
        return;
    if (!connection->answer.bytes) {
        bool over;
        if (!read_request(connection, &over)) {
            if (over)
                hang_up(connection);
            return;
        }
        answer_request(connection, links, now_ns);
    }
    struct epoll_event event = {.events = EPOLLOUT, .data.u64 = first_data + index};
    if (!send_answer(connection) || epoll_ctl(epoll_fd, EPOLL_CTL_MOD, connection->fd, &event) != 0)
        hang_up(connection);
}
