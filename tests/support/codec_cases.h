/* Random cases of the update code for anything that claims to make codec_encode's bytes and
 * codec_add's floats: the kernels in plain C, an OpenCL or a CUDA device. The user supplies a
 * struct cases_device; each case is also encoded by the processor's portable and fastest tables,
 * and everything is compared bit by bit. A failure names the case; cases_run_one repeats it.
 * Include after cmocka.h. */
#ifndef RAVEN_TESTS_KERNELS_CASES_H
#define RAVEN_TESTS_KERNELS_CASES_H

#include "common/base/rng.h"
#include "common/codec/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cases_device {
    const char *name;
    void *context;
    /* As codec_encode (value coders 1 ... 4, nothing to subtract, no hash): appends a whole payload
     * to ret. STATUS_NOT_FINITE: *ret_not_finite_at is the first entry that is not. */
    enum status (*encode)(void *context, const struct codec_source *source, uint64_t n,
                          struct codec_format format, struct buffer *ret,
                          uint64_t *ret_not_finite_at);
    /* As codec_add. */
    enum status (*add)(void *context, const struct codec_payload *payload, float factor,
                       float *target);
};

enum cases_kind {
    CASES_GAUSSIAN,
    CASES_LAPLACE,
    CASES_STUDENT, /* heavy tails */
    CASES_SPARSE,
    CASES_CLUSTERED, /* runs with gaps: long Rice codes */
    CASES_TIES,      /* a few different values */
    CASES_EQUAL,     /* all the same but for signs */
    CASES_ZERO,
    CASES_TINY,   /* around the smallest normal float: denormals, scales below 1 */
    CASES_BITS,   /* any finite float bits */
    CASES_HUGE,   /* near the largest float: sums may become infinite */
    CASES_BROKEN, /* gaussian, with an infinity or NaN somewhere */
    CASES_KINDS,
};

struct cases_one {
    uint64_t seed, n;
    enum cases_kind kind;
    struct codec_format format;
    bool residual, plus, minus, add_to, add_to_is_minus;
    float decay, factor;
};

static inline float cases_random_float(struct rng *rng)
{
    uint32_t bits;
    do
        bits = (uint32_t)rng_u64(rng);
    while ((bits & FLOAT_MAGNITUDE) >= FLOAT_NOT_FINITE);
    return float_of_bits(bits);
}

static inline float cases_entry(struct rng *rng, enum cases_kind kind)
{
    double normal = rng_normal(rng), uniform = rng_uniform(rng);
    float sign = uniform < 0.5 ? -1.0f : 1.0f;
    switch (kind) {
    case CASES_LAPLACE:
        return sign * (float)-log(rng_uniform(rng) + 1e-30);
    case CASES_STUDENT:
        return (float)(normal / (fabs(rng_normal(rng)) + 1e-6));
    case CASES_SPARSE:
        return uniform < 0.01 ? (float)normal : 0.0f;
    case CASES_TIES:
        return (float)((int)(uniform * 5) - 2) * 0.25f;
    case CASES_EQUAL:
        return sign * 0.3f;
    case CASES_ZERO:
        return sign * 0.0f;
    case CASES_TINY:
        return (float)(normal * 0x1p-126);
    case CASES_BITS:
        return cases_random_float(rng);
    case CASES_HUGE:
        return sign * (float)(0x1.8p127 * (0.001 + 0.999 * rng_uniform(rng)));
    default:
        return (float)normal;
    }
}

static inline void cases_clear_gaps(struct rng *rng, float *vector, uint64_t n)
{
    for (uint64_t i = rng_below(rng, 40); i < n; i += 1 + rng_below(rng, 60)) {
        uint64_t end = i + rng_below(rng, 400);
        for (; i < end && i < n; i++)
            vector[i] = 0;
    }
}

/* Exactly n floats, so that a sanitizer sees what lies beyond; NULL when not there. */
static inline float *cases_vector(struct rng *rng, const struct cases_one *one, bool there)
{
    if (!there)
        return NULL;
    float *vector = malloc(one->n * sizeof *vector);
    float scale = (float)ldexp(1, (int)rng_below(rng, 41) - 20);
    bool scaled = one->kind < CASES_TIES;
    for (uint64_t i = 0; i < one->n; i++)
        vector[i] = cases_entry(rng, one->kind) * (scaled ? scale : 1.0f);
    if (one->kind == CASES_CLUSTERED)
        cases_clear_gaps(rng, vector, one->n);
    if (one->kind == CASES_BROKEN && rng_below(rng, 2))
        vector[rng_below(rng, one->n)] = rng_below(rng, 2) ? INFINITY : NAN;
    return vector;
}

static inline float *cases_copy(const float *from, uint64_t n)
{
    if (!from)
        return NULL;
    float *copy = malloc(n * sizeof *copy);
    memcpy(copy, from, n * sizeof *copy);
    return copy;
}

