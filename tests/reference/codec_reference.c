/* The slow update code. One thread. Surprising: scales are found by trying all 254 of them
 * against exact products of integers, whose borders are computed, not tabulated. */
#include "tests/reference/codec_reference.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- floats ---------------------------------------------------------------------------------- */

static float flushed(float x)
{
    return fpclassify(x) == FP_SUBNORMAL || x == 0 ? 0.0f : x;
}

float reference_add(float a, float b)
{
    volatile float sum = flushed(a) + flushed(b);
    return flushed(sum);
}

void reference_input(const struct codec_source *source, const float *const *subtract, size_t count,
                     uint64_t n, float *ret_e)
{
    for (uint64_t i = 0; i < n; i++) {
        float plus = source->plus ? source->plus[i] : 0.0f;
        float minus = source->minus ? source->minus[i] : 0.0f;
        float e = reference_add(plus, -minus);
        if (source->residual) {
            volatile float kept = source->decay * flushed(source->residual[i]);
            e = reference_add(kept, e);
        }
        for (size_t j = 0; j < count; j++)
            e = subtract[j][i] == 0 ? e : reference_add(e, -subtract[j][i]);
        ret_e[i] = e;
    }
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* --- bits ------------------------------------------------------------------------------------ */

struct bits {
    uint8_t *data; /* zero before it is written */
    uint64_t at;
};

static void put(struct bits *bits, uint64_t value, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, bits->at++)
        if (value >> i & 1)
            bits->data[bits->at / 8] |= (uint8_t)(1u << bits->at % 8);
}

static uint32_t get(struct bits *bits, uint32_t count)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < count; i++, bits->at++)
        value |= (uint32_t)(bits->data[bits->at / 8] >> bits->at % 8 & 1) << i;
    return value;
}

static uint32_t rice_parameter(uint64_t length, uint64_t count)
{
    for (uint32_t b = 0;; b++)
        if (1000 * count * (UINT64_C(1) << b) * (2 * length + count) >= 957 * length * length)
            return b;
}

/* --- scales ---------------------------------------------------------------------------------- */

static float scale_magnitude(uint32_t scale)
{
    double step = exp2(((double)scale - 1) / 4 - 48);
    return (float)step;
}

/* The border between scale and the next is 2^(-48 + (scale - 1/2) / 4), rounded up to a multiple of
 * 2^-31 of its octave's power of two: that rounding is part of the format, because the mean of many
 * numbers can lie between the two. True when sum / count, as a multiple of 2^(exponent - 127 - 31),
 * is not below it. Every double here but the logarithm's is exact: at most 41 bits. */
static bool reaches_border(uint64_t sum, uint32_t count, uint32_t exponent, uint32_t scale)
{
    int step = ((int)scale + 3) % 4, octave = ((int)scale + 3) / 4 - 49; /* also of scale 0 */
    double border = ceil(exp2(31 + (step + 0.5) / 4));
    return ldexp((double)sum, (int)exponent - 127) >= ldexp(count * border, octave);
}

/* 0: below the border under scale 1. */
static uint32_t scale_of(uint64_t sum, uint32_t count, uint32_t exponent)
{
    uint32_t scale = 0;
    while (scale < 254 && reaches_border(sum, count, exponent, scale))
        scale++;
    return scale;
}

/* --- chunks ---------------------------------------------------------------------------------- */

struct pick {
    uint32_t index, magnitude, negative;
    float value; /* decoded */
    uint32_t word;
};

