/* Finding and opening devices by name. A child process's main thread. */
#include "agent/gpu/gpu.h"

#include "common/base/bytes.h"

#include <string.h>

const char *const gpu_kernel_names[GPU_KERNELS] = {"update_encode", "update_join", "update_add"};

static const struct gpu_api *const interfaces[] = {&gpu_cuda, &gpu_opencl, &gpu_plain_c};

/* A card with two interfaces is one device: CUDA's. */
static bool is_listed(const struct gpu_info *info, const struct gpu_info *listed, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(listed[i].name, info->name) == 0 && strncmp(listed[i].id, "cuda:", 5) == 0)
            return true;
    return false;
}

size_t gpu_list(struct gpu_info ret[GPU_DEVICES_MAX], struct error *ret_why)
{
    size_t count = 0;
    struct error why[2] = {0};
    for (size_t i = 0; i < 2; i++) {
        struct gpu_info found[GPU_DEVICES_MAX];
        size_t found_count = 0, cuda_count = count;
        if (interfaces[i]->list(found, &found_count, &why[i]))
            continue;
        for (size_t j = 0; j < found_count && count < GPU_DEVICES_MAX; j++)
            if (!is_listed(&found[j], ret, cuda_count))
                ret[count++] = found[j];
    }
    if (ret_why)
        error_set(ret_why, STATUS_UNSUPPORTED, "%s%s%s", why[0].text,
                  why[0].text[0] && why[1].text[0] ? "; " : "", why[1].text);
    return count;
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