/* A case's vectors; each encoder gets copies of its own. */
struct cases_vectors {
    float *residual, *plus, *minus, *add_to;
};

static inline struct cases_vectors cases_vectors_copy(const struct cases_vectors *from,
                                                      const struct cases_one *one)
{
    struct cases_vectors copy = {
        .residual = cases_copy(from->residual, one->n),
        .plus = cases_copy(from->plus, one->n),
        .minus = cases_copy(from->minus, one->n),
    };
    copy.add_to = one->add_to_is_minus ? copy.minus : cases_copy(from->add_to, one->n);
    return copy;
}

static inline void cases_vectors_free(struct cases_vectors *vectors)
{
    if (vectors->add_to != vectors->minus)
        free(vectors->add_to);
    free(vectors->residual);
    free(vectors->plus);
    free(vectors->minus);
}

/* What one encoder made of a case. */
struct cases_result {
    enum status status;
    uint64_t not_finite_at;
    struct cases_vectors vectors;
    struct buffer payload;
};

static inline struct codec_source cases_source(const struct cases_vectors *vectors, float decay)
{
    return (struct codec_source){
        .residual = vectors->residual,
        .decay = decay,
        .plus = vectors->plus,
        .minus = vectors->minus,
        .add_to = vectors->add_to,
    };
}

static inline uint64_t cases_first_not_finite(const struct cases_vectors *vectors, float decay,
                                              uint64_t n)
{
    struct chunk_input input = {vectors->residual, vectors->plus, vectors->minus, decay};
    for (uint64_t i = 0; i < n; i++) {
        float e = chunk_input_at(&input, 0);
        if ((float_bits(e) & FLOAT_MAGNITUDE) >= FLOAT_NOT_FINITE)
            return i;
        input.residual += input.residual != NULL;
        input.plus += input.plus != NULL;
        input.minus += input.minus != NULL;
    }
    return n;
}

static inline struct cases_result cases_encode_with(const struct cases_one *one,
                                                    const struct cases_vectors *vectors,
                                                    const struct select_kernels *kernels,
                                                    const struct cases_device *device)
{
    struct cases_result made = {.vectors = cases_vectors_copy(vectors, one)};
    struct codec_source source = cases_source(&made.vectors, one->decay);
    buffer_init(&made.payload, codec_bytes_max(one->n, one->format));
    if (device) {
        made.status = device->encode(device->context, &source, one->n, one->format, &made.payload,
                                     &made.not_finite_at);
        return made;
    }
    struct codec_encoder *encoder;
    assert_int_equal(codec_encoder_create_with(NULL, kernels, &encoder), STATUS_OK);
    made.not_finite_at = cases_first_not_finite(vectors, one->decay, one->n);
    made.status = codec_encode(encoder, &source, one->n, one->format, &made.payload, NULL);
    codec_encoder_free(encoder);
    return made;
}

static inline bool cases_same(const float *a, const float *b, uint64_t n)
{
    return !a || memcmp(a, b, n * sizeof *a) == 0;
}

/* What differs, or NULL. */
static inline const char *cases_difference(const struct cases_result *a,
                                           const struct cases_result *b, uint64_t n)
{
    if (a->status != b->status)
        return "status";
    if (a->status == STATUS_NOT_FINITE)
        return a->not_finite_at == b->not_finite_at ? NULL : "place of what is not finite";
    if (a->payload.bytes != b->payload.bytes)
        return "length of the payload";
    if (memcmp(a->payload.data, b->payload.data, a->payload.bytes) != 0)
        return "payload";
    if (!cases_same(a->vectors.residual, b->vectors.residual, n))
        return "residual";
    if (!cases_same(a->vectors.add_to, b->vectors.add_to, n))
        return "add_to";
    return cases_same(a->vectors.plus, b->vectors.plus, n) &&
                   cases_same(a->vectors.minus, b->vectors.minus, n)
               ? NULL
               : "an input was changed";
}

static inline void cases_fail(const struct cases_one *one, const char *who, const char *what)
{
    fail_msg(
        "%s differs from codec: %s; seed %llu n %llu kind %d values %d k %u present %d%d%d%d%d",
        who, what, (unsigned long long)one->seed, (unsigned long long)one->n, one->kind,
        one->format.values, one->format.k, one->residual, one->plus, one->minus, one->add_to,
        one->add_to_is_minus);
}

