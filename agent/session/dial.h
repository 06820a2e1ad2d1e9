/* Opens the TCP connection under a link: name look-up, every address in turn, and by way of a proxy
 * where one is set. libuv loop thread; the waiting is done on a thread of libuv's pool. */
#ifndef RAVEN_AGENT_SESSION_DIAL_H
#define RAVEN_AGENT_SESSION_DIAL_H

#include "agent/session/route.h"

#include <uv.h>

struct dial;

/* socket: connected and non-blocking, now the receiver's, or -1 with a sentence in text. */
typedef void dial_done(void *user, int socket, const char *text);

/* done is called once, from the loop, unless dial_cancel comes first. try_tls: no socket is
 * wanted, only the sentence of a TLS handshake that fails ("" if it does not). NULL: no memory;
 * then done is not called. curl_global_init must have happened. */
struct dial *dial_start(uv_loop_t *loop, const struct route *route, const struct url *url,
                        bool try_tls, dial_done *done, void *user);
/* The loop needs some more turns until the thread has let go. */
void dial_cancel(struct dial *dial);

#endif
