/* What is sent, how large it is, and numbers at the edges, for every coder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/common/codec/fixture.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct sample {
    uint64_t n;
    struct codec_format format;
    float *before, *residual, *decoded;
    struct buffer bytes;
    struct codec_payload payload;
};

static bool same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static float flushed(float x)
{
    return fpclassify(x) == FP_SUBNORMAL || x == 0 ? 0.0f : x;
}

/* Encodes e (taken), decodes, and checks what must hold for every input. */
static struct sample round_trip(float *e, uint64_t n, struct codec_format format)
{
    struct sample s = {.n = n, .format = format, .before = e};
    size_t array_bytes = (n + 1) * sizeof(float);
    s.residual = malloc(array_bytes);
    memcpy(s.residual, e, array_bytes);
    s.decoded = calloc(n + 1, sizeof(float));
    buffer_init(&s.bytes, codec_bytes_max(n, format));
    struct error err = {0};
    struct codec_source source = {.residual = s.residual, .decay = 1.0f};
    if (encode(&source, n, format, NULL, &s.bytes, &err) ||
        codec_open(s.bytes.data, s.bytes.bytes, n, NULL, &s.payload, &err))
        fail_msg("%s", err.text);
    assert_int_equal(s.payload.format.values, format.values);
    assert_int_equal(s.payload.format.k, format.values == CODEC_FP32 ? CODEC_CHUNK : format.k);
    assert_int_equal(codec_decode_add(s.bytes.data, s.bytes.bytes, 1, s.decoded, n, &err),
                     STATUS_OK);
    uint64_t nonzero = 0;
    for (uint64_t i = 0; i < n; i++) {
        assert_true(isfinite(s.decoded[i]) && isfinite(s.residual[i]));
        assert_true(same_bits(s.decoded[i], flushed(s.decoded[i])));
        /* error feedback: what was there = what is left + what was sent */
        float before = flushed(s.before[i]);
        assert_true(same_bits(s.residual[i], flushed(before - s.decoded[i])));
        assert_true(s.decoded[i] == 0 || signbit(s.decoded[i]) == signbit(s.before[i]));
        nonzero += s.decoded[i] != 0;
    }
    assert_true(format.values == CODEC_FP32 ? s.payload.coordinates == n
                                            : s.payload.coordinates == nonzero);
    return s;
}

static void sample_done(struct sample *s)
{
    free(s->before);
    free(s->residual);
    free(s->decoded);
    buffer_done(&s->bytes);
}

static struct codec_format sign(uint32_t k)
{
    return (struct codec_format){CODEC_SIGN, k};
}

/* 0: normal, 1: Laplace, 2: Student's t with heavy tails. */
static float *drawn(uint64_t n, int distribution)
{
    struct rng rng;
    rng_seed(&rng, (uint64_t)distribution);
    float *e = malloc((n + 1) * sizeof *e);
    for (uint64_t i = 0; i < n; i++) {
        double normal = rng_normal(&rng), uniform = rng_uniform(&rng);
        double laplace = (uniform < 0.5 ? 1 : -1) * log(rng_uniform(&rng) + 1e-300);
        double student = normal / (fabs(rng_normal(&rng)) + 1e-9);
        e[i] = (float)((distribution == 0 ? normal : distribution == 1 ? laplace : student) / 256);
    }
    return e;
}

/* --- values ---------------------------------------------------------------------------------- */

/* How far decoded may be from the true magnitude, as a part of it, when all are within range. */
static void levels_are_as_near_as_they_promise(void **state)
{
    (void)state;
    const struct {
        enum codec_values values;
        float most;
    } rows[] = {{CODEC_FOUR_BITS, 0.25f}, {CODEC_EIGHT_BITS, 1.0f / 32}, {CODEC_FP32, 0.0f}};
    for (size_t j = 0; j < COUNT_OF(rows); j++) {
        struct sample s =
            round_trip(gaussian(9000, 3), 9000, (struct codec_format){rows[j].values, 64});
        for (uint64_t i = 0; i < s.n; i++) {
            if (s.decoded[i] != 0)
                assert_true(fabsf(s.decoded[i] - s.before[i]) <=
                            rows[j].most * fabsf(s.before[i]) * 1.0001f);
        }
        sample_done(&s);
    }
}

