/* Encoding in one call, for tests that only need some payload. */
#ifndef RAVEN_TESTS_SUPPORT_ENCODE_H
#define RAVEN_TESTS_SUPPORT_ENCODE_H

#include "common/codec/codec.h"

/* Appends what the coder makes of residual[n] and subtracts it there. */
static inline enum status simple_encode_as(float *residual, uint64_t n, struct codec_format format,
                                           struct buffer *ret)
{
    struct codec_encoder *encoder;
    enum status status = codec_encoder_create(NULL, &encoder);
    if (status)
        return status;
    struct codec_source source = {.residual = residual, .decay = 1.0f};
    status = codec_encode(encoder, &source, n, format, ret, NULL);
    codec_encoder_free(encoder);
    return status;
}

static inline enum status simple_encode(float *residual, uint64_t n, uint32_t k, struct buffer *ret)
{
    return simple_encode_as(residual, n, (struct codec_format){CODEC_SIGN, k}, ret);
}

#endif
