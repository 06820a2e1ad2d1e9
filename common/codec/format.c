/* The update code, version 2: header, geometry, bounds. Plain functions, any thread. Surprising: a
 * super-chunk begins at a 32-bit word, so that threads and devices write theirs side by side and
 * the parts are joined by copying.
 *
 * A payload is a header, a table and a body. Integers are little-endian.
 *
 *   offset size
 *        0    4  magic "RVUC"
 *        4    1  format version 2
 *        5    1  index coder: 1 = gaps in Rice code; 0 = none, every entry is sent
 *        6    1  value coder, see enum codec_values; index coder 0 goes with coder 5 only
 *        7    1  zero
 *        8    8  n, parameters
 *       16    4  k, coordinates per chunk, 1 … 512; 4096 with value coder 5
 *       20    4  zero
 *       24    8  bytes that follow the header
 *       32    8  XXH3-64 of all bytes after the header, seeded with XXH3-64 of bytes 0 … 31
 *       40       table: for every 256 chunks (a super-chunk), 8 bytes: where its bits begin, in
 *                bytes from the end of the table, a multiple of 4
 *                body: the super-chunks one after the other. In each, chunk after chunk as a string
 *                of bits: bit i is bit i mod 8 of byte i / 8, numbers low bit first; then zero bits
 *                up to the next multiple of 4 bytes
 *
 * A chunk has `length` entries (4096, the last of a payload may have fewer) and up to
 * whole = min(k, length) coordinates:
 *
 *   scale     8 bits. 0: no coordinates, nothing follows. 1 … 254: `whole` coordinates.
 *             255: fewer (an entry that is zero is never sent); then follow the real scale, 8 bits,
 *             and the count, 9 bits, 1 … whole - 1.
 *   second    only coder 2: the scale of the small magnitudes, 8 bits, 1 … scale
 *   indices   rising. Each is sent as its distance from the lowest index that is still possible, in
 *             Rice code: distance >> b ones, a zero, the low b bits; b depends on length and count
 *             (format_rice_bits: 5 for k = 64, 4 for k = 128)
 *   values    in the order of the indices, each 1, 2, 4 or 8 bits
 *
 * The value coders:
 *
 *   1 sign    bit: 1 = negative. Scale s stands for the magnitude 2^(-48 + (s - 1) / 4), rounded to
 *             the nearest float (values.c has the four fractions).
 *   2 two     low bit: 1 = negative; high bit: 1 = the magnitude of scale, 0 = of second
 *   3 four    low bit: 1 = negative; 3 bits: level l. Scale is the biased float exponent of the
 *             largest magnitude; a magnitude's float bits without the low 22 (so one bit of
 *             fraction is left) are 2 · scale + 1 - l, and at least 2
 *   4 eight   the same with 7 bits of level and four bits of fraction: 16 · scale + 15 - l, at
 *             least 16
 *   5 fp32    chunks have no scale and no indices: every entry, 32 bits; never infinite, NaN,
 *             denormal or -0
 *
 * What the encoder sends: the `whole` largest magnitudes (denormals are zero; of equal ones those
 * with the lower index; never a zero).
 *   Coder 1: the scale nearest to their mean on the logarithmic grid, at most 254. The mean is
 * taken in integers: every magnitude as a multiple of 2^-31 of the power of two below the chunk's
 * largest, rest cut off. Borders between scales are 2^((j + 1/2) / 4), rounded up to such a
 * multiple (values.c). A chunk whose scale would be under 1 is sent without coordinates.
 *   Coder 2: large is what reaches the mean of all (in the same integers); both means as in coder
 * 1, the small one's at least 1; without small ones second = scale.
 *   Coders 3, 4: scale is the largest exponent; magnitudes are rounded to nearest, halves away from
 * zero, then kept within the levels.
 * The sender subtracts what was decoded from what it holds. */
#include "common/codec/format.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/codec/bits.h"

#define MAGIC "RVUC"
#define FORMAT_VERSION 2
#define INDEX_ALL 0
#define INDEX_RICE 1
#define CHECKSUM_AT 32

_Static_assert(FORMAT_HEADER_BYTES == CHECKSUM_AT + 8, "the checksum ends the header");
_Static_assert(FORMAT_HEADER_BYTES % FORMAT_WORD_BYTES == 0, "bodies begin at a word");
_Static_assert(CODEC_K_MAX <= 1u << COUNT_BITS, "a count below k fits its field");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "codec_hash reads memory as it lies");

uint32_t format_value_bits(enum codec_values values)
{
    static const uint32_t bits[] = {0, 1, 2, 4, 8, 32};
    return bits[values];
}

bool format_is_valid(struct codec_format format)
{
    if (format.values < CODEC_SIGN || format.values > CODEC_FP32)
        return false;
    return format.values == CODEC_FP32 || (format.k >= 1 && format.k <= CODEC_K_MAX);
}

uint64_t codec_super_chunks(uint64_t n)
{
    uint64_t chunks = format_chunks(n);
    return chunks / CODEC_SUPER_CHUNK + (chunks % CODEC_SUPER_CHUNK != 0);
}

