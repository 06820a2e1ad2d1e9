/* The two fixed headers of the ledger's byte format (written out in ledger.c) to and from bytes.
 * Any thread, no I/O. Surprising: the header checksum is seeded with the ledger's random id, so
 * that bytes inside a volunteer's payload cannot pass for a record when recovery searches past
 * damage. */
#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "coordinator/ledger/ledger_internal.h"

enum segment_offset {
    SEGMENT_MAGIC = 0,
    SEGMENT_FORMAT = 8,
    SEGMENT_MIN_READER = 10,
    SEGMENT_HEADER_BYTES = 12,
    SEGMENT_NUMBER = 16,
    SEGMENT_FIRST_SEQUENCE = 24,
    SEGMENT_PREVIOUS_CHAIN = 32,
    SEGMENT_FILE_BYTES = 40,
    SEGMENT_LEDGER_ID = 48,
    SEGMENT_CHECKSUM = 56,
};

enum record_offset {
    RECORD_BODY_BYTES = 0,
    RECORD_BODY_BYTES_COMPLEMENT = 4,
    RECORD_TYPE = 8,
    RECORD_FLAGS = 10,
    RECORD_HEADER_BYTES = 12,
    RECORD_SEQUENCE = 16,
    RECORD_SYNCED = 24,
    RECORD_EPOCH = 32,
    RECORD_BODY_CHECKSUM = 40,
    RECORD_CHAIN = 48,
    RECORD_CHECKSUM = 56,
};

_Static_assert(SEGMENT_CHECKSUM + 8 == LEDGER_SEGMENT_HEADER_BYTES, "segment header");
_Static_assert(RECORD_CHECKSUM + 8 == LEDGER_RECORD_HEADER_BYTES, "record header");

static const uint8_t segment_magic[8] = {'R', 'A', 'V', 'E', 'N', 'L', 'D', 'G'};

void format_write_segment(const struct segment_header *header,
                          uint8_t ret[LEDGER_SEGMENT_HEADER_BYTES])
{
    memcpy(ret + SEGMENT_MAGIC, segment_magic, sizeof segment_magic);
    store_u16(ret + SEGMENT_FORMAT, LEDGER_FORMAT);
    store_u16(ret + SEGMENT_MIN_READER, LEDGER_FORMAT);
    store_u32(ret + SEGMENT_HEADER_BYTES, LEDGER_SEGMENT_HEADER_BYTES);
    store_u64(ret + SEGMENT_NUMBER, header->number);
    store_u64(ret + SEGMENT_FIRST_SEQUENCE, header->first_sequence);
    store_u64(ret + SEGMENT_PREVIOUS_CHAIN, header->previous_chain);
    store_u64(ret + SEGMENT_FILE_BYTES, header->file_bytes);
    store_u64(ret + SEGMENT_LEDGER_ID, header->ledger_id);
    store_u64(ret + SEGMENT_CHECKSUM, checksum_xxh3(ret, SEGMENT_CHECKSUM));
}

enum status format_read_segment(const uint8_t data[LEDGER_SEGMENT_HEADER_BYTES],
                                struct segment_header *ret)
{
    if (memcmp(data + SEGMENT_MAGIC, segment_magic, sizeof segment_magic) != 0)
        return STATUS_CORRUPT;
    if (load_u64(data + SEGMENT_CHECKSUM) != checksum_xxh3(data, SEGMENT_CHECKSUM))
        return STATUS_CORRUPT;
    if (load_u16(data + SEGMENT_MIN_READER) > LEDGER_FORMAT)
        return STATUS_UNSUPPORTED;
    if (load_u32(data + SEGMENT_HEADER_BYTES) != LEDGER_SEGMENT_HEADER_BYTES)
        return STATUS_CORRUPT;
    *ret = (struct segment_header){
        .number = load_u64(data + SEGMENT_NUMBER),
        .first_sequence = load_u64(data + SEGMENT_FIRST_SEQUENCE),
        .previous_chain = load_u64(data + SEGMENT_PREVIOUS_CHAIN),
        .file_bytes = load_u64(data + SEGMENT_FILE_BYTES),
        .ledger_id = load_u64(data + SEGMENT_LEDGER_ID),
    };
    return STATUS_OK;
}

uint64_t format_chain(const uint8_t data[LEDGER_RECORD_HEADER_BYTES], uint64_t previous_chain)
{
    return checksum_xxh3_seeded(data, RECORD_CHAIN, previous_chain);
}

void format_write_record(struct record_header *header, uint64_t previous_chain, uint64_t ledger_id,
                         uint8_t ret[LEDGER_RECORD_HEADER_BYTES])
{
    store_u32(ret + RECORD_BODY_BYTES, header->body_bytes);
    store_u32(ret + RECORD_BODY_BYTES_COMPLEMENT, ~header->body_bytes);
    store_u16(ret + RECORD_TYPE, header->type);
    store_u16(ret + RECORD_FLAGS, header->flags);
    store_u32(ret + RECORD_HEADER_BYTES, LEDGER_RECORD_HEADER_BYTES);
    store_u64(ret + RECORD_SEQUENCE, header->sequence);
    store_u64(ret + RECORD_SYNCED, header->synced);
    store_u64(ret + RECORD_EPOCH, header->epoch);
    store_u64(ret + RECORD_BODY_CHECKSUM, header->body_checksum);
    header->chain = format_chain(ret, previous_chain);
    store_u64(ret + RECORD_CHAIN, header->chain);
    store_u64(ret + RECORD_CHECKSUM, checksum_xxh3_seeded(ret, RECORD_CHECKSUM, ledger_id));
}

bool format_read_record(const uint8_t data[LEDGER_RECORD_HEADER_BYTES], uint64_t ledger_id,
                        struct record_header *ret)
{
    uint32_t body_bytes = load_u32(data + RECORD_BODY_BYTES);
    if (load_u32(data + RECORD_BODY_BYTES_COMPLEMENT) != ~body_bytes)
        return false;
    if (load_u64(data + RECORD_CHECKSUM) != checksum_xxh3_seeded(data, RECORD_CHECKSUM, ledger_id))
        return false;
    if (load_u32(data + RECORD_HEADER_BYTES) != LEDGER_RECORD_HEADER_BYTES)
        return false;
    *ret = (struct record_header){
        .body_bytes = body_bytes,
        .type = load_u16(data + RECORD_TYPE),
        .flags = load_u16(data + RECORD_FLAGS),
        .sequence = load_u64(data + RECORD_SEQUENCE),
        .synced = load_u64(data + RECORD_SYNCED),
        .epoch = load_u64(data + RECORD_EPOCH),
        .body_checksum = load_u64(data + RECORD_BODY_CHECKSUM),
        .chain = load_u64(data + RECORD_CHAIN),
    };
    return true;
}

uint64_t format_padded_bytes(uint32_t body_bytes)
{
    return ((uint64_t)body_bytes + LEDGER_ALIGN_BYTES - 1) / LEDGER_ALIGN_BYTES *
           LEDGER_ALIGN_BYTES;
}
