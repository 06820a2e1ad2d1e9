/* What one agent's link carries, as the kernel measures it, and the sizes that follow: of data
 * frames and of what the kernel may hold. Service thread. On its own because linux/tcp.h does not
 * go together with the headers of libwebsockets. */
#ifndef RAVEN_COORDINATOR_HUB_PACE_H
#define RAVEN_COORDINATOR_HUB_PACE_H

#include <stddef.h>
#include <stdint.h>

struct pace {
    int64_t measured_us;
    size_t frame_bytes; /* of the next data frame */
};

void pace_init(struct pace *pace, int fd);
/* Measures four times a second and fits the frames and what the kernel may hold to it, so that a
 * control message waits at most 250 ms behind data. */
void pace_update(struct pace *pace, int fd, size_t frame_bytes_max, int64_t now_us);

#endif
