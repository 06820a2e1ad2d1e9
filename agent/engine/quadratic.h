/* The arithmetic of the synthetic trainer: a quadratic problem with a hidden optimum, worked on in
 * blocks of QUADRATIC_BLOCK parameters. A block's optimum, and its noise in one step, is a window
 * into a table of random numbers, chosen by a hash: so that it takes neither memory per parameter
 * nor time. Plain functions, any thread. */
#ifndef RAVEN_AGENT_ENGINE_QUADRATIC_H
#define RAVEN_AGENT_ENGINE_QUADRATIC_H

#include <stdbool.h>
#include <stdint.h>

#define QUADRATIC_BLOCK 64u
#define QUADRATIC_TABLE 16384u /* a power of two: windows begin at a masked hash */
#define QUADRATIC_TOLERANCE 0.25

struct quadratic {
    uint64_t seed;
    float deviation;                                  /* of the optimum's parameters */
    float optimum[QUADRATIC_TABLE + QUADRATIC_BLOCK]; /* normal */
    /* Heavy tails, as the changes that AdamW makes have them: products of three uniform numbers,
     * kurtosis 5.8 (Laplace: 6, normal: 3). */
    float noise[QUADRATIC_TABLE + QUADRATIC_BLOCK];
};

/* Sums over parameters; distances in units of the deviation. */
struct quadratic_sums {
    double distance2;
    uint64_t parameters, hits; /* hits: within QUADRATIC_TOLERANCE of the optimum */
};

/* The same numbers for the same seed on every machine. */
void quadratic_init(struct quadratic *quadratic, uint64_t seed, float deviation);

/* False when one of x[count] is not finite or so large that its square would not be. For all:
 * count ≤ QUADRATIC_BLOCK. */
bool quadratic_is_sane(const float *x, uint32_t count);
/* Adds the distances of a block's parameters x[count] to sums. */
void quadratic_measure(const struct quadratic *quadratic, uint64_t block, const float *x,
                       uint32_t count, struct quadratic_sums *sums);
/* Adds them (but counts no hits), then x += rate × (optimum - x + noise). draw: which noise. */
void quadratic_step(const struct quadratic *quadratic, uint64_t block, uint64_t draw, float rate,
                    float *x, uint32_t count, struct quadratic_sums *sums);

#endif
