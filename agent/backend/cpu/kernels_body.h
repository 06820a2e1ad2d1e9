/* The kernels themselves, compiled once per instruction set with LANES floats per vector (see
 * kernels.h). Written with the compiler's vector types, so that one text serves all processors.
 * Surprising: exp and the normal distribution are own polynomials (errors are in the tests): the C
 * library's vector versions exist only for some processors and only under fast-math. */
#include "agent/backend/cpu/kernels.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef float v4 __attribute__((vector_size(16)));

INLINE vf load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

INLINE vf splat(float x)
{
    return x - (vf){0};
}

/* The last count < LANES elements, the rest filled. */
INLINE vf load_tail(const float *p, size_t count, float fill)
{
    float lanes[LANES];
    for (size_t i = 0; i < LANES; i++)
        lanes[i] = i < count ? p[i] : fill;
    return load(lanes);
}

INLINE void store_tail(float *p, size_t count, vf v)
{
    float lanes[LANES];
    store(lanes, v);
    for (size_t i = 0; i < count; i++)
        p[i] = lanes[i];
}

INLINE vf choose(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

INLINE vf vmax(vf a, vf b)
{
    return choose(a > b, a, b);
}

INLINE vf vabs(vf x)
{
    return (vf)((vi)x & 0x7FFFFFFF);
}

INLINE float total(vf v)
{
    float lanes[LANES], sum = 0;
    store(lanes, v);
    for (size_t i = 0; i < LANES; i++)
        sum += lanes[i];
    return sum;
}

/* exp(x) = 2ⁿ · exp(r), |r| ≤ ln 2 / 2, polynomial of Cephes' expf. Below -87.3 the result is the
 * smallest normal number or so, above 88.3 it is capped near the largest; NaN stays NaN. */
INLINE vf vexp(vf x)
{
    x = choose(x < splat(-87.33f), splat(-87.33f), x);
    x = choose(x > splat(88.37f), splat(88.37f), x);
    vf shifted = x * 1.44269504f + 12582912.0f; /* 1.5 × 2²³: rounds to a whole number */
    vf n = shifted - 12582912.0f;
    vf r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    vf p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    vi power = ((vi)shifted - 0x4B400000 + 127) << 23;
    return p * (vf)power;
}

/* Φ(x) and φ(x) of the standard normal distribution by Abramowitz and Stegun 7.1.26 (error of Φ
 * below 1e-7); the lower tail is computed without cancellation. */
INLINE void normal_distribution(vf x, vf *ret_cumulative, vf *ret_density)
{
    vf a = vabs(x) * 0.70710678f;
    vf e = vexp(-(a * a));
    vf t = 1.0f / (1.0f + 0.3275911f * a);
    vf p = splat(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    vf tail = 0.5f * p * t * e; /* Φ(-|x|) */
    *ret_cumulative = choose(x > (vf){0}, 1.0f - tail, tail);
    *ret_density = 0.39894228f * e;
}

/* --- matrix product -------------------------------------------------------------------------- */

#define TILE_VECTORS 2 /* per row at once: 6 × 2 sums and 3 operands fit 16 registers */

INLINE void tile_columns(size_t k, const float *a, size_t a_row, size_t a_k, const float *b,
                         float *c, size_t c_stride, bool accumulate, const float *bias)
{
    vf sum[TILE_ROWS][TILE_VECTORS] = {{{0}}};
    const float *a3 = a + 3 * a_row;
    for (size_t step = 0; step < k; step++) {
        vf b0 = load(b), b1 = load(b + LANES);
#pragma GCC unroll 3
        for (size_t i = 0; i < 3; i++) {
            sum[i][0] += a[i * a_row] * b0;
            sum[i][1] += a[i * a_row] * b1;
            sum[3 + i][0] += a3[i * a_row] * b0;
            sum[3 + i][1] += a3[i * a_row] * b1;
        }
        a += a_k;
        a3 += a_k;
        b += TILE_COLUMNS;
    }
    vf add0 = bias ? load(bias) : (vf){0}, add1 = bias ? load(bias + LANES) : (vf){0};
#pragma GCC unroll 6
    for (size_t i = 0; i < TILE_ROWS; i++) {
        float *row = c + i * c_stride;
        store(row, sum[i][0] + add0 + (accumulate ? load(row) : (vf){0}));
        store(row + LANES, sum[i][1] + add1 + (accumulate ? load(row + LANES) : (vf){0}));
    }
}

static void gemm_tile(size_t k, const float *a, size_t a_row, size_t a_k, const float *b, float *c,
                      size_t c_stride, bool accumulate, const float *bias)
{
    for (size_t j = 0; j < TILE_COLUMNS; j += TILE_VECTORS * LANES)
        tile_columns(k, a, a_row, a_k, b + j, c + j, c_stride, accumulate, bias ? bias + j : NULL);
}

/* ret[j × width + i] = source[i × stride + j] for i, j < 4. */
INLINE void transpose4(const float *source, size_t stride, float *ret, size_t width)
{
    v4 r[4];
    for (size_t i = 0; i < 4; i++)
        memcpy(&r[i], source + i * stride, sizeof r[i]);
    v4 a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    v4 b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    v4 c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    v4 d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
    for (size_t j = 0; j < 4; j++)
        memcpy(ret + j * width, &r[j], sizeof r[j]);
}

INLINE void pack_contiguous(size_t width, size_t k, const float *source, size_t stride_k,
                            float *ret)
{
    for (size_t step = 0; step < k; step++)
        memcpy(ret + step * width, source + step * stride_k, width * sizeof *ret);
}

static void pack_columns_transposed(size_t k, const float *source, size_t stride_i, float *ret)
{
    size_t step = 0;
    for (; step + 4 <= k; step += 4) {
        for (size_t i = 0; i < TILE_COLUMNS; i += 4)
            transpose4(source + i * stride_i + step, stride_i, ret + step * TILE_COLUMNS + i,
                       TILE_COLUMNS);
    }
    for (; step < k; step++) {
        for (size_t i = 0; i < TILE_COLUMNS; i++)
            ret[step * TILE_COLUMNS + i] = source[i * stride_i + step];
    }
}

/* A panel that is not full, or of strides that have no fast way. */
INLINE void pack_ragged(size_t width, size_t count, size_t k, const float *source, size_t stride_i,
                        size_t stride_k, float *ret)
{
    if (count < width)
        memset(ret, 0, k * width * sizeof *ret);
    for (size_t i = 0; i < count; i++) {
        const float *from = source + i * stride_i;
        for (size_t step = 0; step < k; step++)
            ret[step * width + i] = from[step * stride_k];
    }
}

static void pack_rows_of_a(size_t count, size_t k, const float *source, size_t stride_i,
                           size_t stride_k, float *ret)
{
    if (count == TILE_ROWS && stride_i == 1)
        pack_contiguous(TILE_ROWS, k, source, stride_k, ret);
    else
        pack_ragged(TILE_ROWS, count, k, source, stride_i, stride_k, ret);
}

static void pack_columns_of_b(size_t count, size_t k, const float *source, size_t stride_i,
                              size_t stride_k, float *ret)
{
    if (count == TILE_COLUMNS && stride_i == 1)
        pack_contiguous(TILE_COLUMNS, k, source, stride_k, ret);
    else if (count == TILE_COLUMNS && stride_k == 1)
        pack_columns_transposed(k, source, stride_i, ret);
    else
        pack_ragged(TILE_COLUMNS, count, k, source, stride_i, stride_k, ret);
}

/* --- elementwise ------------------------------------------------------------------------------ */

INLINE vf gelu_of(vf x)
{
    vf cumulative, density;
    normal_distribution(x, &cumulative, &density);
    return x * cumulative;
}

static void gelu(size_t count, const float *x, float *y)
{
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        store(y + i, gelu_of(load(x + i)));
    if (i < count)
        store_tail(y + i, count - i, gelu_of(load_tail(x + i, count - i, 0)));
}

INLINE vf gelu_gradient_of(vf x, vf dy)
{
    vf cumulative, density;
    normal_distribution(x, &cumulative, &density);
    return dy * (cumulative + x * density);
}

static void gelu_gradient(size_t count, const float *x, const float *dy, float *dx, bool accumulate)
{
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vf d = gelu_gradient_of(load(x + i), load(dy + i));
        store(dx + i, accumulate ? d + load(dx + i) : d);
    }
    if (i < count) {
        size_t rest = count - i;
        vf d = gelu_gradient_of(load_tail(x + i, rest, 0), load_tail(dy + i, rest, 0));
        store_tail(dx + i, rest, accumulate ? d + load_tail(dx + i, rest, 0) : d);
    }
}

static void relu(size_t count, const float *restrict x, float *restrict y)
{
    for (size_t i = 0; i < count; i++)
        y[i] = x[i] < 0 ? 0 : x[i]; /* NaN stays NaN */
}

static void relu_gradient(size_t count, const float *restrict x, const float *restrict dy,
                          float *restrict dx, bool accumulate)
{
    if (accumulate) {
        for (size_t i = 0; i < count; i++)
            dx[i] += x[i] > 0 ? dy[i] : 0;
    } else {
        for (size_t i = 0; i < count; i++)
            dx[i] = x[i] > 0 ? dy[i] : 0;
    }
}

static void add(size_t count, const float *restrict a, const float *restrict b, float *restrict y)
{
    for (size_t i = 0; i < count; i++)
        y[i] = a[i] + b[i];
}

static void add_to(size_t count, const float *restrict x, float *restrict y)
{
    for (size_t i = 0; i < count; i++)
        y[i] += x[i];
}

/* --- rows: normalisation, softmax --------------------------------------------------------------
 */

static float sum_of(size_t count, const float *x)
{
    vf sum = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        sum += load(x + i);
    if (i < count)
        sum += load_tail(x + i, count - i, 0);
    return total(sum);
}

static void layernorm_row(size_t width, const float *x, const float *gain, const float *bias,
                          float *y, float saved[2])
{
    float mean = sum_of(width, x) / (float)width;
    vf squares = {0};
    size_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        vf d = load(x + i) - mean;
        squares += d * d;
    }
    if (i < width) {
        vf d = load_tail(x + i, width - i, mean) - mean;
        squares += d * d;
    }
    float inverse = 1.0f / sqrtf(total(squares) / (float)width + 1e-5f);
    for (size_t j = 0; j < width; j++)
        y[j] = (x[j] - mean) * inverse * gain[j] + bias[j];
    saved[0] = mean;
    saved[1] = inverse;
}