/* On heavy tails; where all that is sent is nearly equal, two means can do better than a float. */
static void more_bits_leave_less(void **state)
{
    (void)state;
    double left[COUNT_OF(all_values)];
    for (size_t v = 0; v < COUNT_OF(all_values); v++) {
        struct sample s =
            round_trip(drawn(40960, 2), 40960, (struct codec_format){all_values[v], 64});
        left[v] = 0;
        for (uint64_t i = 0; i < s.n; i++)
            left[v] += s.decoded[i] != 0 ? (double)s.residual[i] * (double)s.residual[i] : 0;
        sample_done(&s);
    }
    for (size_t v = 1; v < COUNT_OF(all_values); v++)
        assert_true(left[v] < left[v - 1]);
    assert_true(left[4] == 0);
}

static void sign_scales_saturate_and_vanish(void **state)
{
    (void)state;
    float *e = zero(8192, 0);
    e[5] = -1e30f;
    e[4097] = 0x1p-48f;
    struct sample s = round_trip(e, 8192, sign(2));
    assert_true(s.decoded[5] == -0x1.306fe0p+15f); /* 2^15.25 */
    assert_true(s.residual[5] < -0.99e30f);
    assert_true(s.decoded[4097] == 0x1p-48f);
    sample_done(&s);
    e = zero(8192, 0);
    e[4096] = 1e-20f; /* under the smallest scale: nothing is sent, nothing is lost */
    s = round_trip(e, 8192, sign(2));
    assert_true(s.payload.coordinates == 0 && s.residual[4096] == 1e-20f);
    sample_done(&s);
}

/* --- size ------------------------------------------------------------------------------------ */

static void size_is_within_3_percent_of_the_limit(void **state)
{
    (void)state;
    const uint32_t chunks = 512; /* enough to share the header */
    const uint64_t n = chunks * CODEC_CHUNK;
    const uint32_t ks[] = {16, 24, 32, 48, 64, 96, 128, 192, 238, 256};
    for (int distribution = 0; distribution < 3; distribution++) {
        float *e = drawn(n, distribution);
        for (size_t j = 0; j < COUNT_OF(ks); j++) {
            double k = ks[j];
            double choose_bits = (lgamma(4097) - lgamma(k + 1) - lgamma(4097 - k)) / log(2);
            double limit_bytes = chunks * (choose_bits + k + 8) / 8;
            struct buffer bytes = encoded(e, n, sign(ks[j]));
            if ((double)bytes.bytes > 1.03 * limit_bytes)
                fail_msg("distribution %d, k = %u: %zu bytes, limit %.0f", distribution, ks[j],
                         bytes.bytes, limit_bytes);
            buffer_done(&bytes);
        }
        free(e);
    }
}

/* The last k entries of a chunk, or every 4096/k-th, cost the most in Rice code. */
static void worst_cases_stay_under_the_bound(void **state)
{
    (void)state;
    const uint64_t ns[] = {4096, 4095, 2100, 2050, 1030, 700};
    for (size_t j = 0; j < COUNT_OF(ns) * 4; j++) {
        uint64_t n = ns[j / 4];
        for (uint32_t k = 1; k <= CODEC_K_MAX; k += k < 20 ? 1 : 41)
            for (uint32_t count = 1; count <= k; count += 1 + count / 4) {
                float *e = zero(n, 0);
                for (uint32_t i = 0; i < count; i++)
                    e[i % 2 ? n - 1 - i : n - 1 - i * (n / count)] = 1;
                /* its buffer has no more than the bound */
                struct sample s = round_trip(e, n, (struct codec_format){all_values[j % 4], k});
                sample_done(&s);
            }
    }
    assert_true(codec_bytes_max(UINT64_MAX, sign(CODEC_K_MAX)) > (size_t)1 << 59);
    assert_true(codec_bytes_max(UINT64_C(1) << 40, sign(64)) > (size_t)1 << 33);
    assert_true(codec_bytes_max(UINT64_MAX, (struct codec_format){CODEC_FP32, 0}) == SIZE_MAX);
}

