/* Tests of decode.c beyond single payloads: damage among several super-chunks and threads, bytes
 * that change after they were checked, and long codes at every place in a word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/reference/codec_reference.h"
#include "tests/unit/common/codec/fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SUPER ((uint64_t)CODEC_CHUNK * CODEC_SUPER_CHUNK)

static void assert_refused(const struct buffer *bytes, uint64_t n, struct pool *pool,
                           const char *reason)
{
    struct codec_payload payload = {.n = 77};
    struct error err = {0};
    char expected[128];
    assert_int_equal(codec_open(bytes->data, bytes->bytes, n, pool, &payload, &err),
                     STATUS_CORRUPT);
    snprintf(expected, sizeof expected, "update code refused: %s", reason);
    assert_string_equal(err.text, expected);
    assert_true(payload.n == 77 && payload.data == NULL); /* untouched on failure */
    assert_int_equal(codec_open(bytes->data, bytes->bytes, n, pool, &payload, NULL),
                     STATUS_CORRUPT);
}

/* Three super-chunks of empty chunks: one zero byte each. */
static struct buffer empty_chunks(uint64_t n)
{
    float *e = zero(n, 0);
    struct buffer bytes = encoded(e, n, (struct codec_format){CODEC_SIGN, 64});
    free(e);
    return bytes;
}

static void the_first_of_several_bad_chunks_is_named(void **state)
{
    (void)state;
    const uint64_t n = 3 * SUPER, chunks[] = {767, 600, 512, 511, 300, 255, 0};
    struct buffer bytes = empty_chunks(n);
    size_t body = HEADER_BYTES + 3 * 8;
    assert_int_equal(bytes.bytes, body + 3 * CODEC_SUPER_CHUNK);
    for (size_t i = 0; i < COUNT_OF(chunks); i++) {
        char reason[64];
        bytes.data[body + chunks[i]] = 255; /* an escape; scale and count are in other chunks */
        bool cut = chunks[i] % CODEC_SUPER_CHUNK == CODEC_SUPER_CHUNK - 1;
        snprintf(reason, sizeof reason, "chunk %u: %s", (unsigned)chunks[i],
                 cut ? "ends too early" : "count out of range");
        reseal(bytes.data, bytes.bytes);
        for (uint32_t threads = 1; threads <= 3; threads++) {
            struct pool *pool;
            assert_int_equal(pool_create(threads, &pool, NULL), STATUS_OK);
            assert_refused(&bytes, n, pool, reason);
            pool_free(pool);
        }
        assert_refused(&bytes, n, NULL, reason);
    }
    buffer_done(&bytes);
}

