/* The kernels in plain C against the processor's codec, bit by bit; element offsets beyond 2^31;
 * payloads that are not valid; sizes and the embedded text and images. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/kernels/kernels.h"
#include "common/base/bytes.h"
#include "tests/support/codec_cases.h"

#define CASES 12000
#define KERNEL_CHUNK_WORDS 256u /* local memory that update_encode has for a chunk's bits */

/* --- the kernels as a device ------------------------------------------------------------------ */

static uint32_t present_of(const struct codec_source *source)
{
    return (source->residual ? KERNELS_RESIDUAL : 0) | (source->plus ? KERNELS_PLUS : 0) |
           (source->minus ? KERNELS_MINUS : 0) | (source->add_to ? KERNELS_ADD_TO : 0);
}

/* Memory whose content nobody promised. */
static uint32_t *dirty_words(size_t count)
{
    uint32_t *words = malloc(count * sizeof *words + 1);
    memset(words, 0xA5, count * sizeof *words);
    return words;
}

struct batch {
    uint32_t first_chunk, chunks, chunk_stride, slot_stride;
    uint32_t *chunk_words, *chunk_bits, *slots, *super_words;
};

static struct batch batch_create(uint64_t n, struct codec_format format)
{
    uint32_t chunks = (uint32_t)format_chunks(n), supers = kernels_join_groups(chunks);
    struct batch batch = {
        .chunks = chunks,
        .chunk_stride = kernels_chunk_words_max(format),
        .slot_stride = kernels_super_words_max(format),
    };
    batch.chunk_words = dirty_words((size_t)chunks * batch.chunk_stride);
    batch.chunk_bits = dirty_words(chunks);
    batch.slots = dirty_words((size_t)supers * batch.slot_stride);
    batch.super_words = dirty_words(supers);
    return batch;
}

static void batch_free(struct batch *batch)
{
    free(batch->chunk_words);
    free(batch->chunk_bits);
    free(batch->slots);
    free(batch->super_words);
}

static void run_encode(const struct batch *batch, const struct codec_source *source, uint64_t n,
                       struct codec_format format)
{
    float any = 0;
    kernels_host_update_encode(
        kernels_encode_groups(batch->chunks), source->residual ? source->residual : &any,
        source->plus ? source->plus : &any, source->minus ? source->minus : &any,
        source->add_to ? source->add_to : &any, source->decay, present_of(source), (uint32_t)n,
        (uint32_t)(n >> 32), batch->first_chunk, format.values, format.k, batch->chunk_words,
        batch->chunk_stride, batch->chunk_bits);
}

/* The joined super-chunks behind a header and a table. */
static void finish_payload(const struct batch *batch, uint64_t n, struct codec_format format,
                           struct buffer *ret)
{
    uint32_t supers = kernels_join_groups(batch->chunks);
    uint8_t *out = ret->data + ret->bytes, *table = out + FORMAT_HEADER_BYTES;
    uint8_t *body = table + 8ul * supers, *next = body;
    for (uint32_t i = 0; i < supers; i++) {
        size_t bytes = (size_t)batch->super_words[i] * FORMAT_WORD_BYTES;
        store_u64(table + 8ul * i, (uint64_t)(next - body));
        memcpy(next, batch->slots + (size_t)i * batch->slot_stride, bytes);
        next += bytes;
    }
    struct format_header header = {.n = n, .format = format};
    header.body_bytes = (uint64_t)(next - table);
    format_header_write(&header, out);
    ret->bytes += FORMAT_HEADER_BYTES + (size_t)header.body_bytes;
}

static enum status host_encode(void *context, const struct codec_source *source, uint64_t n,
                               struct codec_format format, struct buffer *ret,
                               uint64_t *ret_not_finite_at)
{
    (void)context;
    assert_int_equal(buffer_reserve(ret, codec_bytes_max(n, format)), STATUS_OK);
    struct batch batch = batch_create(n, format);
    enum status status = STATUS_OK;
    run_encode(&batch, source, n, format);
    for (uint32_t i = 0; i < batch.chunks && status == STATUS_OK; i++) {
        if (batch.chunk_bits[i] & KERNELS_NOT_FINITE) {
            status = STATUS_NOT_FINITE;
            *ret_not_finite_at =
                (uint64_t)i * CODEC_CHUNK + (batch.chunk_bits[i] & ~KERNELS_NOT_FINITE);
        }
    }
    kernels_host_update_join(kernels_join_groups(batch.chunks), batch.chunk_words,
                             batch.chunk_stride, batch.chunk_bits, batch.chunks, batch.slots,
                             batch.slot_stride, batch.super_words);
    if (status == STATUS_OK)
        finish_payload(&batch, n, format, ret);
    batch_free(&batch);
    return status;
}

