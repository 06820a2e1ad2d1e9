/* OpenCL 1.2 devices. A child process's main thread, later the training thread. The loader is
 * opened at run time. Surprising: processors are listed as well (PoCL makes a device of them):
 * tests run on them, and gpu_watch.c leaves them out. */
#define CL_TARGET_OPENCL_VERSION 120
#include "agent/gpu/gpu.h"
#include "agent/kernels/kernels.h"
#include "common/base/bytes.h"

#include <CL/cl.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLATFORMS_MAX 8u
#define LOG_BYTES_MAX 1048576u

/* The calls we need, in one table that also loads them. */
#define CL_CALLS(CALL)                                                                             \
    CALL(clGetPlatformIDs)                                                                         \
    CALL(clGetDeviceIDs)                                                                           \
    CALL(clGetDeviceInfo)                                                                          \
    CALL(clCreateContext)                                                                          \
    CALL(clReleaseContext)                                                                         \
    CALL(clCreateCommandQueue)                                                                     \
    CALL(clReleaseCommandQueue)                                                                    \
    CALL(clCreateProgramWithSource)                                                                \
    CALL(clBuildProgram)                                                                           \
    CALL(clGetProgramBuildInfo)                                                                    \
    CALL(clReleaseProgram)                                                                         \
    CALL(clCreateKernel)                                                                           \
    CALL(clReleaseKernel)                                                                          \
    CALL(clSetKernelArg)                                                                           \
    CALL(clCreateBuffer)                                                                           \
    CALL(clReleaseMemObject)                                                                       \
    CALL(clEnqueueWriteBuffer)                                                                     \
    CALL(clEnqueueReadBuffer)                                                                      \
    CALL(clEnqueueCopyBuffer)                                                                      \
    CALL(clEnqueueNDRangeKernel)                                                                   \
    CALL(clEnqueueMarkerWithWaitList)                                                              \
    CALL(clEnqueueBarrierWithWaitList)                                                             \
    CALL(clReleaseEvent)                                                                           \
    CALL(clFlush)                                                                                  \
    CALL(clFinish)

struct calls {
#define CALL(name) __typeof__(&name) name;
    CL_CALLS(CALL)
#undef CALL
};

struct opencl_gpu {
    struct gpu base;
    struct calls cl;
    cl_context context;
    cl_command_queue queues[GPU_STREAMS];
    cl_program program;
    cl_kernel kernels[GPU_KERNELS];
};

static struct opencl_gpu *opencl_of(struct gpu *gpu)
{
    return (struct opencl_gpu *)gpu;
}

/* The library stays open for the life of the process: drivers do not like to be unloaded. */
static enum status load_calls(struct calls *ret, struct error *err)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(err, STATUS_UNSUPPORTED, "OpenCL is not installed (libOpenCL.so.1)");
#define CALL(name)                                                                                 \
    *(void **)&ret->name = dlsym(library, #name);                                                  \
    if (!ret->name)                                                                                \
        return error_set(err, STATUS_UNSUPPORTED, "OpenCL is too old: it has no " #name);
    CL_CALLS(CALL)
#undef CALL
    return STATUS_OK;
}

struct found {
    cl_device_id devices[GPU_DEVICES_MAX];
    char ids[GPU_DEVICES_MAX][GPU_ID_BYTES];
    size_t count;
};

static enum status find_devices(const struct calls *cl, struct found *ret, struct error *err)
{
    cl_platform_id platforms[PLATFORMS_MAX];
    cl_uint platform_count = 0;
    ret->count = 0;
    if (cl->clGetPlatformIDs(PLATFORMS_MAX, platforms, &platform_count) || platform_count == 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "OpenCL has no platform (no driver is installed)");
    for (cl_uint p = 0; p < platform_count && p < PLATFORMS_MAX; p++) {
        cl_uint room = (cl_uint)(GPU_DEVICES_MAX - ret->count), count = 0;
        if (room == 0 || cl->clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, room,
                                            ret->devices + ret->count, &count))
            continue;
        for (cl_uint d = 0; d < count && d < room; d++)
            (void)snprintf(ret->ids[ret->count + d], GPU_ID_BYTES, "opencl:%u:%u", p, d);
        ret->count += count < room ? count : room;
    }
    return ret->count > 0 ? STATUS_OK : error_set(err, STATUS_UNSUPPORTED, "OpenCL has no device");
}

