/* Tests of codec.c and chunk.c: what is sent, how large it is, and numbers at the edges. */
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
    uint32_t k;
    float *before, *residual, *decoded;
    struct buffer bytes;
    struct codec_info info;
};

static bool same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static float flushed(float x)
{
    return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x;
}

/* Encodes e (taken), decodes, and checks what must hold for every input. */
static struct sample round_trip(float *e, uint64_t n, uint32_t k)
{
    struct sample s = {.n = n, .k = k, .before = e};
    size_t array_bytes = (n + 1) * sizeof(float);
    s.residual = malloc(array_bytes);
    memcpy(s.residual, e, array_bytes);
    s.decoded = calloc(n + 1, sizeof(float));
    buffer_init(&s.bytes, codec_bytes_max(n, k));
    struct error err = {0};
    assert_int_equal(codec_encode(s.residual, n, k, &s.bytes), STATUS_OK);
    if (codec_check(s.bytes.data, s.bytes.bytes, n, &s.info, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(s.info.k, k);
    assert_true(s.info.n == n);
    assert_int_equal(codec_decode_add(s.bytes.data, s.bytes.bytes, 1, s.decoded, n, &err),
                     STATUS_OK);
    uint64_t nonzero = 0;
    for (uint64_t i = 0; i < n; i++) {
        assert_true(isfinite(s.decoded[i]) && isfinite(s.residual[i]));
        assert_true(fpclassify(s.decoded[i]) != FP_SUBNORMAL);
        assert_true(fpclassify(s.residual[i]) != FP_SUBNORMAL);
        /* error feedback: what was there = what is left + what was sent */
        float before = flushed(s.before[i]);
        float left = s.decoded[i] == 0 ? before : flushed(before - s.decoded[i]);
        assert_true(same_bits(s.residual[i], left));
        assert_true(s.decoded[i] == 0 || signbit(s.decoded[i]) == signbit(s.before[i]));
        nonzero += s.decoded[i] != 0;
    }
    assert_true(nonzero == s.info.coordinates);
    return s;
}

static void sample_done(struct sample *s)
{
    free(s->before);
    free(s->residual);
    free(s->decoded);
    buffer_done(&s->bytes);
}

struct ranked {
    float magnitude;
    uint32_t index;
};

static int by_rank(const void *a_, const void *b_)
{
    const struct ranked *a = a_, *b = b_;
    if (a->magnitude != b->magnitude)
        return a->magnitude > b->magnitude ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

/* Selection by sorting and the scale by libm: another way to the same answer. */
static void assert_chunk_as_by_sorting(const struct sample *s, uint64_t first)
{
    uint32_t length = (uint32_t)(s->n - first < CODEC_CHUNK ? s->n - first : CODEC_CHUNK);
    struct ranked ranked[CODEC_CHUNK];
    for (uint32_t i = 0; i < length; i++)
        ranked[i] = (struct ranked){fabsf(flushed(s->before[first + i])), i};
    qsort(ranked, length, sizeof *ranked, by_rank);
    uint32_t count = s->k < length ? s->k : length;
    double sum = 0;
    while (count > 0 && ranked[count - 1].magnitude == 0)
        count--;
    for (uint32_t i = 0; i < count; i++)
        sum += (double)ranked[i].magnitude;
    for (uint32_t i = 0; i < length; i++) {
        double sent = fabs((double)s->decoded[first + ranked[i].index]);
        assert_int_equal(sent != 0, i < count);
        if (i < count)
            assert_true(fabs(log2(sent / (sum / count))) < 1.0 / 16 + 1e-6);
    }
}

static void largest_coordinates_are_sent_with_their_mean(void **state)
{
    (void)state;
    const uint32_t ks[] = {1, 16, 64, 100, 512};
    for (size_t j = 0; j < COUNT_OF(ks); j++) {
        struct sample s = round_trip(gaussian(10000, j), 10000, ks[j]);
        for (uint64_t first = 0; first < s.n; first += CODEC_CHUNK)
            assert_chunk_as_by_sorting(&s, first);
        sample_done(&s);
        s = round_trip(sparse(30000, j), 30000, ks[j]);
        for (uint64_t first = 0; first < s.n; first += CODEC_CHUNK)
            assert_chunk_as_by_sorting(&s, first);
        sample_done(&s);
    }
}

static void size_is_within_3_percent_of_the_limit(void **state)
{
    (void)state;
    const uint32_t chunks = 512; /* enough to share the header's 48 bytes */
    const uint64_t n = chunks * CODEC_CHUNK;
    const uint32_t ks[] = {16, 24, 32, 48, 64, 96, 128, 192, 238, 256};
    for (size_t j = 0; j < COUNT_OF(ks); j++) {
        double k = ks[j];
        double choose_bits = (lgamma(4097) - lgamma(k + 1) - lgamma(4097 - k)) / log(2);
        double limit_bytes = chunks * (choose_bits + k + 8) / 8;
        struct sample s = round_trip(gaussian(n, 3), n, ks[j]);
        assert_true(s.info.coordinates == chunks * ks[j]);
        if ((double)s.bytes.bytes > 1.03 * limit_bytes)
            fail_msg("k = %u: %zu bytes, limit %.0f", ks[j], s.bytes.bytes, limit_bytes);
        sample_done(&s);
    }
}

static void ties_go_to_the_lower_index(void **state)
{
    (void)state;
    float *e = zero(5000, 0);
    for (int i = 0; i < 5000; i++)
        e[i] = i % 2 ? 0.5f : -0.5f;
    e[4000] = 0.75f;
    struct sample s = round_trip(e, 5000, 4);
    assert_true(s.decoded[0] != 0 && s.decoded[1] != 0 && s.decoded[2] != 0);
    assert_true(s.decoded[3] == 0 && s.decoded[4000] != 0);
    sample_done(&s);
}

static void pain_C1_numbers_at_the_edges(void **state)
{
    (void)state;
    const uint64_t n = 5000;
    struct sample s = round_trip(zero(n, 0), n, 64);
    assert_true(s.info.coordinates == 0);
    sample_done(&s);

    float *e = zero(n, 0);
    e[4321] = -3;
    s = round_trip(e, n, 64);
    assert_true(s.info.coordinates == 1 && fabsf(s.decoded[4321] + 3) < 0.15f);
    sample_done(&s);

    e = zero(n, 0);
    for (uint64_t i = 0; i < n; i++)
        e[i] = 0.25f;
    s = round_trip(e, n, 64);
    assert_true(s.info.coordinates == 128 && s.decoded[63] == 0.25f && s.decoded[64] == 0);
    assert_true(s.decoded[4096 + 63] == 0.25f && s.decoded[4096 + 64] == 0);
    sample_done(&s);

    e = zero(n, 0);
    for (uint64_t i = 0; i < n; i++)
        e[i] = i % 2 ? -FLT_TRUE_MIN : FLT_MIN / 2;
    s = round_trip(e, n, 64);
    assert_true(s.info.coordinates == 0 && s.residual[0] == 0);
    sample_done(&s);

    e = zero(n, 0);
    for (uint64_t i = 0; i < n; i++)
        e[i] = i % 2 ? -FLT_MAX : FLT_MAX;
    s = round_trip(e, n, 64);
    assert_true(s.decoded[0] > FLT_MAX / 1.1f && s.decoded[1] < -FLT_MAX / 1.1f);
    sample_done(&s);

    e = zero(n, 0);
    e[7] = FLT_MIN;
    e[8] = -FLT_MIN;
    s = round_trip(e, n, 512);
    assert_true(s.decoded[7] == FLT_MIN && s.residual[8] == 0);
    sample_done(&s);

    e = zero(n, 0);
    e[0] = FLT_MAX; /* 31 octaves are in reach, the rest must wait */
    e[4096] = FLT_MIN;
    s = round_trip(e, n, 64);
    assert_true(s.info.coordinates == 1 && s.residual[4096] == FLT_MIN);
    sample_done(&s);
}

static void every_exponent_survives(void **state)
{
    (void)state;
    for (int exponent = -126; exponent < 128; exponent++) {
        float *e = gaussian(4096, 11);
        for (int i = 0; i < 4096; i++)
            e[i] = ldexpf(e[i] < 0 ? -1 - (float)(i % 7) / 8 : 1 + (float)(i % 7) / 8, exponent);
        struct sample s = round_trip(e, 4096, 64);
        assert_true(s.info.coordinates == 64);
        sample_done(&s);
    }
}

static void not_finite_input_changes_nothing(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t j = 0; j < COUNT_OF(bad); j++) {
        float *e = gaussian(9000, 1), *copy = gaussian(9000, 1);
        e[8999] = copy[8999] = bad[j];
        struct buffer bytes;
        buffer_init(&bytes, codec_bytes_max(9000, 64));
        assert_int_equal(buffer_append(&bytes, "x", 1), STATUS_OK);
        assert_int_equal(codec_encode(e, 9000, 64, &bytes), STATUS_NOT_FINITE);
        assert_int_equal(bytes.bytes, 1);
        assert_memory_equal(e, copy, 9000 * sizeof *e);
        buffer_done(&bytes);
        free(e);
        free(copy);
    }
}

static void lack_of_room_and_wrong_k_change_nothing(void **state)
{
    (void)state;
    float *e = gaussian(9000, 1), *copy = gaussian(9000, 1);
    struct buffer bytes;
    buffer_init(&bytes, codec_bytes_max(9000, 64) - 1);
    assert_int_equal(codec_encode(e, 9000, 64, &bytes), STATUS_TOO_LARGE);
    assert_int_equal(codec_encode(e, 9000, 0, &bytes), STATUS_INVALID);
    assert_int_equal(codec_encode(e, 9000, CODEC_K_MAX + 1, &bytes), STATUS_INVALID);
    assert_memory_equal(e, copy, 9000 * sizeof *e);
    assert_int_equal(bytes.bytes, 0);
    buffer_done(&bytes);
    free(e);
    free(copy);
}

static void pain_G3_lengths_around_a_chunk_and_a_super_chunk(void **state)
{
    (void)state;
    const uint64_t ns[] = {0,    1,    2,    63,   64,   65,    511,
                           4095, 4096, 4097, 8191, 8192, 12289, 257 * 4096 + 5};
    const uint32_t ks[] = {1, 3, 64, 511, 512};
    for (size_t i = 0; i < COUNT_OF(ns); i++)
        for (size_t j = 0; j < COUNT_OF(ks); j++) {
            struct sample s = round_trip(gaussian(ns[i], i), ns[i], ks[j]);
            uint64_t tail = ns[i] % 4096;
            assert_true(s.info.coordinates == ns[i] / 4096 * ks[j] + (tail < ks[j] ? tail : ks[j]));
            sample_done(&s);
        }
}

/* The last k entries of a chunk, or every 4096/k-th, cost the most in Rice code. */
static void worst_cases_stay_under_the_bound(void **state)
{
    (void)state;
    for (uint32_t k = 1; k <= CODEC_K_MAX; k += k < 20 ? 1 : 41)
        for (uint32_t count = 1; count <= k; count += 1 + count / 4) {
            float *e = zero(4096, 0);
            for (uint32_t i = 0; i < count; i++)
                e[4095 - i] = 1;
            struct sample s = round_trip(e, 4096, k); /* its buffer has no more than the bound */
            assert_true(s.info.coordinates == count);
            sample_done(&s);
        }
    assert_true(codec_bytes_max(UINT64_MAX, UINT32_MAX) > (size_t)1 << 60);
    assert_true(codec_bytes_max(UINT64_C(1) << 40, 64) > (size_t)1 << 33);
}

static void residual_drains_when_encoded_again_and_again(void **state)
{
    (void)state;
    float *e = gaussian(4096, 9);
    struct buffer bytes;
    buffer_init(&bytes, 1 << 20);
    double before = 0, after = 0;
    for (int i = 0; i < 4096; i++)
        before += (double)(e[i] * e[i]);
    for (int i = 0; i < 200; i++) {
        buffer_clear(&bytes);
        assert_int_equal(codec_encode(e, 4096, 64, &bytes), STATUS_OK);
    }
    for (int i = 0; i < 4096; i++)
        after += (double)(e[i] * e[i]);
    assert_true(after < before / 1000);
    buffer_done(&bytes);
    free(e);
}

static void payloads_are_appended_and_repeatable(void **state)
{
    (void)state;
    float *a = gaussian(9000, 5), *b = gaussian(9000, 5);
    struct buffer bytes;
    buffer_init(&bytes, 1 << 20);
    assert_int_equal(codec_encode(a, 9000, 64, &bytes), STATUS_OK);
    size_t half = bytes.bytes;
    memset(bytes.data + half, 0xFF,
           bytes.capacity_bytes - half); /* old bytes must not shine through */
    assert_int_equal(codec_encode(b, 9000, 64, &bytes), STATUS_OK);
    assert_int_equal(bytes.bytes, 2 * half);
    assert_memory_equal(bytes.data, bytes.data + half, half);
    assert_memory_equal(a, b, 9000 * sizeof *a);
    buffer_done(&bytes);
    free(a);
    free(b);
}

static void decode_adds_factor_times_the_value(void **state)
{
    (void)state;
    const uint64_t n = 9000;
    struct sample s = round_trip(gaussian(n, 2), n, 32);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(largest_coordinates_are_sent_with_their_mean),
        cmocka_unit_test(size_is_within_3_percent_of_the_limit),
        cmocka_unit_test(ties_go_to_the_lower_index),
        cmocka_unit_test(pain_C1_numbers_at_the_edges),
        cmocka_unit_test(every_exponent_survives),
        cmocka_unit_test(not_finite_input_changes_nothing),
        cmocka_unit_test(lack_of_room_and_wrong_k_change_nothing),
        cmocka_unit_test(pain_G3_lengths_around_a_chunk_and_a_super_chunk),
        cmocka_unit_test(worst_cases_stay_under_the_bound),
        cmocka_unit_test(residual_drains_when_encoded_again_and_again),
        cmocka_unit_test(payloads_are_appended_and_repeatable),
        cmocka_unit_test(decode_adds_factor_times_the_value),
        cmocka_unit_test(hash_is_xxh3_of_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