/* Where each chunk's bits begin, counted from the end of the table. */
static void find_chunks(const struct codec_payload *payload, uint32_t *low, uint32_t *high)
{
    const uint8_t *body = payload->data + FORMAT_HEADER_BYTES + 8 * codec_super_chunks(payload->n);
    struct codec_chunk chunk;
    for (uint64_t super = 0; super < codec_super_chunks(payload->n); super++) {
        struct codec_reader reader;
        codec_reader_init(&reader, payload, super);
        do {
            uint64_t bit = (uint64_t)(reader.start - body) * 8 + reader.bit;
            low[reader.chunk] = (uint32_t)bit;
            high[reader.chunk] = (uint32_t)(bit >> 32);
        } while (codec_reader_next(&reader, &chunk) && reader.chunk < reader.chunk_end);
    }
}

static enum status host_add(void *context, const struct codec_payload *payload, float factor,
                            float *target)
{
    (void)context;
    uint64_t n = payload->n, table = FORMAT_HEADER_BYTES + 8 * codec_super_chunks(n);
    uint32_t chunks = (uint32_t)format_chunks(n);
    uint32_t *low = dirty_words(chunks), *high = dirty_words(chunks);
    uint32_t *words = malloc(payload->bytes - table);
    memcpy(words, payload->data + table, payload->bytes - table);
    find_chunks(payload, low, high);
    kernels_host_update_add(kernels_add_groups(chunks), words, low, high, (uint32_t)n,
                            (uint32_t)(n >> 32), 0, chunks, payload->format.values,
                            payload->format.k, factor, target);
    free(words);
    free(low);
    free(high);
    return STATUS_OK;
}

static const struct cases_device host = {"plain C", NULL, host_encode, host_add};

/* --- tests ------------------------------------------------------------------------------------ */

static void random_cases_are_bit_identical(void **state)
{
    (void)state;
    cases_run(&host, 1, CASES);
}

static void several_super_chunks_are_bit_identical(void **state)
{
    (void)state;
    cases_run_large(&host);
}

/* 256 magnitudes of two neighbouring floats in 1 ... 2, `upper` of them the greater: their mean,
 * as a multiple of 2^-31, is low + upper. */
static void check_mean(uint32_t low, uint32_t upper)
{
    struct codec_format format = {CODEC_SIGN, 256};
    struct codec_encoder *encoder;
    struct buffer expected, made;
    float e[256];
    uint64_t not_finite_at;
    for (uint32_t i = 0; i < 256; i++)
        e[i] = float_of_bits(0x3F800000 | (((low >> 8) + (i < upper)) & 0x7FFFFF));
    struct codec_source source = {.plus = e};
    buffer_init(&expected, codec_bytes_max(256, format));
    buffer_init(&made, codec_bytes_max(256, format));
    assert_int_equal(codec_encoder_create(NULL, &encoder), STATUS_OK);
    assert_int_equal(codec_encode(encoder, &source, 256, format, &expected, NULL), STATUS_OK);
    assert_int_equal(host.encode(NULL, &source, 256, format, &made, &not_finite_at), STATUS_OK);
    assert_int_equal(made.bytes, expected.bytes);
    assert_memory_equal(made.data, expected.data, made.bytes);
    codec_encoder_free(encoder);
    buffer_done(&expected);
    buffer_done(&made);
}

/* Random means do not meet them. The numbers are those of values.c. */
static void means_at_the_borders_of_scales_are_bit_identical(void **state)
{
    (void)state;
    static const uint32_t borders[] = {0x8B95C1E4, 0xA5FED6AA, 0xC5672A12, 0xEAC0C6E8};
    for (int i = 0; i < 4; i++) {
        uint32_t upper = borders[i] & 0xFF;
        for (int off = -2; off <= 2; off++)
            check_mean(borders[i] - upper, (uint32_t)((int)upper + off));
    }
}

/* A pointer such that base + first is `real`; only the end of the vector exists. */
static float *base_of(float *real, uint64_t first)
{
    return (float *)((uintptr_t)real - first * sizeof *real); // NOLINT: never used as it is
}

#define TAIL 512u

