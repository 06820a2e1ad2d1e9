/* The update code on devices: what the kernels of update_code.kernel.h are called with, their text
 * for OpenCL, their images for CUDA, and the same source compiled as plain C. Constants and plain
 * functions, any thread. Value coders 1 … 4; CODEC_FP32 needs no kernel.
 *
 * All kernels run in groups of KERNELS_GROUP_ITEMS items, one dimension, no dynamic local memory. A
 * call works on a batch of `chunks` neighbouring chunks, first_chunk … first_chunk + chunks - 1.
 * Arguments are u32, float and pointers, in the order of the kernels_host_ functions below without
 * `groups`. n = n_high · 2^32 + n_low parameters. One update:
 *
 *   update_encode  per batch, which begins at a super-chunk (first_chunk a multiple of 256)
 *   update_join    the batch's chunks become super-chunks, in slots
 *
 * The payload is the header, the table (8 bytes for each super-chunk) and the slots' words, one
 * super-chunk after the other. */
#ifndef RAVEN_AGENT_KERNELS_KERNELS_H
#define RAVEN_AGENT_KERNELS_KERNELS_H

#include "common/codec/codec.h"

#include <stddef.h>
#include <stdint.h>

#define KERNELS_GROUP_ITEMS 256u

/* Bits of update_encode's `present`; an absent vector's argument is any valid pointer. */
#define KERNELS_RESIDUAL 1u
#define KERNELS_PLUS 2u
#define KERNELS_MINUS 4u
#define KERNELS_ADD_TO 8u

/* chunk_bits[g] with this bit: an entry of e is infinite or NaN; the low 12 bits say which, counted
 * from the chunk's beginning (the first one). Nothing else of the chunk is of use then. */
#define KERNELS_NOT_FINITE 0x80000000u

/* chunk_stride and slot_stride: words that one chunk, one super-chunk takes at most. */
uint32_t kernels_chunk_words_max(struct codec_format format);
uint32_t kernels_super_words_max(struct codec_format format);

/* Groups to start for a batch of so many chunks. */
uint32_t kernels_encode_groups(uint32_t chunks);
uint32_t kernels_join_groups(uint32_t chunks);
uint32_t kernels_add_groups(uint32_t chunks);

/* --- CUDA and OpenCL ------------------------------------------------------------------------- */

/* For clCreateProgramWithSource: dialect and kernels, NUL-terminated. Build with
 * "-cl-std=CL1.2" and no option that relaxes floating point. */
extern const char kernels_source[];

struct kernels_image {
    uint32_t sm; /* 75, 80, …: runs on devices of this major version and at least this minor one */
    const unsigned char *data; /* a cubin, for cuModuleLoadData */
    size_t bytes;
};

/* Rising in sm; count 0 when the build had no nvcc. */
void kernels_cuda_images(const struct kernels_image **ret, size_t *ret_count);
/* For devices from sm_75 on that no image fits; NUL-terminated; NULL without nvcc. */
const char *kernels_cuda_ptx(void);

/* --- the same source in plain C -------------------------------------------------------------- */

/* Each runs groups 0 … groups - 1, one after the other. */

/* Group g: chunk first_chunk + g becomes chunk_bits[g] bits at chunk_words[g · chunk_stride].
 * residual becomes e - decoded, add_to gets decoded added, both in place; add_to may be minus. The
 * bits are those of codec_encode. */
void kernels_host_update_encode(uint32_t groups, float *residual, const float *plus,
                                const float *minus, float *add_to, float decay, uint32_t present,
                                uint32_t n_low, uint32_t n_high, uint32_t first_chunk,
                                uint32_t values, uint32_t k, uint32_t *chunk_words,
                                uint32_t chunk_stride, uint32_t *chunk_bits);

/* Group s: joins chunks 256 s … of this batch of `chunks` (256 of them, the last group fewer) into
 * super_words[s] words at slots[s · slot_stride], the last one filled with zeros. A chunk that is
 * not finite counts as empty. */
void kernels_host_update_join(uint32_t groups, const uint32_t *chunk_words, uint32_t chunk_stride,
                              const uint32_t *chunk_bits, uint32_t chunks, uint32_t *slots,
                              uint32_t slot_stride, uint32_t *super_words);

/* target += factor · decoded as codec_add does it. words: a payload's body or a part of it, checked
 * by codec_open; chunk_offsets_…[c]: where in it chunk first_chunk + c begins, in bits. Nothing is
 * read beyond a valid chunk's last word; an invalid chunk changes only entries of its own. */
void kernels_host_update_add(uint32_t groups, const uint32_t *words,
                             const uint32_t *chunk_offsets_low, const uint32_t *chunk_offsets_high,
                             uint32_t n_low, uint32_t n_high, uint32_t first_chunk, uint32_t chunks,
                             uint32_t values, uint32_t k, float factor, float *target);

#endif