uint32_t format_rice_bits(uint32_t length, uint32_t count)
{
    uint64_t have = (uint64_t)1000 * count * (2 * length + count);
    uint64_t need = (uint64_t)957 * length * length;
    uint32_t b = 0;
    while (have << b < need)
        b++;
    return b;
}

/* A shorter chunk has a smaller Rice parameter, which may cost up to 0.045 bits more a coordinate
 * than the next one: hence the sixteenth. */
static uint64_t chunk_bits_max(struct codec_format format)
{
    if (format.values == CODEC_FP32)
        return 32ul * CODEC_CHUNK;
    uint64_t most = 0;
    for (uint32_t count = 1; count <= format.k; count++) {
        uint32_t b = format_rice_bits(CODEC_CHUNK, count);
        uint32_t value_bits = format_value_bits(format.values);
        uint64_t bits =
            (uint64_t)count * (b + 1 + value_bits) + (CODEC_CHUNK >> b) + (count + 15) / 16;
        most = bits > most ? bits : most;
    }
    return 3ul * SCALE_BITS + COUNT_BITS + most;
}

uint64_t format_super_chunk_bytes_max(uint64_t chunks, struct codec_format format)
{
    return (chunks * chunk_bits_max(format) + 31) / 32 * FORMAT_WORD_BYTES;
}

size_t codec_bytes_max(uint64_t n, struct codec_format format)
{
    if (!format_is_valid(format))
        return 0;
    /* Cannot overflow: at most 2^52 chunks of fewer than 2^13 bits, but for fp32. */
    uint64_t supers = codec_super_chunks(n), chunks = format_chunks(n);
    uint64_t table = FORMAT_HEADER_BYTES + supers * (8 + FORMAT_WORD_BYTES + BIT_SLACK_BYTES);
    if (format.values == CODEC_FP32)
        return n > (SIZE_MAX - table) / 4 ? SIZE_MAX : (size_t)(table + n * 4);
    return (size_t)(table + chunks / 8 * chunk_bits_max(format) +
                    chunks % 8 * chunk_bits_max(format) / 8 + 1);
}

static uint64_t checksum_of(const uint8_t *data, size_t bytes)
{
    return checksum_xxh3_seeded(data + FORMAT_HEADER_BYTES, bytes - FORMAT_HEADER_BYTES,
                                checksum_xxh3(data, CHECKSUM_AT));
}

static uint32_t index_coder(enum codec_values values)
{
    return values == CODEC_FP32 ? INDEX_ALL : INDEX_RICE;
}

void format_header_write(const struct format_header *header, uint8_t *ret)
{
    enum codec_values values = header->format.values;
    memcpy(ret, MAGIC, 4);
    ret[4] = FORMAT_VERSION;
    ret[5] = (uint8_t)index_coder(values);
    ret[6] = (uint8_t)values;
    ret[7] = 0;
    store_u64(ret + 8, header->n);
    store_u32(ret + 16, values == CODEC_FP32 ? CODEC_CHUNK : header->format.k);
    store_u32(ret + 20, 0);
    store_u64(ret + 24, header->body_bytes);
    store_u64(ret + CHECKSUM_AT,
              checksum_of(ret, FORMAT_HEADER_BYTES + (size_t)header->body_bytes));
}

static enum status refuse(struct error *err, const char *what)
{
    return error_set(err, STATUS_CORRUPT, "update code refused: %s", what);
}

static bool coders_are_known(const uint8_t *data)
{
    return data[6] >= CODEC_SIGN && data[6] <= CODEC_FP32 &&
           data[5] == index_coder((enum codec_values)data[6]);
}

enum status format_header_read(const uint8_t *data, size_t bytes, uint64_t n,
                               struct format_header *ret, struct error *err)
{
    if (bytes < FORMAT_HEADER_BYTES)
        return refuse(err, "shorter than its header");
    if (memcmp(data, MAGIC, 4) != 0)
        return refuse(err, "wrong magic");
    if (load_u64(data + CHECKSUM_AT) != checksum_of(data, bytes))
        return refuse(err, "wrong checksum");
    if (data[4] != FORMAT_VERSION)
        return refuse(err, "unknown version");
    if (!coders_are_known(data))
        return refuse(err, "unknown coder");
    struct format_header header = {
        .n = load_u64(data + 8),
        .body_bytes = load_u64(data + 24),
        .format = {.values = (enum codec_values)data[6], .k = load_u32(data + 16)},
    };
    if (data[7] != 0 || load_u32(data + 20) != 0)
        return refuse(err, "reserved field is not zero");
    if (header.n != n)
        return refuse(err, "made for another number of parameters");
    if (header.format.values == CODEC_FP32 ? header.format.k != CODEC_CHUNK
                                           : !format_is_valid(header.format))
        return refuse(err, "k out of range");
    if (header.body_bytes != bytes - FORMAT_HEADER_BYTES ||
        header.body_bytes / 8 < codec_super_chunks(n))
        return refuse(err, "wrong length");
    *ret = header;
    return STATUS_OK;
}

uint64_t codec_hash(const float *w, uint64_t n)
{
    return checksum_xxh3(w, (size_t)n * sizeof *w);
}
