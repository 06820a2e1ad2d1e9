/* The volunteer's Ed25519 key pair. The secret half never leaves the state directory. */
#ifndef RAVEN_AGENT_SESSION_IDENTITY_H
#define RAVEN_AGENT_SESSION_IDENTITY_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct identity {
    uint8_t public_key[32];
    uint8_t secret_key[64];
};

/* STATUS_NOT_FOUND when there is none; STATUS_DENIED when others may read the file; STATUS_CORRUPT
 * when it holds no key. */
enum status identity_load(const char *state_dir, struct identity *ret,
                          struct error *err) MUST_CHECK;
/* Makes a new pair and stores it with mode 0600. */
enum status identity_create(const char *state_dir, struct identity *ret,
                            struct error *err) MUST_CHECK;
/* Ed25519 over WIRE_HELLO_CONTEXT ‖ nonce ‖ public key. */
void identity_sign_hello(const struct identity *identity, const uint8_t nonce[32],
                         uint8_t ret_signature[64]);
void identity_wipe(struct identity *identity);

#endif
