/* Makes tests/golden/codec and tests/golden/bad/codec of the update code, version 2. Not part of
 * the tests: the files are there and never change (another format gets another version and other
 * files). The slow reference encoder makes the good ones; the hand-made one and the bad ones are
 * put together bit by bit. The name of a bad file is the reason of its refusal, up to the first
 * dot; all claim n = 10000. (bad/codec/wrong_magic.version_1.bin is left from version 1.)
 *
 *   cc -D_GNU_SOURCE -I. tests/golden/make_codec.c tests/reference/codec_reference.c \
 *      common/base/{buffer,bytes,checksum,rng,status}.c -lxxhash -lsodium -lm -o /tmp/make_codec
 *   cd tests/golden && /tmp/make_codec */
#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/base/rng.h"
#include "tests/reference/codec_reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 10000
#define HEADER 40
#define BYTES_MAX 65536

struct file {
    uint8_t data[BYTES_MAX];
    uint64_t bits; /* of the body */
};

static void save_bytes(const char *path, const void *data, size_t bytes)
{
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(data, 1, bytes, out) != bytes || fclose(out))
        abort();
}

static void start(struct file *file, int values, uint32_t k)
{
    memset(file, 0, sizeof *file);
    memcpy(file->data, "RVUC", 4);
    file->data[4] = 2;
    file->data[5] = values != 5;
    file->data[6] = (uint8_t)values;
    store_u64(file->data + 8, N);
    store_u32(file->data + 16, k);
}

static void put(struct file *file, uint64_t value, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, file->bits++)
        if (value >> i & 1)
            file->data[HEADER + 8 + file->bits / 8] |= (uint8_t)(1u << file->bits % 8);
}

/* Bytes of the whole, the body filled to words. */
static size_t size_of(const struct file *file)
{
    return HEADER + 8 + (file->bits + 31) / 32 * 4;
}

static void seal(struct file *file, size_t bytes)
{
    store_u64(file->data + 32, checksum_xxh3_seeded(file->data + HEADER, bytes - HEADER,
                                                    checksum_xxh3(file->data, 32)));
}

static void save_as(struct file *file, const char *folder, const char *name, size_t bytes)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s.bin", folder, name);
    save_bytes(path, file->data, bytes);
}

/* With right length and checksum. */
static void save(struct file *file, const char *folder, const char *name)
{
    size_t bytes = size_of(file);
    store_u64(file->data + 24, bytes - HEADER);
    seal(file, bytes);
    save_as(file, folder, name, bytes);
}

#define BAD "bad/codec"

/* The two whole chunks are empty; the third, of 1808 entries, follows. */
static void two_empty(struct file *file)
{
    put(file, 0, 16);
}

/* One coordinate in the last place: -1. */
static void last_is_minus_one(struct file *file)
{
    two_empty(file);
    put(file, 255, 8);
    put(file, 193, 8); /* 2^(-48 + 192/4) */
    put(file, 1, 9);
    put(file, 1, 2);            /* 1807 >> 10 = 1: a one and a zero */
    put(file, 1807 % 1024, 10); /* b = 10 for 1 of 1808 */
    put(file, 1, 1);
}

static void start_good(struct file *file)
{
    start(file, 1, 64);
    last_is_minus_one(file);
}

static void bad_headers(struct file *f)
{
    start_good(f);
    save_as(f, BAD, "shorter_than_its_header", HEADER - 1);
    save_as(f, BAD, "shorter_than_its_header.empty", 0);
    f->data[0] = 'X';
    save(f, BAD, "wrong_magic");
    static const struct {
        const char *name;
        size_t at;
        uint8_t value;
    } rows[] = {
        {"unknown_version.later", 4, 3},
        {"unknown_version.earlier", 4, 1},
        {"unknown_coder.value", 6, 6},
        {"unknown_coder.no_value", 6, 0},
        {"unknown_coder.index", 5, 2},
        {"unknown_coder.index_of_fp32", 5, 0},
        {"reserved_field_is_not_zero.byte", 7, 1},
        {"reserved_field_is_not_zero.word", 23, 1},
        {"made_for_another_number_of_parameters", 8, 0x11},
        {"made_for_another_number_of_parameters.huge", 15, 0x80},
        {"k_out_of_range.zero", 16, 0},
        {"k_out_of_range.large", 18, 1},
        {"wrong_offset_in_its_table.first", 40, 4},
        {"wrong_offset_in_its_table.odd", 40, 1},
        {"wrong_offset_in_its_table.huge", 47, 0x80},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        start_good(f);
        f->data[rows[i].at] = rows[i].value;
        save(f, BAD, rows[i].name);
    }
    start(f, 5, 64);
    save(f, BAD, "k_out_of_range.fp32");
    start(f, 1, 513);
    last_is_minus_one(f);
    save(f, BAD, "k_out_of_range.one_more");
}

