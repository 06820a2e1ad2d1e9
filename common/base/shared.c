/* Immutable bytes with an atomic reference count. Any thread. Surprising: the copy of shared_create
 * lives behind the struct in one allocation; shared_create_take keeps the caller's block. */
#include "common/base/shared.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct shared {
    atomic_size_t refs;
    size_t bytes;
    uint8_t *taken; /* NULL: the bytes follow this struct */
    uint8_t inlined[];
};

struct shared *shared_create(const void *data, size_t bytes)
{
    size_t total;
    if (__builtin_add_overflow(sizeof(struct shared), bytes, &total))
        return NULL;
    struct shared *shared = malloc(total);
    if (!shared)
        return NULL;
    atomic_init(&shared->refs, 1);
    shared->bytes = bytes;
    shared->taken = NULL;
    if (bytes > 0)
        memcpy(shared->inlined, data, bytes);
    return shared;
}

struct shared *shared_create_take(uint8_t *data, size_t bytes)
{
    struct shared *shared = malloc(sizeof *shared);
    if (!shared)
        return NULL;
    atomic_init(&shared->refs, 1);
    shared->bytes = bytes;
    shared->taken = data;
    return shared;
}

struct shared *shared_ref(struct shared *shared)
{
    (void)atomic_fetch_add_explicit(&shared->refs, 1, memory_order_relaxed);
    return shared;
}

void shared_unref(struct shared *shared)
{
    if (!shared || atomic_fetch_sub_explicit(&shared->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(shared->taken);
    free(shared);
}

const uint8_t *shared_data(const struct shared *shared)
{
    return shared->taken ? shared->taken : shared->inlined;
}

size_t shared_bytes(const struct shared *shared)
{
    return shared->bytes;
}
