/* XXH3-64 for integrity against accidents, SHA-256 for content addresses. */
#ifndef RAVEN_COMMON_BASE_CHECKSUM_H
#define RAVEN_COMMON_BASE_CHECKSUM_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32
#define SHA256_HEX_BYTES 65 /* with the NUL */

uint64_t checksum_xxh3(const void *data, size_t bytes);
/* Continues a checksum: the result covers (seed, data). Used to chain records. */
uint64_t checksum_xxh3_seeded(const void *data, size_t bytes, uint64_t seed);

/* The same as checksum_xxh3 over all the pieces. */
struct xxh3 {
    uint8_t opaque[576] __attribute__((aligned(64)));
};

void xxh3_init(struct xxh3 *xxh);
void xxh3_update(struct xxh3 *xxh, const void *data, size_t bytes);
uint64_t xxh3_final(const struct xxh3 *xxh);

struct sha256 {
    uint8_t opaque[128] __attribute__((aligned(8)));
};

void sha256_init(struct sha256 *sha);
void sha256_update(struct sha256 *sha, const void *data, size_t bytes);
void sha256_final(struct sha256 *sha, uint8_t ret[SHA256_BYTES]);
void sha256_of(const void *data, size_t bytes, uint8_t ret[SHA256_BYTES]);

#endif
