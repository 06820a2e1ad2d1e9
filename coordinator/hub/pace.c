/* How large a data frame may be and how much of it the kernel may hold, from the kernel's own
 * figures of the connection (TCP_INFO). Service thread. Surprising decision: the send buffer is
 * what limits the bytes under way; a home router's queue would take whole seconds of data, and
 * every control message would wait behind them. */
#include "coordinator/hub/pace.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define MEASURE_US 250000
#define FRAME_US 100000     /* a data frame takes about that long */
#define UNSENT_US 50000     /* and what the kernel has not put on the wire */
#define UNDER_WAY_US 125000 /* beyond the round trip */
#define FRAME_BYTES_FIRST 16384
#define FRAME_BYTES_MIN 1024
#define UNSENT_BYTES_FIRST (64 * 1024)
#define UNSENT_BYTES_MIN 4096
#define UNSENT_BYTES_MAX (128 * 1024)
#define BUFFER_BYTES_FIRST (256 * 1024)
#define BUFFER_BYTES_MIN (32 * 1024)
#define BUFFER_BYTES_MAX (16 * 1024 * 1024)
#define RATE_MAX 1e9

static int clamp_bytes(double bytes, int low, int high)
{
    return bytes < low ? low : bytes > high ? high : (int)bytes;
}

/* Best effort: without these a connection works, only with more delay. */
static void set_number(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

void pace_init(struct pace *pace, int fd)
{
    *pace = (struct pace){.frame_bytes = FRAME_BYTES_FIRST};
    set_number(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_number(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES_FIRST);
    set_number(fd, SOL_SOCKET, SO_SNDBUF, BUFFER_BYTES_FIRST);
    /* bbr keeps its rate on lossy links where cubic gives up (docs/PROTOCOL.md). */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "bbr", 3);
}

void pace_update(struct pace *pace, int fd, size_t frame_bytes_max, int64_t now_us)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (pace->frame_bytes > frame_bytes_max)
        pace->frame_bytes = frame_bytes_max;
    if (now_us - pace->measured_us < MEASURE_US)
        return;
    pace->measured_us = now_us;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) || info.tcpi_delivery_rate == 0)
        return;
    double rate = (double)info.tcpi_delivery_rate; /* bytes per second */
    if (rate > RATE_MAX)
        rate = RATE_MAX;
    double round_trip_us = (double)info.tcpi_min_rtt;
    pace->frame_bytes =
        (size_t)clamp_bytes(rate * FRAME_US / 1e6, FRAME_BYTES_MIN, (int)frame_bytes_max);
    set_number(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT,
               clamp_bytes(rate * UNSENT_US / 1e6, UNSENT_BYTES_MIN, UNSENT_BYTES_MAX));
    /* The kernel doubles the number for its own bookkeeping. An estimate that was limited by this
     * very buffer still grows: the buffer is always more than rate × round trip. */
    set_number(fd, SOL_SOCKET, SO_SNDBUF,
               clamp_bytes(rate * (round_trip_us + UNDER_WAY_US) / 1e6, BUFFER_BYTES_MIN,
                           BUFFER_BYTES_MAX));
}
