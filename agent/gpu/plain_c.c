/* The kernels in plain C as a device: what tests compare with and break on purpose. The caller's
 * thread does all at once, so that streams are always empty. */
#include "agent/gpu/gpu.h"
#include "agent/kernels/kernels.h"
#include "common/base/bytes.h"

#include <stdlib.h>
#include <string.h>

static enum status list(struct gpu_info *ret, size_t *ret_count, struct error *err)
{
    (void)err;
    *ret = (struct gpu_info){.id = "c:0", .name = "kernels in plain C", .driver = RAVEN_VERSION};
    *ret_count = 1;
    return STATUS_OK;
}

static enum status open_device(const char *id, struct gpu **ret, struct error *err)
{
    (void)id;
    struct gpu *gpu = calloc(1, sizeof *gpu);
    if (!gpu)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a device");
    gpu->api = &gpu_plain_c;
    *ret = gpu;
    return STATUS_OK;
}

static void close_device(struct gpu *gpu)
{
    free(gpu);
}

static enum status allocate(struct gpu *gpu, size_t bytes, struct gpu_memory *ret)
{
    (void)gpu;
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (!memory)
        return STATUS_NO_MEMORY;
    *ret = (struct gpu_memory){(uint64_t)(uintptr_t)memory, bytes};
    return STATUS_OK;
}

static uint8_t *bytes_of(const struct gpu_memory *memory)
{
    return (uint8_t *)(uintptr_t)memory->handle; // NOLINT: handles are addresses here
}

static void release(struct gpu *gpu, struct gpu_memory *memory)
{
    (void)gpu;
    free(bytes_of(memory));
    *memory = (struct gpu_memory){0};
}

static void *allocate_host(struct gpu *gpu, size_t bytes)
{
    (void)gpu;
    return malloc(bytes > 0 ? bytes : 1);
}

static void release_host(struct gpu *gpu, void *memory)
{
    (void)gpu;
    free(memory);
}

static enum status upload(struct gpu *gpu, enum gpu_stream stream, const struct gpu_memory *to,
                          size_t offset, const void *from, size_t bytes)
{
    (void)gpu, (void)stream;
    memcpy(bytes_of(to) + offset, from, bytes);
    return STATUS_OK;
}

static enum status download(struct gpu *gpu, enum gpu_stream stream, const struct gpu_memory *from,
                            size_t offset, void *to, size_t bytes)
{
    (void)gpu, (void)stream;
    memcpy(to, bytes_of(from) + offset, bytes);
    return STATUS_OK;
}

static enum status copy(struct gpu *gpu, const struct gpu_memory *from, const struct gpu_memory *to,
                        size_t bytes)
{
    (void)gpu;
    memcpy(bytes_of(to), bytes_of(from), bytes);
    return STATUS_OK;
}

static enum status launch(struct gpu *gpu, enum gpu_kernel kernel, uint32_t groups,
                          const struct gpu_argument *a, size_t count)
{
    (void)gpu, (void)count;
#define FLOATS(i) ((float *)(void *)bytes_of(a[i].memory))
#define WORDS(i) ((uint32_t *)(void *)bytes_of(a[i].memory))
    if (kernel == GPU_UPDATE_ENCODE)
        kernels_host_update_encode(groups, FLOATS(0), FLOATS(1), FLOATS(2), FLOATS(3), a[4].real,
                                   a[5].u32, a[6].u32, a[7].u32, a[8].u32, a[9].u32, a[10].u32,
                                   WORDS(11), a[12].u32, WORDS(13));
    else if (kernel == GPU_UPDATE_JOIN)
        kernels_host_update_join(groups, WORDS(0), a[1].u32, WORDS(2), a[3].u32, WORDS(4), a[5].u32,
                                 WORDS(6));
    else
        kernels_host_update_add(groups, WORDS(0), WORDS(1), WORDS(2), a[3].u32, a[4].u32, a[5].u32,
                                a[6].u32, a[7].u32, a[8].u32, a[9].real, FLOATS(10));
    return STATUS_OK;
}

static enum status follow(struct gpu *gpu, enum gpu_stream stream, enum gpu_stream other)
{
    (void)gpu, (void)stream, (void)other;
    return STATUS_OK;
}

static enum status wait(struct gpu *gpu, enum gpu_stream stream)
{
    (void)gpu, (void)stream;
    return STATUS_OK;
}

const struct gpu_api gpu_plain_c = {
    .name = "c",
    .list = list,
    .open = open_device,
    .close = close_device,
    .allocate = allocate,
    .release = release,
    .allocate_host = allocate_host,
    .release_host = release_host,
    .upload = upload,
    .download = download,
    .copy = copy,
    .launch = launch,
    .follow = follow,
    .wait = wait,
};
