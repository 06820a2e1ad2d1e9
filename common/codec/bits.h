/* Bit strings: bit i is bit i mod 8 of byte i / 8, numbers low bit first. Bit by bit on purpose:
 * the reference is read more often than it is hurried. */
#ifndef RAVEN_COMMON_CODEC_BITS_H
#define RAVEN_COMMON_CODEC_BITS_H

#include <stdbool.h>
#include <stdint.h>

/* The caller guarantees the room. */
struct bit_writer {
    uint8_t *data;
    uint64_t at; /* next bit; the rest of its byte is zero */
};

static inline void bit_write(struct bit_writer *writer, uint32_t value, uint32_t bits)
{
    for (uint32_t i = 0; i < bits; i++, writer->at++) {
        uint8_t *byte = writer->data + writer->at / 8;
        if (writer->at % 8 == 0)
            *byte = 0;
        *byte = (uint8_t)(*byte | (value >> i & 1) << writer->at % 8);
    }
}

/* Reading beyond the end gives zeros and sets overrun for good. */
struct bit_reader {
    const uint8_t *data;
    uint64_t at, end; /* bits */
    bool overrun;
};

static inline uint32_t bit_read(struct bit_reader *reader, uint32_t bits)
{
    if (bits > reader->end - reader->at) {
        reader->overrun = true;
        return 0;
    }
    uint32_t value = 0;
    for (uint32_t i = 0; i < bits; i++, reader->at++)
        value |= (uint32_t)(reader->data[reader->at / 8] >> reader->at % 8 & 1) << i;
    return value;
}

#endif
