/* The one public port: accepts, peeks at the first bytes of the request without consuming them, and
 * hands the socket to the WebSocket hub ("GET /ws/…") or to the HTTP server (all else). One epoll
 * thread; absolute deadline for the first bytes; a limit of undecided sockets, beyond which the one
 * that has waited longest makes room. TLS is terminated in front of it for now. */
#ifndef RAVEN_COORDINATOR_FRONT_FRONT_H
#define RAVEN_COORDINATOR_FRONT_FRONT_H

#include "common/base/status.h"

#include <stdint.h>
#include <sys/socket.h>

struct front;

struct front_options {
    const char *bind_address;    /* "127.0.0.1", "::1", "0.0.0.0" … numeric */
    uint16_t port;               /* 0: the kernel chooses, see front_port */
    uint32_t decide_deadline_ms; /* 5,000 */
    uint32_t undecided_max;      /* 1,024 */
    void *context;
    /* On the front's thread; the callee owns fd (non-blocking, close-on-exec). address: text. */
    void (*take_websocket)(void *context, int fd, const char *address);
    void (*take_http)(void *context, int fd, const struct sockaddr *address, socklen_t bytes);
};

enum status front_start(const struct front_options *options, struct front **ret,
                        struct error *err) MUST_CHECK;
uint16_t front_port(const struct front *front);
void front_stop(struct front *front); /* closes the listener and undecided sockets; NULL is fine */

#endif