/* --- edges ----------------------------------------------------------------------------------- */

static void ties_go_to_the_lower_index(void **state)
{
    (void)state;
    float *e = zero(5000, 0);
    for (int i = 0; i < 5000; i++)
        e[i] = i % 2 ? 0.5f : -0.5f;
    e[4000] = 0.75f;
    struct sample s = round_trip(e, 5000, sign(4));
    assert_true(s.decoded[0] != 0 && s.decoded[1] != 0 && s.decoded[2] != 0);
    assert_true(s.decoded[3] == 0 && s.decoded[4000] != 0);
    sample_done(&s);
}

static void pain_C1_numbers_at_the_edges(void **state)
{
    (void)state;
    const uint64_t n = 5000;
    for (size_t v = 0; v < COUNT_OF(all_values); v++) {
        struct codec_format format = {all_values[v], 64};
        bool all = format.values == CODEC_FP32;
        struct sample s = round_trip(zero(n, 0), n, format);
        assert_true(s.payload.coordinates == (all ? n : 0));
        sample_done(&s);

        float *e = zero(n, 0);
        e[4321] = -3;
        s = round_trip(e, n, format);
        assert_true(fabsf(s.decoded[4321] + 3) < 0.3f && s.decoded[4320] == 0);
        sample_done(&s);

        e = zero(n, 0);
        for (uint64_t i = 0; i < n; i++)
            e[i] = 0.25f;
        s = round_trip(e, n, format);
        assert_true(s.decoded[63] == 0.25f && s.decoded[64] == (all ? 0.25f : 0));
        assert_true(s.decoded[4096 + 63] == 0.25f && s.decoded[4096 + 64] == (all ? 0.25f : 0));
        sample_done(&s);

        e = zero(n, 0);
        for (uint64_t i = 0; i < n; i++)
            e[i] = i % 2 ? -FLT_TRUE_MIN : FLT_MIN / 2;
        s = round_trip(e, n, format);
        assert_true(s.payload.coordinates == (all ? n : 0) && same_bits(s.residual[0], 0));
        sample_done(&s);

        e = zero(n, 0);
        for (uint64_t i = 0; i < n; i++)
            e[i] = i % 2 ? -FLT_MAX : FLT_MAX;
        s = round_trip(e, n, format);
        assert_true(s.decoded[0] > 30000 && s.decoded[1] < -30000);
        sample_done(&s);

        e = zero(n, 0);
        e[7] = FLT_MIN;
        e[8] = -FLT_MIN;
        s = round_trip(e, n, format);
        if (format.values >= CODEC_FOUR_BITS)
            assert_true(s.decoded[7] == FLT_MIN && s.residual[8] == 0);
        sample_done(&s);
    }
}

static void every_exponent_survives(void **state)
{
    (void)state;
    for (int exponent = -126; exponent < 128; exponent++) {
        for (size_t v = 0; v < COUNT_OF(all_values); v++) {
            float *e = gaussian(4096, 11);
            for (int i = 0; i < 4096; i++)
                e[i] =
                    ldexpf(e[i] < 0 ? -1 - (float)(i % 7) / 8 : 1 + (float)(i % 7) / 8, exponent);
            struct sample s = round_trip(e, 4096, (struct codec_format){all_values[v], 64});
            bool sent = all_values[v] >= CODEC_FOUR_BITS || exponent >= -48;
            assert_true(!sent || s.payload.coordinates >= 64);
            sample_done(&s);
        }
    }
}

