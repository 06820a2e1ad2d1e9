/* The update code, version 1: whole payloads; chunk.c has the chunks. Plain functions, any thread.
 * Surprising: the encoder asks for the worst-case room first, so that nothing can fail after the
 * first entry of the residual was changed.
 *
 * A payload is a header, a table and a bit string. Integers are little-endian.
 *
 *   offset size
 *        0    4  magic "RVU1"
 *        4    1  format version 1
 *        5    1  index coder: 1 = gaps in Rice code
 *        6    1  value coder: 1 = one scale per chunk and one sign per coordinate
 *        7    1  base: the biased float exponent (1 … 254) of the largest magnitude in the
 * residual, 0 exactly when no coordinate is sent 8    8  n, parameters 16    4  k, coordinates per
 * chunk, 1 … 512 20    4  zero 24    8  number of chunks, n / 4096 rounded up 32    8  bytes that
 * follow the header 40    8  XXH3-64 of all bytes after the header, seeded with XXH3-64 of bytes 0
 * … 39 48       table: for every 256 chunks (a super-chunk), 8 bytes: the offset of its first bit
 * in the bit string, so that parts can be decoded in parallel bit string: the chunks one after the
 * other; bit i is bit i mod 8 of byte i / 8, numbers low bit first; the last byte is filled with
 * zeros
 *
 * A chunk has `length` entries (4096, the last of a payload may have fewer) and up to
 * whole = min(k, length) coordinates:
 *
 *   scale     8 bits. 0: no coordinates, nothing follows. 1 … 254: `whole` coordinates.
 *             255: fewer (an entry that is zero is never sent); then follow the real scale, 8 bits,
 *             and the count, 9 bits, 1 … whole - 1.
 *   indices   rising. Each is sent as its distance from the lowest index that is still possible, in
 *             Rice code: distance >> b ones, a zero, the low b bits. b is the smallest number with
 *             1000 · count · 2^b · (2 length + count) >= 957 · length²: 5 for k = 64, 4 for k =
 * 128. signs     count bits, 1 = negative, in the order of the indices
 *
 * Every coordinate of a chunk has the magnitude that its scale s stands for. Let d = 254 - s steps
 * of an eighth of an octave: the float with exponent base - d / 8 and fraction 2^((7 - d mod 8) /
 * 8), rounded to nearest (the table in chunk.c). It must be a normal number.
 *
 * The encoder sends the `whole` largest magnitudes (denormals are zero; of equal ones those with
 * the lower index; never a zero) and takes the scale nearest to their mean on the logarithmic grid,
 * the mean taken in integers: every magnitude as a multiple of 2^-31 of the power of two below the
 * largest, rest cut off. A mean above scale 254 (next to the largest float) gets 254; a chunk whose
 * scale would be under 1 is sent without coordinates. What was not sent stays in the residual. */
#include "common/codec/codec.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/codec/chunk.h"

#define MAGIC "RVU1"
#define FORMAT_VERSION 1
#define INDEX_RICE 1
#define VALUE_SIGN 1
#define HEADER_BYTES 48u
#define CHECKSUM_AT 40
#define SUPER_CHUNK 256u

_Static_assert(HEADER_BYTES == CHECKSUM_AT + 8, "the checksum ends the header");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "codec_hash reads memory as it lies");

struct header {
    uint64_t n, chunks, table_bytes, body_bytes;
    uint32_t k, base;
};

static uint64_t chunks_of(uint64_t n)
{
    return n / CODEC_CHUNK + (n % CODEC_CHUNK != 0);
}

static uint64_t table_bytes_of(uint64_t chunks)
{
    return (chunks / SUPER_CHUNK + (chunks % SUPER_CHUNK != 0)) * 8;
}

static uint32_t chunk_length(uint64_t n, uint64_t chunk)
{
    uint64_t left = n - chunk * CODEC_CHUNK;
    return left < CODEC_CHUNK ? (uint32_t)left : CODEC_CHUNK;
}

size_t codec_bytes_max(uint64_t n, uint32_t k)
{
    uint32_t tail = (uint32_t)(n % CODEC_CHUNK);
    /* Cannot overflow: fewer than 2^52 chunks of fewer than 2^12 bits. */
    uint64_t bits = n / CODEC_CHUNK * chunk_bits_max(CODEC_CHUNK, k);
    if (tail > 0)
        bits += chunk_bits_max(tail, k);
    return HEADER_BYTES + (size_t)table_bytes_of(chunks_of(n)) + (size_t)(bits / 8 + 1);
}

