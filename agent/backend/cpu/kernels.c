/* Which instruction set this machine has. Plain function, any thread. */
#include "agent/backend/cpu/kernels.h"

const struct cpu_kernels *cpu_kernels_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return cpu_kernels_avx2();
#endif
    return cpu_kernels_portable();
}