static void layernorm_row_dx(size_t width, const float *x, const float *gain, const float *dy,
                             const float saved[2], float *dx, bool accumulate)
{
    float mean = saved[0], inverse = saved[1];
    vf sum = {0}, product = {0};
    size_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        vf d = load(dy + i) * load(gain + i);
        sum += d;
        product += d * ((load(x + i) - mean) * inverse);
    }
    if (i < width) {
        vf d = load_tail(dy + i, width - i, 0) * load_tail(gain + i, width - i, 0);
        sum += d;
        product += d * ((load_tail(x + i, width - i, mean) - mean) * inverse);
    }
    float m1 = total(sum) / (float)width, m2 = total(product) / (float)width;
    for (size_t j = 0; j < width; j++) {
        float d = inverse * (dy[j] * gain[j] - m1 - (x[j] - mean) * inverse * m2);
        dx[j] = accumulate ? dx[j] + d : d;
    }
}

static void layernorm_row_gradient(size_t width, const float *x, const float *gain, const float *dy,
                                   const float saved[2], float *dx, bool accumulate,
                                   float *restrict dgain, float *restrict dbias)
{
    if (dx)
        layernorm_row_dx(width, x, gain, dy, saved, dx, accumulate);
    if (!dgain)
        return;
    float mean = saved[0], inverse = saved[1];
    for (size_t j = 0; j < width; j++) {
        dgain[j] += dy[j] * (x[j] - mean) * inverse;
        dbias[j] += dy[j];
    }
}

