/* Binary frames, layout in frame.h. Plain functions, any thread. Surprising: the WebSocket
 * message's own size says where the payload ends while the checksum is tested; the length field is
 * believed only afterwards and must then agree. */
#include "common/wire/frame.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"

#define CHECKSUM_AT 16

_Static_assert(FRAME_HEADER_BYTES == CHECKSUM_AT + 8, "the checksum ends the header");
_Static_assert(FRAME_PAYLOAD_BYTES_MAX < 1 << 24, "the length field has 24 bits");

static uint64_t checksum_of(const uint8_t *data, size_t payload_bytes)
{
    return checksum_xxh3_seeded(data + FRAME_HEADER_BYTES, payload_bytes,
                                checksum_xxh3(data, CHECKSUM_AT));
}

size_t frame_write(const struct frame *frame, uint8_t *ret)
{
    if (frame->payload_bytes < 1 || frame->payload_bytes > FRAME_PAYLOAD_BYTES_MAX)
        return 0;
    memmove(ret + FRAME_HEADER_BYTES, frame->payload, frame->payload_bytes);
    store_u32(ret, frame->stream);
    store_u32(ret + 4, (uint32_t)frame->payload_bytes | (uint32_t)frame->kind << 24);
    store_u64(ret + 8, frame->offset);
    store_u64(ret + CHECKSUM_AT, checksum_of(ret, frame->payload_bytes));
    return FRAME_HEADER_BYTES + frame->payload_bytes;
}

enum status frame_read(const uint8_t *data, size_t bytes, struct frame *ret)
{
    if (bytes <= FRAME_HEADER_BYTES || bytes - FRAME_HEADER_BYTES > FRAME_PAYLOAD_BYTES_MAX)
        return STATUS_CORRUPT;
    size_t payload_bytes = bytes - FRAME_HEADER_BYTES;
    if (load_u64(data + CHECKSUM_AT) != checksum_of(data, payload_bytes))
        return STATUS_CORRUPT;
    uint32_t length_and_kind = load_u32(data + 4);
    uint32_t kind = length_and_kind >> 24;
    uint64_t offset = load_u64(data + 8);
    if ((length_and_kind & 0xFFFFFF) != payload_bytes)
        return STATUS_CORRUPT;
    if (kind != FRAME_UPDATE && kind != FRAME_DELTA)
        return STATUS_CORRUPT;
    if (offset > UINT64_MAX - payload_bytes)
        return STATUS_CORRUPT;
    *ret = (struct frame){
        .kind = (enum frame_kind)kind,
        .stream = load_u32(data),
        .offset = offset,
        .payload = data + FRAME_HEADER_BYTES,
        .payload_bytes = payload_bytes,
    };
    return STATUS_OK;
}