static void pain_G3_lengths_around_a_chunk_and_a_super_chunk(void **state)
{
    (void)state;
    const uint64_t ns[] = {0,    1,    2,    63,   64,   65,    511,
                           4095, 4096, 4097, 8191, 8192, 12289, 257 * 4096 + 5};
    const uint32_t ks[] = {1, 3, 64, 511, 512};
    for (size_t i = 0; i < COUNT_OF(ns); i++)
        for (size_t j = 0; j < COUNT_OF(ks) * COUNT_OF(all_values); j++) {
            struct codec_format format = {all_values[j % 5], ks[j / 5]};
            struct sample s = round_trip(gaussian(ns[i], i), ns[i], format);
            uint64_t tail = ns[i] % 4096, k = format.k;
            if (format.values != CODEC_FP32)
                assert_true(s.payload.coordinates == ns[i] / 4096 * k + (tail < k ? tail : k));
            sample_done(&s);
        }
}

static void what_is_not_finite_is_refused_with_its_position(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    const uint64_t at[] = {0, 4095, 4096, 8999};
    for (size_t j = 0; j < COUNT_OF(bad) * COUNT_OF(at) * COUNT_OF(all_values); j++) {
        float *e = gaussian(9000, 1);
        uint64_t where = at[j / 3 % 4];
        e[where] = bad[j % 3];
        e[8999] = NAN; /* the first one is named */
        struct codec_source source = {.residual = e, .decay = 1.0f};
        struct codec_format format = {all_values[j / 12], 64};
        struct error err = {0};
        struct buffer bytes;
        char expected[64];
        buffer_init(&bytes, codec_bytes_max(9000, format) + 1);
        assert_int_equal(buffer_append(&bytes, "x", 1), STATUS_OK);
        assert_int_equal(encode(&source, 9000, format, NULL, &bytes, &err), STATUS_NOT_FINITE);
        snprintf(expected, sizeof expected, "parameter %llu of", (unsigned long long)where);
        assert_non_null(strstr(err.text, expected));
        assert_int_equal(bytes.bytes, 1);
        buffer_done(&bytes);
        free(e);
    }
}

static void lack_of_room_and_wrong_settings_change_nothing(void **state)
{
    (void)state;
    float *e = gaussian(9000, 1), *copy = gaussian(9000, 1);
    struct codec_source source = {.residual = e, .decay = 1.0f};
    struct buffer bytes;
    buffer_init(&bytes, codec_bytes_max(9000, sign(64)) - 1);
    assert_int_equal(encode(&source, 9000, sign(64), NULL, &bytes, NULL), STATUS_TOO_LARGE);
    assert_int_equal(encode(&source, 9000, sign(0), NULL, &bytes, NULL), STATUS_INVALID);
    assert_int_equal(encode(&source, 9000, sign(CODEC_K_MAX + 1), NULL, &bytes, NULL),
                     STATUS_INVALID);
    assert_int_equal(encode(&source, 9000, (struct codec_format){0, 64}, NULL, &bytes, NULL),
                     STATUS_INVALID);
    assert_int_equal(encode(&source, 9000, (struct codec_format){6, 64}, NULL, &bytes, NULL),
                     STATUS_INVALID);
    const float decays[] = {-0.1f, 1.5f, NAN};
    for (size_t i = 0; i < COUNT_OF(decays); i++) {
        source.decay = decays[i];
        assert_int_equal(encode(&source, 9000, sign(64), NULL, &bytes, NULL), STATUS_INVALID);
    }
    assert_memory_equal(e, copy, 9000 * sizeof *e);
    assert_int_equal(bytes.bytes, 0);
    buffer_done(&bytes);
    free(e);
    free(copy);
}