static void describe(const struct calls *cl, cl_device_id device, const char *id,
                     struct gpu_info *ret)
{
    cl_ulong memory_bytes = 0;
    cl_device_type type = 0;
    memset(ret, 0, sizeof *ret);
    text_copy(ret->id, sizeof ret->id, id);
    (void)cl->clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof ret->name - 1, ret->name, NULL);
    (void)cl->clGetDeviceInfo(device, CL_DRIVER_VERSION, sizeof ret->driver - 1, ret->driver, NULL);
    (void)cl->clGetDeviceInfo(device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory_bytes, &memory_bytes,
                              NULL);
    (void)cl->clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    ret->memory_bytes = memory_bytes;
    ret->processor = type & CL_DEVICE_TYPE_CPU;
}

static enum status list(struct gpu_info *ret, size_t *ret_count, struct error *err)
{
    struct calls cl;
    struct found found;
    enum status status = load_calls(&cl, err);
    if (!status)
        status = find_devices(&cl, &found, err);
    if (status)
        return status;
    for (size_t i = 0; i < found.count; i++)
        describe(&cl, found.devices[i], found.ids[i], &ret[i]);
    *ret_count = found.count;
    return STATUS_OK;
}

static enum status fail(struct gpu *gpu, const char *what, cl_int code)
{
    (void)snprintf(gpu->failure, sizeof gpu->failure, "OpenCL: %s failed with %d", what, code);
    return code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES ||
                   code == CL_OUT_OF_HOST_MEMORY
               ? STATUS_NO_MEMORY
               : STATUS_IO;
}

static void close_device(struct gpu *gpu)
{
    struct opencl_gpu *self = opencl_of(gpu);
    for (int i = 0; i < GPU_KERNELS; i++)
        if (self->kernels[i])
            (void)self->cl.clReleaseKernel(self->kernels[i]);
    if (self->program)
        (void)self->cl.clReleaseProgram(self->program);
    for (int i = 0; i < GPU_STREAMS; i++)
        if (self->queues[i])
            (void)self->cl.clReleaseCommandQueue(self->queues[i]);
    if (self->context)
        (void)self->cl.clReleaseContext(self->context);
    free(self);
}

/* The log's beginning; err holds no more. Drivers give nothing to a buffer that is too small. */
static enum status explain_build(struct opencl_gpu *self, cl_device_id device, cl_int code,
                                 struct error *err)
{
    size_t bytes = 0;
    char *log = NULL;
    if (self->program)
        (void)self->cl.clGetProgramBuildInfo(self->program, device, CL_PROGRAM_BUILD_LOG, 0, NULL,
                                             &bytes);
    if (bytes > 0 && bytes < LOG_BYTES_MAX)
        log = calloc(1, bytes + 1);
    if (log)
        (void)self->cl.clGetProgramBuildInfo(self->program, device, CL_PROGRAM_BUILD_LOG, bytes,
                                             log, NULL);
    error_set(err, STATUS_UNSUPPORTED, "OpenCL: the kernels do not build (%d): %.200s", code,
              log ? log : "no log");
    free(log);
    return STATUS_UNSUPPORTED;
}

