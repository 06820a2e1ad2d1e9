/* The control socket of a lab: a stream socket in the file system, one request per connection. A
 * request is words with '\n' between them, ended by shutdown(SHUT_WR), at most
 * CONTROL_REQUEST_BYTES. The answer is "ok\n" or "error\n", then text to the end; for "enter" a
 * file descriptor comes with it. Never blocks; the lab's thread. */
#ifndef RAVEN_NETLAB_CONTROL_H
#define RAVEN_NETLAB_CONTROL_H

#include "tests/netlab/requests.h"

#include <sys/un.h>

#define CONTROL_REQUEST_BYTES 4096
#define CONTROL_CONNECTIONS_MAX 16

struct connection {
    int fd; /* -1: free */
    size_t request_bytes;
    char request[CONTROL_REQUEST_BYTES];
    struct buffer answer;
    size_t sent_bytes;
    int pass_fd; /* to send with the first byte of the answer, or -1; not owned */
};

struct control {
    int listen_fd;
    int path_fd; /* holds the socket's inode where no path is kept */
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    bool owns_path;
    struct connection connections[CONTROL_CONNECTIONS_MAX];
    size_t next; /* to be given up when all are in use */
};

/* path: where to listen, or NULL for a place that only processes of the lab reach and that leaves
 * no file behind; control->path is what to connect to. */
enum status control_open(struct control *control, const char *path, struct error *err) MUST_CHECK;
void control_close(struct control *control);

/* Accepts one connection and registers it with epoll under data = first_data + its index. */
void control_accept(struct control *control, int epoll_fd, uint64_t first_data);
void control_serve(struct control *control, size_t index, int epoll_fd, uint64_t first_data,
                   struct links *links, int64_t now_ns);

/* The same in the client: an address for path. */
enum status control_address(const char *path, struct sockaddr_un *ret,
                            struct error *err) MUST_CHECK;

#endif
