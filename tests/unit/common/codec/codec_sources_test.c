/* Random sources of an update, all that a source can hold at once: the slow reference, the portable
 * and the AVX2 table and pools of one to three threads agree bit by bit, and so do the three ways
 * to decode what came out. Encoders live through all cases, as a program's do: what one remembers
 * of a chunk (the AVX2 table guesses from the one before) may only cost time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/reference/codec_reference.h"
#include "tests/support/codec_cases.h"
#include "tests/unit/common/codec/fixture.h"

#include <stdio.h>
#include <string.h>

#define SUPER ((uint64_t)CODEC_CHUNK * CODEC_SUPER_CHUNK)
#define POOLS 3u
#define SUBTRACT_TESTED 3u
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CASES 1000 /* the others differ in numbers, not in what is touched */
#else
#define CASES 5000
#endif

struct bench {
    struct pool *pools[POOLS];                /* of 1 … POOLS threads */
    struct codec_encoder *encoders[2][POOLS]; /* portable, fastest */
};

struct source_case {
    struct rng rng;
    uint64_t seed, n;
    struct codec_format format;
    float *residual, *plus, *minus, *add_to; /* as given; each encoder gets copies */
    bool add_to_is_minus, hashed;
    float decay;
    struct buffer bytes[SUBTRACT_TESTED]; /* subtracted */
    struct codec_payload payloads[SUBTRACT_TESTED];
    const struct codec_payload *pointers[SUBTRACT_TESTED];
    float *subtracted[SUBTRACT_TESTED];
    size_t subtract_count;
};

/* What the reference says must come out. */
struct expectation {
    uint64_t not_finite_at; /* n: all is finite */
    float *e, *decoded, *residual, *add_to;
    struct buffer payload;
};

static void bench_make(struct bench *bench)
{
    for (uint32_t p = 0; p < POOLS; p++) {
        assert_int_equal(pool_create(p + 1, &bench->pools[p], NULL), STATUS_OK);
        assert_int_equal(
            codec_encoder_create_with(bench->pools[p], &select_portable, &bench->encoders[0][p]),
            STATUS_OK);
        assert_int_equal(
            codec_encoder_create_with(bench->pools[p], select_best(), &bench->encoders[1][p]),
            STATUS_OK);
    }
}

static void bench_free(struct bench *bench)
{
    for (uint32_t p = 0; p < POOLS; p++) {
        codec_encoder_free(bench->encoders[0][p]);
        codec_encoder_free(bench->encoders[1][p]);
        pool_free(bench->pools[p]);
    }
}

/* Neighbouring chunks may be of different kinds and of very different scales. */
static float *mixed_vector(struct rng *rng, uint64_t n, bool may_break)
{
    float *vector = malloc((n + (n == 0)) * sizeof *vector);
    uint64_t changes_every = rng_below(rng, 2) ? CODEC_CHUNK : 1 + rng_below(rng, 3 * CODEC_CHUNK);
    enum cases_kind kind = CASES_GAUSSIAN;
    float scale = 1.0f;
    for (uint64_t i = 0; i < n; i++) {
        if (i % changes_every == 0) {
            kind = (enum cases_kind)rng_below(rng, may_break ? CASES_BROKEN : CASES_BITS);
            scale = ldexpf(1.0f, (int)rng_below(rng, 61) - 50);
        }
        vector[i] = cases_entry(rng, kind) * (kind < CASES_TIES ? scale : 1.0f);
    }
    if (may_break && n > 0 && rng_below(rng, 16) == 0)
        vector[rng_below(rng, n)] = rng_below(rng, 2) ? -INFINITY : NAN;
    return vector;
}

static struct codec_format any_format(struct rng *rng)
{
    static const uint32_t ks[] = {1, 2, 63, 64, 65, 511, 512};
    uint32_t k = 1 + (uint32_t)rng_below(rng, CODEC_K_MAX);
    if (rng_below(rng, 2))
        k = ks[rng_below(rng, COUNT_OF(ks))];
    return (struct codec_format){all_values[rng_below(rng, COUNT_OF(all_values))], k};
}

