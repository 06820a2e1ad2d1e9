/* Samples, blocks, and the order of blocks. Plain functions, any thread. Surprising: the order is
 * not a stored shuffle but a keyed permutation (a four-round Feistel network over the next even
 * number of bits, walked until it lands below the count), so that any position costs O(1) memory.
 */
#include "common/graph/data_plan.h"

/* Enough that two leases at the same time hardly ever share a block, few enough for anything that
 * counts per block. */
#define SYNTHETIC_BLOCKS 65536u
#define SYNTHETIC_HELD_OUT_SAMPLES 65536u

static enum status check_enough(const struct job_spec *spec, const struct data_plan *plan,
                                struct error *err)
{
    if (plan->train_samples < spec->training.batch_size)
        return error_set(err, STATUS_INVALID,
                         "the training data has %llu samples, less than one batch of %u; add data "
                         "or use a smaller batch_size",
                         (unsigned long long)plan->train_samples, spec->training.batch_size);
    if (plan->held_out_samples == 0)
        return error_set(err, STATUS_INVALID,
                         "there is no held-out sample to evaluate on; add "
                         "data or use a larger held_out_ratio");
    return STATUS_OK;
}

enum status data_plan_make(const struct job_spec *spec, uint64_t text_bytes, uint64_t train_images,
                           uint64_t held_out_images, struct data_plan *ret, struct error *err)
{
    struct data_plan plan = {.train_samples = train_images, .held_out_samples = held_out_images};
    if (spec->data.kind == DATA_TEXT) {
        uint64_t context = spec->model.context;
        /* Whole parts per million: no floating-point size that could round differently. */
        uint64_t parts = (uint64_t)(spec->data.held_out_ratio * 1e6 + 0.5);
        uint64_t held_out_bytes =
            text_bytes / 1000000 * parts + text_bytes % 1000000 * parts / 1000000;
        plan.held_out_offset = text_bytes - held_out_bytes;
        if (plan.held_out_offset > 0) /* a sample needs one byte more: the last target */
            plan.train_samples = (plan.held_out_offset - 1) / context;
        else
            plan.train_samples = 0;
        plan.held_out_samples = held_out_bytes > 0 ? (held_out_bytes - 1) / context : 0;
    }
    if (spec->data.kind == DATA_SYNTHETIC) {
        plan.train_samples = (uint64_t)SYNTHETIC_BLOCKS * DATA_BLOCK_SAMPLES;
        plan.held_out_samples = SYNTHETIC_HELD_OUT_SAMPLES;
    }
    enum status status = check_enough(spec, &plan, err);
    if (status)
        return status;
    plan.blocks = plan.train_samples / DATA_BLOCK_SAMPLES;
    if (plan.blocks == 0)
        plan.blocks = 1;
    *ret = plan;
    return STATUS_OK;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    x ^= x >> 27;
    x *= UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

uint64_t data_plan_block_at(uint64_t seed, uint64_t position, uint64_t blocks)
{
    if (blocks <= 1)
        return 0;
    uint64_t epoch = position / blocks, x = position % blocks;
    uint64_t key = mix(seed + UINT64_C(0x9E3779B97F4A7C15)) ^ mix(epoch + 1);
    unsigned bits = 64 - (unsigned)__builtin_clzll(blocks - 1); /* enough for blocks - 1 */
    unsigned half = (bits + 1) / 2;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (mix(key + right * 4 + round) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= blocks);
    return x;
}

uint64_t data_plan_lease_blocks(uint64_t steps, uint64_t batch_size)
{
    uint64_t samples;
    if (__builtin_mul_overflow(steps, batch_size, &samples))
        samples = UINT64_MAX - DATA_BLOCK_SAMPLES;
    uint64_t blocks = (samples + DATA_BLOCK_SAMPLES - 1) / DATA_BLOCK_SAMPLES;
    return blocks > 0 ? blocks : 1;
}
