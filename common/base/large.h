/* Memory for vectors as long as a model. From LARGE_BYTES on it lies in huge pages where the kernel
 * gives them: one pass over such a vector is a third faster than over small pages. Any thread. */
#ifndef RAVEN_COMMON_BASE_LARGE_H
#define RAVEN_COMMON_BASE_LARGE_H

#include <stddef.h>

#define LARGE_BYTES ((size_t)4 << 20)

/* Zeroed (pages become real when they are first written), aligned to 64 bytes; NULL: no memory. */
void *large_alloc(size_t bytes);
/* bytes: as given to large_alloc. NULL is fine. */
void large_free(void *memory, size_t bytes);

#endif
