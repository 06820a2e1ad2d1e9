/* Binary frames: pieces of a stream (an update going up, a delta coming down).
 *
 *   offset size
 *        0    4  stream id, little-endian
 *        4    3  payload length in bytes, 1 … 65536
 *        7    1  kind (enum frame_kind)
 *        8    8  offset of the payload in the stream
 *       16    8  XXH3-64 of the payload, seeded with XXH3-64 of bytes 0 … 15
 *       24    …  payload
 *
 * The checksum is verified before anything else is believed. One WebSocket message holds one frame.
 */
#ifndef RAVEN_COMMON_WIRE_FRAME_H
#define RAVEN_COMMON_WIRE_FRAME_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define FRAME_HEADER_BYTES 24
#define FRAME_PAYLOAD_BYTES_MAX 65536

enum frame_kind { FRAME_UPDATE = 1, FRAME_DELTA = 2 };

struct frame {
    enum frame_kind kind;
    uint32_t stream;
    uint64_t offset;
    const uint8_t *payload; /* points into the caller's memory */
    size_t payload_bytes;
};

/* Writes header and payload to ret[FRAME_HEADER_BYTES + payload_bytes]; returns that size, or 0
 * when payload_bytes is not 1 … FRAME_PAYLOAD_BYTES_MAX. The payload may lie in ret at its place.
 */
size_t frame_write(const struct frame *frame, uint8_t *ret);
/* data[bytes] is one whole WebSocket message. STATUS_CORRUPT on any disagreement. */
enum status frame_read(const uint8_t *data, size_t bytes, struct frame *ret) MUST_CHECK;

#endif
