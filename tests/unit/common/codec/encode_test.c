/* Tests of encode.c beyond what the bytes say: memory, refusals, residuals that run dry, and
 * vectors longer than 2^31. The linker sends this program's allocations through the wrappers
 * below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/codec/select.h"
#include "tests/unit/common/codec/fixture.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define SUPER ((uint64_t)CODEC_CHUNK * CODEC_SUPER_CHUNK)

static atomic_uint allocations;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_aligned_alloc(alignment, bytes);
}

static void encoding_and_adding_allocate_nothing(void **state)
{
    (void)state;
    const uint64_t n = SUPER + 5000;
    struct pool *pool;
    struct codec_encoder *encoder;
    float *e = gaussian(n, 5), *residual = gaussian(n, 6), *target = zero(n, 0);
    struct buffer subtracted = encoded(e, n, (struct codec_format){CODEC_SIGN, 9}), bytes;
    struct codec_payload payload, opened;
    const struct codec_payload *subtract[] = {&payload};
    uint64_t hash;
    assert_int_equal(codec_open(subtracted.data, subtracted.bytes, n, NULL, &payload, NULL),
                     STATUS_OK);
    assert_int_equal(pool_create(2, &pool, NULL), STATUS_OK);
    unsigned before = atomic_load(&allocations);
    assert_int_equal(codec_encoder_create(pool, &encoder), STATUS_OK);
    buffer_init(&bytes, SIZE_MAX);
    assert_int_equal(
        buffer_reserve(&bytes, codec_bytes_max(n, (struct codec_format){CODEC_FP32, 0})),
        STATUS_OK);
    assert_true(atomic_load(&allocations) >= before + 3); /* the wrappers do count */
    before = atomic_load(&allocations);
    for (size_t v = 0; v < COUNT_OF(all_values) * 2; v++) {
        struct codec_source source = {.residual = residual,
                                      .decay = 1.0f,
                                      .plus = e,
                                      .subtract = subtract,
                                      .subtract_count = 1,
                                      .add_to = target,
                                      .ret_hash = v < COUNT_OF(all_values) ? &hash : NULL};
        struct codec_format format = {all_values[v % COUNT_OF(all_values)], 64};
        buffer_clear(&bytes);
        assert_int_equal(codec_encode(encoder, &source, n, format, &bytes, NULL), STATUS_OK);
        assert_int_equal(codec_open(bytes.data, bytes.bytes, n, pool, &opened, NULL), STATUS_OK);
        codec_add(&opened, 1.0f, target, pool);
    }
    assert_int_equal(atomic_load(&allocations), before);
    codec_encoder_free(encoder);
    pool_free(pool);
    buffer_done(&bytes);
    buffer_done(&subtracted);
    free(e);
    free(residual);
    free(target);
}

/* Expects the refusal of parameter `where`, with ret as it was. */
static void assert_not_finite(struct codec_encoder *encoder, const struct codec_source *source,
                              uint64_t n, enum codec_values values, uint64_t where)
{
    struct codec_format format = {values, 64};
    struct error err = {0};
    struct buffer bytes;
    char expected[64];
    buffer_init(&bytes, codec_bytes_max(n, format) + 1);
    assert_int_equal(buffer_append(&bytes, "x", 1), STATUS_OK);
    assert_int_equal(codec_encode(encoder, source, n, format, &bytes, &err), STATUS_NOT_FINITE);
    snprintf(expected, sizeof expected, "parameter %llu of", (unsigned long long)where);
    if (!strstr(err.text, expected))
        fail_msg("expected %llu: %s", (unsigned long long)where, err.text);
    assert_int_equal(err.status, STATUS_NOT_FINITE);
    assert_true(bytes.bytes == 1 && bytes.data[0] == 'x');
    assert_int_equal(codec_encode(encoder, source, n, format, &bytes, NULL), STATUS_NOT_FINITE);
    buffer_done(&bytes);
}

