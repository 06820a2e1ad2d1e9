/* One chunk of the update code. Plain functions, any thread. Surprising: the k-th largest magnitude
 * is found by halving on the float's bits (for non-negative floats the order of the bits is the
 * order of the values), which needs no sort and cannot depend on the order of equal entries. */
#include "common/codec/chunk.h"

#define SCALE_TOP 254u
#define SCALE_COUNTED 255u /* escape: real scale and count follow */
#define SCALE_BITS 8u
#define COUNT_BITS 9u
#define STEPS_PER_OCTAVE 8u
#define FIXED_ONE_BITS 31u /* 1.0 in the fixed-point numbers of scale_of_sum */

_Static_assert(CODEC_K_MAX <= 1u << COUNT_BITS, "a count below k fits its field");

/* Fractions of the float 2^(j/8), rounded to nearest. */
static const uint32_t step_fractions[STEPS_PER_OCTAVE] = {
    0x000000, 0x0B95C2, 0x1837F0, 0x25FED7, 0x3504F3, 0x45672A, 0x5744FD, 0x6AC0C7,
};

/* 2^31 · 2^((j + 1/2)/8): at this mean and above step j + 1 is nearer than step j. */
static const uint32_t step_borders[STEPS_PER_OCTAVE] = {
    0x85AAC368, 0x91C3D374, 0x9EF53261, 0xAD583EEA, 0xBD08A39F, 0xCE248C15, 0xE0CCDEEC, 0xF5257D15,
};

/* The best Rice parameter for the gaps of count coordinates out of length: the smallest b with
 * count · 2^b · (2 length + count) ≥ 0.957 length². (The optimum for geometric gaps, second order
 * in count / length.) */
static uint32_t rice_bits(uint32_t length, uint32_t count)
{
    uint64_t have = (uint64_t)1000 * count * (2 * length + count);
    uint64_t need = (uint64_t)957 * length * length;
    uint32_t b = 0;
    while (have << b < need)
        b++;
    return b;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint64_t chunk_bits_max(uint32_t length, uint32_t k)
{
    uint64_t most = 0;
    uint32_t whole = least(least(k, length), CODEC_K_MAX);
    for (uint32_t count = 1; count <= whole; count++) {
        uint32_t b = rice_bits(length, count);
        uint64_t bits = (uint64_t)count * (b + 2) + (length >> b);
        most = bits > most ? bits : most;
    }
    return 2 * SCALE_BITS + COUNT_BITS + most;
}

/* --- select ---------------------------------------------------------------------------------- */

static uint32_t count_at_least(const int32_t magnitudes[CODEC_CHUNK], int32_t threshold)
{
    int32_t count = 0;
    for (uint32_t i = 0; i < CODEC_CHUNK; i++)
        count += magnitudes[i] >= threshold;
    return (uint32_t)count;
}

/* The largest number that at least k magnitudes reach, or any that exactly k reach. */
static int32_t find_threshold(const int32_t magnitudes[CODEC_CHUNK], uint32_t k)
{
    int32_t threshold = 0;
    for (int bit = 30; bit >= 0; bit--) {
        int32_t candidate = threshold | 1 << bit;
        uint32_t count = count_at_least(magnitudes, candidate);
        if (count >= k)
            threshold = candidate;
        if (count == k)
            break;
    }
    return threshold;
}

static void select_largest(const float *e, uint32_t length, uint32_t k, struct chunk *ret)
{
    int32_t magnitudes[CODEC_CHUNK] = {0};
    for (uint32_t i = 0; i < length; i++)
        magnitudes[i] = (int32_t)(float_bits(float_flush(e[i])) & 0x7FFFFFFF);

    int32_t threshold = find_threshold(magnitudes, k);
    uint32_t ties = k - count_at_least(magnitudes, threshold + 1);
    ret->count = 0;
    for (uint32_t i = 0; i < length; i++) {
        bool tie = magnitudes[i] == threshold && threshold > 0 && ties > 0;
        if (magnitudes[i] <= threshold && !tie)
            continue;
        ties -= tie;
        ret->indices[ret->count] = (uint16_t)i;
        ret->negative[ret->count] = float_bits(e[i]) >> 31;
        ret->count++;
    }
}

/* --- scale ----------------------------------------------------------------------------------- */

/* False when the scale lies outside what base can reach. */
static bool magnitude_of_scale(uint32_t scale, uint32_t base, float *ret)
{
    uint32_t steps_down = SCALE_TOP - scale;
    uint32_t octaves_down = steps_down / STEPS_PER_OCTAVE;
    if (base <= octaves_down) /* would be denormal */
        return false;
    uint32_t step = STEPS_PER_OCTAVE - 1 - steps_down % STEPS_PER_OCTAVE;
    *ret = float_of_bits((base - octaves_down) << 23 | step_fractions[step]);
    return true;
}

/* sum: of count magnitudes as multiples of 2^(exponent - 127 - 31), the largest with that exponent.
 * Returns the scale whose magnitude is nearest to the mean on the logarithmic grid, 0: too small.
 */
static uint32_t scale_of_sum(uint64_t sum, uint32_t count, uint32_t exponent, uint32_t base)
{
    int octaves_down = (int)(base - exponent);
    while (sum < (uint64_t)count << FIXED_ONE_BITS) {
        sum <<= 1;
        octaves_down++;
    }
    uint32_t step = 0;
    while (step < STEPS_PER_OCTAVE && sum >= (uint64_t)count * step_borders[step])
        step++;
    int steps_down = octaves_down * (int)STEPS_PER_OCTAVE + (int)STEPS_PER_OCTAVE - 1 - (int)step;
    if (steps_down < 0) /* a mean just below 2^128 */
        steps_down = 0;
    return steps_down < (int)SCALE_TOP ? SCALE_TOP - (uint32_t)steps_down : 0;
}

static uint32_t scale_of(const float *e, const struct chunk *chunk, uint32_t base)
{
    uint32_t exponent = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        uint32_t x = float_exponent(e[chunk->indices[i]]);
        exponent = x > exponent ? x : exponent;
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        uint32_t bits = float_bits(e[chunk->indices[i]]);
        uint32_t shift = exponent - (bits >> 23 & 255);
        uint32_t fixed = ((bits & 0x7FFFFF) | 0x800000) << (FIXED_ONE_BITS - 23);
        sum += shift < 32 ? fixed >> shift : 0;
    }
    return scale_of_sum(sum, chunk->count, exponent, base);
}

