/* Secrets as people copy them: rvn_<kind>_<8 base62>_<43 base62>_<6 hex>. The 43 characters carry
 * 256 random bits; the hex digits are the low 24 bits of the CRC-32 of all before them, so that a
 * typing error is refused without a lookup. Any thread. Surprising: the 8 characters are random
 * too; they only help people to tell two secrets apart and protect nothing. */
#include "coordinator/auth/secret.h"

#include "common/base/bytes.h"
#include "common/base/rng.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define LABEL_CHARACTERS 8
#define CRC_DIGITS 6
#define KIND_CHARACTERS_MAX 8

static const char alphabet[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

_Static_assert(4 + KIND_CHARACTERS_MAX + 1 + LABEL_CHARACTERS + 1 + SECRET_BASE62_CHARACTERS + 1 +
                       CRC_DIGITS <
                   AUTH_SECRET_BYTES,
               "a secret fits AUTH_SECRET_BYTES");

/* CRC-32 of ISO-HDLC (polynomial 0xEDB88320, reflected), bit by bit: 60 bytes need no table. */
static uint32_t crc32_of(const char *text, size_t bytes)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= (uint8_t)text[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xEDB88320) : 0);
    }
    return ~crc;
}

/* The 256-bit number in bytes, written in base 62 with leading zeros; bytes are used up. */
static void base62_write(uint8_t bytes[32], char *ret, size_t characters)
{
    for (size_t i = characters; i-- > 0;) {
        unsigned rest = 0;
        for (int j = 0; j < 32; j++) {
            unsigned value = rest << 8 | bytes[j];
            bytes[j] = (uint8_t)(value / 62);
            rest = value % 62;
        }
        ret[i] = alphabet[rest];
    }
    ret[characters] = '\0';
}

void secret_random_base62(char ret[SECRET_BASE62_CHARACTERS + 1])
{
    uint8_t bytes[32];
    random_bytes(bytes, sizeof bytes);
    base62_write(bytes, ret, SECRET_BASE62_CHARACTERS);
    sodium_memzero(bytes, sizeof bytes);
}

void auth_secret_make(const char *kind, char ret[AUTH_SECRET_BYTES])
{
    uint8_t label_bytes[32];
    char label[LABEL_CHARACTERS + 1], body[SECRET_BASE62_CHARACTERS + 1];
    random_bytes(label_bytes, sizeof label_bytes);
    base62_write(label_bytes, label, LABEL_CHARACTERS);
    secret_random_base62(body);
    int used =
        snprintf(ret, AUTH_SECRET_BYTES, "rvn_%.*s_%s_%s", KIND_CHARACTERS_MAX, kind, label, body);
    uint32_t crc = crc32_of(ret, (size_t)used) & 0xFFFFFF;
    (void)snprintf(ret + used, AUTH_SECRET_BYTES - (size_t)used, "_%06x", (unsigned)crc);
    sodium_memzero(body, sizeof body);
}

/* Moves *at over exactly count base62 characters and the separator behind them. */
static bool skip_base62(const char **at, size_t count)
{
    if (strspn(*at, alphabet) != count || (*at)[count] != '_')
        return false;
    *at += count + 1;
    return true;
}

bool auth_secret_is_wellformed(const char *text, const char *kind)
{
    size_t kind_length = strlen(kind);
    if (strnlen(text, AUTH_SECRET_BYTES) == AUTH_SECRET_BYTES || strncmp(text, "rvn_", 4) != 0 ||
        strncmp(text + 4, kind, kind_length) != 0 || text[4 + kind_length] != '_')
        return false;
    const char *at = text + 4 + kind_length + 1;
    if (!skip_base62(&at, LABEL_CHARACTERS) || !skip_base62(&at, SECRET_BASE62_CHARACTERS))
        return false;
    char expected[16];
    uint32_t crc = crc32_of(text, (size_t)(at - 1 - text)) & 0xFFFFFF;
    (void)snprintf(expected, sizeof expected, "%06x", (unsigned)crc);
    return strcmp(at, expected) == 0;
}

void auth_secret_hash(const char *text, uint8_t ret[SHA256_BYTES])
{
    sha256_of(text, strlen(text), ret);
}