/* The last, short chunk of n parameters must come out as if it were the only one. */
static void check_last_chunk(uint64_t n)
{
    uint64_t first = n - TAIL;
    struct codec_format format = {CODEC_FOUR_BITS, 64};
    struct cases_one one = {.seed = n, .n = TAIL, .format = format};
    struct rng rng;
    rng_seed(&rng, n);
    float *residual = cases_vector(&rng, &one, true), *plus = cases_vector(&rng, &one, true);
    float *expected_residual = cases_copy(residual, TAIL);
    struct codec_source alone = {.residual = expected_residual, .decay = 1, .plus = plus};
    struct codec_source tail = {
        .residual = base_of(residual, first), .decay = 1, .plus = base_of(plus, first)};
    struct codec_encoder *encoder;
    struct buffer expected;
    buffer_init(&expected, codec_bytes_max(TAIL, format));
    assert_int_equal(codec_encoder_create(NULL, &encoder), STATUS_OK);
    assert_int_equal(codec_encode(encoder, &alone, TAIL, format, &expected, NULL), STATUS_OK);

    struct batch batch = batch_create(TAIL, format);
    batch.first_chunk = (uint32_t)(first / CODEC_CHUNK);
    run_encode(&batch, &tail, n, format);
    uint32_t words = (batch.chunk_bits[0] + 31) / 32, zero = 0;
    assert_int_equal(words * 4, expected.bytes - FORMAT_HEADER_BYTES - 8);
    assert_memory_equal(batch.chunk_words, expected.data + FORMAT_HEADER_BYTES + 8, words * 4);
    assert_memory_equal(residual, expected_residual, TAIL * sizeof(float));

    kernels_host_update_add(1, batch.chunk_words, &zero, &zero, (uint32_t)n, (uint32_t)(n >> 32),
                            batch.first_chunk, 1, format.values, format.k, 2.0f,
                            base_of(residual, first));
    assert_int_equal(
        codec_decode_add(expected.data, expected.bytes, 2.0f, expected_residual, TAIL, NULL),
        STATUS_OK);
    assert_memory_equal(residual, expected_residual, TAIL * sizeof(float));
    codec_encoder_free(encoder);
    buffer_done(&expected);
    batch_free(&batch);
    free(residual);
    free(expected_residual);
    free(plus);
}

static void element_offsets_have_64_bits(void **state)
{
    (void)state;
    check_last_chunk((UINT64_C(1) << 31) + TAIL);
    check_last_chunk((UINT64_C(1) << 32) + TAIL);
    check_last_chunk((UINT64_C(5) << 30) + CODEC_CHUNK + TAIL);
    check_last_chunk((UINT64_C(1) << 40) + TAIL);
}

/* Chunk 1 of 3 is damaged: nothing outside it may change. */
static void invalid_chunks_change_only_themselves(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 7);
    uint32_t words[2 * KERNEL_CHUNK_WORDS], zero = 0;
    float target[3 * CODEC_CHUNK];
    for (int round = 0; round < 4000; round++) {
        uint32_t values = 1 + (uint32_t)rng_below(&rng, 4), k = 1 + (uint32_t)rng_below(&rng, 512);
        uint64_t n = 2 * CODEC_CHUNK + (round % 2 ? CODEC_CHUNK : 1);
        for (uint32_t i = 0; i < 2 * KERNEL_CHUNK_WORDS; i++)
            words[i] = (uint32_t)(rng_u64(&rng) & rng_u64(&rng));
        if (round % 3 == 0)
            words[0] |= 0xFF;
        memset(target, 0, sizeof target);
        kernels_host_update_add(1, words, &zero, &zero, (uint32_t)n, 0, 1, 1, values, k, 1.0f,
                                target);
        for (uint32_t i = 0; i < CODEC_CHUNK; i++)
            assert_true(target[i] == 0 && target[2 * CODEC_CHUNK + i] == 0);
    }
}

static void sizes_fit_local_memory(void **state)
{
    (void)state;
    for (uint32_t values = 1; values <= 4; values++)
        for (uint32_t k = 1; k <= CODEC_K_MAX; k++) {
            struct codec_format format = {(enum codec_values)values, k};
            assert_true(kernels_chunk_words_max(format) <= KERNEL_CHUNK_WORDS);
        }
    assert_int_equal(kernels_join_groups(257), 2);
    assert_int_equal(kernels_encode_groups(257), 257);
    assert_true(kernels_add_groups(1) == 1 && kernels_add_groups(1u << 20) > 1);
}

/* Drivers differ in what they make of bytes above 127. */
static void text_is_ascii_and_has_the_kernels(void **state)
{
    (void)state;
    for (const char *p = kernels_source; *p; p++)
        assert_true(*p > 0);
    const char *names[] = {"update_encode", "update_join", "update_add"};
    for (int i = 0; i < 3; i++)
        assert_non_null(strstr(kernels_source, names[i]));
}

static void images_are_cubins_in_order(void **state)
{
    (void)state;
    const struct kernels_image *images;
    size_t count;
    kernels_cuda_images(&images, &count);
    assert_true((count == 0) == (kernels_cuda_ptx() == NULL));
    for (size_t i = 0; i < count; i++) {
        assert_memory_equal(images[i].data, "\177ELF", 4);
        assert_true(images[i].bytes > 1000 && (i == 0 || images[i - 1].sm < images[i].sm));
    }
    if (count > 0)
        assert_non_null(strstr(kernels_cuda_ptx(), ".version 6.3\n.target sm_75"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases_are_bit_identical),
        cmocka_unit_test(several_super_chunks_are_bit_identical),
        cmocka_unit_test(means_at_the_borders_of_scales_are_bit_identical),
        cmocka_unit_test(element_offsets_have_64_bits),
        cmocka_unit_test(invalid_chunks_change_only_themselves),
        cmocka_unit_test(sizes_fit_local_memory),
        cmocka_unit_test(text_is_ascii_and_has_the_kernels),
        cmocka_unit_test(images_are_cubins_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
