/* The kernel dialect: what a kernel file is written in, so that the same text is OpenCL C 1.2, CUDA
 * and plain C. It stands in front of every kernel file (the builder pastes it, nothing is
 * included).
 *
 * A kernel is a row of phases, and between two of them a barrier:
 *
 *     RK_ITEMS(lid) { ...what item lid of 256 does... }
 *     RK_BARRIER();
 *     RK_ITEMS(lid) { ...may read what other items left in local memory... }
 *
 * On a device all items run a phase at once; in plain C the phase is a loop over lid, so a phase
 * must not depend on what another item does in it, save through the local atomics. What an item
 * carries from phase to phase is an RK_PRIVATE array. Code outside RK_ITEMS is uniform: every item
 * computes the same, plain C does it once; it must not write local memory, nor read what is being
 * written without a barrier in between.
 *
 * Rules: work-groups of 256 in one dimension; local memory (at most 32 KiB) is declared at kernel
 * scope; barriers where all items come by; no sub-groups, no fp16; kernel arguments are u32, float
 * and pointers; a float product that meets a sum is RK_MUL, so that it is never contracted; no
 * float division or root; denormals are flushed by hand, for devices differ. No barrier under a
 * condition, and loops with barriers run at least once: PoCL copies all that follows for each such
 * condition, and its optimiser then lost entries. RK_UNROLL before loops that index RK_PRIVATE
 * arrays, RK_ROLLED before those where nvcc's unrolling only costs registers. */
#ifndef RAVEN_AGENT_KERNEL_DEFS_H
#define RAVEN_AGENT_KERNEL_DEFS_H

#define RK_GROUP_ITEMS 256u

#if defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__)
#pragma OPENCL FP_CONTRACT OFF
typedef uint u32;
typedef ulong u64;
#define RK_KERNEL __kernel __attribute__((reqd_work_group_size(256, 1, 1)))
#define RK_FN static inline
#define RK_GLOBAL __global
#define RK_LOCAL __local
#define RK_SHARED(type, name) __local type name
#define RK_GROUP_ID ((u32)get_group_id(0))
#define RK_LOCAL_ID ((u32)get_local_id(0))
#define RK_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define RK_UNROLL _Pragma("unroll")
#define RK_ROLLED
#define RK_MUL(a, b) ((a) * (b))
#define rk_bits(x) as_uint(x)
#define rk_float(x) as_float(x)
#define rk_ones(x) ((u32)popcount((u32)(x)))
#define rk_local_add(at, value) ((void)atomic_add((at), (value)))
#define rk_local_or(at, value) ((void)atomic_or((at), (value)))
#define rk_local_min(at, value) ((void)atomic_min((at), (value)))

#elif defined(__CUDACC__)
typedef unsigned int u32;
typedef unsigned long long u64;
#define RK_KERNEL extern "C" __global__ __launch_bounds__(256, 4) /* hence at most 64 registers */
#define RK_FN static __device__ __forceinline__
#define RK_GLOBAL
#define RK_LOCAL
#define RK_SHARED(type, name) __shared__ type name
#define RK_GROUP_ID ((u32)blockIdx.x)
#define RK_LOCAL_ID ((u32)threadIdx.x)
#define RK_BARRIER() __syncthreads()
#define RK_UNROLL _Pragma("unroll")
#define RK_ROLLED _Pragma("unroll 1")
#define RK_MUL(a, b) __fmul_rn((a), (b))
#define rk_bits(x) __float_as_uint(x)
#define rk_float(x) __uint_as_float(x)
#define rk_ones(x) ((u32)__popc(x))
#define rk_local_add(at, value) ((void)atomicAdd((at), (value)))
#define rk_local_or(at, value) ((void)atomicOr((at), (value)))
#define rk_local_min(at, value) ((void)atomicMin((at), (value)))

#else /* plain C: host.c defines RK_GROUP_ID and wraps each kernel in a loop over the groups */
#include <stdint.h>
#include <string.h>
typedef uint32_t u32;
typedef uint64_t u64;
#define RK_HOST 1
#define RK_KERNEL static
#define RK_FN static inline
#define RK_GLOBAL
#define RK_LOCAL
#define RK_SHARED(type, name) type name
#define RK_BARRIER() ((void)0)
#define RK_UNROLL
#define RK_ROLLED
#define RK_MUL(a, b) ((a) * (b))
#define rk_ones(x) ((u32)__builtin_popcount(x))
#define rk_local_add(at, value) ((void)(*(at) += (value)))
#define rk_local_or(at, value) ((void)(*(at) |= (value)))
#define rk_local_min(at, value) ((void)(*(at) = *(at) < (value) ? *(at) : (value)))

static inline u32 rk_bits(float x)
{
    u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float rk_float(u32 bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
#endif

/* RK_PRIVATE(type, name, count): an array of each item's own, registers on a device (so it is
 * indexed by constants after unrolling). RK_MINE(name): item lid's. RK_PRIVATE_OF(type, name,
 * count): the parameter that passes it on. */
#ifdef RK_HOST
#define RK_ITEMS(lid) for (u32 lid = 0; lid < RK_GROUP_ITEMS; lid++)
#define RK_PRIVATE(type, name, count) type name[RK_GROUP_ITEMS][count]
#define RK_PRIVATE_OF(type, name, count) type(*name)[count]
#define RK_MINE(name, lid) (name[lid])
#else
#define RK_ITEMS(lid) for (u32 lid = RK_LOCAL_ID, rk_once = 1u; rk_once != 0u; rk_once = 0u)
#define RK_PRIVATE(type, name, count) type name[count]
#define RK_PRIVATE_OF(type, name, count) type *name
#define RK_MINE(name, lid) ((name) + 0u * (lid)) /* nvcc wants to see lid used */
#endif

#endif
