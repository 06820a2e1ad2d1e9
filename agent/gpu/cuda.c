/* CUDA devices through the driver's own library, opened at run time: the agent needs no toolkit and
 * no link to it. A child process's main thread, later the training thread. Surprising: the few
 * declarations we need are written out here (they are the driver's stable binary interface), so
 * that the agent builds the same on a machine that never saw CUDA. */
#include "agent/gpu/gpu.h"
#include "agent/kernels/kernels.h"
#include "common/base/bytes.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From the driver interface; names without its prefix. */
typedef int cuda_result;
typedef int cuda_device;
typedef struct cuda_context_opaque *cuda_context;
typedef struct cuda_module_opaque *cuda_module;
typedef struct cuda_function_opaque *cuda_function;
typedef struct cuda_stream_opaque *cuda_stream;
typedef struct cuda_event_opaque *cuda_event;
typedef unsigned long long cuda_pointer;

#define CUDA_OUT_OF_MEMORY 2
#define CUDA_STUB_LIBRARY 34
#define CUDA_NO_DEVICE 100
#define CUDA_NO_IMAGE 209
#define CUDA_DRIVER_MISMATCH 803
#define ATTRIBUTE_MAJOR 75
#define ATTRIBUTE_MINOR 76
#define STREAM_NON_BLOCKING 1u
#define CONTEXT_BLOCKING_SYNC 4u /* who waits sleeps: the processor is its owner's */
#define EVENT_DISABLE_TIMING 2u

/* name in the table, symbol, parameters */
#define CUDA_CALLS(CALL)                                                                           \
    CALL(init, "cuInit", unsigned)                                                                 \
    CALL(driver_version, "cuDriverGetVersion", int *)                                              \
    CALL(device_count, "cuDeviceGetCount", int *)                                                  \
    CALL(device_get, "cuDeviceGet", cuda_device *, int)                                            \
    CALL(device_name, "cuDeviceGetName", char *, int, cuda_device)                                 \
    CALL(device_bus_id, "cuDeviceGetPCIBusId", char *, int, cuda_device)                           \
    CALL(device_memory, "cuDeviceTotalMem_v2", size_t *, cuda_device)                              \
    CALL(device_attribute, "cuDeviceGetAttribute", int *, int, cuda_device)                        \
    CALL(context_flags, "cuDevicePrimaryCtxSetFlags", cuda_device, unsigned)                       \
    CALL(context_retain, "cuDevicePrimaryCtxRetain", cuda_context *, cuda_device)                  \
    CALL(context_release, "cuDevicePrimaryCtxRelease_v2", cuda_device)                             \
    CALL(context_set, "cuCtxSetCurrent", cuda_context)                                             \
    CALL(module_load, "cuModuleLoadData", cuda_module *, const void *)                             \
    CALL(module_unload, "cuModuleUnload", cuda_module)                                             \
    CALL(module_function, "cuModuleGetFunction", cuda_function *, cuda_module, const char *)       \
    CALL(memory_allocate, "cuMemAlloc_v2", cuda_pointer *, size_t)                                 \
    CALL(memory_free, "cuMemFree_v2", cuda_pointer)                                                \
    CALL(host_allocate, "cuMemAllocHost_v2", void **, size_t)                                      \
    CALL(host_free, "cuMemFreeHost", void *)                                                       \
    CALL(copy_up, "cuMemcpyHtoDAsync_v2", cuda_pointer, const void *, size_t, cuda_stream)         \
    CALL(copy_down, "cuMemcpyDtoHAsync_v2", void *, cuda_pointer, size_t, cuda_stream)             \
    CALL(copy_across, "cuMemcpyDtoDAsync_v2", cuda_pointer, cuda_pointer, size_t, cuda_stream)     \
    CALL(stream_create, "cuStreamCreate", cuda_stream *, unsigned)                                 \
    CALL(stream_destroy, "cuStreamDestroy_v2", cuda_stream)                                        \
    CALL(stream_wait, "cuStreamSynchronize", cuda_stream)                                          \
    CALL(stream_wait_event, "cuStreamWaitEvent", cuda_stream, cuda_event, unsigned)                \
    CALL(event_create, "cuEventCreate", cuda_event *, unsigned)                                    \
    CALL(event_record, "cuEventRecord", cuda_event, cuda_stream)                                   \
    CALL(event_destroy, "cuEventDestroy_v2", cuda_event)                                           \
    CALL(launch, "cuLaunchKernel", cuda_function, unsigned, unsigned, unsigned, unsigned,          \
         unsigned, unsigned, unsigned, cuda_stream, void **, void **)

