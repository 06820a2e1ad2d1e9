/* A small deterministic generator (xoshiro256**, seeded by splitmix64) for initial parameters,
 * data order and jitter. Never for secrets: those come from random_bytes. Not thread-safe. */
#ifndef RAVEN_COMMON_BASE_RNG_H
#define RAVEN_COMMON_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state[4];
};

void rng_seed(struct rng *rng, uint64_t seed);
uint64_t rng_u64(struct rng *rng);
uint64_t rng_below(struct rng *rng, uint64_t bound); /* unbiased in [0, bound), bound > 0 */
double rng_uniform(struct rng *rng);                 /* [0, 1) with 53 bits */
/* Standard normal; same bits on every machine (integer-only sum of uniforms, not libm). */
double rng_normal(struct rng *rng);

/* From the kernel; aborts only if the kernel has none. */
void random_bytes(void *ret, size_t bytes);

#endif