static inline void cases_check_add(const struct cases_one *one, const struct buffer *bytes,
                                   struct rng *rng, const struct cases_device *device)
{
    struct codec_payload payload;
    struct error err;
    if (codec_open(bytes->data, bytes->bytes, one->n, NULL, &payload, &err) != STATUS_OK)
        cases_fail(one, "codec_open", err.text);
    float *expected = cases_vector(rng, one, true);
    float *target = cases_copy(expected, one->n);
    codec_add(&payload, one->factor, expected, NULL);
    if (device->add(device->context, &payload, one->factor, target) != STATUS_OK ||
        !cases_same(target, expected, one->n))
        cases_fail(one, device->name, "add");
    free(target);
    free(expected);
}

static inline void cases_run_one(const struct cases_one *one, const struct cases_device *device)
{
    struct rng rng;
    rng_seed(&rng, one->seed);
    struct cases_vectors vectors = {
        .residual = cases_vector(&rng, one, one->residual),
        .plus = cases_vector(&rng, one, one->plus),
        .minus = cases_vector(&rng, one, one->minus),
        .add_to = cases_vector(&rng, one, one->add_to && !one->add_to_is_minus),
    };
    struct cases_result expected = cases_encode_with(one, &vectors, &select_portable, NULL);
    struct cases_result fastest = cases_encode_with(one, &vectors, select_best(), NULL);
    struct cases_result made = cases_encode_with(one, &vectors, NULL, device);
    const char *what = cases_difference(&expected, &fastest, one->n);
    if (what)
        cases_fail(one, select_best()->name, what);
    what = cases_difference(&expected, &made, one->n);
    if (what)
        cases_fail(one, device->name, what);
    if (expected.status == STATUS_OK)
        cases_check_add(one, &expected.payload, &rng, device);
    struct cases_result *results[] = {&expected, &fastest, &made};
    for (int i = 0; i < 3; i++) {
        buffer_done(&results[i]->payload);
        cases_vectors_free(&results[i]->vectors);
    }
    cases_vectors_free(&vectors);
}

static inline uint64_t cases_length(struct rng *rng)
{
    switch (rng_below(rng, 8)) {
    case 0:
        return 1 + rng_below(rng, 40);
    case 1:
        return CODEC_CHUNK * (1 + rng_below(rng, 3)) - 1 + rng_below(rng, 3);
    case 2:
    case 3:
        return CODEC_CHUNK * (1 + rng_below(rng, 3));
    default:
        return 1 + rng_below(rng, 2 * CODEC_CHUNK);
    }
}

static inline struct cases_one cases_make(uint64_t seed)
{
    static const float factors[] = {1.0f, -1.0f, 0.3f, 0.0f, 0x1p-120f, -0x1.5p100f};
    static const uint32_t ks[] = {1, 16, 64, 128, 256, 511, 512};
    struct rng rng;
    rng_seed(&rng, seed);
    struct cases_one one = {
        .seed = seed,
        .n = cases_length(&rng),
        .kind = (enum cases_kind)rng_below(&rng, CASES_KINDS),
        .format = {.values = (enum codec_values)(1 + rng_below(&rng, 4))},
        .decay = rng_below(&rng, 2) ? 0.95f : 1.0f,
        .factor = factors[rng_below(&rng, 6)],
    };
    one.format.k =
        rng_below(&rng, 2) ? ks[rng_below(&rng, 7)] : 1 + (uint32_t)rng_below(&rng, CODEC_K_MAX);
    uint32_t present = (uint32_t)rng_below(&rng, 32);
    one.residual = present & 1;
    one.plus = present & 2;
    one.minus = present & 4;
    one.add_to = present & 8;
    one.add_to_is_minus = one.add_to && one.minus && present & 16;
    return one;
}

/* Cases first_seed ... first_seed + count - 1. */
static inline void cases_run(const struct cases_device *device, uint64_t first_seed, uint64_t count)
{
    for (uint64_t seed = first_seed; seed < first_seed + count; seed++) {
        struct cases_one one = cases_make(seed);
        cases_run_one(&one, device);
    }
}

/* More than one super-chunk, the shortest and the longest chunks. */
static inline void cases_run_large(const struct cases_device *device)
{
    uint64_t super = (uint64_t)CODEC_CHUNK * CODEC_SUPER_CHUNK;
    const struct cases_one all[] = {
        {1, 2 * super + 513, CASES_GAUSSIAN, {CODEC_SIGN, 64}, .residual = true, .plus = true},
        {2, super, CASES_STUDENT, {CODEC_EIGHT_BITS, 512}, .residual = true, .add_to = true},
        {3, super + 1, CASES_SPARSE, {CODEC_TWO_BITS, 128}, .plus = true, .minus = true},
        {4, super - 1, CASES_ZERO, {CODEC_FOUR_BITS, 1}, .residual = true, .plus = true},
        {5, 3 * super, CASES_BROKEN, {CODEC_SIGN, 1}, .residual = true, .plus = true},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct cases_one one = all[i];
        one.decay = 0.9f;
        one.factor = 0.5f;
        cases_run_one(&one, device);
    }
}

#endif
