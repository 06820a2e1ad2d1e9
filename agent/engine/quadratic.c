/* The synthetic problem's loops. Any thread. Surprising: squares are added pairwise, not one after
 * the other, because only so may the compiler work on several parameters at once. */
#include "agent/engine/quadratic.h"

#include "common/base/rng.h"

#include <string.h>

#define SANE_BITS 0x5D5E0B6B /* of 1e18f: floats without their signs sort like their bits */
#define NOISE_DEVIATION 1.5  /* in units of the optimum's */
#define ROOT_27 5.196152422706632

static double heavy_tailed(struct rng *rng)
{
    double product = ROOT_27; /* a number uniform in [-1, 1) has variance 1/3 */
    for (int i = 0; i < 3; i++)
        product *= 2 * rng_uniform(rng) - 1;
    return product;
}

void quadratic_init(struct quadratic *quadratic, uint64_t seed, float deviation)
{
    struct rng rng;
    rng_seed(&rng, ~seed); /* not the stream that made the initial parameters */
    quadratic->seed = seed;
    quadratic->deviation = deviation;
    for (uint32_t i = 0; i < QUADRATIC_TABLE + QUADRATIC_BLOCK; i++) {
        quadratic->optimum[i] = (float)(rng_normal(&rng) * (double)deviation);
        quadratic->noise[i] = (float)(heavy_tailed(&rng) * NOISE_DEVIATION * (double)deviation);
    }
}

/* Where a window begins (splitmix64's finish). */
static uint32_t window(uint64_t seed, uint64_t which)
{
    uint64_t key = seed + (which + 1) * UINT64_C(0x9E3779B97F4A7C15);
    key = (key ^ key >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    key = (key ^ key >> 27) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)(key >> 32) % QUADRATIC_TABLE;
}

bool quadratic_is_sane(const float *x, uint32_t count)
{
    int32_t insane = 0;
    for (uint32_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        insane |= (bits & INT32_MAX) > SANE_BITS;
    }
    return insane == 0;
}

static void add_squares(const struct quadratic *quadratic, float squares[QUADRATIC_BLOCK],
                        uint32_t count, struct quadratic_sums *sums)
{
    double unit = (double)quadratic->deviation * (double)quadratic->deviation;
    for (uint32_t half = QUADRATIC_BLOCK / 2; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            squares[i] += squares[i + half];
    sums->distance2 += (double)squares[0] / unit;
    sums->parameters += count;
}

void quadratic_measure(const struct quadratic *quadratic, uint64_t block, const float *x,
                       uint32_t count, struct quadratic_sums *sums)
{
    const float *optimum = quadratic->optimum + window(quadratic->seed, block);
    float tolerance2 = (float)(QUADRATIC_TOLERANCE * QUADRATIC_TOLERANCE) * quadratic->deviation *
                       quadratic->deviation;
    float squares[QUADRATIC_BLOCK] = {0};
    for (uint32_t i = 0; i < count; i++) {
        float distance = optimum[i] - x[i];
        squares[i] = distance * distance;
        sums->hits += squares[i] < tolerance2;
    }
    add_squares(quadratic, squares, count, sums);
}

void quadratic_step(const struct quadratic *quadratic, uint64_t block, uint64_t draw, float rate,
                    float *restrict x, uint32_t count, struct quadratic_sums *sums)
{
    const float *optimum = quadratic->optimum + window(quadratic->seed, block);
    const float *noise = quadratic->noise + window(draw, block);
    float squares[QUADRATIC_BLOCK] = {0};
    for (uint32_t i = 0; i < count; i++) {
        float distance = optimum[i] - x[i];
        squares[i] = distance * distance;
        x[i] += rate * (distance + noise[i]);
    }
    add_squares(quadratic, squares, count, sums);
}