static void make_subtracted(struct source_case *c, struct codec_encoder *encoder)
{
    c->subtract_count = rng_below(&c->rng, SUBTRACT_TESTED + 1);
    for (size_t j = 0; j < c->subtract_count; j++) {
        struct codec_format format = any_format(&c->rng);
        float *e = mixed_vector(&c->rng, c->n, false);
        struct codec_source source = {.plus = e};
        buffer_init(&c->bytes[j], codec_bytes_max(c->n, format));
        assert_int_equal(codec_encode(encoder, &source, c->n, format, &c->bytes[j], NULL),
                         STATUS_OK);
        assert_int_equal(
            codec_open(c->bytes[j].data, c->bytes[j].bytes, c->n, NULL, &c->payloads[j], NULL),
            STATUS_OK);
        c->pointers[j] = &c->payloads[j];
        c->subtracted[j] = e;
        reference_decode(c->bytes[j].data, c->n, e);
    }
}

static void case_make(struct source_case *c, uint64_t seed, uint64_t n,
                      struct codec_encoder *encoder)
{
    *c = (struct source_case){.seed = seed};
    rng_seed(&c->rng, seed);
    c->n = n > 0 ? n : cases_length(&c->rng) - 1; /* 0 too */
    c->format = any_format(&c->rng);
    static const float decays[] = {1.0f, 0.95f, 0.0f, 0x1.fffffep-1f, -0.0f};
    c->decay = decays[rng_below(&c->rng, COUNT_OF(decays))];
    bool may_break = rng_below(&c->rng, 4) == 0; /* else nothing would be finite in long cases */
    uint64_t present = rng_u64(&c->rng);
    c->residual = present & 1 ? mixed_vector(&c->rng, c->n, may_break) : NULL;
    c->plus = present & 2 ? mixed_vector(&c->rng, c->n, may_break) : NULL;
    c->minus = present & 4 ? mixed_vector(&c->rng, c->n, may_break) : NULL;
    c->add_to_is_minus = c->minus && present & 8;
    c->add_to = present & 16 && !c->add_to_is_minus ? mixed_vector(&c->rng, c->n, true) : NULL;
    c->hashed = (c->add_to || c->add_to_is_minus) && present & 32;
    make_subtracted(c, encoder);
}

static void case_free(struct source_case *c)
{
    for (size_t j = 0; j < c->subtract_count; j++) {
        buffer_done(&c->bytes[j]);
        free(c->subtracted[j]);
    }
    free(c->residual);
    free(c->plus);
    free(c->minus);
    free(c->add_to);
}

static struct codec_source source_of(const struct source_case *c)
{
    return (struct codec_source){.residual = c->residual,
                                 .decay = c->decay,
                                 .plus = c->plus,
                                 .minus = c->minus,
                                 .subtract = c->pointers,
                                 .subtract_count = c->subtract_count};
}

/* to[i] += factor * decoded[i] wherever something was sent: with fp32 everywhere. */
static void apply(const float *decoded, uint64_t n, enum codec_values values, float factor,
                  float *to)
{
    for (uint64_t i = 0; to && i < n; i++) {
        volatile float product = factor * decoded[i];
        if (decoded[i] != 0 || values == CODEC_FP32)
            to[i] = reference_add(to[i], product);
    }
}

static void expectation_make(const struct source_case *c, struct expectation *ret)
{
    struct codec_source source = source_of(c);
    size_t bytes = (c->n + (c->n == 0)) * sizeof(float);
    *ret =
        (struct expectation){.not_finite_at = c->n, .e = malloc(bytes), .decoded = malloc(bytes)};
    buffer_init(&ret->payload, SIZE_MAX);
    reference_input(&source, (const float *const *)c->subtracted, c->subtract_count, c->n, ret->e);
    for (uint64_t i = c->n; i-- > 0;)
        ret->not_finite_at = isfinite(ret->e[i]) ? ret->not_finite_at : i;
    if (ret->not_finite_at < c->n)
        return;
    reference_encode(ret->e, c->n, c->format, &ret->payload, ret->decoded);
    ret->residual = c->residual ? cases_copy(ret->e, c->n) : NULL;
    apply(ret->decoded, c->n, c->format.values, -1.0f, ret->residual);
    ret->add_to = cases_copy(c->add_to_is_minus ? c->minus : c->add_to, c->n);
    apply(ret->decoded, c->n, c->format.values, 1.0f, ret->add_to);
}

