/* One chunk of the update code, private to common/codec: select, scale, write, read. The format is
 * described at the top of codec.c. Plain functions, any thread. */
#ifndef RAVEN_COMMON_CODEC_CHUNK_H
#define RAVEN_COMMON_CODEC_CHUNK_H

#include "common/codec/bits.h"
#include "common/codec/codec.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define FLOAT_EXPONENT_MAX 254u /* of finite numbers; biased by 127 */

struct chunk {
    uint32_t count;                /* coordinates, 0 … min(k, length) */
    uint32_t scale;                /* 1 … 254, 0 exactly when count is 0 */
    float magnitude;               /* of every coordinate */
    uint16_t indices[CODEC_K_MAX]; /* rising */
    bool negative[CODEC_K_MAX];
};

static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t float_exponent(float value)
{
    return float_bits(value) >> 23 & 255;
}

/* Denormals become zeros of the same sign, as a processor in flush-to-zero mode makes them. */
static inline float float_flush(float value)
{
    return float_exponent(value) == 0 ? float_of_bits(float_bits(value) & 0x80000000u) : value;
}

/* The most bits that chunk_write can produce. */
uint64_t chunk_bits_max(uint32_t length, uint32_t k);

/* Chooses coordinates and scale for e[length], finite, no exponent above base. */
void chunk_make(const float *e, uint32_t length, uint32_t k, uint32_t base, struct chunk *ret);
void chunk_write(const struct chunk *chunk, uint32_t length, uint32_t k, struct bit_writer *writer);

/* NULL when the next chunk is well-formed, else the complaint; ret is then worthless. */
const char *chunk_read(struct bit_reader *reader, uint32_t length, uint32_t k, uint32_t base,
                       struct chunk *ret) MUST_CHECK;

#endif
