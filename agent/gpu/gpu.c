/* Finding and opening devices by name. A child process's main thread. */
#include "agent/gpu/gpu.h"

#include "common/base/bytes.h"

#include <string.h>

const char *const gpu_kernel_names[GPU_KERNELS] = {"update_encode", "update_join", "update_add"};

static const struct gpu_api *const interfaces[] = {&gpu_cuda, &gpu_opencl, &gpu_plain_c};

const char *const gpu_interface_names[GPU_INTERFACES] = {"cuda", "opencl"};

size_t gpu_list(const char *interface, struct gpu_info ret[GPU_DEVICES_MAX], struct error *ret_why)
{
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(interfaces); i++)
        if (strcmp(interfaces[i]->name, interface) == 0)
            return interfaces[i]->list(ret, &count, ret_why) ? 0 : count;
    error_set(ret_why, STATUS_NOT_FOUND, "there is no interface %s", interface);
    return 0;
}

enum status gpu_open(const char *id, struct gpu **ret, struct error *err)
{
    for (size_t i = 0; i < COUNT_OF(interfaces); i++) {
        size_t length = strlen(interfaces[i]->name);
        if (strncmp(id, interfaces[i]->name, length) == 0 && id[length] == ':')
            return interfaces[i]->open(id, ret, err);
    }
    return error_set(err, STATUS_NOT_FOUND, "device %s: there is no such interface", id);
}

void gpu_close(struct gpu *gpu)
{
    if (gpu)
        gpu->api->close(gpu);
}