static float max_of(size_t count, const float *x)
{
    vf most = splat(-INFINITY);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        most = vmax(load(x + i), most);
    if (i < count)
        most = vmax(load_tail(x + i, count - i, -INFINITY), most);
    float lanes[LANES], max = -INFINITY;
    store(lanes, most);
    for (i = 0; i < LANES; i++)
        max = lanes[i] > max ? lanes[i] : max;
    return max;
}

static void exp_shifted(size_t count, const float *x, float scale, float shift, float *y)
{
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        store(y + i, vexp(load(x + i) * scale - shift));
    if (i < count)
        store_tail(y + i, count - i, vexp(load_tail(x + i, count - i, 0) * scale - shift));
}

/* scale > 0 */
static float softmax(size_t count, const float *x, float scale, float *y)
{
    float shift = max_of(count, x) * scale;
    exp_shifted(count, x, scale, shift, y);
    float sum = sum_of(count, y), inverse = 1.0f / sum;
    for (size_t i = 0; i < count; i++)
        y[i] *= inverse;
    return shift + logf(sum);
}

static void softmax_gradient(size_t count, const float *p, float scale, float *d)
{
    vf product = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        product += load(p + i) * load(d + i);
    if (i < count)
        product += load_tail(p + i, count - i, 0) * load_tail(d + i, count - i, 0);
    float mean = total(product);
    for (size_t j = 0; j < count; j++)
        d[j] = scale * p[j] * (d[j] - mean);
}

