/* The update code, version 2: which of a model's n parameters changed, and by how much, in about
 * 1/237 of the bytes (sign coder, k = 64). Carries updates up and deltas down.
 *
 * The n parameters, in the layout's flat order, are cut into chunks of 4096 (the last may be
 * short). Per chunk the k coordinates largest in magnitude are sent (all of them when the chunk has
 * fewer than k; never a zero); equal magnitudes at the threshold go to the lower index. What was
 * not sent stays with the sender. The byte layout is written out in prose at the top of format.c.
 *
 * Bit-identity: the same input gives the same bytes, and decoding gives the same floats, on every
 * machine, compiler, thread count and device: integer selection and scales, no floating-point
 * division or square root, no contraction; "flushed" below means that denormals and -0 become
 * +0. */
#ifndef RAVEN_COMMON_CODEC_CODEC_H
#define RAVEN_COMMON_CODEC_CODEC_H

#include "common/base/buffer.h"
#include "common/base/pool.h"
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define CODEC_CHUNK 4096u
#define CODEC_SUPER_CHUNK 256u /* chunks; the unit of parallel decoding */
#define CODEC_K_MAX 512u
#define CODEC_NAME "chunk-topk-rice.2" /* what agents announce in hello.codecs */

/* How the value of a coordinate is written. The numbers are the format's. */
enum codec_values {
    CODEC_SIGN = 1,       /* 1 bit: all of a chunk have one magnitude, about their mean */
    CODEC_TWO_BITS = 2,   /* sign and one of two magnitudes: the means of the large and the small */
    CODEC_FOUR_BITS = 3,  /* sign and a 3-bit float, 4 octaves below the chunk's largest */
    CODEC_EIGHT_BITS = 4, /* sign and a 7-bit float, 8 octaves below the chunk's largest */
    CODEC_FP32 = 5,       /* every parameter, exactly; k has no meaning */
};

struct codec_format {
    enum codec_values values;
    uint32_t k; /* coordinates per chunk, 1 … CODEC_K_MAX; not looked at for CODEC_FP32 */
};

/* An upper bound of what can be made of n parameters; SIZE_MAX when that does not fit. */
size_t codec_bytes_max(uint64_t n, struct codec_format format);

/* --- decode ---------------------------------------------------------------------------------- */

/* A payload whose every byte was checked; refers to the caller's bytes, which must not change. */
struct codec_payload {
    const uint8_t *data;
    size_t bytes;
    uint64_t n;
    struct codec_format format;
    uint64_t coordinates; /* how many parameters it changes */
};

/* Checks everything: checksum first, then every length, index, count, value and the canonical form;
 * exact length. n is what the caller expects. Any bytes are safe. STATUS_CORRUPT with the first
 * disagreement in err (may be NULL). pool (may be NULL): checks super-chunks on its threads. */
enum status codec_open(const void *data, size_t bytes, uint64_t n, struct pool *pool,
                       struct codec_payload *ret, struct error *err) MUST_CHECK;

/* target[i] += factor · decoded[i] for every coordinate sent: one fp32 product, one fp32 sum, each
 * flushed. factor must be finite. pool may be NULL. */
void codec_add(const struct codec_payload *payload, float factor, float *target, struct pool *pool);

/* codec_open and codec_add on this thread: on failure target[n] is untouched. A factor that is not
 * finite: STATUS_INVALID. */
enum status codec_decode_add(const void *data, size_t bytes, float factor, float *target,
                             uint64_t n, struct error *err) MUST_CHECK;

/* What one chunk sends: target[first + indices[i]] gets values[i], indices rising. */
struct codec_chunk {
    uint64_t first;
    uint32_t length, count;
    uint16_t indices[CODEC_CHUNK];
    float values[CODEC_CHUNK];
};

/* Walks the chunks of one super-chunk in order. */
struct codec_reader {
    const struct codec_payload *payload;
    uint64_t chunk, chunk_end;
    const uint8_t *start, *limit; /* of the super-chunk's bits; end of the payload */
    uint64_t bit, bit_end;        /* the next one, and how many there are */
    bool overrun;
    const float *target; /* NULL, or the vector whose entries the caller will change: fetched while
                          * indices are read */
};

uint64_t codec_super_chunks(uint64_t n);
void codec_reader_init(struct codec_reader *reader, const struct codec_payload *payload,
                       uint64_t super_chunk);
/* False after the last chunk. */
bool codec_reader_next(struct codec_reader *reader, struct codec_chunk *ret);

/* --- encode ---------------------------------------------------------------------------------- */

/* What is encoded: e[i] = decay · residual[i] + (plus[i] - minus[i]) - Σ decoded(subtract)[i], each
 * input and each step's result rounded to fp32 and flushed; NULL vectors count as zero. All are
 * read once. */
struct codec_source {
    float *residual; /* becomes e - decoded */
    float decay;     /* 0 … 1 */
    const float *plus, *minus;
    const struct codec_payload *const *subtract;
    size_t subtract_count; /* at most CODEC_SUBTRACT_MAX */
    float *add_to;         /* NULL, or add_to[i] += decoded[i]; may be `minus` */
    uint64_t *ret_hash;    /* NULL, or gets codec_hash(add_to); then one thread does all */
    /* NULL, or called around each super-chunk by the thread that encodes it: whoever else writes to
     * an input does so while none is being read. */
    void (*before)(void *user), (*after)(void *user);
    void *user;
};

#define CODEC_SUBTRACT_MAX 16u

struct codec_encoder;

/* Owns the working memory (some 100 kB per thread), so that encoding allocates nothing. pool: NULL
 * or must outlive the encoder. One thread calls an encoder at a time. */
enum status codec_encoder_create(struct pool *pool, struct codec_encoder **ret) MUST_CHECK;
void codec_encoder_free(struct codec_encoder *encoder); /* NULL is fine */

/* Appends the payload to ret, which must have room for codec_bytes_max more bytes. STATUS_INVALID:
 * k or decay out of range; STATUS_TOO_LARGE, STATUS_NO_MEMORY: no room; nothing changed.
 * STATUS_NOT_FINITE: err names the first entry of e that is infinite or NaN; ret is unchanged,
 * residual and add_to are worthless from then on (parts may have left them). err may be NULL. */
enum status codec_encode(struct codec_encoder *encoder, const struct codec_source *source,
                         uint64_t n, struct codec_format format, struct buffer *ret,
                         struct error *err) MUST_CHECK;

/* XXH3-64 of the little-endian fp32 bytes of w[n]: the hash(w) of every version. */
uint64_t codec_hash(const float *w, uint64_t n);

#endif
