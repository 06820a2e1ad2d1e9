/* RST segments for both ends of a TCP segment seen. Pure. Its surprise: only the one to the sender
 * is sure to be taken (its sequence number is what the sender has acknowledged); the other end may
 * answer with a challenge ACK, which is then seen here and reset in its turn. */
#include "tests/netlab/reset.h"

#include <string.h>

#define PROTOCOL_TCP 6
#define FLAG_FIN 0x01
#define FLAG_SYN 0x02
#define FLAG_RST 0x04
#define FLAG_ACK 0x10

/* Network order, unlike the loads of common/base/bytes.h. */
static uint32_t load_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store_be16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static void store_be32(uint8_t *p, uint32_t v)
{
    store_be16(p, v >> 16);
    store_be16(p + 2, v);
}

static uint32_t add_words(const uint8_t *p, size_t bytes, uint32_t sum)
{
    for (size_t i = 0; i + 1 < bytes; i += 2)
        sum += (uint32_t)p[i] << 8 | p[i + 1];
    return sum;
}

static uint32_t fold(uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xFFFF) + (sum >> 16);
    return ~sum & 0xFFFF;
}

/* from and to: IPv4 addresses; ports: 4 bytes, the source's first. */
static void build(uint8_t out[RESET_BYTES], const uint8_t *from, const uint8_t *to,
                  const uint8_t ports[4], uint32_t sequence, uint32_t acknowledged, uint8_t flags)
{
    static const uint8_t head[10] = {0x45, 0, 0, RESET_BYTES, 0, 0, 0x40, 0, 64, PROTOCOL_TCP};
    memset(out, 0, RESET_BYTES);
    memcpy(out, head, sizeof head);
    memcpy(out + 12, from, 4);
    memcpy(out + 16, to, 4);
    store_be16(out + 10, fold(add_words(out, 20, 0)));
    uint8_t *tcp = out + 20;
    memcpy(tcp, ports, 4);
    store_be32(tcp + 4, sequence);
    store_be32(tcp + 8, acknowledged);
    tcp[12] = 5 << 4; /* words of header */
    tcp[13] = flags;
    /* The pseudo header: addresses, protocol, length of the segment. */
    uint32_t sum = add_words(out + 12, 8, PROTOCOL_TCP + (RESET_BYTES - 20));
    store_be16(tcp + 16, fold(add_words(tcp, RESET_BYTES - 20, sum)));
}

bool reset_build(const uint8_t *packet, size_t bytes, struct reset_pair *ret)
{
    if (bytes < 40 || packet[0] >> 4 != 4 || packet[9] != PROTOCOL_TCP)
        return false;
    size_t ip_bytes = (size_t)(packet[0] & 15) * 4;
    bool is_later_fragment = ((packet[6] & 0x1F) | packet[7]) != 0;
    if (ip_bytes < 20 || bytes < ip_bytes + 20 || is_later_fragment)
        return false;
    const uint8_t *tcp = packet + ip_bytes;
    uint8_t flags = tcp[13];
    if ((flags & FLAG_RST) != 0)
        return false;
    size_t tcp_bytes = (size_t)(tcp[12] >> 4) * 4;
    uint32_t payload = tcp_bytes <= bytes - ip_bytes ? (uint32_t)(bytes - ip_bytes - tcp_bytes) : 0;
    uint32_t length = payload + ((flags & FLAG_SYN) != 0) + ((flags & FLAG_FIN) != 0);
    uint32_t sequence = load_be32(tcp + 4);
    const uint8_t *sender = packet + 12, *receiver = packet + 16;
    const uint8_t back[4] = {tcp[2], tcp[3], tcp[0], tcp[1]};
    if ((flags & FLAG_ACK) != 0)
        build(ret->to_sender, receiver, sender, back, load_be32(tcp + 8), 0, FLAG_RST);
    else /* a first SYN: refused */
        build(ret->to_sender, receiver, sender, back, 0, sequence + length, FLAG_RST | FLAG_ACK);
    build(ret->to_receiver, sender, receiver, tcp, sequence, 0, FLAG_RST);
    return true;
}
