/* Namespaces, TUN devices, addresses and routes, by ioctl (iproute2 need not be installed). Its
 * surprise: IPv6 is off on the devices, or the kernel's own neighbour and router messages would
 * use the links and blur the counts. */
#include "tests/netlab/tun.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MTU 1500
#define DEVICE_QUEUE_PACKETS 4096 /* before netlab reads them: only while it is not scheduled */

static struct sockaddr_in to_ipv4(struct address address)
{
    uint32_t host = 10u << 24 | 77u << 16 | (address.third & 255) << 8 | (address.last & 255);
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(host)};
}

static enum status write_setting(const char *path, const char *value, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "%s cannot be opened", path);
    ssize_t written = write(fd, value, strlen(value));
    int errnum = errno;
    (void)close(fd);
    if (written < 0)
        return error_set_errno(err, errnum, "%s cannot be set to %s", path, value);
    return STATUS_OK;
}

/* One interface request; every failure names the step and the device. */
static enum status interface_do(unsigned long request, const char *step, struct ifreq *ifreq,
                                struct error *err)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(err, errno, "no socket for %s", step);
    int failed = ioctl(fd, request, ifreq);
    int errnum = errno;
    (void)close(fd);
    if (failed)
        return error_set_errno(err, errnum, "%s of device %s failed", step, ifreq->ifr_name);
    return STATUS_OK;
}

static struct ifreq request_for(const char *device)
{
    struct ifreq ifreq = {0};
    (void)snprintf(ifreq.ifr_name, sizeof ifreq.ifr_name, "%s", device);
    return ifreq;
}

static enum status set_address(const char *device, unsigned long request, const char *step,
                               struct sockaddr_in address, struct error *err)
{
    struct ifreq ifreq = request_for(device);
    memcpy(&ifreq.ifr_addr, &address, sizeof address);
    return interface_do(request, step, &ifreq, err);
}

static enum status device_up(const char *device, struct error *err)
{
    struct ifreq ifreq = request_for(device);
    enum status status = interface_do(SIOCGIFFLAGS, "reading the flags", &ifreq, err);
    if (status != STATUS_OK)
        return status;
    ifreq.ifr_flags |= IFF_UP;
    return interface_do(SIOCSIFFLAGS, "starting", &ifreq, err);
}

static enum status set_defaults(struct error *err)
{
    static const struct {
        const char *path, *value;
    } settings[] = {
        {"/proc/sys/net/ipv4/conf/all/rp_filter", "0"},
        {"/proc/sys/net/ipv4/conf/default/rp_filter", "0"},
        {"/proc/sys/net/ipv4/conf/all/send_redirects", "0"},
        {"/proc/sys/net/ipv4/conf/default/send_redirects", "0"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        enum status status = write_setting(settings[i].path, settings[i].value, err);
        if (status != STATUS_OK)
            return status;
    }
    /* Absent where the kernel has no IPv6 at all. */
    if (access("/proc/sys/net/ipv6/conf/default/disable_ipv6", F_OK) == 0)
        return write_setting("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1", err);
    return STATUS_OK;
}

enum status net_namespace_create(int *ret_fd, struct error *err)
{
    if (unshare(CLONE_NEWNET) != 0)
        return error_set_errno(err, errno, "no new network namespace");
    int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "/proc/self/ns/net cannot be opened");
    enum status status = set_defaults(err);
    if (status == STATUS_OK)
        status = device_up("lo", err);
    if (status != STATUS_OK) {
        (void)close(fd);
        return status;
    }
    *ret_fd = fd;
    return STATUS_OK;
}

enum status net_namespace_enter(int fd, struct error *err)
{
    if (setns(fd, CLONE_NEWNET) != 0)
        return error_set_errno(err, errno, "the network namespace cannot be entered");
    return STATUS_OK;
}

enum status net_address_add(const char *label, struct address address, struct error *err)
{
    enum status status = set_address(label, SIOCSIFADDR, "the address", to_ipv4(address), err);
    if (status != STATUS_OK)
        return status;
    struct sockaddr_in one = {.sin_family = AF_INET, .sin_addr.s_addr = INADDR_BROADCAST};
    return set_address(label, SIOCSIFNETMASK, "the mask", one, err);
}

enum status net_default_route(const char *device, struct error *err)
{
    char name[IFNAMSIZ];
    (void)snprintf(name, sizeof name, "%s", device);
    struct sockaddr_in any = {.sin_family = AF_INET};
    struct rtentry route = {.rt_flags = RTF_UP, .rt_dev = name};
    memcpy(&route.rt_dst, &any, sizeof any);
    memcpy(&route.rt_genmask, &any, sizeof any);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(err, errno, "no socket for the route");
    int failed = ioctl(fd, SIOCADDRT, &route);
    int errnum = errno;
    (void)close(fd);
    if (failed)
        return error_set_errno(err, errnum, "no default route by %s", device);
    return STATUS_OK;
}

enum status net_forwarding_on(struct error *err)
{
    return write_setting("/proc/sys/net/ipv4/ip_forward", "1", err);
}

static enum status tun_configure(const char *name, struct address local, struct address peer,
                                 struct error *err)
{
    struct sockaddr_in one = {.sin_family = AF_INET, .sin_addr.s_addr = INADDR_BROADCAST};
    enum status status = set_address(name, SIOCSIFADDR, "the address", to_ipv4(local), err);
    if (status == STATUS_OK)
        status = set_address(name, SIOCSIFDSTADDR, "the peer's address", to_ipv4(peer), err);
    if (status == STATUS_OK)
        status = set_address(name, SIOCSIFNETMASK, "the mask", one, err);
    struct ifreq ifreq = request_for(name);
    ifreq.ifr_mtu = MTU;
    if (status == STATUS_OK)
        status = interface_do(SIOCSIFMTU, "the MTU", &ifreq, err);
    ifreq = request_for(name);
    ifreq.ifr_qlen = DEVICE_QUEUE_PACKETS;
    if (status == STATUS_OK)
        status = interface_do(SIOCSIFTXQLEN, "the queue length", &ifreq, err);
    if (status == STATUS_OK)
        status = device_up(name, err);
    return status;
}

enum status tun_open(const char *name, struct address local, struct address peer, int *ret_fd,
                     struct error *err)
{
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "/dev/net/tun cannot be opened");
    struct ifreq ifreq = request_for(name);
    ifreq.ifr_flags = IFF_TUN | IFF_NO_PI;
    enum status status;
    if (ioctl(fd, TUNSETIFF, &ifreq) != 0)
        status = error_set_errno(err, errno, "the TUN device %s cannot be made", name);
    else
        status = tun_configure(name, local, peer, err);
    if (status != STATUS_OK) {
        (void)close(fd);
        return status;
    }
    *ret_fd = fd;
    return STATUS_OK;
}
