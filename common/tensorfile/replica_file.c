/* A replica as one byte string, layout in replica_file.h. Plain functions, any thread. Surprising:
 * w is written only after the data's hash agreed, so a damaged download never half-replaces a
 * replica. */
#include "common/tensorfile/replica_file.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"

#define MAGIC "RVW1"
#define FORMAT_VERSION 1
#define CHECKSUM_AT 40

_Static_assert(REPLICA_HEADER_BYTES == CHECKSUM_AT + 8, "the checksum ends the header");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "w is copied as it lies in memory");

void replica_header_write(const struct replica_header *header, uint8_t ret[REPLICA_HEADER_BYTES])
{
    memcpy(ret, MAGIC, 4);
    store_u32(ret + 4, FORMAT_VERSION);
    store_u64(ret + 8, header->n);
    store_u64(ret + 16, header->version);
    store_u64(ret + 24, header->layout);
    store_u64(ret + 32, header->hash);
    store_u64(ret + CHECKSUM_AT, checksum_xxh3(ret, CHECKSUM_AT));
}

static enum status read_header(const uint8_t *file, size_t file_bytes, struct replica_header *ret,
                               struct error *err)
{
    if (file_bytes < REPLICA_HEADER_BYTES)
        return error_set(err, STATUS_CORRUPT, "replica refused: %zu bytes are no header",
                         file_bytes);
    if (memcmp(file, MAGIC, 4) != 0)
        return error_set(err, STATUS_CORRUPT, "replica refused: wrong magic");
    if (load_u64(file + CHECKSUM_AT) != checksum_xxh3(file, CHECKSUM_AT))
        return error_set(err, STATUS_CORRUPT, "replica refused: wrong header checksum");
    if (load_u32(file + 4) != FORMAT_VERSION)
        return error_set(err, STATUS_CORRUPT, "replica refused: unknown format version %u",
                         load_u32(file + 4));
    *ret = (struct replica_header){
        .n = load_u64(file + 8),
        .version = load_u64(file + 16),
        .layout = load_u64(file + 24),
        .hash = load_u64(file + 32),
    };
    return STATUS_OK;
}

enum status replica_read(const uint8_t *file, size_t file_bytes, uint64_t expected_n,
                         struct replica_header *ret, float *w, struct error *err)
{
    struct replica_header header = {0};
    enum status status = read_header(file, file_bytes, &header, err);
    if (status != STATUS_OK)
        return status;
    if (header.n != expected_n)
        return error_set(err, STATUS_CORRUPT, "replica refused: %llu parameters, expected %llu",
                         (unsigned long long)header.n, (unsigned long long)expected_n);
    size_t data_bytes = file_bytes - REPLICA_HEADER_BYTES;
    if (data_bytes % sizeof(float) != 0 || data_bytes / sizeof(float) != header.n)
        return error_set(err, STATUS_CORRUPT,
                         "replica refused: %zu bytes of data for %llu parameters", data_bytes,
                         (unsigned long long)header.n);
    if (checksum_xxh3(file + REPLICA_HEADER_BYTES, data_bytes) != header.hash)
        return error_set(err, STATUS_CORRUPT, "replica refused: wrong hash of the parameters");
    if (data_bytes > 0)
        memcpy(w, file + REPLICA_HEADER_BYTES, data_bytes);
    *ret = header;
    return STATUS_OK;
}
