/* Builds the two RST segments with which a middle box cuts a TCP connection. Pure. IPv4 only. */
#ifndef RAVEN_NETLAB_RESET_H
#define RAVEN_NETLAB_RESET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESET_BYTES 40

struct reset_pair {
    uint8_t to_sender[RESET_BYTES];
    uint8_t to_receiver[RESET_BYTES];
};

/* False when the packet is no TCP segment or carries RST itself: let it pass. */
bool reset_build(const uint8_t *packet, size_t bytes, struct reset_pair *ret);

#endif
