/* Reading payloads. Plain functions, any thread. Surprising: a payload is decoded twice, once to
 * check every bit of it and once to use it, so that nothing is ever half applied; the second time
 * is cheap beside the memory that it touches, and trusts nothing either. */
#include "common/base/bytes.h"
#include "common/codec/values.h"

#include <stdatomic.h>

/* --- bits ------------------------------------------------------------------------------------ */

#define WINDOW_BITS 56u /* what a load gives at any position within its first byte */

/* The bits from the reader's position on: WINDOW_BITS of them, or zeros beyond the payload. */
static inline uint64_t window(const struct codec_reader *reader)
{
    const uint8_t *at = reader->start + reader->bit / 8;
    uint64_t bits = 0;
    if (reader->limit - at >= (ptrdiff_t)sizeof bits)
        memcpy(&bits, at, sizeof bits);
    else if (at < reader->limit)
        memcpy(&bits, at, (size_t)(reader->limit - at));
    return bits >> reader->bit % 8;
}

/* False beyond the super-chunk's end; overrun is set for good then. */
static inline bool advance(struct codec_reader *reader, uint32_t count)
{
    reader->bit += count;
    reader->overrun = reader->overrun || reader->bit > reader->bit_end;
    return !reader->overrun;
}

/* count ≤ 32. Beyond the end: zero. */
static inline uint32_t read_bits(struct codec_reader *reader, uint32_t count)
{
    uint64_t bits = window(reader) & ((UINT64_C(1) << count) - 1);
    return advance(reader, count) ? (uint32_t)bits : 0;
}

/* So many ones in a row are counted in a window; more are read bit by bit. */
#define ONES_MAX 44u

_Static_assert(ONES_MAX + 1 + 11 <= WINDOW_BITS, "a code with 11 low bits fits the window");

static inline uint32_t count_ones(uint64_t bits)
{
    return (uint32_t)__builtin_ctzll(~bits | UINT64_C(1) << ONES_MAX);
}

/* A number in Rice code with b low bits. Beyond `most` ones it is out of range anyway. */
static uint32_t read_rice(struct codec_reader *reader, uint32_t b, uint32_t most)
{
    uint32_t ones = count_ones(window(reader));
    if (ones < ONES_MAX) {
        (void)advance(reader, ones + 1);
    } else {
        ones = 0;
        while (ones <= most && !reader->overrun && read_bits(reader, 1) == 1)
            ones++;
    }
    return ones << b | read_bits(reader, b);
}

/* --- chunks ---------------------------------------------------------------------------------- */

static const char *read_values_all(struct codec_reader *reader, struct codec_chunk *ret)
{
    size_t bytes = ret->length * sizeof(float);
    const uint8_t *from = reader->start + reader->bit / 8;
    uint32_t infinite = 0, denormal = 0;
    if (!advance(reader, 8 * (uint32_t)bytes))
        return "ends too early";
    memcpy(ret->values, from, bytes);
    ret->count = ret->length;
    for (uint32_t i = 0; i < ret->length; i++) {
        uint32_t word = float_bits(ret->values[i]), magnitude = word & FLOAT_MAGNITUDE;
        infinite |= magnitude >= FLOAT_NOT_FINITE;
        denormal |= (magnitude < FLOAT_NORMAL_MIN) & (word != 0);
        ret->indices[i] = (uint16_t)i;
    }
    return infinite ? "value is not finite" : denormal ? "value is denormal" : NULL;
}

static const char *read_scales(struct codec_reader *reader, struct codec_format format,
                               struct codec_chunk *ret, float table[VALUES_TABLE])
{
    uint32_t whole = format_whole(ret->length, format.k), second = 0;
    uint32_t scale = read_bits(reader, SCALE_BITS);
    ret->count = whole;
    if (scale == SCALE_COUNTED) {
        scale = read_bits(reader, SCALE_BITS);
        ret->count = read_bits(reader, COUNT_BITS);
        if (!reader->overrun && (ret->count < 1 || ret->count >= whole))
            return "count out of range";
        if (!reader->overrun && scale == 0)
            return "scale out of range";
    }
    if (scale == 0) {
        ret->count = 0;
        return reader->overrun ? "ends too early" : NULL;
    }
    if (format.values == CODEC_TWO_BITS)
        second = read_bits(reader, SCALE_BITS);
    return reader->overrun ? "ends too early" : values_table(format.values, scale, second, table);
}

#define CODES_AT_ONCE 4u