struct calls {
#define CALL(name, symbol, ...) cuda_result (*name)(__VA_ARGS__);
    CUDA_CALLS(CALL)
#undef CALL
};

struct cuda_gpu {
    struct gpu base;
    struct calls cuda;
    cuda_device device;
    cuda_context context;
    cuda_module module;
    cuda_function kernels[GPU_KERNELS];
    cuda_stream streams[GPU_STREAMS];
};

static struct cuda_gpu *cuda_of(struct gpu *gpu)
{
    return (struct cuda_gpu *)gpu;
}

static enum status explain(cuda_result code, struct error *err)
{
    switch (code) {
    case CUDA_STUB_LIBRARY:
        return error_set(err, STATUS_UNSUPPORTED,
                         "CUDA: libcuda.so.1 is the toolkit's stub; install the NVIDIA driver");
    case CUDA_NO_DEVICE:
        return error_set(err, STATUS_UNSUPPORTED, "CUDA: the driver sees no NVIDIA card");
    case CUDA_DRIVER_MISMATCH:
        return error_set(err, STATUS_UNSUPPORTED,
                         "CUDA: the NVIDIA driver was updated; reboot this PC to use its card");
    default:
        return error_set(err, STATUS_UNSUPPORTED, "CUDA: the driver does not start (error %d)",
                         code);
    }
}

/* The library stays open for the life of the process: drivers do not like to be unloaded. */
static enum status load_calls(struct calls *ret, struct error *err)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(err, STATUS_UNSUPPORTED, "no NVIDIA driver (libcuda.so.1)");
#define CALL(name, symbol, ...)                                                                    \
    *(void **)&ret->name = dlsym(library, symbol);                                                 \
    if (!ret->name)                                                                                \
        return error_set(err, STATUS_UNSUPPORTED, "the NVIDIA driver is too old: no " symbol);
    CUDA_CALLS(CALL)
#undef CALL
    cuda_result code = ret->init(0);
    return code == 0 ? STATUS_OK : explain(code, err);
}

/* "cuda:0000:01:00.0": the domain belongs to it, two cards may share bus and slot. */
static void describe(const struct calls *cuda, cuda_device device, struct gpu_info *ret)
{
    char bus[32] = "";
    int version = 0;
    size_t memory_bytes = 0;
    memset(ret, 0, sizeof *ret);
    (void)cuda->device_bus_id(bus, sizeof bus, device);
    (void)cuda->device_name(ret->name, sizeof ret->name - 1, device);
    (void)cuda->driver_version(&version);
    (void)cuda->device_memory(&memory_bytes, device);
    (void)snprintf(ret->id, sizeof ret->id, "cuda:%s", bus);
    (void)snprintf(ret->driver, sizeof ret->driver, "CUDA %d.%d", version / 1000,
                   version % 1000 / 10);
    ret->memory_bytes = memory_bytes;
}

static enum status list_devices(const struct calls *cuda, struct gpu_info *ret,
                                cuda_device *ret_devices, size_t *ret_count, struct error *err)
{
    int count = 0;
    cuda_result code = cuda->device_count(&count);
    if (code != 0 || count <= 0)
        return explain(code != 0 ? code : CUDA_NO_DEVICE, err);
    size_t found = 0;
    for (int i = 0; i < count && found < GPU_DEVICES_MAX; i++) {
        if (cuda->device_get(&ret_devices[found], i) == 0) {
            describe(cuda, ret_devices[found], &ret[found]);
            found++;
        }
    }
    *ret_count = found;
    return STATUS_OK;
}

static enum status list(struct gpu_info *ret, size_t *ret_count, struct error *err)
{
    struct calls cuda;
    cuda_device devices[GPU_DEVICES_MAX];
    enum status status = load_calls(&cuda, err);
    return status ? status : list_devices(&cuda, ret, devices, ret_count, err);
}

