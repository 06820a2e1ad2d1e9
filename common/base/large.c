/* Large vectors: their own mappings, cut to the bounds of huge pages. Any thread. */
#include "common/base/large.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define CACHE_LINE_BYTES 64u

static size_t rounded(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static void *map_huge(size_t bytes)
{
    size_t length = rounded(bytes, HUGE_PAGE_BYTES), mapped = length + HUGE_PAGE_BYTES;
    uint8_t *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t before = rounded((uintptr_t)start, HUGE_PAGE_BYTES) - (uintptr_t)start;
    if (before > 0)
        (void)munmap(start, before);
    (void)munmap(start + before + length, HUGE_PAGE_BYTES - before);
    (void)madvise(start + before, length, MADV_HUGEPAGE); /* a wish; small pages work as well */
    return start + before;
}

void *large_alloc(size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    if (bytes >= LARGE_BYTES)
        return map_huge(bytes);
    size_t length = rounded(bytes > 0 ? bytes : 1, CACHE_LINE_BYTES);
    void *memory = aligned_alloc(CACHE_LINE_BYTES, length);
    return memory ? memset(memory, 0, length) : NULL;
}

void large_free(void *memory, size_t bytes)
{
    if (memory && bytes >= LARGE_BYTES)
        (void)munmap(memory, rounded(bytes, HUGE_PAGE_BYTES));
    else
        free(memory);
}
