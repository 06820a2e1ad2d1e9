/* Asks a running lab. Its surprise: `enter` gets the namespace itself, as a file descriptor in the
 * answer, so that the caller can go there and exec without a helper process in between. */
#include "tests/netlab/client.h"

#include "tests/netlab/control.h"
#include "tests/netlab/tun.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_WAIT_S 10

static enum status dial(const char *path, int *ret_fd, struct error *err)
{
    struct sockaddr_un address;
    if (!path || !path[0])
        return error_set(err, STATUS_NOT_FOUND,
                         "there is no lab here: RAVEN_NETLAB is not set; run "
                         "this inside of `raven-netlab run`, or name its socket by --control");
    enum status status = control_address(path, &address, err);
    if (status != STATUS_OK)
        return status;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(err, errno, "no socket");
    struct timeval wait = {.tv_sec = ANSWER_WAIT_S};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        status = error_set_errno(err, errno, "no lab listens on %s", path);
        (void)close(fd);
        return status;
    }
    *ret_fd = fd;
    return STATUS_OK;
}

static enum status send_words(int fd, char **words, struct error *err)
{
    char request[CONTROL_REQUEST_BYTES];
    size_t bytes = 0;
    for (; *words; words++) {
        int length = snprintf(request + bytes, sizeof request - bytes, "%s\n", *words);
        bytes += (size_t)length;
        if (bytes >= sizeof request - 1)
            return error_set(err, STATUS_TOO_LARGE, "the command is longer than %d characters",
                             CONTROL_REQUEST_BYTES - 2);
    }
    /* An empty socket buffer has room for it all. */
    if (send(fd, request, bytes, MSG_NOSIGNAL) != (ssize_t)bytes || shutdown(fd, SHUT_WR) != 0)
        return error_set_errno(err, errno, "the lab does not listen");
    return STATUS_OK;
}

/* One part of the answer; a descriptor that comes with it goes to *fd_passed. */
static ssize_t receive(int fd, void *data, size_t bytes, int *fd_passed)
{
    struct iovec part = {.iov_base = data, .iov_len = bytes};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } ancillary = {0};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof ancillary};
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(fd_passed, CMSG_DATA(header), sizeof(int));
    return got;
}

static enum status read_answer(int fd, struct buffer *answer, int *fd_passed, struct error *err)
{
    char part[16384];
    ssize_t got;
    while ((got = receive(fd, part, sizeof part, fd_passed)) > 0) {
        enum status status = buffer_append(answer, part, (size_t)got);
        if (status != STATUS_OK)
            return error_set(err, status, "the lab's answer is too large");
    }
    if (got < 0)
        return error_set_errno(err, errno, "the lab gave no answer");
    const char *text = buffer_text(answer);
    if (text && strncmp(text, "ok\n", 3) == 0)
        return STATUS_OK;
    if (text && strncmp(text, "error\n", 6) == 0)
        return error_set(err, STATUS_INVALID, "%.*s", (int)strcspn(text + 6, "\n"), text + 6);
    return error_set(err, STATUS_CLOSED, "the lab gave no answer");
}

static enum status ask(const char *path, char **words, struct buffer *answer, int *fd_passed,
                       struct error *err)
{
    int fd = -1;
    enum status status = dial(path, &fd, err);
    if (status != STATUS_OK)
        return status;
    status = send_words(fd, words, err);
    if (status == STATUS_OK)
        status = read_answer(fd, answer, fd_passed, err);
    (void)close(fd);
    return status;
}

enum status client_ask(const char *path, char **words, struct error *err)
{
    struct buffer answer;
    int fd_passed = -1;
    buffer_init(&answer, 8u << 20);
    enum status status = ask(path, words, &answer, &fd_passed, err);
    if (status == STATUS_OK &&
        fwrite(answer.data + 3, 1, answer.bytes - 3, stdout) + 3 != answer.bytes)
        status = error_set_errno(err, errno, "the answer cannot be written");
    buffer_done(&answer);
    return status;
}

enum status client_enter(const char *path, const char *where, struct error *err)
{
    struct buffer answer;
    int fd_passed = -1;
    char enter[] = "enter", place[32];
    (void)snprintf(place, sizeof place, "%s", where);
    char *words[] = {enter, place, NULL};
    buffer_init(&answer, 1u << 16);
    enum status status = ask(path, words, &answer, &fd_passed, err);
    buffer_done(&answer);
    if (status != STATUS_OK)
        return status;
    if (fd_passed < 0)
        return error_set(err, STATUS_CLOSED, "the lab sent no namespace");
    status = net_namespace_enter(fd_passed, err);
    (void)close(fd_passed);
    return status;
}
