/* Memory plan: the largest arrays are placed first, each at the lowest address that is free during
 * its life. Any thread. Surprising: this simple rule is within a few percent of the best on chains
 * such as ours, so there is no search. */
#include "agent/engine/memory_plan.h"

#include "common/base/bytes.h"

#include <stdlib.h>

static int larger_first(const void *a, const void *b)
{
    const struct memory_item *x = *(const struct memory_item *const *)a;
    const struct memory_item *y = *(const struct memory_item *const *)b;
    if (x->floats != y->floats)
        return x->floats < y->floats ? 1 : -1;
    return x < y ? -1 : x > y;
}

static bool live_together(const struct memory_item *a, const struct memory_item *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* placed[count] is sorted by offset. Returns the lowest gap that item fits into. */
static uint64_t lowest_gap(struct memory_item *const *placed, uint32_t count,
                           const struct memory_item *item)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct memory_item *other = placed[i];
        if (!live_together(other, item) || other->offset + other->floats <= at)
            continue;
        if (other->offset >= at + item->floats)
            break;
        at = other->offset + other->floats;
    }
    return at;
}

static void insert_sorted(struct memory_item **placed, uint32_t count, struct memory_item *item)
{
    uint32_t i = count;
    for (; i > 0 && placed[i - 1]->offset > item->offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = item;
}

/* Rounds sizes up; false when their sum could overflow. */
static bool round_sizes(struct memory_item *items, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t floats = items[i].floats;
        if (floats > UINT64_MAX / 16 ||
            __builtin_add_overflow(sum, floats + MEMORY_PLAN_ALIGNMENT, &sum))
            return false;
        items[i].floats =
            (floats + MEMORY_PLAN_ALIGNMENT - 1) / MEMORY_PLAN_ALIGNMENT * MEMORY_PLAN_ALIGNMENT;
    }
    return true;
}

enum status memory_plan_make(struct memory_item *items, uint32_t count, uint64_t *ret_floats,
                             struct error *err)
{
    if (!round_sizes(items, count))
        return error_set(err, STATUS_TOO_LARGE, "planning memory: the sizes overflow");
    struct memory_item **order = calloc(2 * (size_t)count + 1, sizeof *order);
    if (!order)
        return error_set(err, STATUS_NO_MEMORY, "planning memory: out of memory");
    struct memory_item **placed = order + count;
    for (uint32_t i = 0; i < count; i++)
        order[i] = &items[i];
    qsort(order, count, sizeof *order, larger_first);
    uint64_t floats = 0;
    for (uint32_t i = 0; i < count; i++) {
        order[i]->offset = lowest_gap(placed, i, order[i]);
        insert_sorted(placed, i, order[i]);
        if (order[i]->offset + order[i]->floats > floats)
            floats = order[i]->offset + order[i]->floats;
    }
    free(order);
    *ret_floats = floats;
    return STATUS_OK;
}