static enum status build(struct opencl_gpu *self, cl_device_id device, struct error *err)
{
    const char *text = kernels_source;
    cl_int code;
    self->program = self->cl.clCreateProgramWithSource(self->context, 1, &text, NULL, &code);
    if (code == CL_SUCCESS)
        code = self->cl.clBuildProgram(self->program, 1, &device, "-cl-std=CL1.2", NULL, NULL);
    if (code != CL_SUCCESS)
        return explain_build(self, device, code, err);
    for (int i = 0; i < GPU_KERNELS; i++) {
        self->kernels[i] = self->cl.clCreateKernel(self->program, gpu_kernel_names[i], &code);
        if (code != CL_SUCCESS)
            return error_set(err, STATUS_UNSUPPORTED, "OpenCL: no kernel %s (%d)",
                             gpu_kernel_names[i], code);
    }
    return STATUS_OK;
}

/* A device without denormals may round a product next to the smallest float otherwise than we do,
 * so rarely that no test would meet it. */
static bool has_denormals(const struct calls *cl, cl_device_id device)
{
    cl_device_fp_config config = 0;
    (void)cl->clGetDeviceInfo(device, CL_DEVICE_SINGLE_FP_CONFIG, sizeof config, &config, NULL);
    return config & CL_FP_DENORM;
}

static enum status set_up(struct opencl_gpu *self, cl_device_id device, struct error *err)
{
    cl_int code;
    if (!has_denormals(&self->cl, device))
        return error_set(err, STATUS_UNSUPPORTED,
                         "OpenCL: the device has no denormal floats, so its updates might differ");
    self->context = self->cl.clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    for (int i = 0; i < GPU_STREAMS && code == CL_SUCCESS; i++)
        self->queues[i] = self->cl.clCreateCommandQueue(self->context, device, 0, &code);
    if (code != CL_SUCCESS)
        return error_set(err, STATUS_IO, "OpenCL: the device cannot be used (%d)", code);
    return build(self, device, err);
}

static enum status open_device(const char *id, struct gpu **ret, struct error *err)
{
    struct opencl_gpu *self = calloc(1, sizeof *self);
    struct found found;
    if (!self)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a device");
    self->base.api = &gpu_opencl;
    enum status status = load_calls(&self->cl, err);
    if (!status)
        status = find_devices(&self->cl, &found, err);
    size_t at = 0;
    while (!status && at < found.count && strcmp(found.ids[at], id) != 0)
        at++;
    if (!status && at == found.count)
        status = error_set(err, STATUS_NOT_FOUND, "device %s is not there any more", id);
    if (!status)
        status = set_up(self, found.devices[at], err);
    if (status)
        close_device(&self->base);
    else
        *ret = &self->base;
    return status;
}

static cl_mem buffer_of(const struct gpu_memory *memory)
{
    return (cl_mem)(uintptr_t)memory->handle; // NOLINT: an object of OpenCL
}

static enum status allocate(struct gpu *gpu, size_t bytes, struct gpu_memory *ret)
{
    struct opencl_gpu *self = opencl_of(gpu);
    cl_int code;
    cl_mem memory = self->cl.clCreateBuffer(self->context, CL_MEM_READ_WRITE,
                                            bytes > 0 ? bytes : sizeof(uint32_t), NULL, &code);
    if (code != CL_SUCCESS)
        return fail(gpu, "allocating memory", code);
    *ret = (struct gpu_memory){(uint64_t)(uintptr_t)memory, bytes};
    return STATUS_OK;
}

static void release(struct gpu *gpu, struct gpu_memory *memory)
{
    if (memory->handle)
        (void)opencl_of(gpu)->cl.clReleaseMemObject(buffer_of(memory));
    *memory = (struct gpu_memory){0};
}

/* Drivers pin what they copy by themselves; page-aligned memory is all that 1.2 can ask for. */
static void *allocate_host(struct gpu *gpu, size_t bytes)
{
    (void)gpu;
    return aligned_alloc(4096, (bytes + 4096) / 4096 * 4096);
}

static void release_host(struct gpu *gpu, void *memory)
{
    (void)gpu;
    free(memory);
}