static void bad_sums_and_lengths(struct file *f)
{
    start_good(f);
    save(f, BAD, "wrong_checksum.body");
    size_t bytes = size_of(f);
    f->data[bytes - 5] ^= 1;
    save_as(f, BAD, "wrong_checksum.body", bytes);
    f->data[bytes - 5] ^= 1;
    f->data[16] ^= 1;
    save_as(f, BAD, "wrong_checksum.header", bytes);
    f->data[16] ^= 1;
    save_as(f, BAD, "wrong_checksum.truncated", bytes - 4);
    for (int longer = 0; longer < 2; longer++) {
        store_u64(f->data + 24, bytes - HEADER + (longer ? 4 : -4ul));
        seal(f, bytes);
        save_as(f, BAD, longer ? "wrong_length.long" : "wrong_length.short", bytes);
    }
    store_u64(f->data + 24, 4);
    seal(f, HEADER + 4);
    save_as(f, BAD, "wrong_length.table", HEADER + 4);
}

static void bad_scales_and_counts(struct file *f)
{
    static const struct {
        const char *name;
        uint32_t scale, count;
    } rows[] = {
        {"count_out_of_range.zero", 193, 0},    {"count_out_of_range.whole", 193, 64},
        {"count_out_of_range.large", 193, 511}, {"scale_out_of_range.zero", 0, 1},
        {"scale_out_of_range.escape", 255, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        start(f, 1, 64);
        two_empty(f);
        put(f, 255, 8);
        put(f, rows[i].scale, 8);
        put(f, rows[i].count, 9);
        put(f, 0, 200);
        save(f, BAD, rows[i].name);
    }
    for (int larger = 0; larger < 2; larger++) {
        start(f, 2, 1);
        two_empty(f);
        put(f, 100, 8);
        put(f, larger ? 101 : 0, 8);
        put(f, 0, 40);
        save(f, BAD,
             larger ? "second_scale_out_of_range.larger" : "second_scale_out_of_range.zero");
    }
    for (int eight = 0; eight < 2; eight++) {
        start(f, eight ? 4 : 3, 1);
        two_empty(f);
        put(f, 1, 8); /* the smallest normal float's exponent */
        put(f, 0, 11);
        put(f, (eight ? 16 : 2) << 1, eight ? 8 : 4); /* one level below it */
        save(f, BAD, eight ? "level_out_of_range.eight" : "level_out_of_range.four");
    }
}

static void bad_indices(struct file *f)
{
    start(f, 1, 1);
    two_empty(f);
    put(f, 193, 8);
    put(f, 1, 2);
    put(f, 1808 % 1024, 10);
    put(f, 0, 1);
    save(f, BAD, "index_out_of_range.tail");
    start(f, 1, 1);
    two_empty(f);
    put(f, 193, 8);
    put(f, UINT64_MAX, 20);
    put(f, 0, 40);
    save(f, BAD, "index_out_of_range.unary");
    start(f, 1, 1);
    two_empty(f);
    put(f, 193, 8);
    for (int i = 0; i < 10; i++)
        put(f, UINT64_MAX, 64);
    put(f, 0, 64);
    save(f, BAD, "index_out_of_range.long_unary");
    start(f, 1, 4);
    two_empty(f);
    put(f, 193, 8);
    for (int i = 0; i < 4; i++) /* b = 8 for 4 of 1808 */
        put(f, 0x1FB, 3 + 8);   /* two ones, a zero, 63: 575 each, together too many */
    put(f, 0, 4);
    save(f, BAD, "index_out_of_range.sum");
}

static void bad_ends(struct file *f)
{
    start(f, 1, 64);
    save(f, BAD, "ends_too_early.no_chunk");
    start(f, 1, 64);
    two_empty(f);
    put(f, 193, 16);
    save(f, BAD, "ends_too_early.indices");
    start(f, 1, 64);
    two_empty(f);
    put(f, 255, 8);
    put(f, 193, 8);
    save(f, BAD, "ends_too_early.count");
    start(f, 4, 4);
    two_empty(f);
    put(f, 127, 8);
    for (int i = 0; i < 4; i++)
        put(f, 0, 9);
    put(f, 0, 4);
    save(f, BAD, "ends_too_early.values");
    start(f, 1, 64);
    two_empty(f);
    put(f, 193, 8);
    put(f, 0xFF, 8);
    save(f, BAD, "ends_too_early.unary");
    start(f, 5, 4096);
    put(f, 0, 64);
    save(f, BAD, "ends_too_early.fp32");
    start_good(f);
    put(f, 0, 32);
    save(f, BAD, "words_after_its_last_chunk");
    start_good(f);
    put(f, 1, 1);
    save(f, BAD, "padding_that_is_not_zero");
    start(f, 1, 64);
    put(f, 0, 24);
    put(f, 0x80, 8);
    save(f, BAD, "padding_that_is_not_zero.last_bit");
}

static void bad_fp32(struct file *f)
{
    static const struct {
        const char *name;
        uint32_t bits;
    } rows[] = {{"value_is_not_finite.infinite", 0x7F800000},
                {"value_is_not_finite.nan", 0xFFC00001},
                {"value_is_denormal", 0x00000001},
                {"value_is_denormal.minus_zero", 0x80000000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        start(f, 5, 4096);
        for (int j = 0; j < N; j++)
            put(f, j == 9999 ? rows[i].bits : 0, 32);
        save(f, BAD, rows[i].name);
    }
}

static void good(const char *name, int values, uint32_t k, uint64_t n, uint64_t seed, int kind)
{
    struct rng rng;
    struct buffer bytes;
    float *e = calloc(n, sizeof *e), *decoded = calloc(n, sizeof *decoded);
    char path[200];
    rng_seed(&rng, seed);
    for (uint64_t i = 0; kind == 'g' && i < n; i++)
        e[i] = (float)(rng_normal(&rng) * 0x1p-8);
    for (uint64_t i = 0; kind == 's' && i < n / 500; i++)
        e[rng_below(&rng, n / 2)] = (float)rng_normal(&rng);
    buffer_init(&bytes, 1 << 20);
    reference_encode(e, n, (struct codec_format){(enum codec_values)values, k}, &bytes, decoded);
    snprintf(path, sizeof path, "codec/%s.bin", name);
    save_bytes(path, bytes.data, bytes.bytes);
    buffer_done(&bytes);
    free(e);
    free(decoded);
}

int main(void)
{
    static struct file file;
    good("sign-gaussian-n10000-k64", 1, 64, 10000, 1, 'g');
    good("sign-sparse-n30000-k16", 1, 16, 30000, 2, 's');
    good("sign-gaussian-n5-k64", 1, 64, 5, 3, 'g');
    good("sign-zero-n4097-k64", 1, 64, 4097, 0, 'z');
    good("sign-zero-n1048577-k64", 1, 64, 1048577, 0, 'z'); /* two super-chunks */
    good("two_bits-gaussian-n5000-k100", 2, 100, 5000, 4, 'g');
    good("four_bits-sparse-n9000-k32", 3, 32, 9000, 5, 's');
    good("eight_bits-gaussian-n5000-k512", 4, 512, 5000, 6, 'g');
    good("fp32-gaussian-n100", 5, 0, 100, 7, 'g');
    start_good(&file);
    save(&file, "codec", "hand-ok");
    bad_headers(&file);
    bad_sums_and_lengths(&file);
    bad_scales_and_counts(&file);
    bad_indices(&file);
    bad_ends(&file);
    bad_fp32(&file);
    return 0;
}
