/* Making payloads: one pass over the vectors, chunk by chunk, each in the cache until it is done.
 * The encoder's caller and the pool's threads. Surprising: every super-chunk is first written where
 * the longest possible ones before it would end, then moved down; the payload is a hundredth of
 * what was read, so that moving it costs nothing. */
#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/codec/bits.h"
#include "common/codec/select.h"

#include <stdatomic.h>
#include <stdlib.h>

struct worker {
    struct chunk_work work;
    struct codec_reader readers[CODEC_SUBTRACT_MAX];
    struct codec_chunk subtracted;
    struct xxh3 hash;
};

struct codec_encoder {
    struct pool *pool;
    const struct select_kernels *kernels;
    struct worker *workers; /* one per thread of the pool */
};

struct encoding {
    struct codec_encoder *encoder;
    const struct codec_source *source;
    uint64_t n;
    struct codec_format format;
    uint8_t *table, *body;
    uint64_t slot_bytes;         /* from one super-chunk's first place to the next one's */
    atomic_ullong not_finite_at; /* n: everything is finite */
};

enum status codec_encoder_create_with(struct pool *pool, const struct select_kernels *kernels,
                                      struct codec_encoder **ret)
{
    struct codec_encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder)
        return STATUS_NO_MEMORY;
    encoder->pool = pool;
    encoder->kernels = kernels;
    size_t bytes = pool_threads(pool) * sizeof *encoder->workers;
    encoder->workers = aligned_alloc(_Alignof(struct worker), bytes);
    if (!encoder->workers) {
        free(encoder);
        return STATUS_NO_MEMORY;
    }
    memset(encoder->workers, 0, bytes);
    *ret = encoder;
    return STATUS_OK;
}

enum status codec_encoder_create(struct pool *pool, struct codec_encoder **ret)
{
    return codec_encoder_create_with(pool, select_best(), ret);
}

void codec_encoder_free(struct codec_encoder *encoder)
{
    if (!encoder)
        return;
    free(encoder->workers);
    free(encoder);
}

static void write_words(const struct selection *selection, uint32_t bits, struct bit_writer *writer)
{
    uint32_t count = selection->count, i = 0;
    /* Eight single bits at once: the product moves bit 0 of byte j to bit 56 + j. */
    for (; bits == 1 && i + 8 <= count; i += 8) {
        uint64_t words;
        memcpy(&words, selection->words + i, sizeof words);
        bit_write(writer, words * 0x0102040810204080 >> 56, 8);
    }
    for (; i < count; i++)
        bit_write(writer, selection->words[i], bits);
}

static void write_chunk(const struct selection *selection, uint32_t length,
                        struct codec_format format, struct bit_writer *writer)
{
    uint32_t count = selection->count;
    if (count > 0 && count < format_whole(length, format.k)) {
        bit_write(writer, SCALE_COUNTED | selection->scale << SCALE_BITS, 2 * SCALE_BITS);
        bit_write(writer, count, COUNT_BITS);
    } else {
        bit_write(writer, count > 0 ? selection->scale : 0, SCALE_BITS);
    }
    if (count == 0)
        return;
    if (format.values == CODEC_TWO_BITS)
        bit_write(writer, selection->second, SCALE_BITS);

    uint32_t b = format_rice_bits(length, count), next = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t gap = selection->indices[i] - next, ones = gap >> b;
        next = selection->indices[i] + 1;
        for (; ones + 1 + b > 56; ones -= 32)
            bit_write(writer, UINT32_MAX, 32);
        uint64_t low = gap & ((1u << b) - 1);
        bit_write(writer, low << (ones + 1) | ((UINT64_C(1) << ones) - 1), ones + 1 + b);
    }
    write_words(selection, format_value_bits(format.values), writer);
}

static inline void add_flushed(float *entry, float value)
{
    *entry = float_flush(float_flush(*entry) + value);
}

/* Coder fp32: everything is sent. */
static void write_all(float *e, uint32_t length, float *add_to, bool kept,
                      struct bit_writer *writer)
{
    size_t bytes = length * sizeof(float);
    memcpy(writer->next, e, bytes);
    writer->next += bytes;
    for (uint32_t i = 0; add_to && i < length; i++)
        add_flushed(add_to + i, e[i]);
    if (kept)
        memset(e, 0, bytes);
}

static struct chunk_input input_at(const struct codec_source *source, uint64_t first)
{
    return (struct chunk_input){
        .residual = source->residual ? source->residual + first : NULL,
        .plus = source->plus ? source->plus + first : NULL,
        .minus = source->minus ? source->minus + first : NULL,
        .decay = source->decay,
    };
}

static void subtract_payloads(const struct encoding *encoding, struct worker *worker, float *e)
{
    for (size_t i = 0; i < encoding->source->subtract_count; i++) {
        struct codec_chunk *chunk = &worker->subtracted;
        if (!codec_reader_next(&worker->readers[i], chunk))
            continue;
        for (uint32_t j = 0; j < chunk->count; j++)
            add_flushed(e + chunk->indices[j], -chunk->values[j]);
    }
}

static void note_not_finite(struct encoding *encoding, const float *e, uint64_t first)
{
    while ((float_bits(*e) & FLOAT_MAGNITUDE) < FLOAT_NOT_FINITE) {
        e++;
        first++;
    }
    unsigned long long earliest = atomic_load(&encoding->not_finite_at);
    while (first < earliest &&
           !atomic_compare_exchange_weak(&encoding->not_finite_at, &earliest, first))
        ;
}

