/* The library (4.1) takes connected sockets only as a server. So it is let to connect, at once and
 * within this process, to an abstract address of the Unix domain, and its socket's number is then
 * made to stand for the real connection. Loop thread. It works because the library's event loop
 * registers a descriptor in its next turn only, so nothing yet refers to the socket that goes. */
#include "agent/session/handover.h"

#include "common/base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define WAITING_MAX 8

enum status handover_init(struct handover *handover, struct error *err)
{
    uint64_t random;
    random_bytes(&random, sizeof random); /* nobody else can have the address already */
    snprintf(handover->address, sizeof handover->address, "+@raven-link-%016" PRIx64, random);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *name = handover->address + 2;
    memcpy(address.sun_path + 1, name, strlen(name));
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));

    handover->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (handover->listener >= 0 &&
        bind(handover->listener, (struct sockaddr *)&address, bytes) == 0 &&
        listen(handover->listener, WAITING_MAX) == 0)
        return STATUS_OK;
    enum status status = error_set_errno(err, errno, "cannot open a socket within this process");
    handover_done(handover);
    return status;
}

void handover_done(struct handover *handover)
{
    if (handover->listener >= 0)
        close(handover->listener);
    handover->listener = -1;
}

enum status handover_replace(struct handover *handover, int socket, int library_socket)
{
    int replaced = dup3(socket, library_socket, O_CLOEXEC);
    close(socket);
    int waiting;
    while ((waiting = accept4(handover->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        close(waiting); /* the other half of the one that went */
    return replaced < 0 ? STATUS_SYSTEM : STATUS_OK;
}
