/* One input, one encoding: the slow reference, the portable and the AVX2 table, and any number of
 * threads make the same bytes and leave the same floats, for every coder and source. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/reference/codec_reference.h"
#include "tests/support/codec_cases.h"
#include "tests/unit/common/codec/fixture.h"

#include <stdlib.h>
#include <string.h>

#define CASES 6000 /* and 5000 in codec_sources_test.c */

static bool finite_bits(float x)
{
    return (float_bits(x) & FLOAT_MAGNITUDE) < FLOAT_NOT_FINITE;
}

/* The reference in the place of a device. */
static enum status reference_device_encode(void *context, const struct codec_source *source,
                                           uint64_t n, struct codec_format format,
                                           struct buffer *ret, uint64_t *ret_not_finite_at)
{
    (void)context;
    float *e = malloc(n * sizeof *e), *decoded = malloc(n * sizeof *decoded);
    enum status status = STATUS_OK;
    reference_input(source, NULL, 0, n, e);
    for (uint64_t i = n; i-- > 0;) {
        if (finite_bits(e[i]))
            continue;
        status = STATUS_NOT_FINITE;
        *ret_not_finite_at = i;
    }
    if (status == STATUS_OK) {
        reference_encode(e, n, format, ret, decoded);
        for (uint64_t i = 0; i < n; i++) {
            if (source->residual)
                source->residual[i] = decoded[i] == 0 ? e[i] : reference_add(e[i], -decoded[i]);
            if (source->add_to && decoded[i] != 0)
                source->add_to[i] = reference_add(source->add_to[i], decoded[i]);
        }
    }
    free(decoded);
    free(e);
    return status;
}

static enum status reference_device_add(void *context, const struct codec_payload *payload,
                                        float factor, float *target)
{
    (void)context;
    float *decoded = malloc(payload->n * sizeof *decoded);
    reference_decode(payload->data, payload->n, decoded);
    for (uint64_t i = 0; i < payload->n; i++) {
        volatile float product = factor * decoded[i];
        if (decoded[i] != 0)
            target[i] = reference_add(target[i], product);
    }
    free(decoded);
    return STATUS_OK;
}

static void every_table_makes_what_the_reference_makes(void **state)
{
    (void)state;
    const struct cases_device reference = {"the reference", NULL, reference_device_encode,
                                           reference_device_add};
    cases_run(&reference, 0, CASES);
    cases_run_large(&reference);
}

/* --- threads, and the parts of a source that devices do not have ------------------------------ */

struct outcome {
    struct buffer payload;
    float *residual, *add_to;
    uint64_t hash;
};

static struct outcome run(const struct codec_source *given, uint64_t n, struct codec_format format,
                          struct pool *pool, bool hash)
{
    struct outcome outcome = {.residual = cases_copy(given->residual, n),
                              .add_to = cases_copy(given->add_to, n)};
    struct codec_source source = *given;
    struct error err;
    source.residual = outcome.residual;
    source.add_to = outcome.add_to;
    source.ret_hash = hash ? &outcome.hash : NULL;
    buffer_init(&outcome.payload, codec_bytes_max(n, format));
    if (encode(&source, n, format, pool, &outcome.payload, &err))
        fail_msg("%s", err.text);
    if (hash)
        assert_true(outcome.hash == codec_hash(outcome.add_to, n));
    return outcome;
}

static void outcome_done(struct outcome *outcome)
{
    buffer_done(&outcome->payload);
    free(outcome->residual);
    free(outcome->add_to);
}

static void assert_same(const struct outcome *a, const struct outcome *b, uint64_t n)
{
    assert_int_equal(a->payload.bytes, b->payload.bytes);
    assert_memory_equal(a->payload.data, b->payload.data, a->payload.bytes);
    assert_true(cases_same(a->residual, b->residual, n) && cases_same(a->add_to, b->add_to, n));
}

static struct outcome run_reference(const struct codec_source *given, uint64_t n,
                                    struct codec_format format)
{
    struct outcome outcome = {.residual = cases_copy(given->residual, n),
                              .add_to = cases_copy(given->add_to, n)};
    float *subtracted[CODEC_SUBTRACT_MAX], *e = malloc(n * sizeof *e);
    float *decoded = malloc(n * sizeof *decoded);
    for (size_t j = 0; j < given->subtract_count; j++) {
        subtracted[j] = malloc(n * sizeof *e);
        reference_decode(given->subtract[j]->data, n, subtracted[j]);
    }
    reference_input(given, (const float *const *)subtracted, given->subtract_count, n, e);
    buffer_init(&outcome.payload, 1 << 28);
    reference_encode(e, n, format, &outcome.payload, decoded);
    for (uint64_t i = 0; i < n; i++) {
        if (outcome.residual)
            outcome.residual[i] = decoded[i] == 0 ? e[i] : reference_add(e[i], -decoded[i]);
        if (outcome.add_to && decoded[i] != 0)
            outcome.add_to[i] = reference_add(outcome.add_to[i], decoded[i]);
    }
    for (size_t j = 0; j < given->subtract_count; j++)
        free(subtracted[j]);
    free(decoded);
    free(e);
    return outcome;
}

