/* Deterministic generator xoshiro256** (Blackman and Vigna, public domain), seeded by splitmix64.
 * One thread per struct. Surprising: the normal distribution is a sum of twelve 32-bit uniforms
 * (Irwin-Hall, tails end at ±6): exact in integers, hence the same bits with every libm. */
#include "common/base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

static uint64_t rotate_left(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

void rng_seed(struct rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        rng->state[i] = splitmix64(&seed);
}

uint64_t rng_u64(struct rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    uint64_t reject_below = (0 - bound) % bound; /* 2^64 mod bound */
    uint64_t x;
    do {
        x = rng_u64(rng);
    } while (x < reject_below);
    return x % bound;
}

double rng_uniform(struct rng *rng)
{
    return (double)(rng_u64(rng) >> 11) * 0x1p-53;
}

double rng_normal(struct rng *rng)
{
    int64_t sum = 0;
    for (int i = 0; i < 6; i++) {
        uint64_t x = rng_u64(rng);
        sum += (int64_t)(x >> 32) + (int64_t)(x & 0xFFFFFFFF);
    }
    /* The mean of 12 integers from 0 … 2^32 - 1 is 6 × (2^32 - 1); the variance of the sum is 1. */
    return (double)(sum - 6 * INT64_C(0xFFFFFFFF)) * 0x1p-32;
}

void random_bytes(void *ret, size_t bytes)
{
    uint8_t *out = ret;
    while (bytes > 0) {
        ssize_t got = getrandom(out, bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            abort();
        out += got;
        bytes -= (size_t)got;
    }
}
