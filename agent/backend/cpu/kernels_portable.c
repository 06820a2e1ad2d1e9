/* The kernels for every processor: four lanes, which is SSE2 on x86-64 and NEON on ARM. */
#define KERNELS_TABLE cpu_kernels_portable
#define KERNELS_NAME "portable"
#define LANES 4
#include "agent/backend/cpu/kernels_body.h"
