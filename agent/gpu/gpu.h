/* Devices that can run the kernels of agent/kernels: one table of functions per interface (OpenCL,
 * CUDA, and the same kernels in plain C for tests). Drivers are loaded when first asked for; their
 * absence is normal. Drivers also hang and crash: programs call list and open only in a child
 * process (gpu_watch.h), until a device has proved itself there.
 *
 * Calls on one device come from one thread. Work goes to one of two streams, each in the order of
 * the calls; a stream can be told to wait for the other. Memory and host buffers belong to the
 * caller, who releases them before the device is closed. */
#ifndef RAVEN_AGENT_GPU_GPU_H
#define RAVEN_AGENT_GPU_GPU_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPU_DEVICES_MAX 16u
#define GPU_ID_BYTES 64u

struct gpu_info {
    char id[GPU_ID_BYTES]; /* stable: "cuda:0000:01:00.0", "opencl:0:1" */
    char name[96];
    char driver[48]; /* version, as the driver says it */
    uint64_t memory_bytes;
    bool processor; /* the computer's own, which OpenCL may offer as a device */
};

enum gpu_kernel { GPU_UPDATE_ENCODE, GPU_UPDATE_JOIN, GPU_UPDATE_ADD, GPU_KERNELS };
extern const char *const gpu_kernel_names[GPU_KERNELS];

enum gpu_stream { GPU_COMPUTE, GPU_COPY, GPU_STREAMS };

/* Memory of a device; never NULL once allocated. */
struct gpu_memory {
    uint64_t handle; /* an address or an object of the interface */
    size_t bytes;
};

#define GPU_ARGUMENTS_MAX 20u

struct gpu_argument {
    enum { GPU_MEMORY, GPU_U32, GPU_FLOAT } type;
    union {
        const struct gpu_memory *memory;
        uint32_t u32;
        float real;
    };
};

struct gpu;

struct gpu_api {
    const char *name; /* the id of its devices begins with it and a colon */
    /* At most GPU_DEVICES_MAX. STATUS_UNSUPPORTED: no driver, or one that says it has no device;
     * err says which, for people. */
    enum status (*list)(struct gpu_info *ret, size_t *ret_count, struct error *err);
    enum status (*open)(const char *id, struct gpu **ret, struct error *err);
    void (*close)(struct gpu *gpu);
    enum status (*allocate)(struct gpu *gpu, size_t bytes, struct gpu_memory *ret); /* not zeroed */
    void (*release)(struct gpu *gpu, struct gpu_memory *memory);
    /* Host memory that copies can run to while the processor works; NULL: none left. */
    void *(*allocate_host)(struct gpu *gpu, size_t bytes);
    void (*release_host)(struct gpu *gpu, void *memory);
    /* Copies and kernels are only put into a stream; the caller keeps the host's bytes until
     * wait. */
    enum status (*upload)(struct gpu *gpu, enum gpu_stream stream, const struct gpu_memory *to,
                          size_t offset, const void *from, size_t bytes);
    enum status (*download)(struct gpu *gpu, enum gpu_stream stream, const struct gpu_memory *from,
                            size_t offset, void *to, size_t bytes);
    /* From the beginning of one memory to that of another, in the compute stream. */
    enum status (*copy)(struct gpu *gpu, const struct gpu_memory *from, const struct gpu_memory *to,
                        size_t bytes);
    enum status (*launch)(struct gpu *gpu, enum gpu_kernel kernel, uint32_t groups,
                          const struct gpu_argument *arguments, size_t count);
    /* What is put into `stream` from now on starts after all that is in `other` now. */
    enum status (*follow)(struct gpu *gpu, enum gpu_stream stream, enum gpu_stream other);
    enum status (*wait)(struct gpu *gpu, enum gpu_stream stream);
};

/* Every interface's open device begins with this. */
struct gpu {
    const struct gpu_api *api;
    char failure[160]; /* what the last call that failed said, for people */
};

extern const struct gpu_api gpu_cuda, gpu_opencl, gpu_plain_c;

/* CUDA, then OpenCL; plain C is for tests. */
#define GPU_INTERFACES 2u
extern const char *const gpu_interface_names[GPU_INTERFACES];

/* Devices of an interface by its name; a card may have both. 0: *ret_why says for people why. */
size_t gpu_list(const char *interface, struct gpu_info ret[GPU_DEVICES_MAX], struct error *ret_why);
/* By id. */
enum status gpu_open(const char *id, struct gpu **ret, struct error *err) MUST_CHECK;
void gpu_close(struct gpu *gpu); /* NULL is fine */

#endif