/* The next CODES_AT_ONCE gaps from one window; false, and nothing is read, when they do not fit. */
static inline bool read_gaps(struct codec_reader *reader, uint32_t b, uint32_t gaps[CODES_AT_ONCE])
{
    uint64_t bits = window(reader);
    uint32_t used = 0, most_ones = 0;
    for (uint32_t i = 0; i < CODES_AT_ONCE; i++) {
        uint32_t ones = count_ones(bits);
        gaps[i] = ones << b | ((uint32_t)(bits >> ones >> 1) & ((1u << b) - 1));
        bits >>= ones + 1 + b;
        used += ones + 1 + b;
        most_ones |= ones >= ONES_MAX;
    }
    if (used > WINDOW_BITS || most_ones)
        return false;
    return advance(reader, used);
}

static const char *read_indices(struct codec_reader *reader, struct codec_chunk *ret)
{
    const uint32_t b = format_rice_bits(ret->length, ret->count), most = ret->length >> b;
    const float *target = reader->target ? reader->target + ret->first : NULL;
    uint32_t next = 0;
    for (uint32_t i = 0; i < ret->count;) {
        uint32_t gaps[CODES_AT_ONCE], some = CODES_AT_ONCE;
        if (ret->count - i < CODES_AT_ONCE || !read_gaps(reader, b, gaps)) {
            gaps[0] = read_rice(reader, b, most);
            some = 1;
        }
        for (uint32_t j = 0; j < some; j++, next++) {
            next += gaps[j];
            ret->indices[i++] = (uint16_t)next;
            if (target)
                __builtin_prefetch(target + next, 1);
        }
        if (reader->overrun)
            return "ends too early";
        if (next > ret->length) /* they only rise */
            return "index out of range";
    }
    return NULL;
}

static const char *read_values(struct codec_reader *reader, enum codec_values values,
                               const float table[VALUES_TABLE], struct codec_chunk *ret)
{
    uint32_t bits = format_value_bits(values), at_once = 32 / bits, mask = (1u << bits) - 1;
    for (uint32_t i = 0; i < ret->count; i += at_once) {
        uint32_t some = ret->count - i < at_once ? ret->count - i : at_once;
        uint32_t words = read_bits(reader, some * bits);
        for (uint32_t j = 0; j < some; j++, words >>= bits)
            ret->values[i + j] = table[words & mask];
    }
    if (reader->overrun)
        return "ends too early";
    if (values == CODEC_FOUR_BITS || values == CODEC_EIGHT_BITS) {
        for (uint32_t i = 0; i < ret->count; i++)
            if (ret->values[i] == 0.0f)
                return "level out of range";
    }
    return NULL;
}

/* The next chunk, or the complaint. */
static const char *read_chunk(struct codec_reader *reader, struct codec_chunk *ret)
{
    struct codec_format format = reader->payload->format;
    float table[VALUES_TABLE];
    ret->first = reader->chunk * CODEC_CHUNK;
    ret->length = format_chunk_length(reader->payload->n, reader->chunk);
    reader->chunk++;
    if (format.values == CODEC_FP32)
        return read_values_all(reader, ret);
    const char *complaint = read_scales(reader, format, ret, table);
    if (complaint || ret->count == 0)
        return complaint;
    complaint = read_indices(reader, ret);
    return complaint ? complaint : read_values(reader, format.values, table, ret);
}

static const uint8_t *table_of(const struct codec_payload *payload)
{
    return payload->data + FORMAT_HEADER_BYTES;
}

static uint64_t offset_of(const struct codec_payload *payload, uint64_t super_chunk)
{
    uint64_t supers = codec_super_chunks(payload->n);
    if (super_chunk == supers)
        return payload->bytes - FORMAT_HEADER_BYTES - supers * 8;
    return load_u64(table_of(payload) + super_chunk * 8);
}

void codec_reader_init(struct codec_reader *reader, const struct codec_payload *payload,
                       uint64_t super_chunk)
{
    const uint8_t *body = table_of(payload) + codec_super_chunks(payload->n) * 8;
    uint64_t chunks = format_chunks(payload->n), first = super_chunk * CODEC_SUPER_CHUNK;
    uint64_t offset = offset_of(payload, super_chunk);
    *reader = (struct codec_reader){
        .payload = payload,
        .chunk = first,
        .chunk_end = chunks - first < CODEC_SUPER_CHUNK ? chunks : first + CODEC_SUPER_CHUNK,
        .start = body + offset,
        .limit = payload->data + payload->bytes,
        .bit_end = 8 * (offset_of(payload, super_chunk + 1) - offset),
    };
}

bool codec_reader_next(struct codec_reader *reader, struct codec_chunk *ret)
{
    /* A complaint is only possible if the bytes changed after codec_open. */
    return reader->chunk < reader->chunk_end && read_chunk(reader, ret) == NULL;
}

/* --- check ----------------------------------------------------------------------------------- */

struct check {
    const struct codec_payload *payload;
    atomic_ullong coordinates, bad_super; /* the first bad super-chunk */
};

