/* The update code once more, written from its description (common/codec/format.c) in the slowest
 * and most obvious way: sorting, one bit at a time, no shared code. What the product's encoder,
 * decoder and kernels make is compared with this. Plain functions, any thread; asserts that memory
 * is there. */
#ifndef RAVEN_TESTS_REFERENCE_CODEC_REFERENCE_H
#define RAVEN_TESTS_REFERENCE_CODEC_REFERENCE_H

#include "common/codec/codec.h"

/* e[i] of a codec_source whose payloads to subtract are given as vectors: subtract[count][n]. */
void reference_input(const struct codec_source *source, const float *const *subtract, size_t count,
                     uint64_t n, float *ret_e);
/* The payload of e[n], appended to ret; ret_decoded[n]: what it says. All of e must be finite. */
void reference_encode(const float *e, uint64_t n, struct codec_format format, struct buffer *ret,
                      float *ret_decoded);
/* decoded[n] of a payload that is known to be valid. */
void reference_decode(const uint8_t *data, uint64_t n, float *ret_decoded);
/* a + b as everything here is added: inputs and result flushed. */
float reference_add(float a, float b);

#endif
