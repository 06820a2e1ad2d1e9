/* Devices make the bytes of the processor's encoder and the floats of its decoder: the kernels in
 * plain C always, and every OpenCL device that is there (PoCL in continuous integration). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/gpu/gpu_update.h"
#include "common/base/bytes.h"
#include "tests/support/codec_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PoCL's compiler leaks (the other tests of this folder look for our own leaks), and it is slow
 * under the sanitizer. */
#if defined(__SANITIZE_ADDRESS__)
#define DEVICE_CASES 300
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}
#else
#define DEVICE_CASES 10000
#endif

static struct gpu_memory put(struct gpu *gpu, const float *vector, uint64_t n)
{
    struct gpu_memory memory = {0};
    if (!vector)
        return memory;
    assert_int_equal(gpu->api->allocate(gpu, n * sizeof *vector, &memory), STATUS_OK);
    assert_int_equal(gpu->api->upload(gpu, GPU_COMPUTE, &memory, 0, vector, n * sizeof *vector),
                     STATUS_OK);
    return memory;
}

static void take(struct gpu *gpu, struct gpu_memory *memory, float *vector, uint64_t n)
{
    if (!vector)
        return;
    assert_int_equal(gpu->api->download(gpu, GPU_COMPUTE, memory, 0, vector, n * sizeof *vector),
                     STATUS_OK);
    assert_int_equal(gpu->api->wait(gpu, GPU_COMPUTE), STATUS_OK);
    gpu->api->release(gpu, memory);
}

static enum status device_encode(void *context, const struct codec_source *source, uint64_t n,
                                 struct codec_format format, struct buffer *ret,
                                 uint64_t *ret_not_finite_at)
{
    struct gpu *gpu = context;
    struct gpu_update *update;
    struct error err = {0};
    bool shared = source->add_to && source->add_to == source->minus;
    struct gpu_memory residual = put(gpu, source->residual, n), plus = put(gpu, source->plus, n);
    struct gpu_memory minus = put(gpu, source->minus, n);
    struct gpu_memory add_to = put(gpu, shared ? NULL : source->add_to, n);
    struct gpu_source given = {
        .residual = source->residual ? &residual : NULL,
        .plus = source->plus ? &plus : NULL,
        .minus = source->minus ? &minus : NULL,
        .add_to = shared           ? &minus
                  : source->add_to ? &add_to
                                   : NULL,
        .decay = source->decay,
    };
    if (gpu_update_create(gpu, n, format, &update, &err) || gpu_update_begin(update, &given, &err))
        fail_msg("%s", err.text);
    enum status status = gpu_update_finish(update, ret, ret_not_finite_at, &err);
    gpu_update_free(update);
    take(gpu, &residual, source->residual, n);
    if (plus.handle)
        gpu->api->release(gpu, &plus);
    if (shared)
        take(gpu, &minus, source->add_to, n);
    else if (minus.handle)
        gpu->api->release(gpu, &minus);
    take(gpu, &add_to, shared ? NULL : source->add_to, n);
    return status;
}

static enum status device_add(void *context, const struct codec_payload *payload, float factor,
                              float *target)
{
    struct gpu *gpu = context;
    struct error err = {0};
    struct gpu_memory memory = put(gpu, target, payload->n);
    enum status status = gpu_update_add(gpu, payload, factor, &memory, &err);
    if (status)
        fail_msg("%s", err.text);
    take(gpu, &memory, target, payload->n);
    return status;
}

static void run_all(const char *id, uint64_t cases)
{
    struct error err = {0};
    struct gpu *gpu;
    if (gpu_open(id, &gpu, &err))
        fail_msg("%s", err.text);
    struct cases_device device = {id, gpu, device_encode, device_add};
    cases_run(&device, 0, cases);
    cases_run_large(&device);
    gpu_close(gpu);
}

static void kernels_in_plain_c_make_the_same_bytes(void **state)
{
    (void)state;
    run_all("c:0", 2000);
}

/* All devices of an interface; skipped without any, unless the environment expects them. */
static void run_interface(const struct gpu_api *api, const char *expected_by)
{
    struct gpu_info infos[GPU_DEVICES_MAX];
    struct error err = {0};
    size_t count = 0;
    if (api->list(infos, &count, &err)) {
        if (getenv(expected_by))
            fail_msg("%s", err.text);
        print_message("skipped: %s\n", err.text);
        skip();
    }
    for (size_t i = 0; i < count; i++) {
        print_message("%s: %s, driver %s\n", infos[i].id, infos[i].name, infos[i].driver);
        run_all(infos[i].id, DEVICE_CASES);
    }
}