static void expectation_free(struct expectation *expected)
{
    buffer_done(&expected->payload);
    free(expected->e);
    free(expected->decoded);
    free(expected->residual);
    free(expected->add_to);
}

static void complain(const struct source_case *c, uint32_t kernels, uint32_t pool, const char *what)
{
    fail_msg("seed %llu, n %llu, coder %d, k %u, table %u, %u threads: %s",
             (unsigned long long)c->seed, (unsigned long long)c->n, c->format.values, c->format.k,
             kernels, pool + 1, what);
}

static void check_encoder(const struct source_case *c, const struct expectation *expected,
                          const struct bench *bench, uint32_t kernels, uint32_t pool)
{
    struct codec_source source = source_of(c);
    float *residual = cases_copy(c->residual, c->n), *plus = cases_copy(c->plus, c->n);
    float *minus = cases_copy(c->minus, c->n);
    float *add_to = c->add_to_is_minus ? minus : cases_copy(c->add_to, c->n);
    uint64_t hash = 0;
    struct buffer payload;
    struct error err = {0};
    source.residual = residual;
    source.plus = plus;
    source.minus = minus;
    source.add_to = add_to;
    source.ret_hash = c->hashed ? &hash : NULL;
    buffer_init(&payload, codec_bytes_max(c->n, c->format));
    enum status status =
        codec_encode(bench->encoders[kernels][pool], &source, c->n, c->format, &payload, &err);
    if (expected->not_finite_at < c->n) {
        char place[64];
        snprintf(place, sizeof place, "parameter %llu of",
                 (unsigned long long)expected->not_finite_at);
        if (status != STATUS_NOT_FINITE || !strstr(err.text, place) || payload.bytes > 0)
            complain(c, kernels, pool, "what is not finite was not refused there");
    } else if (status != STATUS_OK) {
        complain(c, kernels, pool, err.text);
    } else if (payload.bytes != expected->payload.bytes ||
               memcmp(payload.data, expected->payload.data, payload.bytes) != 0) {
        complain(c, kernels, pool, "payload");
    } else if (!cases_same(residual, expected->residual, c->n)) {
        complain(c, kernels, pool, "residual");
    } else if (!cases_same(add_to, expected->add_to, c->n)) {
        complain(c, kernels, pool, "add_to");
    } else if (c->hashed && hash != codec_hash(expected->add_to, c->n)) {
        complain(c, kernels, pool, "hash");
    }
    if (!cases_same(plus, c->plus, c->n) ||
        (!c->add_to_is_minus && !cases_same(minus, c->minus, c->n)))
        complain(c, kernels, pool, "an input was changed");
    buffer_done(&payload);
    if (add_to != minus)
        free(add_to);
    free(residual);
    free(plus);
    free(minus);
}

/* Puts what the readers give into ret[n]; returns how much it was. */
static uint64_t read_all(const struct codec_payload *payload, float *ret)
{
    static struct codec_chunk chunk;
    uint64_t coordinates = 0, chunks = 0, end = 0;
    for (uint64_t s = 0; s < codec_super_chunks(payload->n); s++) {
        struct codec_reader reader;
        codec_reader_init(&reader, payload, s);
        for (; codec_reader_next(&reader, &chunk); chunks++) {
            assert_true(chunk.first == end && chunk.count <= chunk.length);
            end = chunk.first + chunk.length;
            for (uint32_t i = 0; i < chunk.count; i++) {
                assert_true(chunk.indices[i] < chunk.length);
                assert_true(i == 0 || chunk.indices[i] > chunk.indices[i - 1]);
                ret[chunk.first + chunk.indices[i]] = chunk.values[i];
            }
            coordinates += chunk.count;
        }
        assert_false(codec_reader_next(&reader, &chunk));
    }
    assert_true(end == payload->n && chunks == (payload->n + CODEC_CHUNK - 1) / CODEC_CHUNK);
    return coordinates;
}

