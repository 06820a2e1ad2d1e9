/* IDX files (the MNIST family's format): big-endian magic 00 00 type rank, rank × u32 dims, data.
 * Only unsigned bytes (type 0x08), rank 1 … 4. The file is mapped read-only; hostile headers are
 * refused before any length is used; the size must fit exactly. */
#ifndef RAVEN_COMMON_TENSORFILE_IDX_H
#define RAVEN_COMMON_TENSORFILE_IDX_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define IDX_RANK_MAX 4

struct idx {
    uint32_t rank;
    uint64_t dims[IDX_RANK_MAX];
    uint64_t count; /* elements */
    const uint8_t *data;
    void *map; /* private */
    size_t map_bytes;
};

enum status idx_open(const char *path, struct idx *ret, struct error *err) MUST_CHECK;
void idx_close(struct idx *idx);

#endif
