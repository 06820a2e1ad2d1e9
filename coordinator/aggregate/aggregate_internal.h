/* The clip history of one job (history.c): norms of recent updates, per parameter tensor. */
#ifndef RAVEN_COORDINATOR_AGGREGATE_AGGREGATE_INTERNAL_H
#define RAVEN_COORDINATOR_AGGREGATE_AGGREGATE_INTERNAL_H

#include "common/base/buffer.h"
#include "common/base/status.h"

#include <stdint.h>

#define HISTORY_NORMS 32    /* the median looks at so many accepted updates */
#define HISTORY_NORMS_MIN 8 /* and clips nothing before it has so many */

struct norms {
    uint32_t count;
    uint32_t next; /* where the next one goes: the oldest when full */
    double values[HISTORY_NORMS];
};

/* Zero is not entered: the update did not touch the tensor, which says nothing about its norms. */
void norms_add(struct norms *norms, double norm);
/* min(1, median / norm), at least FLT_MIN. */
float norms_clip_factor(const struct norms *norms, double norm);

enum status history_write(const struct norms *norms, uint32_t tensor_count,
                          struct buffer *ret) MUST_CHECK;
/* Exactly what history_write wrote for tensor_count, else STATUS_CORRUPT and norms untouched. */
enum status history_read(const uint8_t *data, size_t bytes, uint32_t tensor_count,
                         struct norms *norms) MUST_CHECK;

#endif
