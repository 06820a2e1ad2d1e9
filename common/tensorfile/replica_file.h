/* A replica w as one byte string, for downloads by late joiners.
 *
 *   offset size
 *        0    4  magic "RVW1"
 *        4    4  format version 1
 *        8    8  n, parameters
 *       16    8  version t
 *       24    8  layout hash
 *       32    8  hash(w), XXH3-64 of the data
 *       40    8  XXH3-64 of bytes 0 … 39
 *       48   4n  w, fp32 little-endian
 */
#ifndef RAVEN_COMMON_TENSORFILE_REPLICA_FILE_H
#define RAVEN_COMMON_TENSORFILE_REPLICA_FILE_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define REPLICA_HEADER_BYTES 48

struct replica_header {
    uint64_t n, version, layout, hash;
};

/* Writes the 48 bytes that precede w. */
void replica_header_write(const struct replica_header *header, uint8_t ret[REPLICA_HEADER_BYTES]);
/* Checks header checksum, then that file_bytes == 48 + 4n, then the data's hash, and copies the
 * data into w[n] (n must equal expected_n). STATUS_CORRUPT names what disagrees. */
enum status replica_read(const uint8_t *file, size_t file_bytes, uint64_t expected_n,
                         struct replica_header *ret, float *w, struct error *err) MUST_CHECK;

#endif
