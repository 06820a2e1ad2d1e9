/* Golden files of the update code. tests/golden/codec: the encoder must still make these bytes;
 * they never change (another format gets another version and other files). tests/golden/bad/codec:
 * each must be refused for the reason that its file name says, up to the first dot; all claim n =
 * 10000. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/file.h"
#include "tests/unit/common/codec/fixture.h"

#include <dirent.h>
#include <string.h>

#define GOLDEN RAVEN_SOURCE_DIR "/tests/golden/"
#define BAD_N 10000

static struct buffer read_file(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    struct buffer bytes;
    struct error err;
    assert_int_equal(path_format(path, GOLDEN "%s/%s", folder, name), STATUS_OK);
    buffer_init(&bytes, 1 << 20);
    if (file_read(path, &bytes, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return bytes;
}

static void encoder_makes_the_golden_bytes(void **state)
{
    (void)state;
    const struct {
        const char *name;
        float *(*make)(uint64_t n, uint64_t seed);
        uint64_t n, seed;
        uint32_t k;
    } cases[] = {
        {"gaussian-n10000-k64.bin", gaussian, 10000, 1, 64},
        {"sparse-n30000-k16.bin", sparse, 30000, 2, 16},
        {"gaussian-n5-k64.bin", gaussian, 5, 3, 64},
        {"zero-n4097-k64.bin", zero, 4097, 0, 64},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct buffer golden = read_file("codec", cases[i].name), made;
        float *e = cases[i].make(cases[i].n, cases[i].seed);
        buffer_init(&made, codec_bytes_max(cases[i].n, cases[i].k));
        assert_int_equal(codec_encode(e, cases[i].n, cases[i].k, &made), STATUS_OK);
        assert_int_equal(made.bytes, golden.bytes);
        assert_memory_equal(made.data, golden.data, golden.bytes);
        buffer_done(&made);
        buffer_done(&golden);
        free(e);
    }
}

/* Written by hand from the description: one coordinate, the last of the short last chunk. */
static void decoder_reads_a_hand_made_payload(void **state)
{
    (void)state;
    struct buffer golden = read_file("codec", "hand-ok.bin");
    float *w = zero(BAD_N, 0);
    assert_int_equal(codec_decode_add(golden.data, golden.bytes, 1, w, BAD_N, NULL), STATUS_OK);
    assert_true(w[9999] == -0x1.d5818ep-7f); /* 2^(120 - 127) · 2^(7/8) */
    for (int i = 0; i < 9999; i++)
        assert_true(w[i] == 0);
    free(w);
    buffer_done(&golden);
}

static void assert_refused(const char *name)
{
    struct buffer bad = read_file("bad/codec", name);
    /* An exact heap copy: the sanitizer sees any read beyond. */
    uint8_t *data = malloc(bad.bytes + (bad.bytes == 0));
    if (bad.bytes > 0)
        memcpy(data, bad.data, bad.bytes);
    struct codec_info info;
    struct error err;
    float *target = gaussian(BAD_N, 4), *before = gaussian(BAD_N, 4);
    assert_int_equal(codec_check(data, bad.bytes, BAD_N, &info, &err), STATUS_CORRUPT);
    char reason[64];
    (void)text_copy(reason, sizeof reason, name);
    *strchr(reason, '.') = '\0';
    for (char *p = reason; *p; p++)
        *p = *p == '_' ? ' ' : *p;
    if (!strstr(err.text, reason))
        fail_msg("%s: refused for another reason: %s", name, err.text);
    assert_int_equal(codec_decode_add(data, bad.bytes, 1, target, BAD_N, &err), STATUS_CORRUPT);
    assert_memory_equal(target, before, BAD_N * sizeof *target);
    free(data);
    free(target);
    free(before);
    buffer_done(&bad);
}

static void every_bad_file_is_refused_for_its_reason(void **state)
{
    (void)state;
    DIR *dir = opendir(GOLDEN "bad/codec");
    assert_non_null(dir);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        assert_refused(entry->d_name);
        count++;
    }
    (void)closedir(dir);
    assert_true(count >= 37);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoder_makes_the_golden_bytes),
        cmocka_unit_test(decoder_reads_a_hand_made_payload),
        cmocka_unit_test(every_bad_file_is_refused_for_its_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
