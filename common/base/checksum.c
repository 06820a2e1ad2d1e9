/* XXH3-64 by libxxhash and SHA-256 by libsodium. Any thread. Surprising: libsodium's state hides in
 * an opaque array, so that only this file needs its header. */
#include "common/base/checksum.h"

#include <sodium.h>
#include <xxhash.h>

_Static_assert(sizeof(crypto_hash_sha256_state) <= sizeof(struct sha256),
               "sha256.opaque too small");
_Static_assert(_Alignof(crypto_hash_sha256_state) <= _Alignof(struct sha256), "sha256 alignment");
_Static_assert(crypto_hash_sha256_BYTES == SHA256_BYTES, "SHA-256 size");

static crypto_hash_sha256_state *state_of(struct sha256 *sha)
{
    return (crypto_hash_sha256_state *)(void *)sha->opaque;
}

uint64_t checksum_xxh3(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

uint64_t checksum_xxh3_seeded(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

void sha256_init(struct sha256 *sha)
{
    (void)crypto_hash_sha256_init(state_of(sha));
}

void sha256_update(struct sha256 *sha, const void *data, size_t bytes)
{
    (void)crypto_hash_sha256_update(state_of(sha), data, bytes);
}

void sha256_final(struct sha256 *sha, uint8_t ret[SHA256_BYTES])
{
    (void)crypto_hash_sha256_final(state_of(sha), ret);
}

void sha256_of(const void *data, size_t bytes, uint8_t ret[SHA256_BYTES])
{
    (void)crypto_hash_sha256(ret, data, bytes);
}
