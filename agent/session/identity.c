/* Key file: one line, the 64 hex digits of the Ed25519 seed, in <state>/agent.key. Called from the
 * main and the session thread; sodium_init is safe to repeat. */
#include "agent/session/identity.h"

#include "common/base/buffer.h"
#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/wire/wire.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>

_Static_assert(crypto_sign_PUBLICKEYBYTES == 32 && crypto_sign_SECRETKEYBYTES == 64 &&
                   crypto_sign_SEEDBYTES == 32 && crypto_sign_BYTES == 64,
               "Ed25519 sizes");

#define KEY_FILE_BYTES 65

static enum status key_path(const char *state_dir, char ret[PATH_BYTES], struct error *err)
{
    if (sodium_init() < 0)
        return error_set(err, STATUS_SYSTEM, "the cryptographic library does not start");
    if (path_format(ret, "%s/agent.key", state_dir))
        return error_set(err, STATUS_TOO_LARGE, "the state directory's path is too long");
    return STATUS_OK;
}

enum status identity_load(const char *state_dir, struct identity *ret, struct error *err)
{
    char path[PATH_BYTES];
    enum status status = key_path(state_dir, path, err);
    if (status)
        return status;
    struct stat info;
    if (stat(path, &info) < 0)
        return error_set_errno(err, errno, "cannot open the key %s", path);
    if (info.st_mode & 077)
        return error_set(err, STATUS_DENIED, "others can read the key %s; run chmod 600 on it",
                         path);

    struct buffer text;
    buffer_init(&text, KEY_FILE_BYTES);
    status = file_read(path, &text, err);
    uint8_t seed[32];
    const char *line = status ? NULL : buffer_text(&text);
    char digits[KEY_FILE_BYTES] = {0};
    if (line)
        memcpy(digits, line, text.bytes < 64 ? text.bytes : 64);
    if (!status && !hex_decode(digits, seed, sizeof seed))
        status = error_set(err, STATUS_CORRUPT, "%s does not hold a key; remove it and join again",
                           path);
    if (!status) {
        struct identity identity;
        crypto_sign_seed_keypair(identity.public_key, identity.secret_key, seed);
        *ret = identity;
        identity_wipe(&identity);
    }
    if (text.data)
        sodium_memzero(text.data, text.bytes);
    sodium_memzero(digits, sizeof digits);
    sodium_memzero(seed, sizeof seed);
    buffer_done(&text);
    return status;
}

enum status identity_create(const char *state_dir, struct identity *ret, struct error *err)
{
    char path[PATH_BYTES];
    enum status status = key_path(state_dir, path, err);
    if (status)
        return status;
    uint8_t seed[32];
    char text[KEY_FILE_BYTES + 1];
    randombytes_buf(seed, sizeof seed);
    hex_encode(seed, sizeof seed, text);
    text[64] = '\n';
    status = file_write_atomic(path, text, KEY_FILE_BYTES, 0600, err);
    if (!status)
        crypto_sign_seed_keypair(ret->public_key, ret->secret_key, seed);
    sodium_memzero(seed, sizeof seed);
    sodium_memzero(text, sizeof text);
    return status;
}

void identity_sign_hello(const struct identity *identity, const uint8_t nonce[32],
                         uint8_t ret_signature[64])
{
    enum { CONTEXT_BYTES = sizeof WIRE_HELLO_CONTEXT - 1 };
    uint8_t message[CONTEXT_BYTES + 64];
    memcpy(message, WIRE_HELLO_CONTEXT, CONTEXT_BYTES);
    memcpy(message + CONTEXT_BYTES, nonce, 32);
    memcpy(message + CONTEXT_BYTES + 32, identity->public_key, 32);
    crypto_sign_detached(ret_signature, NULL, message, sizeof message, identity->secret_key);
}

void identity_wipe(struct identity *identity)
{
    sodium_memzero(identity, sizeof *identity);
}
