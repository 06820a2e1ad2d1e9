/* Which backends there are. Any thread. */
#include "agent/backend/backend.h"

#include "agent/backend/cpu/cpu.h"

enum status backend_create_cpu(uint32_t threads, struct backend **ret, struct error *err)
{
    return cpu_backend_create(threads, cpu_kernels_best(), ret, err);
}

void backend_free(struct backend *backend)
{
    if (backend)
        backend->free(backend);
}