/* --- long runs ------------------------------------------------------------------------------- */

/* Σ sent + residual = Σ inputs, as an agent accumulates them. */
static void nothing_is_lost_in_a_thousand_rounds(void **state)
{
    (void)state;
    enum { LENGTH = 4096 + 700, ROUNDS = 1000 };
    const uint32_t ks[] = {1, 64, 512};
    struct codec_encoder *encoder;
    assert_int_equal(codec_encoder_create(NULL, &encoder), STATUS_OK);
    for (size_t j = 0; j < COUNT_OF(ks) * COUNT_OF(all_values); j++) {
        struct codec_format format = {all_values[j % 5], ks[j / 5]};
        static double inputs[LENGTH], sent[LENGTH], most[LENGTH];
        static float decoded[LENGTH], residual[LENGTH], input[LENGTH];
        struct rng rng;
        struct buffer bytes;
        rng_seed(&rng, j);
        buffer_init(&bytes, codec_bytes_max(LENGTH, format));
        memset(inputs, 0, sizeof inputs);
        memset(sent, 0, sizeof sent);
        memset(most, 0, sizeof most);
        memset(residual, 0, sizeof residual);
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < LENGTH; i++) {
                input[i] = (float)((rng_uniform(&rng) - 0.4) * (1 + i % 13) * 0x1p-8);
                inputs[i] += (double)input[i];
            }
            struct codec_source source = {.residual = residual, .decay = 1.0f, .plus = input};
            buffer_clear(&bytes);
            assert_int_equal(codec_encode(encoder, &source, LENGTH, format, &bytes, NULL),
                             STATUS_OK);
            memset(decoded, 0, sizeof decoded);
            assert_int_equal(codec_decode_add(bytes.data, bytes.bytes, 1, decoded, LENGTH, NULL),
                             STATUS_OK);
            for (int i = 0; i < LENGTH; i++) {
                sent[i] += (double)decoded[i];
                most[i] = fmax(most[i], fabs((double)residual[i]));
            }
        }
        double error = 0, scale = 0;
        for (int i = 0; i < LENGTH; i++) {
            error += fabs(sent[i] + (double)residual[i] - inputs[i]);
            scale += fabs(inputs[i]) + most[i];
        }
        if (error > 1e-6 * scale)
            fail_msg("coder %d, k = %u: off by %g of %g", format.values, format.k, error, scale);
        buffer_done(&bytes);
    }
    codec_encoder_free(encoder);
}

static void payloads_are_appended_and_repeatable(void **state)
{
    (void)state;
    float *e = gaussian(9000, 5);
    struct codec_source source = {.plus = e};
    struct buffer bytes;
    buffer_init(&bytes, 1 << 20);
    assert_int_equal(encode(&source, 9000, sign(64), NULL, &bytes, NULL), STATUS_OK);
    size_t half = bytes.bytes;
    /* old bytes must not shine through */
    memset(bytes.data + half, 0xFF, bytes.capacity_bytes - half);
    assert_int_equal(encode(&source, 9000, sign(64), NULL, &bytes, NULL), STATUS_OK);
    assert_int_equal(bytes.bytes, 2 * half);
    assert_memory_equal(bytes.data, bytes.data + half, half);
    buffer_done(&bytes);
    free(e);
}

/* --- decoding -------------------------------------------------------------------------------- */

