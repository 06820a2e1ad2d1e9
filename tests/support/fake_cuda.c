/* A libcuda.so.1 that misbehaves as FAKE_CUDA says: hang, crash, stub, mismatch, or two (cards that
 * differ in their PCI domain only, whose contexts cannot be made). It talks, as some drivers do.
 * Built as a shared library. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static int is(const char *behaviour)
{
    const char *asked = getenv("FAKE_CUDA");
    return asked && strcmp(asked, behaviour) == 0;
}

EXPORT int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    (void)flags;
    printf("fake driver: starting\n");
    (void)fflush(stdout);
    while (is("hang"))
        (void)pause();
    if (is("crash"))
        (void)raise(SIGSEGV);
    return is("stub") ? 34 : is("mismatch") ? 803 : 0;
}

EXPORT int cuDeviceGetCount(int *ret);
int cuDeviceGetCount(int *ret)
{
    *ret = is("two") ? 2 : 0;
    return 0;
}

EXPORT int cuDeviceGet(int *ret, int index);
int cuDeviceGet(int *ret, int index)
{
    *ret = index;
    return 0;
}

EXPORT int cuDeviceGetPCIBusId(char *ret, int bytes, int device);
int cuDeviceGetPCIBusId(char *ret, int bytes, int device)
{
    (void)snprintf(ret, (size_t)bytes, "%04d:01:00.0", device);
    return 0;
}

EXPORT int cuDeviceGetName(char *ret, int bytes, int device);
int cuDeviceGetName(char *ret, int bytes, int device)
{
    (void)snprintf(ret, (size_t)bytes, "Toy %d\n\"<b>", device);
    return 0;
}

EXPORT int cuDriverGetVersion(int *ret);
int cuDriverGetVersion(int *ret)
{
    *ret = 12040;
    return 0;
}

/* Everything else fails. */
#define FAILS(name)                                                                                \
    EXPORT int name(void);                                                                         \
    int name(void)                                                                                 \
    {                                                                                              \
        return 999;                                                                                \
    }
FAILS(cuDeviceTotalMem_v2)
FAILS(cuDeviceGetAttribute)
FAILS(cuDevicePrimaryCtxSetFlags)
FAILS(cuDevicePrimaryCtxRetain)
FAILS(cuDevicePrimaryCtxRelease_v2)
FAILS(cuCtxSetCurrent)
FAILS(cuModuleLoadData)
FAILS(cuModuleUnload)
FAILS(cuModuleGetFunction)
FAILS(cuMemAlloc_v2)
FAILS(cuMemFree_v2)
FAILS(cuMemAllocHost_v2)
FAILS(cuMemFreeHost)
FAILS(cuMemcpyHtoDAsync_v2)
FAILS(cuMemcpyDtoHAsync_v2)
FAILS(cuMemcpyDtoDAsync_v2)
FAILS(cuStreamCreate)
FAILS(cuStreamDestroy_v2)
FAILS(cuStreamSynchronize)
FAILS(cuStreamWaitEvent)
FAILS(cuEventCreate)
FAILS(cuEventRecord)
FAILS(cuEventDestroy_v2)
FAILS(cuLaunchKernel)
