/* Writing a string of bits, low bit first, as little-endian 32-bit words (format.c). The caller
 * guarantees the room, and BIT_SLACK_BYTES more: every write stores eight bytes and moves on by
 * whole bytes, which takes no branch that nobody could foretell. */
#ifndef RAVEN_COMMON_CODEC_BITS_H
#define RAVEN_COMMON_CODEC_BITS_H

#include <stdint.h>
#include <string.h>

#define BIT_SLACK_BYTES 8u

struct bit_writer {
    uint8_t *next;
    uint64_t bits; /* of the byte at next: the low `held`, zeros above */
    uint32_t held; /* below 8 between calls */
};

/* value has no bits above `count`; count ≤ 56. */
static inline void bit_write(struct bit_writer *writer, uint64_t value, uint32_t count)
{
    uint64_t bits = writer->bits | value << writer->held;
    uint32_t held = writer->held + count;
    memcpy(writer->next, &bits, sizeof bits);
    writer->next += held / 8;
    writer->bits = bits >> (held & ~7u);
    writer->held = held % 8;
}

/* Fills up with zeros to a multiple of 4 bytes from start. */
static inline void bit_finish(struct bit_writer *writer, const uint8_t *start)
{
    uint32_t used = (uint32_t)(writer->next - start) % 4 * 8 + writer->held;
    if (used > 0)
        bit_write(writer, 0, 32 - used);
}

#endif