static enum status upload(struct gpu *gpu, enum gpu_stream stream, const struct gpu_memory *to,
                          size_t offset, const void *from, size_t bytes)
{
    struct opencl_gpu *self = opencl_of(gpu);
    if (bytes == 0)
        return STATUS_OK;
    cl_int code = self->cl.clEnqueueWriteBuffer(self->queues[stream], buffer_of(to), CL_FALSE,
                                                offset, bytes, from, 0, NULL, NULL);
    return code == CL_SUCCESS ? STATUS_OK : fail(gpu, "copying to the device", code);
}

static enum status download(struct gpu *gpu, enum gpu_stream stream, const struct gpu_memory *from,
                            size_t offset, void *to, size_t bytes)
{
    struct opencl_gpu *self = opencl_of(gpu);
    if (bytes == 0)
        return STATUS_OK;
    cl_int code = self->cl.clEnqueueReadBuffer(self->queues[stream], buffer_of(from), CL_FALSE,
                                               offset, bytes, to, 0, NULL, NULL);
    return code == CL_SUCCESS ? STATUS_OK : fail(gpu, "copying from the device", code);
}

static enum status copy(struct gpu *gpu, const struct gpu_memory *from, const struct gpu_memory *to,
                        size_t bytes)
{
    struct opencl_gpu *self = opencl_of(gpu);
    if (bytes == 0)
        return STATUS_OK;
    cl_int code = self->cl.clEnqueueCopyBuffer(self->queues[GPU_COMPUTE], buffer_of(from),
                                               buffer_of(to), 0, 0, bytes, 0, NULL, NULL);
    return code == CL_SUCCESS ? STATUS_OK : fail(gpu, "copying on the device", code);
}

static enum status launch(struct gpu *gpu, enum gpu_kernel kernel, uint32_t groups,
                          const struct gpu_argument *arguments, size_t count)
{
    struct opencl_gpu *self = opencl_of(gpu);
    cl_kernel called = self->kernels[kernel];
    cl_int code = CL_SUCCESS;
    for (cl_uint i = 0; i < count && code == CL_SUCCESS; i++) {
        const struct gpu_argument *argument = &arguments[i];
        if (argument->type == GPU_MEMORY) {
            cl_mem memory = buffer_of(argument->memory);
            code = self->cl.clSetKernelArg(called, i, sizeof memory, &memory);
        } else {
            code = self->cl.clSetKernelArg(called, i, sizeof(uint32_t), &argument->u32);
        }
    }
    size_t local = KERNELS_GROUP_ITEMS, global = (size_t)groups * local;
    if (code == CL_SUCCESS && groups > 0)
        code = self->cl.clEnqueueNDRangeKernel(self->queues[GPU_COMPUTE], called, 1, NULL, &global,
                                               &local, 0, NULL, NULL);
    return code == CL_SUCCESS ? STATUS_OK : fail(gpu, gpu_kernel_names[kernel], code);
}

static enum status follow(struct gpu *gpu, enum gpu_stream stream, enum gpu_stream other)
{
    struct opencl_gpu *self = opencl_of(gpu);
    cl_event done;
    cl_int code = self->cl.clEnqueueMarkerWithWaitList(self->queues[other], 0, NULL, &done);
    if (code != CL_SUCCESS)
        return fail(gpu, "marking a queue", code);
    (void)self->cl.clFlush(self->queues[other]);
    code = self->cl.clEnqueueBarrierWithWaitList(self->queues[stream], 1, &done, NULL);
    (void)self->cl.clReleaseEvent(done);
    return code == CL_SUCCESS ? STATUS_OK : fail(gpu, "ordering queues", code);
}

static enum status wait(struct gpu *gpu, enum gpu_stream stream)
{
    struct opencl_gpu *self = opencl_of(gpu);
    cl_int code = self->cl.clFinish(self->queues[stream]);
    return code == CL_SUCCESS ? STATUS_OK : fail(gpu, "waiting for a queue", code);
}

const struct gpu_api gpu_opencl = {
    .name = "opencl",
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