void chunk_make(const float *e, uint32_t length, uint32_t k, uint32_t base, struct chunk *ret)
{
    select_largest(e, length, least(k, length), ret);
    ret->scale = ret->count > 0 ? scale_of(e, ret, base) : 0;
    if (ret->scale == 0 || !magnitude_of_scale(ret->scale, base, &ret->magnitude)) {
        ret->scale = 0;
        ret->count = 0;
    }
}

/* --- write and read -------------------------------------------------------------------------- */

void chunk_write(const struct chunk *chunk, uint32_t length, uint32_t k, struct bit_writer *writer)
{
    bool counted = chunk->count > 0 && chunk->count < least(k, length);
    if (counted)
        bit_write(writer, SCALE_COUNTED, SCALE_BITS);
    bit_write(writer, chunk->scale, SCALE_BITS);
    if (counted)
        bit_write(writer, chunk->count, COUNT_BITS);
    if (chunk->count == 0)
        return;
    uint32_t b = rice_bits(length, chunk->count);
    uint32_t next = 0; /* the lowest index that may follow */
    for (uint32_t i = 0; i < chunk->count; i++) {
        uint32_t gap = chunk->indices[i] - next;
        for (uint32_t q = gap >> b; q > 0; q--)
            bit_write(writer, 1, 1);
        bit_write(writer, 0, 1);
        bit_write(writer, gap, b);
        next = chunk->indices[i] + 1u;
    }
    for (uint32_t i = 0; i < chunk->count; i++)
        bit_write(writer, chunk->negative[i], 1);
}

static const char *read_scale_and_count(struct bit_reader *reader, uint32_t count_whole,
                                        uint32_t base, struct chunk *ret)
{
    ret->scale = bit_read(reader, SCALE_BITS);
    ret->count = ret->scale > 0 ? count_whole : 0;
    if (ret->scale == SCALE_COUNTED) {
        ret->scale = bit_read(reader, SCALE_BITS);
        ret->count = bit_read(reader, COUNT_BITS);
        if (reader->overrun)
            return "ends too early";
        if (ret->scale < 1 || ret->scale > SCALE_TOP)
            return "scale out of range";
        if (ret->count < 1 || ret->count >= count_whole)
            return "count out of range";
    }
    if (reader->overrun)
        return "ends too early";
    if (ret->scale > 0 && !magnitude_of_scale(ret->scale, base, &ret->magnitude))
        return "scale below the smallest normal number";
    return NULL;
}

static const char *read_indices(struct bit_reader *reader, uint32_t length, struct chunk *ret)
{
    uint32_t b = rice_bits(length, ret->count);
    uint32_t next = 0;
    for (uint32_t i = 0; i < ret->count; i++) {
        uint32_t q = 0;
        while (bit_read(reader, 1) == 1)
            if (++q > length >> b)
                return "index out of range";
        uint32_t index = next + (q << b) + bit_read(reader, b);
        if (reader->overrun)
            return "ends too early";
        if (index >= length)
            return "index out of range";
        ret->indices[i] = (uint16_t)index;
        next = index + 1;
    }
    return NULL;
}

const char *chunk_read(struct bit_reader *reader, uint32_t length, uint32_t k, uint32_t base,
                       struct chunk *ret)
{
    const char *complaint = read_scale_and_count(reader, least(k, length), base, ret);
    if (complaint || ret->count == 0)
        return complaint;
    complaint = read_indices(reader, length, ret);
    if (complaint)
        return complaint;
    for (uint32_t i = 0; i < ret->count; i++)
        ret->negative[i] = bit_read(reader, 1) == 1;
    return reader->overrun ? "ends too early" : NULL;
}