static void check_decoders(struct source_case *c, const struct expectation *expected,
                           struct pool *pool)
{
    static const float factors[] = {1.0f, -1.0f, 0.3f, 0.0f, 0x1p-120f, -0x1.5p100f};
    float factor = factors[rng_below(&c->rng, COUNT_OF(factors))];
    struct codec_payload payload;
    struct error err;
    if (codec_open(expected->payload.data, expected->payload.bytes, c->n, pool, &payload, &err))
        complain(c, 0, 0, err.text);
    assert_true(payload.n == c->n && payload.format.values == c->format.values);
    float *read = calloc(c->n + 1, sizeof *read), *slow = calloc(c->n + 1, sizeof *slow);
    reference_decode(payload.data, c->n, slow);
    if (read_all(&payload, read) != payload.coordinates || !cases_same(read, slow, c->n) ||
        !cases_same(slow, expected->decoded, c->n))
        complain(c, 0, 0, "reading");
    uint64_t coordinates = 0;
    for (uint64_t i = 0; i < c->n; i++)
        coordinates += slow[i] != 0 || c->format.values == CODEC_FP32;
    if (coordinates != payload.coordinates)
        complain(c, 0, 0, "number of coordinates");
    float *target = mixed_vector(&c->rng, c->n, true), *sum = cases_copy(target, c->n);
    apply(slow, c->n, c->format.values, factor, sum);
    codec_add(&payload, factor, target, pool);
    for (uint64_t i = 0; i < c->n; i++)
        if (float_bits(target[i]) != float_bits(sum[i]) && !(isnan(target[i]) && isnan(sum[i])))
            complain(c, 0, 0, "adding");
    free(sum);
    free(target);
    free(slow);
    free(read);
}

/* Long cases run on all pools, short ones (where all are alike) on one. */
static bool run_case(struct bench *bench, uint64_t seed, uint64_t n)
{
    struct source_case c;
    struct expectation expected;
    case_make(&c, seed, n, bench->encoders[1][seed % POOLS]);
    expectation_make(&c, &expected);
    for (uint32_t kernels = 0; kernels < 2; kernels++)
        for (uint32_t pool = 0; pool < POOLS; pool++)
            if (c.n > SUPER || pool == seed % POOLS)
                check_encoder(&c, &expected, bench, kernels, pool);
    bool finite = expected.not_finite_at == c.n;
    if (finite)
        check_decoders(&c, &expected, bench->pools[seed % POOLS]);
    expectation_free(&expected);
    case_free(&c);
    return finite;
}

static void sources_of_every_kind_agree_with_the_reference(void **state)
{
    (void)state;
    struct bench bench;
    int finite = 0;
    bench_make(&bench);
    for (uint64_t seed = 0; seed < CASES; seed++)
        finite += run_case(&bench, seed, 0);
    assert_true(finite > CASES / 2 && finite < CASES * 99 / 100); /* both ways were seen */
    bench_free(&bench);
}

static void pain_G3_long_sources_agree_on_any_number_of_threads(void **state)
{
    (void)state;
    const uint64_t ns[] = {SUPER - 1, SUPER, SUPER + 1, 2 * SUPER, 2 * SUPER + CODEC_CHUNK + 1};
    struct bench bench;
    bench_make(&bench);
    for (uint64_t i = 0; i < COUNT_OF(ns) * 2; i++)
        (void)run_case(&bench, 1000000 + i, ns[i % COUNT_OF(ns)]);
    bench_free(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_of_every_kind_agree_with_the_reference),
        cmocka_unit_test(pain_G3_long_sources_agree_on_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
