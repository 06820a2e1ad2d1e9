/* Inputs and helpers shared by the tests of common/codec. */
#ifndef RAVEN_TESTS_CODEC_FIXTURE_H
#define RAVEN_TESTS_CODEC_FIXTURE_H

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/base/rng.h"
#include "common/codec/codec.h"

#include <stdlib.h>

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

/* Makes the checksum right again after an edit. */
static inline void reseal(uint8_t *data, size_t bytes)
{
    store_u64(data + 40, checksum_xxh3_seeded(data + 48, bytes - 48, checksum_xxh3(data, 40)));
}

#endif
