/* Hostile payloads: random damage with and without a right checksum. Nothing may be read or written
 * outside (run under the sanitizers), nothing half-applied, and what is accepted must be sane. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/common/codec/fixture.h"

#include <string.h>

#define N 9001
#define ROUNDS 100000

static struct buffer payload(uint32_t k)
{
    float *e = k == 16 ? sparse(N, 6) : gaussian(N, 6);
    struct buffer bytes;
    buffer_init(&bytes, codec_bytes_max(N, k));
    assert_int_equal(codec_encode(e, N, k, &bytes), STATUS_OK);
    free(e);
    return bytes;
}

static void pain_C5_damaged_payload_leaves_the_target_untouched(void **state)
{
    (void)state;
    struct buffer bytes = payload(64);
    float *target = gaussian(N, 8), *before = gaussian(N, 8);
    for (size_t at = 0; at < bytes.bytes; at++) {
        bytes.data[at] ^= 1;
        assert_int_equal(codec_decode_add(bytes.data, bytes.bytes, 1, target, N, NULL),
                         STATUS_CORRUPT);
        bytes.data[at] ^= 1;
        assert_int_equal(codec_decode_add(bytes.data, at, 1, target, N, NULL), STATUS_CORRUPT);
    }
    assert_memory_equal(target, before, N * sizeof *target);
    free(target);
    free(before);
    buffer_done(&bytes);
}

/* Under a right checksum random bits may even be a valid payload: then decoding must agree with
 * what the check counted; refused ones must not touch the target. */
static void random_damage_under_a_right_checksum_is_harmless(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 12);
    const uint32_t ks[] = {3, 16, 64, 512};
    float *target = calloc(N, sizeof *target);
    int accepted = 0;
    for (int round = 0; round < ROUNDS; round++) {
        static struct buffer originals[4];
        struct buffer *original = &originals[round % 4];
        if (!original->data)
            *original = payload(ks[round % 4]);
        size_t bytes = original->bytes;
        if (rng_below(&rng, 8) == 0)
            bytes = 48 + rng_below(&rng, bytes - 48);
        uint8_t *data = malloc(bytes);
        memcpy(data, original->data, bytes);
        /* mostly the bits, now and then the table and the header */
        size_t from = rng_below(&rng, 8) == 0 ? 0 : 56;
        for (uint64_t edits = rng_below(&rng, 4); edits > 0 && bytes > from; edits--)
            data[from + rng_below(&rng, bytes - from)] = (uint8_t)rng_u64(&rng);
        store_u64(data + 32, bytes - 48);
        reseal(data, bytes);
        struct codec_info info = {0};
        enum status checked = codec_check(data, bytes, N, &info, NULL);
        enum status added = codec_decode_add(data, bytes, 1, target, N, NULL);
        assert_int_equal(checked, added);
        accepted += checked == STATUS_OK;
        uint64_t changed = 0;
        for (int i = 0; i < N && round % 16 == 0; i++)
            changed += target[i] != 0;
        assert_true(round % 16 != 0 || changed == info.coordinates);
        if (checked == STATUS_OK || round % 16 == 0)
            memset(target, 0, N * sizeof *target);
        free(data);
        if (round >= ROUNDS - 4)
            buffer_done(original);
    }
    assert_true(accepted > ROUNDS / 20 && accepted < ROUNDS); /* both paths were seen */
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
        struct codec_info info;
        assert_int_equal(codec_check(data, bytes, N, &info, NULL), STATUS_CORRUPT);
        assert_int_equal(codec_check(data, bytes, UINT64_MAX, &info, NULL), STATUS_CORRUPT);
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
