/* Numbers of the update code that encoder, decoder and device kernels share; private to the codec
 * and to agent/kernels' host side. The format itself is described in format.c. Plain functions, any
 * thread. */
#ifndef RAVEN_COMMON_CODEC_FORMAT_H
#define RAVEN_COMMON_CODEC_FORMAT_H

#include "common/codec/codec.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define FORMAT_HEADER_BYTES 40u
#define FORMAT_WORD_BYTES 4u /* super-chunks begin at multiples of it */

#define SCALE_BITS 8u
#define SCALE_TOP 254u     /* scales are 1 … SCALE_TOP; 0: an empty chunk */
#define SCALE_COUNTED 255u /* escape: real scale and count follow */
#define COUNT_BITS 9u

#define FLOAT_MAGNITUDE 0x7FFFFFFFu
#define FLOAT_NOT_FINITE 0x7F800000u /* magnitudes from here on are infinite or NaN */
#define FLOAT_NORMAL_MIN 0x00800000u

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

/* Denormals and zeros become +0: devices differ in what they do with them. */
static inline float float_flush(float value)
{
    return (float_bits(value) & FLOAT_MAGNITUDE) >= FLOAT_NORMAL_MIN ? value : 0.0f;
}

static inline uint64_t format_chunks(uint64_t n)
{
    return n / CODEC_CHUNK + (n % CODEC_CHUNK != 0);
}

static inline uint32_t format_chunk_length(uint64_t n, uint64_t chunk)
{
    uint64_t left = n - chunk * CODEC_CHUNK;
    return left < CODEC_CHUNK ? (uint32_t)left : CODEC_CHUNK;
}

/* How many coordinates a chunk without an escape has. */
static inline uint32_t format_whole(uint32_t length, uint32_t k)
{
    return k < length ? k : length;
}

/* Bits of one coordinate's value; the coder must be valid. */
uint32_t format_value_bits(enum codec_values values);
bool format_is_valid(struct codec_format format);

/* The best Rice parameter for the gaps of count coordinates (1 … length) out of length: the
 * smallest b with 1000 · count · 2^b · (2 length + count) ≥ 957 · length². (The optimum for
 * geometric gaps, second order in count / length.) */
uint32_t format_rice_bits(uint32_t length, uint32_t count);

/* The most bytes that one super-chunk of `chunks` whole chunks can take, a multiple of 4. */
uint64_t format_super_chunk_bytes_max(uint64_t chunks, struct codec_format format);

struct format_header {
    uint64_t n, body_bytes; /* body: all after the header */
    struct codec_format format;
};

/* Header and checksum for the body that already lies behind it. */
void format_header_write(const struct format_header *header, uint8_t *ret);
/* STATUS_CORRUPT unless these bytes are a whole payload for n parameters, as far as the header and
 * the checksum tell. */
enum status format_header_read(const uint8_t *data, size_t bytes, uint64_t n,
                               struct format_header *ret, struct error *err) MUST_CHECK;

#endif