static enum status fail(struct gpu *gpu, const char *what, cuda_result code)
{
    (void)snprintf(gpu->failure, sizeof gpu->failure, "CUDA: %s failed with error %d", what, code);
    return code == CUDA_OUT_OF_MEMORY ? STATUS_NO_MEMORY : STATUS_IO;
}

/* The image for this device: the same major version, the highest minor not above its own; NULL:
 * none. */
static const void *choose_image(int major, int minor)
{
    const struct kernels_image *images;
    size_t count;
    const void *chosen = NULL;
    kernels_cuda_images(&images, &count);
    for (size_t i = 0; i < count; i++)
        if ((int)images[i].sm / 10 == major && (int)images[i].sm % 10 <= minor)
            chosen = images[i].data;
    return chosen;
}

static enum status load_kernels(struct cuda_gpu *self, struct error *err)
{
    int major = 0, minor = 0;
    (void)self->cuda.device_attribute(&major, ATTRIBUTE_MAJOR, self->device);
    (void)self->cuda.device_attribute(&minor, ATTRIBUTE_MINOR, self->device);
    const void *image = choose_image(major, minor), *ptx = kernels_cuda_ptx();
    if (!image && !ptx)
        return error_set(err, STATUS_UNSUPPORTED,
                         "CUDA: this agent was built without CUDA kernels");
    cuda_result code = image ? self->cuda.module_load(&self->module, image) : CUDA_NO_IMAGE;
    if (code != 0 && ptx) /* no image, or a driver older than its toolkit, which compiles itself */
        code = self->cuda.module_load(&self->module, ptx);
    for (int i = 0; i < GPU_KERNELS && code == 0; i++)
        code = self->cuda.module_function(&self->kernels[i], self->module, gpu_kernel_names[i]);
    if (code != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "CUDA: a device of version %d.%d does not take our kernels (error %d)",
                         major, minor, code);
    return STATUS_OK;
}

static void close_device(struct gpu *gpu)
{
    struct cuda_gpu *self = cuda_of(gpu);
    for (int i = 0; i < GPU_STREAMS; i++)
        if (self->streams[i])
            (void)self->cuda.stream_destroy(self->streams[i]);
    if (self->module)
        (void)self->cuda.module_unload(self->module);
    if (self->context)
        (void)self->cuda.context_release(self->device);
    free(self);
}

static enum status set_up(struct cuda_gpu *self, struct error *err)
{
    (void)self->cuda.context_flags(self->device, CONTEXT_BLOCKING_SYNC);
    cuda_result code = self->cuda.context_retain(&self->context, self->device);
    if (code == 0)
        code = self->cuda.context_set(self->context);
    for (int i = 0; i < GPU_STREAMS && code == 0; i++)
        code = self->cuda.stream_create(&self->streams[i], STREAM_NON_BLOCKING);
    if (code != 0)
        return error_set(err, STATUS_IO, "CUDA: the device cannot be used (error %d)", code);
    return load_kernels(self, err);
}

static enum status open_device(const char *id, struct gpu **ret, struct error *err)
{
    struct cuda_gpu *self = calloc(1, sizeof *self);
    struct gpu_info infos[GPU_DEVICES_MAX];
    cuda_device devices[GPU_DEVICES_MAX];
    size_t count = 0, at = 0;
    if (!self)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a device");
    self->base.api = &gpu_cuda;
    enum status status = load_calls(&self->cuda, err);
    if (!status)
        status = list_devices(&self->cuda, infos, devices, &count, err);
    while (!status && at < count && strcmp(infos[at].id, id) != 0)
        at++;
    if (!status && at == count)
        status = error_set(err, STATUS_NOT_FOUND, "device %s is not there any more", id);
    if (!status) {
        self->device = devices[at];
        status = set_up(self, err);
    }
    if (status)
        close_device(&self->base);
    else
        *ret = &self->base;
    return status;
}

static enum status allocate(struct gpu *gpu, size_t bytes, struct gpu_memory *ret)
{
    cuda_pointer pointer = 0;
    cuda_result code =
        cuda_of(gpu)->cuda.memory_allocate(&pointer, bytes > 0 ? bytes : sizeof(uint32_t));
    if (code != 0)
        return fail(gpu, "allocating memory", code);
    *ret = (struct gpu_memory){pointer, bytes};
    return STATUS_OK;
}

