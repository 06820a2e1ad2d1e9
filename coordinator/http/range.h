/* The Range header (RFC 9110, section 14): one range of bytes. */
#ifndef RAVEN_COORDINATOR_HTTP_RANGE_H
#define RAVEN_COORDINATOR_HTTP_RANGE_H

#include <stdint.h>

enum range_kind {
    RANGE_WHOLE,   /* no header, or one that may be ignored: unknown unit, several ranges, broken */
    RANGE_PART,    /* ret_first, ret_count are set */
    RANGE_OUTSIDE, /* 416 */
};

/* text: value of Range or NULL. total: bytes of the whole. ret_count ≥ 1 for RANGE_PART. */
enum range_kind range_parse(const char *text, uint64_t total, uint64_t *ret_first,
                            uint64_t *ret_count);

#endif