static void decode_adds_factor_times_the_value(void **state)
{
    (void)state;
    const uint64_t n = 9000;
    struct sample s = round_trip(gaussian(n, 2), n, sign(32));
    float *target = gaussian(n, 77), *old = gaussian(n, 77);
    assert_int_equal(codec_decode_add(s.bytes.data, s.bytes.bytes, -0.3f, target, n, NULL),
                     STATUS_OK);
    for (uint64_t i = 0; i < n; i++) {
        volatile float product = -0.3f * s.decoded[i]; /* two roundings */
        volatile float sum = old[i] + product;
        assert_true(same_bits(target[i], s.decoded[i] == 0 ? old[i] : sum));
    }
    memcpy(target, old, n * sizeof *old);
    assert_int_equal(codec_decode_add(s.bytes.data, s.bytes.bytes, NAN, target, n, NULL),
                     STATUS_INVALID);
    assert_memory_equal(target, old, n * sizeof *old);
    assert_int_equal(codec_decode_add(s.bytes.data, s.bytes.bytes, 1e-38f, target, n, NULL),
                     STATUS_OK); /* denormal products count as zero */
    assert_memory_equal(target, old, n * sizeof *old);
    free(target);
    free(old);
    sample_done(&s);
}

static void hash_is_xxh3_of_the_bytes(void **state)
{
    (void)state;
    const float w[2] = {1, -2};
    const uint8_t bytes[8] = {0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0};
    assert_true(codec_hash(w, 2) == checksum_xxh3(bytes, 8));
}

/* flashinfer#3391 and others: 32-bit index maths. The target begins 8 GiB before the only memory
 * that is touched: the payload's last chunk, where alone there is something to add. */
static void pain_G1_more_than_2_to_the_31_parameters(void **state)
{
    (void)state;
    const uint64_t n = (UINT64_C(1) << 31) + 512, chunks = n / CODEC_CHUNK + 1;
    const uint64_t supers = codec_super_chunks(n);
    /* a payload by hand: every chunk but the last is one zero byte */
    float *e = zero(512, 0);
    e[511] = -1;
    struct buffer small = encoded(e, 512, sign(64));
    size_t tail_bytes = small.bytes - HEADER_BYTES - 8;
    size_t bytes = HEADER_BYTES + supers * 8 + (chunks - 1) + tail_bytes;
    uint8_t *data = calloc(1, bytes);
    memcpy(data, small.data, HEADER_BYTES);
    store_u64(data + 8, n);
    for (uint64_t i = 0; i < supers; i++)
        store_u64(data + HEADER_BYTES + i * 8, i * CODEC_SUPER_CHUNK);
    memcpy(data + bytes - tail_bytes, small.data + small.bytes - tail_bytes, tail_bytes);
    reseal(data, bytes);
    struct codec_payload payload;
    struct error err;
    if (codec_open(data, bytes, n, NULL, &payload, &err))
        fail_msg("%s", err.text);
    assert_true(payload.coordinates == 1);
    float *last = calloc(512, sizeof *last);
    float *target = (float *)((uintptr_t)last - (n - 512) * sizeof(float));
    codec_add(&payload, 2.0f, target, NULL);
    assert_true(last[511] == -2.0f && last[0] == 0);
    free(last);
    free(data);
    free(e);
    buffer_done(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_are_as_near_as_they_promise),
        cmocka_unit_test(more_bits_leave_less),
        cmocka_unit_test(sign_scales_saturate_and_vanish),
        cmocka_unit_test(size_is_within_3_percent_of_the_limit),
        cmocka_unit_test(worst_cases_stay_under_the_bound),
        cmocka_unit_test(ties_go_to_the_lower_index),
        cmocka_unit_test(pain_C1_numbers_at_the_edges),
        cmocka_unit_test(every_exponent_survives),
        cmocka_unit_test(pain_G3_lengths_around_a_chunk_and_a_super_chunk),
        cmocka_unit_test(what_is_not_finite_is_refused_with_its_position),
        cmocka_unit_test(lack_of_room_and_wrong_settings_change_nothing),
        cmocka_unit_test(nothing_is_lost_in_a_thousand_rounds),
        cmocka_unit_test(payloads_are_appended_and_repeatable),
        cmocka_unit_test(decode_adds_factor_times_the_value),
        cmocka_unit_test(hash_is_xxh3_of_the_bytes),
        cmocka_unit_test(pain_G1_more_than_2_to_the_31_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
