/* The value coders. Plain functions, any thread. Surprising: nothing is computed in floating point;
 * means are sums of integers, levels are pieces of the float's own bits. */
#include "common/codec/values.h"

#define STEPS_PER_OCTAVE 4u
#define SCALE_ONE_EXPONENT (127u - 48u) /* biased exponent of scale 1 */
#define FIXED_ONE_BITS 31u              /* 1.0 in the fixed-point numbers of the means */
#define FRACTION_BITS 23u

/* Fractions of the float 2^(j/4), rounded to nearest. */
static const uint32_t step_fractions[STEPS_PER_OCTAVE] = {0x000000, 0x1837F0, 0x3504F3, 0x5744FD};

/* 2^31 · 2^((j + 1/2)/4), rounded up: at this mean and above step j + 1 is nearer than step j. */
static const uint32_t step_borders[STEPS_PER_OCTAVE] = {0x8B95C1E4, 0xA5FED6AA, 0xC5672A12,
                                                        0xEAC0C6E8};

static uint32_t magnitude_of_scale(uint32_t scale)
{
    uint32_t steps = scale - 1;
    uint32_t exponent = SCALE_ONE_EXPONENT + steps / STEPS_PER_OCTAVE;
    return exponent << FRACTION_BITS | step_fractions[steps % STEPS_PER_OCTAVE];
}

/* A magnitude as a multiple of 2^(exponent - 127 - 31), the rest cut off. */
static uint32_t fixed_point(uint32_t magnitude, uint32_t exponent)
{
    uint32_t shift = exponent - (magnitude >> FRACTION_BITS);
    uint32_t fixed = ((magnitude & 0x7FFFFF) | 0x800000) << (FIXED_ONE_BITS - FRACTION_BITS);
    return shift < 32 ? fixed >> shift : 0;
}

/* The scale nearest to the mean sum / count on the logarithmic grid, at most SCALE_TOP; 0: too
 * small. sum: of count fixed-point numbers under this exponent. */
static uint32_t scale_of_mean(uint64_t sum, uint32_t count, uint32_t exponent)
{
    if (sum == 0)
        return 0;
    int octave = (int)exponent - (int)SCALE_ONE_EXPONENT;
    while (sum < (uint64_t)count << FIXED_ONE_BITS) {
        sum <<= 1;
        octave--;
    }
    int step = 0;
    while (step < (int)STEPS_PER_OCTAVE && sum >= (uint64_t)count * step_borders[step])
        step++;
    int scale = 1 + octave * (int)STEPS_PER_OCTAVE + step;
    if (scale < 1)
        return 0;
    return scale < (int)SCALE_TOP ? (uint32_t)scale : SCALE_TOP;
}

static void quantise_sign(struct selection *selection)
{
    uint32_t exponent = selection->greatest >> FRACTION_BITS;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < selection->count; i++)
        sum += fixed_point(selection->bits[i] & FLOAT_MAGNITUDE, exponent);
    selection->scale = scale_of_mean(sum, selection->count, exponent);
    if (selection->scale == 0)
        return;
    uint32_t magnitude = magnitude_of_scale(selection->scale);
    for (uint32_t i = 0; i < selection->count; i++) {
        selection->words[i] = (uint8_t)(selection->bits[i] >> 31);
        selection->values[i] = float_of_bits((selection->bits[i] & ~FLOAT_MAGNITUDE) | magnitude);
    }
}

static void quantise_two_bits(struct selection *selection)
{
    uint32_t exponent = selection->greatest >> FRACTION_BITS, count = selection->count;
    uint64_t sum = 0, sum_large = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += fixed_point(selection->bits[i] & FLOAT_MAGNITUDE, exponent);
    uint32_t count_large = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t fixed = fixed_point(selection->bits[i] & FLOAT_MAGNITUDE, exponent);
        bool large = (uint64_t)fixed * count >= sum;
        sum_large += large ? fixed : 0;
        count_large += large;
        selection->words[i] = (uint8_t)((uint32_t)large << 1 | selection->bits[i] >> 31);
    }
    selection->scale = scale_of_mean(sum_large, count_large, exponent);
    if (selection->scale == 0)
        return;
    selection->second = selection->scale;
    if (count_large < count)
        selection->second = scale_of_mean(sum - sum_large, count - count_large, exponent);
    if (selection->second == 0)
        selection->second = 1;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t scale = selection->words[i] & 2 ? selection->scale : selection->second;
        selection->values[i] =
            float_of_bits((selection->bits[i] & ~FLOAT_MAGNITUDE) | magnitude_of_scale(scale));
    }
}

/* Coders 3 and 4 keep so many bits of the float's fraction. */
static uint32_t fraction_kept(enum codec_values values)
{
    return values == CODEC_FOUR_BITS ? 1 : 4;
}

/* A level's number is what is left of the float when the low bits are cut off. */
static void quantise_levels(struct selection *selection, enum codec_values values)
{
    uint32_t kept = fraction_kept(values), cut = FRACTION_BITS - kept;
    uint32_t levels = 1u << (format_value_bits(values) - 1);
    selection->scale = selection->greatest >> FRACTION_BITS;
    uint32_t top = (selection->scale + 1) << kept;
    for (uint32_t i = 0; i < selection->count; i++) {
        uint32_t magnitude = selection->bits[i] & FLOAT_MAGNITUDE;
        uint32_t rounded = (magnitude + (1u << (cut - 1))) >> cut;
        uint32_t level = rounded < top ? top - 1 - rounded : 0;
        level = level < levels ? level : levels - 1;
        selection->words[i] = (uint8_t)(level << 1 | selection->bits[i] >> 31);
        selection->values[i] =
            float_of_bits((selection->bits[i] & ~FLOAT_MAGNITUDE) | (top - 1 - level) << cut);
    }
}

void values_quantise(struct selection *selection, enum codec_values values)
{
    selection->scale = 0;
    if (selection->count > 0) {
        if (values == CODEC_SIGN)
            quantise_sign(selection);
        else if (values == CODEC_TWO_BITS)
            quantise_two_bits(selection);
        else
            quantise_levels(selection, values);
    }
    if (selection->scale == 0)
        selection->count = 0;
}

static void fill_levels(enum codec_values values, uint32_t scale, float ret[VALUES_TABLE])
{
    uint32_t kept = fraction_kept(values);
    uint32_t levels = 1u << (format_value_bits(values) - 1);
    uint32_t top = (scale + 1) << kept;
    for (uint32_t level = 0; level < levels; level++) {
        uint32_t number = top - 1 - level;
        bool normal = level < top && number >= 1u << kept;
        ret[2 * level] = normal ? float_of_bits(number << (FRACTION_BITS - kept)) : 0.0f;
        ret[2 * level + 1] = -ret[2 * level];
    }
}

const char *values_table(enum codec_values values, uint32_t scale, uint32_t second,
                         float ret[VALUES_TABLE])
{
    if (scale < 1 || scale > SCALE_TOP)
        return "scale out of range";
    if (values == CODEC_FOUR_BITS || values == CODEC_EIGHT_BITS) {
        fill_levels(values, scale, ret);
        return NULL;
    }
    if (values == CODEC_TWO_BITS && (second < 1 || second > scale))
        return "second scale out of range";
    uint32_t large = values == CODEC_TWO_BITS ? 2 : 0;
    ret[0] = float_of_bits(magnitude_of_scale(values == CODEC_TWO_BITS ? second : scale));
    ret[large] = float_of_bits(magnitude_of_scale(scale));
    ret[1] = -ret[0];
    ret[large + 1] = -ret[large];
    return NULL;
}
