/* The open HTTP connections and the absolute deadline of each: libmicrohttpd's own time-out counts
 * inactivity only, so a client that sends one byte every few seconds would hold a socket for ever.
 */
#ifndef RAVEN_COORDINATOR_HTTP_PEERS_H
#define RAVEN_COORDINATOR_HTTP_PEERS_H

#include "common/base/status.h"

#include <stdint.h>
#include <sys/socket.h>

struct peers;

struct peer {
    struct peer *next, *previous; /* private */
    struct peers *owner;          /* private */
    int fd;                       /* private; closed by libmicrohttpd after peer_close */
    int64_t deadline_us;          /* private; 0: none */
    uint64_t rate_key;
};

enum status peers_start(struct peers **ret, struct error *err) MUST_CHECK;
void peers_stop(struct peers *peers); /* no peer is open any more; NULL is fine */

/* NULL when memory is out. */
struct peer *peer_open(struct peers *peers, int fd);
void peer_close(struct peer *peer); /* before fd is closed; NULL is fine */

/* Must reach the next call of this function within `within_ms`, else the socket is shut down.
 * 0: no deadline. */
void peer_expect(struct peer *peer, int64_t within_ms);

#endif
