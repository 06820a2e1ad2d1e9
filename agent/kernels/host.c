/* The kernels as plain C: every group of a call, one after the other, on the caller's thread; and
 * the sizes that a caller needs. Surprising: the group's number reaches the kernel through a
 * thread's variable, as it does on a device, where it is no argument either. */
#include "agent/kernels/kernels.h"

#include "common/codec/format.h"

static _Thread_local uint32_t group_now;
#define RK_GROUP_ID group_now
#include "agent/kernels/kernel_defs.h"

#include "agent/kernels/update_code.kernel.h"

#include "agent/kernels/update_encode.kernel.h"

#include "agent/kernels/update_add.kernel.h"

_Static_assert(CHUNK == CODEC_CHUNK && SUPER_CHUNK == CODEC_SUPER_CHUNK && K_MAX == CODEC_K_MAX,
               "the format's sizes");
_Static_assert(VALUES_SIGN == CODEC_SIGN && VALUES_TWO == CODEC_TWO_BITS &&
                   VALUES_FOUR == CODEC_FOUR_BITS && CODEC_EIGHT_BITS == CODEC_FOUR_BITS + 1,
               "the format's coders");
_Static_assert(WITH_RESIDUAL == KERNELS_RESIDUAL && WITH_PLUS == KERNELS_PLUS &&
                   WITH_MINUS == KERNELS_MINUS && WITH_ADD_TO == KERNELS_ADD_TO &&
                   BITS_NOT_FINITE == KERNELS_NOT_FINITE && RK_GROUP_ITEMS == KERNELS_GROUP_ITEMS,
               "what kernels.h promises");
_Static_assert(sizeof(struct encode_memory) <= 32 * 1024, "local memory of one group");

uint32_t kernels_chunk_words_max(struct codec_format format)
{
    return (uint32_t)(format_super_chunk_bytes_max(1, format) / FORMAT_WORD_BYTES);
}

uint32_t kernels_super_words_max(struct codec_format format)
{
    return (uint32_t)(format_super_chunk_bytes_max(CODEC_SUPER_CHUNK, format) / FORMAT_WORD_BYTES);
}

static uint32_t parts(uint32_t whole, uint32_t part)
{
    return whole / part + (whole % part != 0);
}

uint32_t kernels_encode_groups(uint32_t chunks)
{
    return chunks;
}

uint32_t kernels_join_groups(uint32_t chunks)
{
    return parts(chunks, CODEC_SUPER_CHUNK);
}

uint32_t kernels_add_groups(uint32_t chunks)
{
    return parts(chunks, ADD_CHUNKS);
}

void kernels_host_update_encode(uint32_t groups, float *residual, const float *plus,
                                const float *minus, float *add_to, float decay, uint32_t present,
                                uint32_t n_low, uint32_t n_high, uint32_t first_chunk,
                                uint32_t values, uint32_t k, uint32_t *chunk_words,
                                uint32_t chunk_stride, uint32_t *chunk_bits)
{
    for (group_now = 0; group_now < groups; group_now++)
        update_encode(residual, plus, minus, add_to, decay, present, n_low, n_high, first_chunk,
                      values, k, chunk_words, chunk_stride, chunk_bits);
}

void kernels_host_update_join(uint32_t groups, const uint32_t *chunk_words, uint32_t chunk_stride,
                              const uint32_t *chunk_bits, uint32_t chunks, uint32_t *slots,
                              uint32_t slot_stride, uint32_t *super_words)
{
    for (group_now = 0; group_now < groups; group_now++)
        update_join(chunk_words, chunk_stride, chunk_bits, chunks, slots, slot_stride, super_words);
}

void kernels_host_update_add(uint32_t groups, const uint32_t *words,
                             const uint32_t *chunk_offsets_low, const uint32_t *chunk_offsets_high,
                             uint32_t n_low, uint32_t n_high, uint32_t first_chunk, uint32_t chunks,
                             uint32_t values, uint32_t k, float factor, float *target)
{
    for (group_now = 0; group_now < groups; group_now++)
        update_add(words, chunk_offsets_low, chunk_offsets_high, n_low, n_high, first_chunk, chunks,
                   values, k, factor, target);
}