static size_t largest(size_t count, const float *x)
{
    float max = max_of(count, x);
    for (size_t i = 0; i < count; i++) {
        if (x[i] == max)
            return i;
    }
    return 0;
}

/* --- optimiser ---------------------------------------------------------------------------------
 */

static double sum_squares(size_t count, const float *x)
{
    double sum = 0;
    for (size_t begin = 0; begin < count; begin += 1024) {
        size_t n = count - begin < 1024 ? count - begin : 1024, i = 0;
        vf part = {0};
        for (; i + LANES <= n; i += LANES) {
            vf v = load(x + begin + i);
            part += v * v;
        }
        if (i < n) {
            vf v = load_tail(x + begin + i, n - i, 0);
            part += v * v;
        }
        sum += (double)total(part);
    }
    return sum;
}

static void adamw(size_t count, const struct adamw_constants *constants, float *restrict x,
                  const float *restrict gradient, float *restrict m, float *restrict v)
{
    struct adamw_constants c = *constants;
    for (size_t i = 0; i < count; i++) {
        float g = gradient[i] * c.gradient_scale;
        m[i] = c.beta1 * m[i] + c.one_minus_beta1 * g;
        v[i] = c.beta2 * v[i] + c.one_minus_beta2 * g * g;
        float step = m[i] * c.m_correction / (sqrtf(v[i] * c.v_correction) + 1e-8f);
        x[i] -= c.learning_rate * (step + c.weight_decay * x[i]);
    }
}

const struct cpu_kernels *KERNELS_TABLE(void)
{
    static const struct cpu_kernels table = {
        .name = KERNELS_NAME,
        .gemm_tile = gemm_tile,
        .pack_rows = pack_rows_of_a,
        .pack_columns = pack_columns_of_b,
        .gelu = gelu,
        .gelu_gradient = gelu_gradient,
        .relu = relu,
        .relu_gradient = relu_gradient,
        .add = add,
        .add_to = add_to,
        .sum = sum_of,
        .layernorm_row = layernorm_row,
        .layernorm_row_gradient = layernorm_row_gradient,
        .softmax = softmax,
        .exp_shifted = exp_shifted,
        .softmax_gradient = softmax_gradient,
        .largest = largest,
        .sum_squares = sum_squares,
        .adamw = adamw,
    };
    return &table;
}
