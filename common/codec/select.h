/* The dense half of encoding one chunk: compute e and find its k largest. Two tables with the same
 * results: portable C, and AVX2 (chosen at run time). Plain functions on the caller's working
 * memory, any thread. */
#ifndef RAVEN_COMMON_CODEC_SELECT_H
#define RAVEN_COMMON_CODEC_SELECT_H

#include "common/codec/values.h"

/* One chunk's part of a struct codec_source; NULL vectors count as zero. */
struct chunk_input {
    const float *residual, *plus, *minus;
    float decay;
};

/* Working memory of one thread. */
struct chunk_work {
    float e[CODEC_CHUNK] __attribute__((aligned(64)));
    uint32_t greatest; /* magnitude, as float bits */
    /* AVX2 only: which entries reach `bound`, one bit each; of those magnitudes, bits and
     * positions, rising. */
    uint32_t bound;
    const float *ahead[2]; /* what comes next of the input */
    uint8_t marks[CODEC_CHUNK / 8] __attribute__((aligned(64)));
    uint32_t magnitudes[CODEC_CHUNK + 16] __attribute__((aligned(64)));
    uint32_t candidate_bits[CODEC_CHUNK + 16] __attribute__((aligned(64)));
    uint32_t candidates[CODEC_CHUNK + 16] __attribute__((aligned(64)));
    uint32_t last_threshold; /* of the chunk before; 0: unknown */
    struct selection selection;
};

struct select_kernels {
    const char *name;
    /* e[i] for i < length, from memory; notes the greatest. e may be input->residual or work->e. */
    void (*load)(const struct chunk_input *input, uint32_t length, float *e,
                 struct chunk_work *work);
    /* Notes the greatest again after e was changed. */
    void (*measure)(const float *e, uint32_t length, struct chunk_work *work);
    /* Fills count, indices and bits of work->selection. All of e is finite. */
    void (*select)(const float *e, uint32_t length, uint32_t k, struct chunk_work *work);
};

extern const struct select_kernels select_portable;
#if defined(__x86_64__)
extern const struct select_kernels select_avx2;
#endif
/* The fastest that this processor can run. */
const struct select_kernels *select_best(void);

/* codec_encoder_create with a table of the caller's choice (tests, benchmarks). */
enum status codec_encoder_create_with(struct pool *pool, const struct select_kernels *kernels,
                                      struct codec_encoder **ret) MUST_CHECK;

/* e of one entry: the definition, for both tables. */
static inline float chunk_input_at(const struct chunk_input *input, uint32_t i)
{
    float e = 0.0f;
    if (input->plus && input->minus)
        e = float_flush(float_flush(input->plus[i]) - float_flush(input->minus[i]));
    else if (input->plus)
        e = float_flush(input->plus[i]);
    else if (input->minus)
        e = 0.0f - float_flush(input->minus[i]); /* 0 - 0 is +0 */
    if (!input->residual)
        return e;
    float kept = float_flush(input->decay * float_flush(input->residual[i]));
    return input->plus || input->minus ? float_flush(kept + e) : kept;
}

#endif
