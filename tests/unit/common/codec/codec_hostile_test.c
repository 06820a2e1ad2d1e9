/* Hostile payloads: random damage with and without a right checksum. Nothing may be read or written
 * outside (run under the sanitizers), nothing half-applied, and what is accepted must be sane. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/common/codec/fixture.h"

#include <math.h>
#include <string.h>

#define N 9001
#define BODY_AT (HEADER_BYTES + 8)
#define ROUNDS 100000

static const struct codec_format formats[] = {
    {CODEC_SIGN, 3},      {CODEC_SIGN, 16},      {CODEC_SIGN, 64},       {CODEC_SIGN, 512},
    {CODEC_TWO_BITS, 64}, {CODEC_FOUR_BITS, 64}, {CODEC_EIGHT_BITS, 64}, {CODEC_FP32, 0}};

static struct buffer payload(struct codec_format format)
{
    float *e = format.k == 16 ? sparse(N, 6) : gaussian(N, 6);
    struct buffer bytes = encoded(e, N, format);
    free(e);
    return bytes;
}

static void pain_C5_damaged_payload_leaves_the_target_untouched(void **state)
{
    (void)state;
    float *target = gaussian(N, 8), *before = gaussian(N, 8);
    for (size_t f = 0; f + 1 < COUNT_OF(formats); f++) {
        struct buffer bytes = payload(formats[f]);
        for (size_t at = 0; at < bytes.bytes; at++) {
            bytes.data[at] ^= 1;
            assert_int_equal(codec_decode_add(bytes.data, bytes.bytes, 1, target, N, NULL),
                             STATUS_CORRUPT);
            bytes.data[at] ^= 1;
            assert_int_equal(codec_decode_add(bytes.data, at, 1, target, N, NULL), STATUS_CORRUPT);
        }
        buffer_done(&bytes);
    }
    assert_memory_equal(target, before, N * sizeof *target);
    free(target);
    free(before);
}

/* An exact heap copy with a few bytes changed, sometimes cut. */
static uint8_t *damaged(const struct buffer *original, struct rng *rng, size_t *ret_bytes)
{
    size_t bytes = original->bytes;
    if (rng_below(rng, 8) == 0)
        bytes = HEADER_BYTES + rng_below(rng, bytes - HEADER_BYTES);
    uint8_t *data = malloc(bytes);
    memcpy(data, original->data, bytes);
    /* mostly the bits, now and then the table and the header */
    size_t from = rng_below(rng, 8) == 0 ? 0 : BODY_AT;
    for (uint64_t edits = rng_below(rng, 4); edits > 0 && bytes > from; edits--)
        data[from + rng_below(rng, bytes - from)] = (uint8_t)rng_u64(rng);
    reseal(data, bytes);
    *ret_bytes = bytes;
    return data;
}

/* Under a right checksum random bits may even be a valid payload: then decoding must agree with
 * what the check counted; refused ones must not touch the target. */
static void random_damage_under_a_right_checksum_is_harmless(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 12);
    struct buffer originals[COUNT_OF(formats)];
    float *target = calloc(N, sizeof *target);
    int accepted = 0;
    for (size_t f = 0; f < COUNT_OF(formats); f++)
        originals[f] = payload(formats[f]);
    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes;
        uint8_t *data = damaged(&originals[round % 8], &rng, &bytes);
        struct codec_payload opened = {0};
        struct error err;
        enum status checked = codec_open(data, bytes, N, NULL, &opened, &err);
        enum status added = codec_decode_add(data, bytes, 1, target, N, NULL);
        assert_int_equal(checked, added);
        accepted += checked == STATUS_OK;
        uint64_t changed = 0;
        for (int i = 0; i < N && round % 16 < 8; i++) {
            assert_true(isfinite(target[i]));
            changed += target[i] != 0;
        }
        if (round % 16 < 8 && (checked || opened.format.values != CODEC_FP32))
            assert_true(changed == opened.coordinates);
        if (checked == STATUS_OK || round % 16 < 8)
            memset(target, 0, N * sizeof *target);
        free(data);
    }
    assert_true(accepted > ROUNDS / 20 && accepted < ROUNDS * 9 / 10); /* both paths were seen */
    for (size_t f = 0; f < COUNT_OF(formats); f++)
        buffer_done(&originals[f]);
    free(target);
}

static void pure_noise_is_refused(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 13);
    for (int round = 0; round < 2000; round++) {
        size_t bytes = rng_below(&rng, 300);
        uint8_t *data = malloc(bytes + 1);
        for (size_t i = 0; i < bytes; i++)
            data[i] = (uint8_t)rng_u64(&rng);
        struct codec_payload opened;
        assert_int_equal(codec_open(data, bytes, N, NULL, &opened, NULL), STATUS_CORRUPT);
        assert_int_equal(codec_open(data, bytes, UINT64_MAX, NULL, &opened, NULL), STATUS_CORRUPT);
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pain_C5_damaged_payload_leaves_the_target_untouched),
        cmocka_unit_test(random_damage_under_a_right_checksum_is_harmless),
        cmocka_unit_test(pure_noise_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