static uint64_t checksum_of(const uint8_t *data, size_t bytes)
{
    return checksum_xxh3_seeded(data + HEADER_BYTES, bytes - HEADER_BYTES,
                                checksum_xxh3(data, CHECKSUM_AT));
}

/* --- encode ---------------------------------------------------------------------------------- */

static bool find_base(const float *residual, uint64_t n, uint32_t *ret)
{
    uint32_t base = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t exponent = float_exponent(residual[i]);
        base = exponent > base ? exponent : base;
    }
    bool finite = base <= FLOAT_EXPONENT_MAX;
    *ret = base > 0 && base < FLOAT_EXPONENT_MAX ? base + 1 : base;
    return finite;
}

static void subtract(const struct chunk *chunk, float *residual, uint32_t length)
{
    for (uint32_t i = 0; i < chunk->count; i++) {
        float *entry = residual + chunk->indices[i];
        *entry -= chunk->negative[i] ? -chunk->magnitude : chunk->magnitude;
    }
    for (uint32_t i = 0; i < length; i++)
        residual[i] = float_flush(residual[i]);
}

static void write_header(const struct header *header, uint8_t *ret)
{
    memcpy(ret, MAGIC, 4);
    ret[4] = FORMAT_VERSION;
    ret[5] = INDEX_RICE;
    ret[6] = VALUE_SIGN;
    ret[7] = (uint8_t)header->base;
    store_u64(ret + 8, header->n);
    store_u32(ret + 16, header->k);
    store_u32(ret + 20, 0);
    store_u64(ret + 24, header->chunks);
    store_u64(ret + 32, header->body_bytes);
    store_u64(ret + CHECKSUM_AT, checksum_of(ret, HEADER_BYTES + header->body_bytes));
}

enum status codec_encode(float *residual, uint64_t n, uint32_t k, struct buffer *ret)
{
    if (k < 1 || k > CODEC_K_MAX)
        return STATUS_INVALID;
    struct header header = {.n = n, .chunks = chunks_of(n), .k = k};
    header.table_bytes = table_bytes_of(header.chunks);
    if (!find_base(residual, n, &header.base))
        return STATUS_NOT_FINITE;
    enum status status = buffer_reserve(ret, codec_bytes_max(n, k));
    if (status != STATUS_OK)
        return status;

    uint8_t *out = ret->data + ret->bytes;
    uint8_t *table = out + HEADER_BYTES;
    struct bit_writer writer = {.data = table + header.table_bytes};
    for (uint64_t i = 0; i < header.chunks; i++) {
        struct chunk chunk;
        uint32_t length = chunk_length(n, i);
        float *entries = residual + i * CODEC_CHUNK;
        if (i % SUPER_CHUNK == 0)
            store_u64(table + i / SUPER_CHUNK * 8, writer.at);
        chunk_make(entries, length, k, header.base, &chunk);
        chunk_write(&chunk, length, k, &writer);
        subtract(&chunk, entries, length);
    }
    header.body_bytes = header.table_bytes + (writer.at + 7) / 8;
    write_header(&header, out);
    ret->bytes += HEADER_BYTES + (size_t)header.body_bytes;
    return STATUS_OK;
}

/* --- check and decode ------------------------------------------------------------------------ */

static enum status corrupt(struct error *err, const char *what)
{
    return error_set(err, STATUS_CORRUPT, "update code refused: %s", what);
}

static enum status read_header(const uint8_t *data, size_t bytes, uint64_t n, struct header *ret,
                               struct error *err)
{
    if (bytes < HEADER_BYTES)
        return corrupt(err, "shorter than its header");
    if (memcmp(data, MAGIC, 4) != 0)
        return corrupt(err, "wrong magic");
    if (load_u64(data + CHECKSUM_AT) != checksum_of(data, bytes))
        return corrupt(err, "wrong checksum");
    if (data[4] != FORMAT_VERSION || data[5] != INDEX_RICE || data[6] != VALUE_SIGN)
        return corrupt(err, "unknown version or coder");
    struct header header = {
        .n = load_u64(data + 8),
        .chunks = load_u64(data + 24),
        .body_bytes = load_u64(data + 32),
        .k = load_u32(data + 16),
        .base = data[7],
    };
    header.table_bytes = table_bytes_of(chunks_of(n));
    if (header.n != n)
        return corrupt(err, "made for another number of parameters");
    if (header.k < 1 || header.k > CODEC_K_MAX)
        return corrupt(err, "k out of range");
    if (header.base > FLOAT_EXPONENT_MAX || load_u32(data + 20) != 0)
        return corrupt(err, "base or reserved field out of range");
    if (header.chunks != chunks_of(n))
        return corrupt(err, "wrong number of chunks");
    if (header.body_bytes != bytes - HEADER_BYTES || header.body_bytes < header.table_bytes)
        return corrupt(err, "wrong length");
    *ret = header;
    return STATUS_OK;
}