/* Every super-chunk ends where the next begins: neither may reach into the other. */
static void super_chunks_end_where_the_table_says(void **state)
{
    (void)state;
    const uint64_t n = 2 * SUPER + 1;
    struct buffer bytes = empty_chunks(n);
    uint8_t *second = bytes.data + HEADER_BYTES + 8, *third = second + 8;
    assert_true(load_u64(second) == 256 && load_u64(third) == 512);
    const struct {
        uint64_t second, third;
        const char *reason;
    } rows[] = {
        {252, 512, "chunk 252: ends too early"},
        {260, 512, "chunk 255: words after its last chunk"},
        {256, 508, "chunk 508: ends too early"},
        {256, 516, "chunk 511: words after its last chunk"},
        {0, 512, "chunk 0: ends too early"},
        {512, 256, "wrong offset in its table"},
        {258, 512, "wrong offset in its table"},
        {256, 520, "wrong offset in its table"},
        {256, UINT64_MAX - 3, "wrong offset in its table"},
        {UINT64_MAX - 3, 512, "wrong offset in its table"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        store_u64(second, rows[i].second);
        store_u64(third, rows[i].third);
        reseal(bytes.data, bytes.bytes);
        assert_refused(&bytes, n, NULL, rows[i].reason);
    }
    store_u64(second, 256);
    store_u64(third, 512);
    reseal(bytes.data, bytes.bytes);
    assert_refused(&bytes, n - 1, NULL, "made for another number of parameters");
    struct codec_payload payload;
    assert_int_equal(codec_open(bytes.data, bytes.bytes, n, NULL, &payload, NULL), STATUS_OK);
    buffer_done(&bytes);
}

/* Encodes e[length] and expects both decoders to give it back (its entries are 1, -1 and 0, which
 * every coder sends exactly). */
static void assert_read_back(const float *e, uint32_t length, struct codec_format format)
{
    static float slow[CODEC_CHUNK], fast[CODEC_CHUNK];
    struct buffer bytes = encoded(e, length, format);
    memset(fast, 0, sizeof fast);
    reference_decode(bytes.data, length, slow);
    assert_int_equal(codec_decode_add(bytes.data, bytes.bytes, 1, fast, length, NULL), STATUS_OK);
    assert_memory_equal(slow, e, length * sizeof *e);
    assert_memory_equal(fast, e, length * sizeof *e);
    buffer_done(&bytes);
}

/* `many` neighbours, so that the Rice parameter is small, then four of which one is far away, then
 * the last entry: codes of more ones than fit one load, at each place among four read at once. */
static void long_codes_lie_anywhere_among_four(void **state)
{
    (void)state;
    static float e[CODEC_CHUNK];
    for (uint32_t many = 4; many + 5 <= CODEC_K_MAX; many += many < 460 ? 24 : 4)
        for (uint32_t gap = 0; gap < 3300; gap += gap < 300 ? 1 : 1 + gap / 9) {
            memset(e, 0, sizeof e);
            for (uint32_t i = 0; i < many; i++)
                e[i + i / 9] = i % 3 ? 1.0f : -1.0f;
            uint32_t at = many + many / 9;
            for (uint32_t i = 0; i < 4; i++, at++) {
                at += i == (gap + many / 4) % 4 ? gap : 0;
                e[at] = -1.0f;
            }
            e[CODEC_CHUNK - 1] = 1.0f;
            assert_read_back(e, CODEC_CHUNK,
                             (struct codec_format){all_values[gap % 4], CODEC_K_MAX});
        }
}

/* All of a short chunk's coordinates at its end: the first code has as many ones as there can
 * be. */
static void the_longest_code_of_any_length_is_read(void **state)
{
    (void)state;
    static float e[CODEC_CHUNK];
    for (uint32_t length = CODEC_CHUNK; length > 1000; length -= 33)
        for (uint32_t count = 1; count <= CODEC_K_MAX; count += 1 + count / 12) {
            memset(e, 0, sizeof e);
            for (uint32_t i = 0; i < count; i++)
                e[length - 1 - i] = i % 2 ? 1.0f : -1.0f;
            assert_read_back(e, length, (struct codec_format){all_values[count % 4], CODEC_K_MAX});
        }
}

#define GUARD 8192u

/* The caller promised not to, but a mapped file can change: then values are wrong, memory is
 * not. */
static void pain_C5_bits_that_change_after_the_check_stay_within_the_target(void **state)
{
    (void)state;
    const uint64_t n = 9001;
    struct rng rng;
    float *e = gaussian(n, 4), *memory = malloc((n + 2 * GUARD) * sizeof *memory);
    rng_seed(&rng, 5);
    for (int round = 0; round < 3000; round++) {
        struct codec_format format = {all_values[round % 5], 1 + (uint32_t)rng_below(&rng, 512)};
        struct buffer bytes = encoded(e, n, format);
        uint8_t *exact = malloc(bytes.bytes);
        struct codec_payload payload;
        memcpy(exact, bytes.data, bytes.bytes);
        assert_int_equal(codec_open(exact, bytes.bytes, n, NULL, &payload, NULL), STATUS_OK);
        size_t body = HEADER_BYTES + 8, edits = 1 + rng_below(&rng, 20);
        for (; edits > 0; edits--)
            exact[body + rng_below(&rng, bytes.bytes - body)] = (uint8_t)rng_u64(&rng);
        for (uint64_t i = 0; i < n + 2 * GUARD; i++)
            memory[i] = 1.5f;
        codec_add(&payload, 1.0f, memory + GUARD, NULL);
        for (uint64_t i = 0; i < GUARD; i++)
            assert_true(memory[i] == 1.5f && memory[GUARD + n + i] == 1.5f);
        free(exact);
        buffer_done(&bytes);
    }
    free(memory);
    free(e);
}

static void nothing_is_a_payload_too(void **state)
{
    (void)state;
    for (size_t v = 0; v < COUNT_OF(all_values); v++) {
        struct codec_format format = {all_values[v], 64};
        float none = 0;
        struct buffer bytes = encoded(&none, 0, format);
        struct codec_payload payload;
        assert_int_equal(bytes.bytes, HEADER_BYTES);
        assert_int_equal(codec_open(bytes.data, bytes.bytes, 0, NULL, &payload, NULL), STATUS_OK);
        assert_true(payload.coordinates == 0);
        codec_add(&payload, 1.0f, &none, NULL);
        assert_refused(&bytes, 1, NULL, "made for another number of parameters");
        bytes.bytes_max += 8;
        assert_int_equal(buffer_append(&bytes, "\0\0\0", 4), STATUS_OK);
        reseal(bytes.data, bytes.bytes);
        assert_refused(&bytes, 0, NULL, "wrong offset in its table");
        buffer_done(&bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_of_several_bad_chunks_is_named),
        cmocka_unit_test(super_chunks_end_where_the_table_says),
        cmocka_unit_test(long_codes_lie_anywhere_among_four),
        cmocka_unit_test(the_longest_code_of_any_length_is_read),
        cmocka_unit_test(pain_C5_bits_that_change_after_the_check_stay_within_the_target),
        cmocka_unit_test(nothing_is_a_payload_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
