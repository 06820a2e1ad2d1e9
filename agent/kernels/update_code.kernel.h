/* What the update code's kernels share, in the dialect of kernel_defs.h: the numbers and the value
 * coders of the format (common/codec/format.c, values.c). Same bytes and same floats as
 * codec_encode and codec_add. */

#define CHUNK 4096u
#define SUPER_CHUNK 256u /* chunks */
#define K_MAX 512u
#define CHUNK_WORDS 256u /* more than what a chunk can take */
#define BITMAP_WORDS (CHUNK / 32u)
#define PER_ITEM (CHUNK / RK_GROUP_ITEMS)
#define ROW 16u /* sums over 256 items: of 16 rows, each of 16 items */

#define WITH_RESIDUAL 1u
#define WITH_PLUS 2u
#define WITH_MINUS 4u
#define WITH_ADD_TO 8u

#define VALUES_SIGN 1u
#define VALUES_TWO 2u
#define VALUES_FOUR 3u

#define MAGNITUDE 0x7FFFFFFFu
#define NORMAL_MIN 0x00800000u
#define NOT_FINITE 0x7F800000u /* magnitudes from here on */
#define FRACTION_BITS 23u
#define BITS_NOT_FINITE 0x80000000u /* in chunk_bits */

#define SCALE_BITS 8u
#define SCALE_TOP 254u
#define SCALE_COUNTED 255u
#define COUNT_BITS 9u

/* --- numbers (as in common/codec/format.h, values.c) ------------------------------------------ */

RK_FN u32 magnitude_of(float x)
{
    return rk_bits(x) & MAGNITUDE;
}

/* Denormals and -0 become +0. */
RK_FN float flush(float x)
{
    return magnitude_of(x) >= NORMAL_MIN ? x : 0.0f;
}

RK_FN u32 chunk_length(u32 n_low, u32 n_high, u32 chunk)
{
    u64 left = ((u64)n_high << 32 | n_low) - (u64)chunk * CHUNK;
    return left < CHUNK ? (u32)left : CHUNK;
}

RK_FN u32 value_bits(u32 values)
{
    return 1u << (values - 1u); /* 1, 2, 4, 8 */
}

RK_FN u32 rice_bits(u32 length, u32 count)
{
    u64 have = (u64)1000u * count * (2u * length + count);
    u64 need = (u64)957u * length * length;
    u32 b = 0u;
    while (have << b < need)
        b++;
    return b;
}

/* Of the float 2^(step / 4), step 0 ... 3. */
RK_FN u32 step_fraction(u32 step)
{
    u32 low = step == 0u ? 0x000000u : 0x1837F0u;
    u32 high = step == 2u ? 0x3504F3u : 0x5744FDu;
    return step < 2u ? low : high;
}

RK_FN u32 magnitude_of_scale(u32 scale)
{
    u32 steps = scale - 1u;
    return (127u - 48u + steps / 4u) << FRACTION_BITS | step_fraction(steps % 4u);
}

/* A magnitude as a multiple of 2^(exponent - 127 - 31), the rest cut off. */
RK_FN u32 fixed_point(u32 magnitude, u32 exponent)
{
    u32 shift = exponent - (magnitude >> FRACTION_BITS);
    u32 fixed = ((magnitude & 0x7FFFFFu) | 0x800000u) << 8;
    return shift < 32u ? fixed >> shift : 0u;
}

/* The scale nearest to sum / count on the logarithmic grid; 0: too small. */
RK_FN u32 scale_of_mean(u64 sum, u32 count, u32 exponent)
{
    if (sum == 0u)
        return 0u;
    u32 halvings = 0u;
    while (sum < (u64)count << 31) {
        sum <<= 1;
        halvings++;
    }
    u32 step = 0u;
    step += sum >= (u64)count * 0x8B95C1E4u ? 1u : 0u; /* the borders 2^((j + 1/2) / 4) rise */
    step += sum >= (u64)count * 0xA5FED6AAu ? 1u : 0u;
    step += sum >= (u64)count * 0xC5672A12u ? 1u : 0u;
    step += sum >= (u64)count * 0xEAC0C6E8u ? 1u : 0u;
    u32 above = 4u * exponent + step + 1u, below = 4u * (127u - 48u + halvings);
    if (above <= below)
        return 0u;
    return above - below < SCALE_TOP ? above - below : SCALE_TOP;
}

/* What a chunk's words stand for. */
struct value_coder {
    u32 values, scale, second;
};

/* How a chunk's values become words. */
struct quantiser {
    struct value_coder coder;
    u32 count, exponent; /* of all coordinates; of the largest */
    u64 sum;             /* of their fixed-point magnitudes; coders 1 and 2 only */
};

RK_FN u32 fraction_kept(u32 values)
{
    return values == VALUES_FOUR ? 1u : 4u;
}

/* Coder 2: reaches the mean of all. */
RK_FN u32 is_large(struct quantiser quantiser, u32 bits)
{
    u64 fixed = fixed_point(bits & MAGNITUDE, quantiser.exponent);
    return fixed * quantiser.count >= quantiser.sum ? 1u : 0u;
}

/* What is written for a float of these bits. */
RK_FN u32 word_of(struct quantiser quantiser, u32 bits)
{
    u32 sign = bits >> 31, values = quantiser.coder.values;
    if (values == VALUES_SIGN)
        return sign;
    if (values == VALUES_TWO)
        return is_large(quantiser, bits) << 1 | sign;
    u32 kept = fraction_kept(values), cut = FRACTION_BITS - kept;
    u32 top = (quantiser.coder.scale + 1u) << kept, last = (1u << (value_bits(values) - 1u)) - 1u;
    u32 rounded = ((bits & MAGNITUDE) + (1u << (cut - 1u))) >> cut;
    u32 level = rounded < top ? top - 1u - rounded : 0u;
    return (level < last ? level : last) << 1 | sign;
}

/* What a word stands for. */
RK_FN float value_of(struct value_coder coder, u32 word)
{
    u32 sign = word << 31, kept = fraction_kept(coder.values);
    u32 magnitude = (((coder.scale + 1u) << kept) - 1u - (word >> 1)) << (FRACTION_BITS - kept);
    if (coder.values == VALUES_SIGN)
        magnitude = magnitude_of_scale(coder.scale);
    if (coder.values == VALUES_TWO)
        magnitude = magnitude_of_scale((word & 2u) != 0u ? coder.scale : coder.second);
    return rk_float(sign | magnitude);
}
