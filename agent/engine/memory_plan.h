/* Where each array of a step lies in one block of memory: arrays that are never needed at the same
 * time share addresses. Plain function, any thread. */
#ifndef RAVEN_AGENT_ENGINE_MEMORY_PLAN_H
#define RAVEN_AGENT_ENGINE_MEMORY_PLAN_H

#include "common/base/status.h"

#include <stdint.h>

#define MEMORY_PLAN_ALIGNMENT 16u /* floats: 64 bytes */

struct memory_item {
    uint64_t floats;
    uint32_t first, last; /* the times between which it is needed, both included */
    uint64_t offset;      /* result, in floats */
};

/* Fills offset of every item; *ret_floats is the size of the block. */
enum status memory_plan_make(struct memory_item *items, uint32_t count, uint64_t *ret_floats,
                             struct error *err) MUST_CHECK;

#endif
