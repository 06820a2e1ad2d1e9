/* Golden files of the update code (tests/golden/make_codec.c made them). tests/golden/codec: the
 * encoder must still make these bytes. tests/golden/bad/codec: each must be refused for the reason
 * that its file name says, up to the first dot, and every reason has a file. */
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

static const char *const reasons[] = {
    "shorter than its header",
    "wrong magic",
    "wrong checksum",
    "unknown version",
    "unknown coder",
    "reserved field is not zero",
    "made for another number of parameters",
    "k out of range",
    "wrong length",
    "wrong offset in its table",
    "ends too early",
    "count out of range",
    "scale out of range",
    "second scale out of range",
    "index out of range",
    "level out of range",
    "value is not finite",
    "value is denormal",
    "words after its last chunk",
    "padding that is not zero",
};

static struct buffer read_file(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    struct buffer bytes;
    struct error err;
    assert_int_equal(path_format(path, "%s/%s", folder, name), STATUS_OK);
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
        struct codec_format format;
    } cases[] = {
        {"sign-gaussian-n10000-k64.bin", gaussian, 10000, 1, {CODEC_SIGN, 64}},
        {"sign-sparse-n30000-k16.bin", sparse, 30000, 2, {CODEC_SIGN, 16}},
        {"sign-gaussian-n5-k64.bin", gaussian, 5, 3, {CODEC_SIGN, 64}},
        {"sign-zero-n4097-k64.bin", zero, 4097, 0, {CODEC_SIGN, 64}},
        {"sign-zero-n1048577-k64.bin", zero, 1048577, 0, {CODEC_SIGN, 64}},
        {"two_bits-gaussian-n5000-k100.bin", gaussian, 5000, 4, {CODEC_TWO_BITS, 100}},
        {"four_bits-sparse-n9000-k32.bin", sparse, 9000, 5, {CODEC_FOUR_BITS, 32}},
        {"eight_bits-gaussian-n5000-k512.bin", gaussian, 5000, 6, {CODEC_EIGHT_BITS, 512}},
        {"fp32-gaussian-n100.bin", gaussian, 100, 7, {CODEC_FP32, 0}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct buffer golden = read_file(GOLDEN "codec", cases[i].name);
        float *e = cases[i].make(cases[i].n, cases[i].seed);
        struct buffer made = encoded(e, cases[i].n, cases[i].format);
        assert_int_equal(made.bytes, golden.bytes);
        assert_memory_equal(made.data, golden.data, golden.bytes);
        buffer_done(&made);
        buffer_done(&golden);
        free(e);
    }
}

/* Put together from the description: one coordinate, the last of the short last chunk. */
static void decoder_reads_a_hand_made_payload(void **state)
{
    (void)state;
    struct buffer golden = read_file(GOLDEN "codec", "hand-ok.bin");
    float *w = zero(BAD_N, 0);
    struct error err;
    if (codec_decode_add(golden.data, golden.bytes, 1, w, BAD_N, &err))
        fail_msg("%s", err.text);
    assert_true(w[9999] == -1.0f);
    for (int i = 0; i < 9999; i++)
        assert_true(w[i] == 0);
    free(w);
    buffer_done(&golden);
}

static void assert_refused(const char *name, const char *reason)
{
    struct buffer bad = read_file(GOLDEN "bad/codec", name);
    /* An exact heap copy: the sanitizer sees any read beyond. */
    uint8_t *data = malloc(bad.bytes + (bad.bytes == 0));
    if (bad.bytes > 0)
        memcpy(data, bad.data, bad.bytes);
    struct codec_payload payload;
    struct error err;
    float *target = gaussian(BAD_N, 4), *before = gaussian(BAD_N, 4);
    assert_int_equal(codec_open(data, bad.bytes, BAD_N, NULL, &payload, &err), STATUS_CORRUPT);
    const char *said = strstr(err.text, reason);
    if (!said || said[-1] != ' ' || said[-2] != ':' || said[strlen(reason)] != '\0')
        fail_msg("%s: refused for another reason: %s", name, err.text);
    assert_int_equal(codec_decode_add(data, bad.bytes, 1, target, BAD_N, &err), STATUS_CORRUPT);
    assert_memory_equal(target, before, BAD_N * sizeof *target);
    free(data);
    free(target);
    free(before);
    buffer_done(&bad);
}

/* Number of the reason that a file's name says. */
static size_t reason_of(const char *name)
{
    char text[64];
    assert_int_equal(text_copy(text, sizeof text, name), true);
    *strchr(text, '.') = '\0';
    for (char *p = text; *p; p++)
        *p = *p == '_' ? ' ' : *p;
    for (size_t i = 0; i < COUNT_OF(reasons); i++)
        if (strcmp(reasons[i], text) == 0)
            return i;
    fail_msg("%s: there is no such reason", name);
    return 0;
}

static void every_bad_file_is_refused_for_its_reason(void **state)
{
    (void)state;
    bool seen[COUNT_OF(reasons)] = {0};
    DIR *dir = opendir(GOLDEN "bad/codec");
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        size_t reason = reason_of(entry->d_name);
        assert_refused(entry->d_name, reasons[reason]);
        seen[reason] = true;
    }
    (void)closedir(dir);
    for (size_t i = 0; i < COUNT_OF(reasons); i++)
        if (!seen[i])
            fail_msg("no file is refused because: %s", reasons[i]);
}

static bool in_assertion(const char *at)
{
    while (at[-1] != '\n')
        at--;
    return strncmp(at, "_Static_assert", 14) == 0;
}

/* Every text of letters and spaces in these sources is a complaint of the decoder. */
static void the_list_of_reasons_is_whole(void **state)
{
    (void)state;
    static const char *const sources[] = {"format.c", "decode.c", "values.c"};
    size_t found = 0;
    for (size_t s = 0; s < COUNT_OF(sources); s++) {
        struct buffer text = read_file(RAVEN_SOURCE_DIR "/common/codec", sources[s]);
        const char *at = buffer_text(&text);
        while ((at = strchr(at, '"'))) {
            size_t length = strspn(++at, "abcdefghijklmnopqrstuvwxyz ");
            const char *end = strchr(at, '"');
            if (at + length == end && memchr(at, ' ', length) && !in_assertion(at)) {
                bool known = false;
                for (size_t i = 0; i < COUNT_OF(reasons); i++)
                    known |= strlen(reasons[i]) == length && memcmp(reasons[i], at, length) == 0;
                if (!known)
                    fail_msg("%s complains of something that no golden file shows: %.*s",
                             sources[s], (int)length, at);
                found++;
            }
            at = end + 1;
        }
        buffer_done(&text);
    }
    assert_true(found >= COUNT_OF(reasons));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoder_makes_the_golden_bytes),
        cmocka_unit_test(decoder_reads_a_hand_made_payload),
        cmocka_unit_test(every_bad_file_is_refused_for_its_reason),
        cmocka_unit_test(the_list_of_reasons_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