static void opencl_devices_make_the_same_bytes(void **state)
{
    (void)state;
    run_interface(&gpu_opencl, "RAVEN_EXPECT_OPENCL");
}

static void cuda_devices_make_the_same_bytes(void **state)
{
    (void)state;
    run_interface(&gpu_cuda, "RAVEN_EXPECT_CUDA");
}

/* Batches, and the training that may go into the compute stream before finish. */
static void several_batches_and_work_in_between(void **state)
{
    (void)state;
    const uint64_t n = (uint64_t)5000 * CODEC_CHUNK + 17;
    struct codec_format format = {CODEC_SIGN, 64};
    struct error err = {0};
    struct gpu *gpu;
    assert_int_equal(gpu_open("c:0", &gpu, &err), STATUS_OK);
    float *e = calloc(n, sizeof *e);
    struct rng rng;
    rng_seed(&rng, 3);
    for (uint64_t i = 0; i < n; i += 7)
        e[i] = (float)rng_uniform(&rng) - 0.5f;
    struct gpu_memory plus = put(gpu, e, n);
    struct gpu_source source = {.plus = &plus};
    struct gpu_update *update;
    struct buffer made, expected;
    buffer_init(&made, codec_bytes_max(n, format));
    buffer_init(&expected, codec_bytes_max(n, format));
    assert_int_equal(gpu_update_create(gpu, n, format, &update, &err), STATUS_OK);
    assert_int_equal(gpu_update_begin(update, &source, &err), STATUS_OK);
    float *zeros = calloc(n, sizeof *zeros); /* the next lease overwrites what was encoded */
    struct gpu_memory other = put(gpu, zeros, n);
    assert_int_equal(gpu->api->copy(gpu, &other, &plus, n * sizeof *zeros), STATUS_OK);
    assert_int_equal(gpu_update_finish(update, &made, NULL, &err), STATUS_OK);
    struct codec_encoder *encoder;
    struct codec_source host = {.plus = e};
    assert_int_equal(codec_encoder_create(NULL, &encoder), STATUS_OK);
    assert_int_equal(codec_encode(encoder, &host, n, format, &expected, NULL), STATUS_OK);
    assert_int_equal(made.bytes, expected.bytes);
    assert_memory_equal(made.data, expected.data, made.bytes);
    codec_encoder_free(encoder);
    gpu_update_free(update);
    float *now = calloc(n, sizeof *now);
    now[0] = 1;
    take(gpu, &plus, now, n);
    assert_memory_equal(now, zeros, n * sizeof *now);
    free(now);
    gpu->api->release(gpu, &other);
    gpu_close(gpu);
    buffer_done(&made);
    buffer_done(&expected);
    free(zeros);
    free(e);
}

static void what_devices_do_not_do_is_refused(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct gpu_update *update;
    struct error err = {0};
    assert_int_equal(gpu_open("c:0", &gpu, &err), STATUS_OK);
    assert_int_equal(
        gpu_update_create(gpu, 100, (struct codec_format){CODEC_FP32, 0}, &update, &err),
        STATUS_INVALID);
    assert_int_equal(
        gpu_update_create(gpu, 100, (struct codec_format){CODEC_SIGN, 513}, &update, &err),
        STATUS_INVALID);
    assert_int_equal(gpu_open("vulkan:0", &gpu, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "vulkan:0"));
    gpu_close(gpu);
    gpu_close(NULL);
}

int main(void)
{
    static char cache[] = "/tmp/raven-pocl-XXXXXX";
    if (!getenv("POCL_CACHE_DIR") && mkdtemp(cache))
        (void)setenv("POCL_CACHE_DIR", cache, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_in_plain_c_make_the_same_bytes),
        cmocka_unit_test(several_batches_and_work_in_between),
        cmocka_unit_test(what_devices_do_not_do_is_refused),
        cmocka_unit_test(opencl_devices_make_the_same_bytes),
        cmocka_unit_test(cuda_devices_make_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