static int larger_first(const void *a_, const void *b_)
{
    const struct pick *a = a_, *b = b_;
    if (a->magnitude != b->magnitude)
        return a->magnitude > b->magnitude ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static int lower_first(const void *a_, const void *b_)
{
    const struct pick *a = a_, *b = b_;
    return a->index < b->index ? -1 : 1;
}

static uint32_t choose(const float *e, uint32_t length, uint32_t k, struct pick picks[CODEC_CHUNK])
{
    for (uint32_t i = 0; i < length; i++) {
        uint32_t bits = bits_of(flushed(e[i]));
        picks[i] = (struct pick){.index = i, .magnitude = bits << 1 >> 1, .negative = bits >> 31};
    }
    qsort(picks, length, sizeof *picks, larger_first);
    uint32_t count = k < length ? k : length;
    while (count > 0 && picks[count - 1].magnitude == 0)
        count--;
    qsort(picks, count, sizeof *picks, lower_first);
    return count;
}

static uint64_t fixed(const struct pick *pick, uint32_t exponent)
{
    uint64_t fraction = (pick->magnitude & 0x7FFFFF) | 0x800000;
    uint32_t down = exponent - (pick->magnitude >> 23);
    return down > 40 ? 0 : fraction << 8 >> down;
}

struct scales {
    uint32_t first, second;
};

static struct scales quantise_means(struct pick *picks, uint32_t count, uint32_t exponent, bool two)
{
    uint64_t sum = 0, sums[2] = {0};
    uint32_t counts[2] = {0};
    for (uint32_t i = 0; i < count; i++)
        sum += fixed(&picks[i], exponent);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t x = fixed(&picks[i], exponent);
        uint32_t large = !two || x * count >= sum;
        sums[large] += x;
        counts[large]++;
        picks[i].word = picks[i].negative | (two ? large << 1 : 0);
    }
    struct scales scales = {.first = scale_of(sums[1], counts[1], exponent)};
    scales.second = scales.first;
    if (counts[0] > 0) {
        scales.second = scale_of(sums[0], counts[0], exponent);
        scales.second = scales.second > 0 ? scales.second : 1;
    }
    for (uint32_t i = 0; i < count && scales.first > 0; i++) {
        bool large = !two || picks[i].word & 2;
        picks[i].value = scale_magnitude(large ? scales.first : scales.second);
    }
    return scales;
}

/* Rounds to `kept` bits of fraction, halves away from zero, in double. */
static void quantise_levels(struct pick *picks, uint32_t count, uint32_t exponent, uint32_t kept,
                            uint32_t levels)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t half = UINT64_C(1) << (22 - kept), unit = 2 * half;
        uint64_t number = (picks[i].magnitude + half) / unit;
        uint64_t top = ((uint64_t)exponent << kept) + (UINT64_C(1) << kept) - 1;
        number = number > top ? top : number;
        number = top - number >= levels ? top - levels + 1 : number;
        picks[i].word = (uint32_t)(top - number) << 1 | picks[i].negative;
        picks[i].value = float_of((uint32_t)(number * unit));
    }
}

static uint32_t value_bits(enum codec_values values)
{
    return values == CODEC_SIGN        ? 1
           : values == CODEC_TWO_BITS  ? 2
           : values == CODEC_FOUR_BITS ? 4
                                       : 8;
}

static void encode_chunk(const float *e, uint32_t length, struct codec_format format,
                         struct bits *bits, float *ret_decoded)
{
    static struct pick picks[CODEC_CHUNK];
    uint32_t count = choose(e, length, format.k, picks), exponent = 0;
    uint32_t whole = format.k < length ? format.k : length;
    for (uint32_t i = 0; i < count; i++)
        exponent = picks[i].magnitude >> 23 > exponent ? picks[i].magnitude >> 23 : exponent;
    struct scales scales = {exponent, 0};
    if (count > 0 && format.values <= CODEC_TWO_BITS)
        scales = quantise_means(picks, count, exponent, format.values == CODEC_TWO_BITS);
    else if (count > 0)
        quantise_levels(picks, count, exponent, format.values == CODEC_FOUR_BITS ? 1 : 4,
                        format.values == CODEC_FOUR_BITS ? 8 : 128);
    if (count == 0 || scales.first == 0) {
        put(bits, 0, 8);
        return;
    }
    if (count < whole) {
        put(bits, 255, 8);
        put(bits, scales.first, 8);
        put(bits, count, 9);
    } else {
        put(bits, scales.first, 8);
    }
    if (format.values == CODEC_TWO_BITS)
        put(bits, scales.second, 8);
    uint32_t b = rice_parameter(length, count), next = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t gap = picks[i].index - next;
        next = picks[i].index + 1;
        for (uint32_t q = gap >> b; q > 0; q--)
            put(bits, 1, 1);
        put(bits, 0, 1);
        put(bits, gap, b);
        ret_decoded[picks[i].index] = picks[i].negative ? -picks[i].value : picks[i].value;
    }
    for (uint32_t i = 0; i < count; i++)
        put(bits, picks[i].word, value_bits(format.values));
}

/* --- payloads -------------------------------------------------------------------------------- */

#define HEADER_BYTES 40u

