/* Makes and frees the CPU backend. Training thread. Surprising: scratch memory is reserved for the
 * worst case at once; the kernel gives real pages only to what an operator touches. */
#include "agent/backend/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64

static void *cpu_allocate(struct backend *backend, size_t bytes)
{
    (void)backend;
    if (bytes > SIZE_MAX - 2 * ALIGNMENT)
        return NULL;
    size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *memory = aligned_alloc(ALIGNMENT, whole > 0 ? whole : ALIGNMENT);
    if (memory)
        memset(memory, 0, whole);
    return memory;
}

static void cpu_release(struct backend *backend, void *memory)
{
    (void)backend;
    free(memory);
}

static void cpu_free(struct backend *backend)
{
    struct cpu_backend *cpu = cpu_of(backend);
    pool_free(cpu->base.pool);
    for (uint32_t i = 0; i < backend->threads; i++) {
        free(cpu->gemm_scratch[i]);
        free(cpu->scratch[i]);
    }
    free(cpu);
}

static const struct backend functions = {
    .free = cpu_free,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .linear_forward = cpu_linear_forward,
    .linear_backward = cpu_linear_backward,
    .layernorm_forward = cpu_layernorm_forward,
    .layernorm_backward = cpu_layernorm_backward,
    .embed_forward = cpu_embed_forward,
    .embed_backward = cpu_embed_backward,
    .attention_forward = cpu_attention_forward,
    .attention_backward = cpu_attention_backward,
    .gelu_forward = cpu_gelu_forward,
    .gelu_backward = cpu_gelu_backward,
    .relu_forward = cpu_relu_forward,
    .relu_backward = cpu_relu_backward,
    .add_forward = cpu_add_forward,
    .add_backward = cpu_add_backward,
    .conv3x3_forward = cpu_conv3x3_forward,
    .conv3x3_backward = cpu_conv3x3_backward,
    .maxpool2_forward = cpu_maxpool2_forward,
    .maxpool2_backward = cpu_maxpool2_backward,
    .cross_entropy_forward = cpu_cross_entropy_forward,
    .cross_entropy_backward = cpu_cross_entropy_backward,
    .sum_squares = cpu_sum_squares,
    .adamw = cpu_adamw,
};

static bool allocate_scratch(struct cpu_backend *cpu)
{
    for (uint32_t i = 0; i < cpu->base.threads; i++) {
        cpu->gemm_scratch[i] = aligned_alloc(ALIGNMENT, GEMM_SCRATCH_FLOATS * sizeof(float));
        cpu->scratch[i] = aligned_alloc(ALIGNMENT, CPU_SCRATCH_FLOATS * sizeof(float));
        if (!cpu->gemm_scratch[i] || !cpu->scratch[i])
            return false;
    }
    return true;
}

enum status cpu_backend_create(uint32_t threads, const struct cpu_kernels *kernels,
                               struct backend **ret, struct error *err)
{
    if (threads == 0)
        threads = 1;
    if (threads > BACKEND_THREADS_MAX)
        return error_set(err, STATUS_INVALID, "%u threads asked for; use 1 to %u", threads,
                         BACKEND_THREADS_MAX);
    struct cpu_backend *cpu = calloc(1, sizeof *cpu);
    if (!cpu)
        return error_set(err, STATUS_NO_MEMORY, "making the CPU backend: out of memory");
    cpu->base = functions;
    cpu->base.threads = threads;
    cpu->kernels = kernels;
    (void)snprintf(cpu->base.name, sizeof cpu->base.name, "cpu %s", kernels->name);
    enum status status = STATUS_OK;
    if (!allocate_scratch(cpu))
        status = error_set(err, STATUS_NO_MEMORY,
                           "making the CPU backend for %u threads: out of "
                           "memory; use fewer threads",
                           threads);
    if (!status)
        status = pool_create(threads, &cpu->base.pool, err);
    if (status)
        cpu_free(&cpu->base);
    else
        *ret = &cpu->base;
    return status;
}

struct range cpu_range(const struct cpu_backend *cpu, size_t count, size_t grain, size_t multiple)
{
    size_t tasks = cpu->base.threads > 1 ? 2 * (size_t)cpu->base.threads : 1;
    size_t most = count / (grain > 0 ? grain : 1);
    if (tasks > most)
        tasks = most > 0 ? most : 1;
    return (struct range){.count = count, .tasks = tasks, .multiple = multiple};
}

size_t range_begin(const struct range *range, size_t task)
{
    if (task >= range->tasks)
        return range->count;
    size_t units = (range->count + range->multiple - 1) / range->multiple;
    size_t begin = units * task / range->tasks * range->multiple;
    return begin < range->count ? begin : range->count;
}

void cpu_gradient_clear(const struct gradient *gradient, size_t count)
{
    if (gradient->data && !gradient->accumulate)
        memset(gradient->data, 0, count * sizeof(float));
}
