/* The kernels for processors with AVX2 and FMA. The build gives this file alone the flags for them
 * (CMakeLists.txt), so nothing here may run before cpu_kernels_best has looked at the processor. */
#if defined(__x86_64__)
#define KERNELS_TABLE cpu_kernels_avx2
#define KERNELS_NAME "avx2"
#define LANES 8
#include "agent/backend/cpu/kernels_body.h"
#else
typedef int nothing_here; /* other processors use kernels_portable.c */
#endif
