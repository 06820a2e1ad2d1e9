/* Inputs and helpers shared by the tests of common/codec. Include after cmocka.h. */
#ifndef RAVEN_TESTS_CODEC_FIXTURE_H
#define RAVEN_TESTS_CODEC_FIXTURE_H

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/base/rng.h"
#include "common/codec/codec.h"

#include <stdlib.h>

#define HEADER_BYTES 40

static const enum codec_values all_values[] = {CODEC_SIGN, CODEC_TWO_BITS, CODEC_FOUR_BITS,
                                               CODEC_EIGHT_BITS, CODEC_FP32};

static inline float *gaussian(uint64_t n, uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    float *e = malloc((n + 1) * sizeof *e);
    for (uint64_t i = 0; i < n; i++)
        e[i] = (float)(rng_normal(&rng) * 0x1p-8);
    return e;
}

/* Most chunks empty or with a few entries, as the gradient of an embedding. */
static inline float *sparse(uint64_t n, uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    float *e = calloc(n + 1, sizeof *e);
    for (uint64_t i = 0; i < n / 500; i++)
        e[rng_below(&rng, n / 2)] = (float)rng_normal(&rng);
    return e;
}

static inline float *zero(uint64_t n, uint64_t seed)
{
    (void)seed;
    return calloc(n + 1, sizeof(float));
}

/* Appends what becomes of source; the caller looks at the status. */
static inline enum status encode(const struct codec_source *source, uint64_t n,
                                 struct codec_format format, struct pool *pool, struct buffer *ret,
                                 struct error *err)
{
    struct codec_encoder *encoder;
    assert_int_equal(codec_encoder_create(pool, &encoder), STATUS_OK);
    enum status status = codec_encode(encoder, source, n, format, ret, err);
    codec_encoder_free(encoder);
    return status;
}

/* The payload of e[n] (untouched); buffer_done is the caller's. */
static inline struct buffer encoded(const float *e, uint64_t n, struct codec_format format)
{
    struct codec_source source = {.plus = e};
    struct buffer bytes;
    struct error err;
    buffer_init(&bytes, codec_bytes_max(n, format));
    if (encode(&source, n, format, NULL, &bytes, &err))
        fail_msg("%s", err.text);
    return bytes;
}

/* Makes the length field and the checksum right again after an edit. */
static inline void reseal(uint8_t *data, size_t bytes)
{
    store_u64(data + 24, bytes - HEADER_BYTES);
    store_u64(data + 32, checksum_xxh3_seeded(data + HEADER_BYTES, bytes - HEADER_BYTES,
                                              checksum_xxh3(data, 32)));
}

#endif
