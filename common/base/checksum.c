/* XXH3-64 by libxxhash and SHA-256 by libsodium. Any thread. Surprising: the libraries' states
 * hide in opaque arrays, so that only this file needs their headers. */
#include "common/base/checksum.h"

#include <sodium.h>
#define XXH_STATIC_LINKING_ONLY /* for the size of XXH3_state_t */
#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h> /* the same functions with AVX2 where it is: 29 instead of 8 GB/s */
#endif

_Static_assert(sizeof(crypto_hash_sha256_state) <= sizeof(struct sha256),
               "sha256.opaque too small");
_Static_assert(_Alignof(crypto_hash_sha256_state) <= _Alignof(struct sha256), "sha256 alignment");
_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct xxh3), "xxh3.opaque too small");
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

void xxh3_init(struct xxh3 *xxh)
{
    (void)XXH3_64bits_reset((XXH3_state_t *)(void *)xxh->opaque);
}

void xxh3_update(struct xxh3 *xxh, const void *data, size_t bytes)
{
    (void)XXH3_64bits_update((XXH3_state_t *)(void *)xxh->opaque, data, bytes);
}

uint64_t xxh3_final(const struct xxh3 *xxh)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)xxh->opaque);
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