static const char *check_super(const struct codec_payload *payload, uint64_t super_chunk,
                               uint64_t *ret_coordinates, uint64_t *ret_chunk)
{
    struct codec_reader reader;
    struct codec_chunk chunk;
    uint64_t coordinates = 0;
    codec_reader_init(&reader, payload, super_chunk);
    while (reader.chunk < reader.chunk_end) {
        const char *complaint = read_chunk(&reader, &chunk);
        *ret_chunk = reader.chunk - 1;
        if (complaint)
            return complaint;
        coordinates += chunk.count;
    }
    uint32_t padding_bits = (uint32_t)(reader.bit_end - reader.bit);
    if (reader.bit_end - reader.bit >= 8 * FORMAT_WORD_BYTES)
        return "words after its last chunk";
    if (read_bits(&reader, padding_bits) != 0)
        return "padding that is not zero";
    *ret_coordinates = coordinates;
    return NULL;
}

static void check_task(void *context, size_t super_chunk, uint32_t worker)
{
    struct check *check = context;
    uint64_t coordinates = 0, chunk;
    (void)worker;
    if (check_super(check->payload, super_chunk, &coordinates, &chunk) == NULL) {
        atomic_fetch_add_explicit(&check->coordinates, coordinates, memory_order_relaxed);
        return;
    }
    unsigned long long first = atomic_load(&check->bad_super);
    while (super_chunk < first &&
           !atomic_compare_exchange_weak(&check->bad_super, &first, super_chunk))
        ;
}

/* Rising multiples of a word within the body, the first zero. */
static bool offsets_are_valid(const struct codec_payload *payload)
{
    uint64_t supers = codec_super_chunks(payload->n);
    for (uint64_t i = 0; i <= supers; i++) {
        uint64_t offset = offset_of(payload, i), before = i > 0 ? offset_of(payload, i - 1) : 0;
        if (offset % FORMAT_WORD_BYTES != 0 || offset < before || (i == 0 && offset != 0))
            return false;
    }
    return true;
}

enum status codec_open(const void *data, size_t bytes, uint64_t n, struct pool *pool,
                       struct codec_payload *ret, struct error *err)
{
    struct format_header header = {0};
    enum status status = format_header_read(data, bytes, n, &header, err);
    if (status != STATUS_OK)
        return status;
    struct codec_payload payload = {.data = data, .bytes = bytes, .n = n, .format = header.format};
    if (!offsets_are_valid(&payload))
        return error_set(err, STATUS_CORRUPT, "update code refused: %s",
                         "wrong offset in its table");
    uint64_t supers = codec_super_chunks(n);
    struct check check = {.payload = &payload, .bad_super = supers};
    pool_run(pool, (size_t)supers, check_task, &check);
    uint64_t bad = check.bad_super, chunk = 0, coordinates;
    if (bad < supers) {
        const char *complaint = check_super(&payload, bad, &coordinates, &chunk);
        return error_set(err, STATUS_CORRUPT, "update code refused: chunk %llu: %s",
                         (unsigned long long)chunk, complaint ? complaint : "?");
    }
    payload.coordinates = check.coordinates;
    *ret = payload;
    return STATUS_OK;
}

/* --- add ------------------------------------------------------------------------------------- */

struct addition {
    const struct codec_payload *payload;
    float factor;
    float *target;
};

static void add_chunk(const struct codec_chunk *chunk, float factor, float *target)
{
    target += chunk->first;
    for (uint32_t i = 0; i < chunk->count; i++) {
        float product = float_flush(factor * chunk->values[i]);
        float *entry = target + chunk->indices[i];
        *entry = float_flush(float_flush(*entry) + product);
    }
}

static void add_task(void *context, size_t super_chunk, uint32_t worker)
{
    const struct addition *addition = context;
    struct codec_reader reader;
    struct codec_chunk chunk;
    (void)worker;
    codec_reader_init(&reader, addition->payload, super_chunk);
    reader.target = addition->target;
    while (codec_reader_next(&reader, &chunk))
        add_chunk(&chunk, addition->factor, addition->target);
}

void codec_add(const struct codec_payload *payload, float factor, float *target, struct pool *pool)
{
    struct addition addition = {payload, factor, target};
    pool_run(pool, (size_t)codec_super_chunks(payload->n), add_task, &addition);
}

enum status codec_decode_add(const void *data, size_t bytes, float factor, float *target,
                             uint64_t n, struct error *err)
{
    if ((float_bits(factor) & FLOAT_MAGNITUDE) >= FLOAT_NOT_FINITE)
        return error_set(err, STATUS_INVALID, "an update times %g is not possible", (double)factor);
    struct codec_payload payload;
    enum status status = codec_open(data, bytes, n, NULL, &payload, err);
    if (status == STATUS_OK)
        codec_add(&payload, factor, target, NULL);
    return status;
}
