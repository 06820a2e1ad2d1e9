/* The update code, version 1: which of a model's n parameters changed, and by how much, in about
 * 1/237 of the bytes (k = 64). Used for updates going up and deltas coming down.
 *
 * The n parameters, in the layout's flat order, are cut into chunks of 4096 (the last may be
 * short). Per chunk the k coordinates largest in magnitude are sent (all of them when the chunk has
 * fewer than k; never a zero); equal magnitudes at the threshold go to the lower index. All that
 * are sent from one chunk share one magnitude, about their mean; each has its own sign. The byte
 * layout is written out in prose at the top of codec.c and in docs/FORMATS.md.
 *
 * Bit-identity: the same input gives the same bytes, and decoding gives the same floats, on every
 * machine and compiler: integer scales, no floating-point division or square root, no contraction,
 * denormals read and written as zero. Plain functions, any thread. Slow, obvious reference. */
#ifndef RAVEN_COMMON_CODEC_CODEC_H
#define RAVEN_COMMON_CODEC_CODEC_H

#include "common/base/buffer.h"
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define CODEC_CHUNK 4096u
#define CODEC_K_MAX 512u
#define CODEC_NAME "chunk-topk-sign-rice.1" /* what agents announce in hello.codecs */

/* An upper bound of what codec_encode can produce for n parameters; SIZE_MAX when that does not
 * fit. */
size_t codec_bytes_max(uint64_t n, uint32_t k);

/* Compresses residual[n] with k coordinates per chunk, appends the bytes to ret, and subtracts what
 * was sent: residual[i] -= decoded[i]; denormals become zero. ret must have room for
 * codec_bytes_max(n, k). Infinite or NaN entries: STATUS_NOT_FINITE. k: 1 … CODEC_K_MAX, else
 * STATUS_INVALID. On failure residual and ret are untouched. */
enum status codec_encode(float *residual, uint64_t n, uint32_t k, struct buffer *ret) MUST_CHECK;

struct codec_info {
    uint64_t n;
    uint32_t k;
    uint64_t coordinates; /* how many parameters the payload changes */
};

/* Checks the whole payload without writing anything: checksum first, then every length, index,
 * count and the canonical form; exact length. n is what the caller expects. Any bytes are safe.
 * Returns STATUS_CORRUPT with the first disagreement in err (may be NULL). */
enum status codec_check(const void *data, size_t bytes, uint64_t n, struct codec_info *ret,
                        struct error *err) MUST_CHECK;

/* target[i] += factor * decoded[i] for every coordinate sent (one fp32 product, one fp32 sum, in
 * index order; denormals become zero). Runs codec_check first: on failure target[n] is untouched.
 * A factor that is not finite: STATUS_INVALID. */
enum status codec_decode_add(const void *data, size_t bytes, float factor, float *target,
                             uint64_t n, struct error *err) MUST_CHECK;

/* XXH3-64 of the little-endian fp32 bytes of w[n]: the hash(w) of every version. */
uint64_t codec_hash(const float *w, uint64_t n);

#endif
