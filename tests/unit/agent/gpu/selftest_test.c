/* The stored answers are those of the processor's encoder, right kernels pass, and one wrong bit
 * anywhere is found and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/gpu/gpu_update.h"
#include "agent/gpu/selftest.h"
#include "common/base/checksum.h"

#include <stdlib.h>
#include <string.h>

static struct gpu_answer answer_of_the_processor(const struct gpu_answer *asked)
{
    struct gpu_answer answer = *asked;
    uint64_t n = asked->n;
    float *inputs = gpu_answer_inputs(asked);
    struct codec_source source = {
        .residual = inputs, .decay = GPU_ANSWER_DECAY, .plus = inputs + n, .minus = inputs + 2 * n};
    struct codec_encoder *encoder;
    struct buffer bytes;
    buffer_init(&bytes, codec_bytes_max(n, asked->format));
    assert_int_equal(codec_encoder_create(NULL, &encoder), STATUS_OK);
    assert_int_equal(codec_encode(encoder, &source, n, asked->format, &bytes, NULL), STATUS_OK);
    assert_int_equal(
        codec_decode_add(bytes.data, bytes.bytes, GPU_ANSWER_FACTOR, inputs + 3 * n, n, NULL),
        STATUS_OK);
    answer.payload = checksum_xxh3(bytes.data, bytes.bytes);
    answer.residual = checksum_xxh3(inputs, n * sizeof *inputs);
    answer.target = checksum_xxh3(inputs + 3 * n, n * sizeof *inputs);
    codec_encoder_free(encoder);
    buffer_done(&bytes);
    free(inputs);
    return answer;
}

static void stored_answers_are_the_processors(void **state)
{
    (void)state;
    bool same = true;
    for (size_t i = 0; i < GPU_ANSWERS; i++) {
        struct gpu_answer now = answer_of_the_processor(&gpu_answers[i]);
        print_message("    0x%016llx, 0x%016llx, 0x%016llx\n", (unsigned long long)now.payload,
                      (unsigned long long)now.residual, (unsigned long long)now.target);
        same &= now.payload == gpu_answers[i].payload && now.residual == gpu_answers[i].residual &&
                now.target == gpu_answers[i].target;
    }
    assert_true(same);
}

static void right_kernels_pass(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct error err = {0};
    assert_int_equal(gpu_open("c:0", &gpu, &err), STATUS_OK);
    if (gpu_selftest(gpu, &err))
        fail_msg("%s", err.text);
    gpu_close(gpu);
}

/* --- a device that is wrong now and then ------------------------------------------------------ */

static struct gpu_api broken_api;
static unsigned downloads_until_wrong;

static enum status wrong_download(struct gpu *gpu, enum gpu_stream stream,
                                  const struct gpu_memory *from, size_t offset, void *to,
                                  size_t bytes)
{
    enum status status = gpu_plain_c.download(gpu, stream, from, offset, to, bytes);
    if (downloads_until_wrong-- == 0)
        ((uint8_t *)to)[bytes / 3] ^= 4;
    return status;
}

static enum status failing_launch(struct gpu *gpu, enum gpu_kernel kernel, uint32_t groups,
                                  const struct gpu_argument *arguments, size_t count)
{
    (void)kernel, (void)groups, (void)arguments, (void)count;
    strcpy(gpu->failure, "toy: the kernel fell off the bus");
    return STATUS_IO;
}

static void pain_C11_one_wrong_bit_is_found_and_named(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct error err = {0};
    assert_int_equal(gpu_open("c:0", &gpu, &err), STATUS_OK);
    broken_api = gpu_plain_c;
    broken_api.download = wrong_download;
    gpu->api = &broken_api;
    unsigned found = 0;
    /* five downloads each: bits, words, slots, residual, target; unused slot space may be wrong */
    for (unsigned wrong = 0; wrong < 5; wrong++) {
        downloads_until_wrong = wrong;
        enum status status = gpu_selftest(gpu, &err);
        found += status != STATUS_OK;
        if (wrong >= 3) {
            assert_int_equal(status, STATUS_CORRUPT);
            assert_non_null(strstr(err.text, "sign, k = 64"));
        }
    }
    assert_true(found >= 3);
    gpu_close(gpu);
}

static uint32_t false_words;

/* The second download of an encoding: how many words each super-chunk has. */
static enum status lying_download(struct gpu *gpu, enum gpu_stream stream,
                                  const struct gpu_memory *from, size_t offset, void *to,
                                  size_t bytes)
{
    enum status status = gpu_plain_c.download(gpu, stream, from, offset, to, bytes);
    if (downloads_until_wrong-- == 0)
        memcpy(to, &false_words, sizeof false_words);
    return status;
}

/* A payload of one chunk has far less room than a whole super-chunk may take. */
static void false_lengths_do_not_reach_beyond_the_payload(void **state)
{
    (void)state;
    static const uint32_t lies[] = {0, 1, 1000, 4000, UINT32_MAX};
    struct codec_format format = {CODEC_SIGN, 64};
    struct gpu *gpu;
    struct gpu_memory plus;
    struct gpu_update *update;
    struct buffer made;
    struct error err = {0};
    const float e[CODEC_CHUNK] = {[5] = 1};
    assert_int_equal(gpu_open("c:0", &gpu, &err), STATUS_OK);
    broken_api = gpu_plain_c;
    broken_api.download = lying_download;
    gpu->api = &broken_api;
    assert_int_equal(gpu->api->allocate(gpu, sizeof e, &plus), STATUS_OK);
    assert_int_equal(gpu->api->upload(gpu, GPU_COMPUTE, &plus, 0, e, sizeof e), STATUS_OK);
    buffer_init(&made, codec_bytes_max(CODEC_CHUNK, format));
    assert_int_equal(gpu_update_create(gpu, CODEC_CHUNK, format, &update, &err), STATUS_OK);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct gpu_source source = {.plus = &plus};
        false_words = lies[i];
        downloads_until_wrong = 1;
        assert_int_equal(gpu_update_begin(update, &source, &err), STATUS_OK);
        assert_int_equal(gpu_update_finish(update, &made, NULL, &err), STATUS_CORRUPT);
        assert_int_equal(made.bytes, 0);
    }
    gpu_update_free(update);
    gpu->api->release(gpu, &plus);
    gpu_close(gpu);
    buffer_done(&made);
}

static void a_failing_device_says_why(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct error err = {0};
    assert_int_equal(gpu_open("c:0", &gpu, &err), STATUS_OK);
    broken_api = gpu_plain_c;
    broken_api.launch = failing_launch;
    gpu->api = &broken_api;
    assert_int_equal(gpu_selftest(gpu, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "fell off the bus"));
    gpu_close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_answers_are_the_processors),
        cmocka_unit_test(right_kernels_pass),
        cmocka_unit_test(pain_C11_one_wrong_bit_is_found_and_named),
        cmocka_unit_test(false_lengths_do_not_reach_beyond_the_payload),
        cmocka_unit_test(a_failing_device_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
