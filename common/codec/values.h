/* The value coders (format.c describes them): from the magnitudes of one chunk's coordinates to
 * scales and words, and back. Plain functions, any thread. */
#ifndef RAVEN_COMMON_CODEC_VALUES_H
#define RAVEN_COMMON_CODEC_VALUES_H

#include "common/codec/format.h"

/* One chunk's coordinates on their way into a payload. */
struct selection {
    uint32_t greatest; /* magnitude among them, as float bits */
    uint32_t count;
    uint32_t indices[CODEC_K_MAX + 8]; /* rising; eight more, for vector stores */
    uint32_t bits[CODEC_K_MAX + 8];    /* of the floats there: finite, normal */
    uint32_t scale, second;            /* second: CODEC_TWO_BITS only */
    uint8_t words[CODEC_K_MAX];        /* what is written of each value */
    float values[CODEC_K_MAX];         /* what that decodes to */
};

/* Fills scale, second, words and values from count, bits and greatest; sets count and scale to 0
 * when nothing can be sent. Not for CODEC_FP32. */
void values_quantise(struct selection *selection, enum codec_values values);

/* ret[2^value bits]: what each word stands for. NULL, or what is wrong with the scales. */
#define VALUES_TABLE 256u
const char *values_table(enum codec_values values, uint32_t scale, uint32_t second,
                         float ret[VALUES_TABLE]) MUST_CHECK;

#endif