static void pain_C1_what_is_not_finite_is_named_wherever_it_comes_from(void **state)
{
    (void)state;
    enum { N = 9000 };
    static float residual[N], plus[N], minus[N];
    struct codec_encoder *encoder;
    struct codec_source all = {.residual = residual, .decay = 1.0f, .plus = plus, .minus = minus};
    float *huge = zero(N, 0);
    huge[8999] = FLT_MAX;
    struct buffer payload_bytes = encoded(huge, N, (struct codec_format){CODEC_EIGHT_BITS, 1});
    struct codec_payload payload;
    const struct codec_payload *subtract[] = {&payload};
    assert_int_equal(codec_open(payload_bytes.data, payload_bytes.bytes, N, NULL, &payload, NULL),
                     STATUS_OK);
    assert_int_equal(codec_encoder_create(NULL, &encoder), STATUS_OK);
    for (size_t v = 0; v < COUNT_OF(all_values); v++) {
        float *vectors[] = {residual, plus, minus};
        for (int j = 0; j < 3; j++) {
            vectors[j][4100] = j == 1 ? -INFINITY : NAN;
            assert_not_finite(encoder, &all, N, all_values[v], 4100);
            memset(residual, 0, sizeof residual);
            vectors[j][4100] = 0;
        }
        plus[4095] = FLT_MAX; /* each is finite, their difference is not */
        minus[4095] = -FLT_MAX;
        assert_not_finite(encoder, &all, N, all_values[v], 4095);
        plus[4095] = minus[4095] = 0;
        residual[1] = INFINITY; /* 0 times infinity */
        all.decay = 0.0f;
        assert_not_finite(encoder, &all, N, all_values[v], 1);
        all.decay = 1.0f;
        memset(residual, 0, sizeof residual);
        struct codec_source less = {.plus = plus, .subtract = subtract, .subtract_count = 1};
        plus[8999] = -FLT_MAX;
        assert_not_finite(encoder, &less, N, all_values[v], 8999);
        plus[8999] = 0;
    }
    codec_encoder_free(encoder);
    buffer_done(&payload_bytes);
    free(huge);
}

/* Whichever thread finds its own first. */
static void the_first_of_several_that_are_not_finite_is_named(void **state)
{
    (void)state;
    const uint64_t n = 3 * SUPER, places[] = {3 * SUPER - 1, 2 * SUPER, SUPER + 4099, SUPER - 1, 7};
    float *e = zero(n, 0);
    for (size_t p = 0; p < COUNT_OF(places); p++) {
        e[places[p]] = NAN;
        for (uint32_t threads = 1; threads <= 3; threads++) {
            struct pool *pool;
            struct codec_encoder *encoder;
            struct codec_source source = {.plus = e};
            assert_int_equal(pool_create(threads, &pool, NULL), STATUS_OK);
            assert_int_equal(codec_encoder_create(pool, &encoder), STATUS_OK);
            assert_not_finite(encoder, &source, n, CODEC_SIGN, places[p]);
            codec_encoder_free(encoder);
            pool_free(pool);
        }
    }
    free(e);
}

/* Nothing but the codec's own rounding stays behind when nothing new comes in. */
static void residuals_run_dry(void **state)
{
    (void)state;
    const uint64_t n = 4096 + 100;
    for (size_t v = 0; v < COUNT_OF(all_values); v++) {
        struct codec_format format = {all_values[v], 64};
        struct codec_encoder *encoder;
        struct buffer bytes;
        float *e = gaussian(n, 9);
        double before = 0, after = 0;
        assert_int_equal(codec_encoder_create(NULL, &encoder), STATUS_OK);
        buffer_init(&bytes, codec_bytes_max(n, format));
        for (uint64_t i = 0; i < n; i++)
            before += (double)e[i] * (double)e[i];
        struct codec_source source = {.residual = e, .decay = 1.0f};
        for (int round = 0; round < 200; round++) {
            buffer_clear(&bytes);
            assert_int_equal(codec_encode(encoder, &source, n, format, &bytes, NULL), STATUS_OK);
        }
        for (uint64_t i = 0; i < n; i++)
            after += (double)e[i] * (double)e[i];
        if (after > before / 1000)
            fail_msg("coder %d: %g of %g is left", all_values[v], after, before);
        buffer_done(&bytes);
        codec_encoder_free(encoder);
        free(e);
    }
}

static void a_payload_to_subtract_must_be_for_as_many_parameters(void **state)
{
    (void)state;
    float *e = gaussian(5000, 1);
    struct buffer made = encoded(e, 4999, (struct codec_format){CODEC_SIGN, 64}), bytes;
    struct codec_payload payload;
    assert_int_equal(codec_open(made.data, made.bytes, 4999, NULL, &payload, NULL), STATUS_OK);
    const struct codec_payload *subtract[] = {&payload};
    struct codec_source source = {.plus = e, .subtract = subtract, .subtract_count = 1};
    struct codec_format format = {CODEC_SIGN, 64};
    buffer_init(&bytes, codec_bytes_max(5000, format));
    assert_int_equal(encode(&source, 5000, format, NULL, &bytes, NULL), STATUS_INVALID);
    assert_int_equal(bytes.bytes, 0);
    buffer_done(&bytes);
    buffer_done(&made);
    free(e);
}

