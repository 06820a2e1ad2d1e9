/* Network namespaces and devices of the lab. Every call works on the calling thread's network
 * namespace. Addresses are 10.77.<third>.<last>. */
#ifndef RAVEN_NETLAB_TUN_H
#define RAVEN_NETLAB_TUN_H

#include "common/base/status.h"

#include <stdint.h>

struct address {
    unsigned third, last;
};

/* The calling thread enters a new, empty namespace (loopback up, router settings); ret_fd holds
 * it. */
enum status net_namespace_create(int *ret_fd, struct error *err) MUST_CHECK;
enum status net_namespace_enter(int fd, struct error *err) MUST_CHECK;
/* A further address, under a label such as "c1:own", of a device that is up. */
enum status net_address_add(const char *label, struct address address,
                            struct error *err) MUST_CHECK;
enum status net_default_route(const char *device, struct error *err) MUST_CHECK;
enum status net_forwarding_on(struct error *err) MUST_CHECK;

/* A point-to-point TUN device, up; non-blocking reads and writes of one IP packet each. */
enum status tun_open(const char *name, struct address local, struct address peer, int *ret_fd,
                     struct error *err) MUST_CHECK;

#endif