/* Payloads of several coders to subtract, as an agent has them on their way. */
struct on_the_way {
    struct buffer bytes[3];
    struct codec_payload payloads[3];
    const struct codec_payload *pointers[3];
};

static void on_the_way_make(struct on_the_way *ret, uint64_t n)
{
    const struct codec_format formats[3] = {
        {CODEC_SIGN, 64}, {CODEC_EIGHT_BITS, 7}, {CODEC_FP32, 0}};
    for (uint64_t j = 0; j < 3; j++) {
        float *e = gaussian(n, 40 + j);
        ret->bytes[j] = encoded(e, n, formats[j]);
        assert_int_equal(
            codec_open(ret->bytes[j].data, ret->bytes[j].bytes, n, NULL, &ret->payloads[j], NULL),
            STATUS_OK);
        ret->pointers[j] = &ret->payloads[j];
        free(e);
    }
}

static void threads_hashes_and_subtraction_change_no_bit(void **state)
{
    (void)state;
    const uint64_t super = (uint64_t)CODEC_CHUNK * CODEC_SUPER_CHUNK;
    const uint64_t ns[] = {1, 5000, super, 3 * super + 4097};
    struct pool *pools[2];
    assert_int_equal(pool_create(2, &pools[0], NULL), STATUS_OK);
    assert_int_equal(pool_create(3, &pools[1], NULL), STATUS_OK);
    for (size_t i = 0; i < COUNT_OF(ns) * COUNT_OF(all_values); i++) {
        uint64_t n = ns[i / COUNT_OF(all_values)];
        struct codec_format format = {all_values[i % COUNT_OF(all_values)], 64};
        struct on_the_way on_the_way;
        on_the_way_make(&on_the_way, n);
        float *residual = gaussian(n, 1), *plus = gaussian(n, 2), *minus = gaussian(n, 3);
        float *add_to = gaussian(n, 4);
        struct codec_source source = {.residual = i % 2 ? residual : NULL,
                                      .decay = 0.75f,
                                      .plus = plus,
                                      .minus = minus,
                                      .subtract = on_the_way.pointers,
                                      .subtract_count = i % 4,
                                      .add_to = add_to};
        struct outcome expected = run_reference(&source, n, format);
        for (int j = 0; j < 4; j++) {
            struct outcome got =
                run(&source, n, format, j == 0 || j == 3 ? NULL : pools[j - 1], j == 3);
            assert_same(&expected, &got, n);
            outcome_done(&got);
        }
        outcome_done(&expected);
        for (int j = 0; j < 3; j++)
            buffer_done(&on_the_way.bytes[j]);
        free(residual);
        free(plus);
        free(minus);
        free(add_to);
    }
    pool_free(pools[0]);
    pool_free(pools[1]);
}

static void decoding_with_threads_changes_no_bit(void **state)
{
    (void)state;
    const uint64_t n = (uint64_t)CODEC_CHUNK * CODEC_SUPER_CHUNK * 3 + 77;
    struct pool *pool;
    assert_int_equal(pool_create(3, &pool, NULL), STATUS_OK);
    for (size_t v = 0; v < COUNT_OF(all_values); v++) {
        float *e = gaussian(n, v), *one = gaussian(n, 9), *many = gaussian(n, 9);
        float *slow = gaussian(n, 9);
        struct buffer bytes = encoded(e, n, (struct codec_format){all_values[v], 100});
        struct codec_payload payload, again;
        assert_int_equal(codec_open(bytes.data, bytes.bytes, n, pool, &payload, NULL), STATUS_OK);
        assert_int_equal(codec_open(bytes.data, bytes.bytes, n, NULL, &again, NULL), STATUS_OK);
        assert_true(payload.coordinates == again.coordinates);
        codec_add(&payload, -0.3f, one, NULL);
        codec_add(&payload, -0.3f, many, pool);
        (void)reference_device_add(NULL, &payload, -0.3f, slow);
        assert_memory_equal(one, many, n * sizeof *one);
        assert_memory_equal(one, slow, n * sizeof *one);
        /* damage is found by whichever thread meets it */
        struct error err;
        bytes.bytes_max += 4;
        assert_int_equal(buffer_append(&bytes, "\0\0\0", 4), STATUS_OK);
        reseal(bytes.data, bytes.bytes);
        assert_int_equal(codec_open(bytes.data, bytes.bytes, n, pool, &payload, &err),
                         STATUS_CORRUPT);
        assert_non_null(strstr(err.text, "words after its last chunk"));
        buffer_done(&bytes);
        free(e);
        free(one);
        free(many);
        free(slow);
    }
    pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_table_makes_what_the_reference_makes),
        cmocka_unit_test(threads_hashes_and_subtraction_change_no_bit),
        cmocka_unit_test(decoding_with_threads_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