void reference_encode(const float *e, uint64_t n, struct codec_format format, struct buffer *ret,
                      float *ret_decoded)
{
    uint64_t chunks = (n + CODEC_CHUNK - 1) / CODEC_CHUNK, supers = (chunks + 255) / 256;
    size_t room = HEADER_BYTES + supers * 12 + (size_t)n * 4 + chunks * 40 + 64;
    uint8_t *data = calloc(1, room), *body = data + HEADER_BYTES + supers * 8;
    assert(data);
    struct bits bits = {.data = body};
    for (uint64_t i = 0; i < n; i++)
        ret_decoded[i] = 0.0f;
    for (uint64_t c = 0; c < chunks; c++) {
        uint64_t first = c * CODEC_CHUNK;
        uint32_t length = (uint32_t)(n - first < CODEC_CHUNK ? n - first : CODEC_CHUNK);
        if (c % 256 == 0) {
            bits.at = (bits.at + 31) / 32 * 32;
            store_u64(data + HEADER_BYTES + c / 256 * 8, bits.at / 8);
        }
        if (format.values != CODEC_FP32)
            encode_chunk(e + first, length, format, &bits, ret_decoded + first);
        for (uint32_t i = 0; format.values == CODEC_FP32 && i < length; i++) {
            ret_decoded[first + i] = flushed(e[first + i]);
            put(&bits, bits_of(flushed(e[first + i])), 32);
        }
    }
    size_t bytes = (size_t)(body - data) + (size_t)((bits.at + 31) / 32 * 4);
    assert(bytes <= room);
    memcpy(data, "RVUC", 4);
    data[4] = 2;
    data[5] = format.values != CODEC_FP32;
    data[6] = (uint8_t)format.values;
    store_u64(data + 8, n);
    store_u32(data + 16, format.values == CODEC_FP32 ? 4096 : format.k);
    store_u64(data + 24, bytes - HEADER_BYTES);
    store_u64(data + 32, checksum_xxh3_seeded(data + HEADER_BYTES, bytes - HEADER_BYTES,
                                              checksum_xxh3(data, 32)));
    if (buffer_append(ret, data, bytes))
        abort();
    free(data);
}

static float decoded_value(enum codec_values values, uint32_t word, uint32_t scale, uint32_t second)
{
    float magnitude;
    uint32_t level = word >> 1;
    if (values == CODEC_SIGN)
        magnitude = scale_magnitude(scale);
    else if (values == CODEC_TWO_BITS)
        magnitude = scale_magnitude(word & 2 ? scale : second);
    else if (values == CODEC_FOUR_BITS)
        magnitude = float_of((2 * scale + 1 - level) << 22);
    else
        magnitude = float_of((16 * scale + 15 - level) << 19);
    return word & 1 ? -magnitude : magnitude;
}

static void decode_chunk(struct bits *bits, uint32_t length, struct codec_format format,
                         float *ret_decoded)
{
    uint32_t count = format.k < length ? format.k : length, indices[CODEC_K_MAX], next = 0;
    uint32_t scale = get(bits, 8), second = 0;
    if (scale == 255) {
        scale = get(bits, 8);
        count = get(bits, 9);
    }
    if (scale == 0)
        return;
    if (format.values == CODEC_TWO_BITS)
        second = get(bits, 8);
    uint32_t b = rice_parameter(length, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t ones = 0;
        while (get(bits, 1))
            ones++;
        indices[i] = next + (ones << b) + get(bits, b);
        next = indices[i] + 1;
    }
    for (uint32_t i = 0; i < count; i++)
        ret_decoded[indices[i]] =
            decoded_value(format.values, get(bits, value_bits(format.values)), scale, second);
}

void reference_decode(const uint8_t *data, uint64_t n, float *ret_decoded)
{
    uint64_t chunks = (n + CODEC_CHUNK - 1) / CODEC_CHUNK, supers = (chunks + 255) / 256;
    struct codec_format format = {(enum codec_values)data[6], load_u32(data + 16)};
    struct bits bits = {.data = (uint8_t *)(uintptr_t)data + HEADER_BYTES + supers * 8};
    for (uint64_t c = 0; c < chunks; c++) {
        uint64_t first = c * CODEC_CHUNK;
        uint32_t length = (uint32_t)(n - first < CODEC_CHUNK ? n - first : CODEC_CHUNK);
        if (c % 256 == 0)
            bits.at = load_u64(data + HEADER_BYTES + c / 256 * 8) * 8;
        for (uint32_t i = 0; i < length; i++)
            ret_decoded[first + i] = format.values == CODEC_FP32 ? float_of(get(&bits, 32)) : 0.0f;
        if (format.values != CODEC_FP32)
            decode_chunk(&bits, length, format, ret_decoded + first);
    }
}
