/* Selection in portable C: the obvious way. Plain functions, any thread. Surprising: the k-th
 * largest magnitude is found by halving on the float's bits (for non-negative floats the order of
 * the bits is the order of the values), which needs no sort and cannot depend on the order of equal
 * entries. */
#include "common/codec/select.h"

static void measure(const float *e, uint32_t length, struct chunk_work *work)
{
    work->greatest = 0;
    for (uint32_t i = 0; i < length; i++) {
        uint32_t magnitude = float_bits(e[i]) & FLOAT_MAGNITUDE;
        work->greatest = magnitude > work->greatest ? magnitude : work->greatest;
    }
}

static void load(const struct chunk_input *input, uint32_t length, float *e,
                 struct chunk_work *work)
{
    for (uint32_t i = 0; i < length; i++)
        e[i] = chunk_input_at(input, i);
    measure(e, length, work);
}

static uint32_t count_at_least(const uint32_t *magnitudes, uint32_t length, uint32_t threshold)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < length; i++)
        count += magnitudes[i] >= threshold;
    return count;
}

/* The k-th largest magnitude, or any number that exactly k reach; 1 when fewer are not zero. */
static uint32_t find_threshold(const uint32_t *magnitudes, uint32_t length, uint32_t k)
{
    uint32_t threshold = 0;
    for (int bit = 30; bit >= 0; bit--) {
        uint32_t candidate = threshold | 1u << bit;
        uint32_t count = count_at_least(magnitudes, length, candidate);
        if (count >= k)
            threshold = candidate;
        if (count == k)
            break;
    }
    return threshold > 0 ? threshold : 1;
}

static void choose(const float *e, uint32_t length, uint32_t k, struct chunk_work *work)
{
    struct selection *selection = &work->selection;
    uint32_t *magnitudes = work->magnitudes;
    for (uint32_t i = 0; i < length; i++)
        magnitudes[i] = float_bits(e[i]) & FLOAT_MAGNITUDE;
    uint32_t threshold = find_threshold(magnitudes, length, k);
    uint32_t above = count_at_least(magnitudes, length, threshold + 1);
    uint32_t ties = above < k ? k - above : 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < length; i++) {
        bool tie = magnitudes[i] == threshold && ties > 0;
        if (magnitudes[i] <= threshold && !tie)
            continue;
        ties -= tie;
        selection->indices[count] = i;
        selection->bits[count++] = float_bits(e[i]);
    }
    selection->count = count;
}

const struct select_kernels select_portable = {"portable", load, measure, choose};

const struct select_kernels *select_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"))
        return &select_avx2;
#endif
    return &select_portable;
}