static struct bit_reader reader_of(const uint8_t *data, const struct header *header)
{
    return (struct bit_reader){
        .data = data + HEADER_BYTES + header->table_bytes,
        .end = (header->body_bytes - header->table_bytes) * 8,
    };
}

static enum status check_chunks(const uint8_t *data, const struct header *header,
                                struct bit_reader *reader, uint64_t *ret_coordinates,
                                struct error *err)
{
    uint64_t coordinates = 0;
    for (uint64_t i = 0; i < header->chunks; i++) {
        struct chunk chunk;
        if (i % SUPER_CHUNK == 0 &&
            load_u64(data + HEADER_BYTES + i / SUPER_CHUNK * 8) != reader->at)
            return corrupt(err, "wrong offset in its table");
        const char *complaint =
            chunk_read(reader, chunk_length(header->n, i), header->k, header->base, &chunk);
        if (complaint)
            return error_set(err, STATUS_CORRUPT, "update code refused: chunk %llu: %s",
                             (unsigned long long)i, complaint);
        coordinates += chunk.count;
    }
    *ret_coordinates = coordinates;
    return STATUS_OK;
}

static enum status check(const uint8_t *data, size_t bytes, uint64_t n, struct header *ret_header,
                         struct codec_info *ret, struct error *err)
{
    struct header header = {0};
    enum status status = read_header(data, bytes, n, &header, err);
    if (status != STATUS_OK)
        return status;
    struct bit_reader reader = reader_of(data, &header);
    uint64_t coordinates = 0;
    status = check_chunks(data, &header, &reader, &coordinates, err);
    if (status != STATUS_OK)
        return status;
    uint64_t padding_bits = reader.end - reader.at;
    if (padding_bits >= 8)
        return corrupt(err, "bytes after the last chunk");
    if (bit_read(&reader, (uint32_t)padding_bits) != 0)
        return corrupt(err, "padding that is not zero");
    if ((header.base == 0) != (coordinates == 0))
        return corrupt(err, "base does not fit the coordinates");
    *ret_header = header;
    *ret = (struct codec_info){.n = n, .k = header.k, .coordinates = coordinates};
    return STATUS_OK;
}

enum status codec_check(const void *data, size_t bytes, uint64_t n, struct codec_info *ret,
                        struct error *err)
{
    struct header header = {0};
    return check(data, bytes, n, &header, ret, err);
}

static void add(const struct chunk *chunk, float factor, float *target)
{
    float product = float_flush(factor * chunk->magnitude);
    for (uint32_t i = 0; i < chunk->count; i++) {
        float *entry = target + chunk->indices[i];
        *entry = float_flush(float_flush(*entry) + (chunk->negative[i] ? -product : product));
    }
}

enum status codec_decode_add(const void *data, size_t bytes, float factor, float *target,
                             uint64_t n, struct error *err)
{
    struct header header = {0};
    struct codec_info info;
    if (float_exponent(factor) > FLOAT_EXPONENT_MAX)
        return error_set(err, STATUS_INVALID, "the factor of an update is not finite");
    enum status status = check(data, bytes, n, &header, &info, err);
    if (status != STATUS_OK)
        return status;
    struct bit_reader reader = reader_of(data, &header);
    for (uint64_t i = 0; i < header.chunks; i++) {
        struct chunk chunk;
        const char *complaint =
            chunk_read(&reader, chunk_length(n, i), header.k, header.base, &chunk);
        if (complaint) /* only if another thread changed the bytes after the check */
            return corrupt(err, complaint);
        if (chunk.count > 0)
            add(&chunk, factor, target + i * CODEC_CHUNK);
    }
    return STATUS_OK;
}

uint64_t codec_hash(const float *w, uint64_t n)
{
    return checksum_xxh3(w, (size_t)n * sizeof *w);
}