static void release(struct gpu *gpu, struct gpu_memory *memory)
{
    if (memory->handle)
        (void)cuda_of(gpu)->cuda.memory_free(memory->handle);
    *memory = (struct gpu_memory){0};
}

static void *allocate_host(struct gpu *gpu, size_t bytes)
{
    void *memory = NULL;
    cuda_result code = cuda_of(gpu)->cuda.host_allocate(&memory, bytes > 0 ? bytes : 1);
    return code == 0 ? memory : NULL;
}

static void release_host(struct gpu *gpu, void *memory)
{
    if (memory)
        (void)cuda_of(gpu)->cuda.host_free(memory);
}

static enum status upload(struct gpu *gpu, enum gpu_stream stream, const struct gpu_memory *to,
                          size_t offset, const void *from, size_t bytes)
{
    struct cuda_gpu *self = cuda_of(gpu);
    if (bytes == 0)
        return STATUS_OK;
    cuda_result code = self->cuda.copy_up(to->handle + offset, from, bytes, self->streams[stream]);
    return code == 0 ? STATUS_OK : fail(gpu, "copying to the device", code);
}

static enum status download(struct gpu *gpu, enum gpu_stream stream, const struct gpu_memory *from,
                            size_t offset, void *to, size_t bytes)
{
    struct cuda_gpu *self = cuda_of(gpu);
    if (bytes == 0)
        return STATUS_OK;
    cuda_result code =
        self->cuda.copy_down(to, from->handle + offset, bytes, self->streams[stream]);
    return code == 0 ? STATUS_OK : fail(gpu, "copying from the device", code);
}

static enum status copy(struct gpu *gpu, const struct gpu_memory *from, const struct gpu_memory *to,
                        size_t bytes)
{
    struct cuda_gpu *self = cuda_of(gpu);
    if (bytes == 0)
        return STATUS_OK;
    cuda_result code =
        self->cuda.copy_across(to->handle, from->handle, bytes, self->streams[GPU_COMPUTE]);
    return code == 0 ? STATUS_OK : fail(gpu, "copying on the device", code);
}

static enum status launch(struct gpu *gpu, enum gpu_kernel kernel, uint32_t groups,
                          const struct gpu_argument *arguments, size_t count)
{
    struct cuda_gpu *self = cuda_of(gpu);
    cuda_pointer pointers[GPU_ARGUMENTS_MAX];
    uint32_t words[GPU_ARGUMENTS_MAX];
    void *places[GPU_ARGUMENTS_MAX];
    for (size_t i = 0; i < count; i++) {
        bool memory = arguments[i].type == GPU_MEMORY;
        pointers[i] = memory ? arguments[i].memory->handle : 0;
        words[i] = memory ? 0 : arguments[i].u32;
        places[i] = memory ? (void *)&pointers[i] : (void *)&words[i];
    }
    if (groups == 0)
        return STATUS_OK;
    cuda_result code = self->cuda.launch(self->kernels[kernel], groups, 1, 1, KERNELS_GROUP_ITEMS,
                                         1, 1, 0, self->streams[GPU_COMPUTE], places, NULL);
    return code == 0 ? STATUS_OK : fail(gpu, gpu_kernel_names[kernel], code);
}

static enum status follow(struct gpu *gpu, enum gpu_stream stream, enum gpu_stream other)
{
    struct cuda_gpu *self = cuda_of(gpu);
    cuda_event done;
    cuda_result code = self->cuda.event_create(&done, EVENT_DISABLE_TIMING);
    if (code != 0)
        return fail(gpu, "making an event", code);
    code = self->cuda.event_record(done, self->streams[other]);
    if (code == 0)
        code = self->cuda.stream_wait_event(self->streams[stream], done, 0);
    (void)self->cuda.event_destroy(done); /* lives on until it has happened */
    return code == 0 ? STATUS_OK : fail(gpu, "ordering streams", code);
}

static enum status wait(struct gpu *gpu, enum gpu_stream stream)
{
    struct cuda_gpu *self = cuda_of(gpu);
    cuda_result code = self->cuda.stream_wait(self->streams[stream]);
    return code == 0 ? STATUS_OK : fail(gpu, "waiting for a stream", code);
}

const struct gpu_api gpu_cuda = {
    .name = "cuda",
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