static void too_many_payloads_to_subtract_are_refused(void **state)
{
    (void)state;
    float *e = gaussian(100, 1);
    struct buffer made = encoded(e, 100, (struct codec_format){CODEC_FP32, 0}), bytes;
    struct codec_payload payload;
    const struct codec_payload *subtract[CODEC_SUBTRACT_MAX + 1];
    struct codec_format format = {CODEC_FP32, 0};
    assert_int_equal(codec_open(made.data, made.bytes, 100, NULL, &payload, NULL), STATUS_OK);
    for (size_t i = 0; i <= CODEC_SUBTRACT_MAX; i++)
        subtract[i] = &payload;
    struct codec_source source = {
        .plus = e, .subtract = subtract, .subtract_count = CODEC_SUBTRACT_MAX + 1};
    buffer_init(&bytes, codec_bytes_max(100, format));
    assert_int_equal(encode(&source, 100, format, NULL, &bytes, NULL), STATUS_INVALID);
    assert_int_equal(bytes.bytes, 0);
    source.subtract_count = CODEC_SUBTRACT_MAX;
    assert_int_equal(encode(&source, 100, format, NULL, &bytes, NULL), STATUS_OK);
    assert_int_equal(codec_open(bytes.data, bytes.bytes, 100, NULL, &payload, NULL), STATUS_OK);
    float *left = zero(100, 0);
    codec_add(&payload, 1.0f, left, NULL);
    for (int i = 0; i < 100; i++)
        assert_true(fabsf(left[i] + (CODEC_SUBTRACT_MAX - 1.0f) * e[i]) <= 1e-5f * fabsf(e[i]));
    free(left);
    buffer_done(&bytes);
    buffer_done(&made);
    free(e);
}

/* 8 GiB of zero pages, of which only a few are ever written. */
static float *reserved(uint64_t n)
{
    void *memory = mmap(NULL, n * sizeof(float), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void pain_G1_more_than_2_to_the_31_parameters(void **state)
{
    (void)state;
    const uint64_t n = (UINT64_C(1) << 31) + 512;
    const uint64_t places[] = {0, (UINT64_C(1) << 31) - 1, UINT64_C(1) << 31, n - 1};
    struct codec_format format = {CODEC_SIGN, 1};
    struct codec_encoder *encoder;
    struct pool *pool;
    struct buffer bytes;
    struct codec_payload payload;
    struct error err;
    float *plus = reserved(n), *add_to = reserved(n), *target = reserved(n);
    if (!plus || !add_to || !target)
        skip(); /* a machine that does not let memory be reserved without having it */
    for (size_t i = 0; i < COUNT_OF(places); i++)
        plus[places[i]] = i % 2 ? -4.0f : 4.0f;
    struct codec_source source = {.plus = plus, .add_to = add_to};
    assert_int_equal(pool_create(2, &pool, NULL), STATUS_OK);
    assert_int_equal(codec_encoder_create(pool, &encoder), STATUS_OK);
    buffer_init(&bytes, codec_bytes_max(n, format));
    if (codec_encode(encoder, &source, n, format, &bytes, &err) ||
        codec_open(bytes.data, bytes.bytes, n, pool, &payload, &err))
        fail_msg("%s", err.text);
    codec_add(&payload, 0.5f, target, pool);
    /* k = 1: of the last chunk's two entries the lower one */
    assert_true(payload.coordinates == 3);
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        float sent = places[i] == n - 1 ? 0.0f : plus[places[i]];
        assert_true(add_to[places[i]] == sent && target[places[i]] == sent / 2);
    }
    plus[n - 1] = NAN;
    buffer_clear(&bytes);
    assert_not_finite(encoder, &source, n, CODEC_SIGN, n - 1);
    codec_encoder_free(encoder);
    pool_free(pool);
    buffer_done(&bytes);
    (void)munmap(plus, n * sizeof *plus);
    (void)munmap(add_to, n * sizeof *add_to);
    (void)munmap(target, n * sizeof *target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoding_and_adding_allocate_nothing),
        cmocka_unit_test(pain_C1_what_is_not_finite_is_named_wherever_it_comes_from),
        cmocka_unit_test(the_first_of_several_that_are_not_finite_is_named),
        cmocka_unit_test(residuals_run_dry),
        cmocka_unit_test(too_many_payloads_to_subtract_are_refused),
        cmocka_unit_test(a_payload_to_subtract_must_be_for_as_many_parameters),
        cmocka_unit_test(pain_G1_more_than_2_to_the_31_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