/* False when an entry is not finite. */
static bool encode_chunk(struct encoding *encoding, struct worker *worker, uint64_t chunk,
                         struct bit_writer *writer)
{
    const struct codec_source *source = encoding->source;
    const struct select_kernels *kernels = encoding->encoder->kernels;
    struct chunk_work *work = &worker->work;
    struct codec_format format = encoding->format;
    uint64_t first = chunk * CODEC_CHUNK;
    uint32_t length = format_chunk_length(encoding->n, chunk);
    struct chunk_input input = input_at(source, first);
    float *e = source->residual ? source->residual + first : work->e;
    float *add_to = source->add_to ? source->add_to + first : NULL;

    kernels->load(&input, length, e, work);
    if (source->subtract_count > 0) {
        subtract_payloads(encoding, worker, e);
        kernels->measure(e, length, work);
    }
    if (work->greatest >= FLOAT_NOT_FINITE) {
        note_not_finite(encoding, e, first);
        return false;
    }
    if (format.values == CODEC_FP32) {
        write_all(e, length, add_to, source->residual != NULL, writer);
        return true;
    }
    struct selection *selection = &work->selection;
    selection->greatest = work->greatest;
    kernels->select(e, length, format_whole(length, format.k), work);
    values_quantise(selection, format.values);
    write_chunk(selection, length, format, writer);
    if (source->residual) {
        for (uint32_t i = 0; i < selection->count; i++)
            add_flushed(e + selection->indices[i], -selection->values[i]);
    }
    if (add_to) {
        for (uint32_t i = 0; i < selection->count; i++)
            add_flushed(add_to + selection->indices[i], selection->values[i]);
    }
    return true;
}

/* Notes in the table how many bytes it took. */
static void encode_super(void *context, size_t super_chunk, uint32_t worker_index)
{
    struct encoding *encoding = context;
    const struct codec_source *source = encoding->source;
    struct worker *worker = &encoding->encoder->workers[worker_index];
    uint64_t chunks = format_chunks(encoding->n), chunk = super_chunk * CODEC_SUPER_CHUNK;
    uint64_t end = chunks - chunk < CODEC_SUPER_CHUNK ? chunks : chunk + CODEC_SUPER_CHUNK;
    uint8_t *slot = encoding->body + super_chunk * encoding->slot_bytes;
    struct bit_writer writer = {.next = slot};

    if (source->before)
        source->before(source->user);
    for (size_t i = 0; i < source->subtract_count; i++)
        codec_reader_init(&worker->readers[i], source->subtract[i], super_chunk);
    for (; chunk < end && encode_chunk(encoding, worker, chunk, &writer); chunk++) {
        if (source->ret_hash)
            xxh3_update(&worker->hash, source->add_to + chunk * CODEC_CHUNK,
                        format_chunk_length(encoding->n, chunk) * sizeof(float));
    }
    if (source->after)
        source->after(source->user);
    bit_finish(&writer, slot);
    store_u64(encoding->table + super_chunk * 8, (uint64_t)(writer.next - slot));
}

/* Moves the super-chunks together, turns their lengths into offsets; returns the body's end. */
static const uint8_t *join(const struct encoding *encoding)
{
    uint64_t supers = codec_super_chunks(encoding->n), offset = 0;
    for (uint64_t i = 0; i < supers; i++) {
        uint64_t bytes = load_u64(encoding->table + i * 8);
        memmove(encoding->body + offset, encoding->body + i * encoding->slot_bytes, (size_t)bytes);
        store_u64(encoding->table + i * 8, offset);
        offset += bytes;
    }
    return encoding->body + offset;
}

enum status codec_encode(struct codec_encoder *encoder, const struct codec_source *source,
                         uint64_t n, struct codec_format format, struct buffer *ret,
                         struct error *err)
{
    bool decay_is_valid = !source->residual || (source->decay >= 0.0f && source->decay <= 1.0f);
    if (!format_is_valid(format) || !decay_is_valid || source->subtract_count > CODEC_SUBTRACT_MAX)
        return error_set(err, STATUS_INVALID,
                         "update code: k = %u, value coder %d or decay %g is out of range",
                         format.k, (int)format.values, (double)source->decay);
    for (size_t i = 0; i < source->subtract_count; i++)
        if (source->subtract[i]->n != n)
            return error_set(err, STATUS_INVALID,
                             "a payload to subtract is for %llu parameters, not %llu",
                             (unsigned long long)source->subtract[i]->n, (unsigned long long)n);
    enum status status = buffer_reserve(ret, codec_bytes_max(n, format));
    if (status != STATUS_OK)
        return error_set(err, status, "no room for an update of %llu parameters: %s",
                         (unsigned long long)n, status_text(status));
    uint64_t supers = codec_super_chunks(n);
    uint8_t *out = ret->data + ret->bytes;
    struct encoding encoding = {
        .encoder = encoder,
        .source = source,
        .n = n,
        .format = format,
        .table = out + FORMAT_HEADER_BYTES,
        .body = out + FORMAT_HEADER_BYTES + supers * 8,
        .slot_bytes = format_super_chunk_bytes_max(CODEC_SUPER_CHUNK, format) + BIT_SLACK_BYTES,
        .not_finite_at = n,
    };
    struct xxh3 *hash = &encoder->workers[0].hash;
    if (source->ret_hash)
        xxh3_init(hash);
    pool_run(source->ret_hash ? NULL : encoder->pool, (size_t)supers, encode_super, &encoding);
    if (encoding.not_finite_at < n)
        return error_set(err, STATUS_NOT_FINITE, "parameter %llu of the update is not finite",
                         (unsigned long long)encoding.not_finite_at);
    if (source->ret_hash)
        *source->ret_hash = xxh3_final(hash);

    struct format_header header = {.n = n, .format = format};
    header.body_bytes = (uint64_t)(join(&encoding) - encoding.table);
    format_header_write(&header, out);
    ret->bytes += FORMAT_HEADER_BYTES + (size_t)header.body_bytes;
    return STATUS_OK;
}
