/* Gives libwebsockets a connected socket as a client's. Loop thread. */
#ifndef RAVEN_AGENT_SESSION_HANDOVER_H
#define RAVEN_AGENT_SESSION_HANDOVER_H

#include "common/base/status.h"

#define HANDOVER_ADDRESS_BYTES 48

struct handover {
    int listener;
    char address[HANDOVER_ADDRESS_BYTES]; /* for the library to connect to */
};

enum status handover_init(struct handover *handover, struct error *err) MUST_CHECK;
void handover_done(struct handover *handover);

/* Once the library's own socket is connected to address, and before it looks at it: puts socket in
 * that one's place and closes socket itself. */
enum status handover_replace(struct handover *handover, int socket, int library_socket) MUST_CHECK;

#endif
