/* Who may do what, in memory: API keys, browser sessions, agents' download tokens, the one-time
 * setup token. Loaded from the store at start; never waits for the database. Secrets are kept as
 * SHA-256 only and compared in constant time. Any thread. */
#ifndef RAVEN_COORDINATOR_AUTH_AUTH_H
#define RAVEN_COORDINATOR_AUTH_AUTH_H

#include "common/base/checksum.h"
#include "common/base/id.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* "rvn_sk_01234567_<43 base62>_<6 hex of CRC-32>": kind sk (API key), inv (invite), set (setup). */
#define AUTH_SECRET_BYTES 80

enum auth_scope {
    SCOPE_NONE = 0, /* any valid credential */
    SCOPE_JOBS_READ = 1 << 0,
    SCOPE_JOBS_WRITE = 1 << 1,
    SCOPE_ARTIFACTS_READ = 1 << 2,
    SCOPE_ARTIFACTS_WRITE = 1 << 3,
    SCOPE_VOLUNTEERS_READ = 1 << 4,
    SCOPE_VOLUNTEERS_WRITE = 1 << 5,
    SCOPE_METRICS_READ = 1 << 6,
    SCOPE_EVENTS_READ = 1 << 7,
    SCOPE_KEYS_ADMIN = 1 << 8,
    SCOPE_ALL = (1 << 9) - 1,
};

const char *auth_scope_name(enum auth_scope scope); /* "jobs:read" */
/* "jobs:read jobs:write" both ways; STATUS_INVALID for an unknown name. */
enum status auth_scopes_parse(const char *text, uint32_t *ret) MUST_CHECK;
void auth_scopes_format(uint32_t scopes, char *ret, size_t ret_bytes);

enum auth_principal_kind { PRINCIPAL_KEY, PRINCIPAL_BROWSER, PRINCIPAL_AGENT };

struct auth_principal {
    enum auth_principal_kind kind;
    char id[ID_BYTES]; /* key_…, or vol_… for agents */
    uint32_t scopes;
};

/* --- secrets --- */
/* kind: "sk", "inv" or "set". The text is shown once; store only its hash. */
void auth_secret_make(const char *kind, char ret[AUTH_SECRET_BYTES]);
/* False unless shape, kind and checksum are right: a typing error never reaches a lookup. */
bool auth_secret_is_wellformed(const char *text, const char *kind);
void auth_secret_hash(const char *text, uint8_t ret[SHA256_BYTES]);

struct auth;

enum status auth_create(struct auth **ret) MUST_CHECK;
void auth_free(struct auth *auth);

/* --- API keys: mirrored here from the store --- */
enum status auth_key_add(struct auth *auth, const char *id, const uint8_t hash[SHA256_BYTES],
                         uint32_t scopes, int64_t expires_wall_ms) MUST_CHECK;
void auth_key_remove(struct auth *auth, const char *id); /* ends its browser sessions too */
uint32_t auth_key_count(struct auth *auth);

/* --- setup: valid once, for setup_ms --- */
void auth_setup_arm(struct auth *auth, const uint8_t hash[SHA256_BYTES], int64_t setup_ms);
/* True once for the right, unexpired token. */
bool auth_setup_use(struct auth *auth, const char *token);

/* --- credentials of a request --- */
/* Authorization: Bearer text. STATUS_DENIED when unknown, malformed or expired. */
enum status auth_check_bearer(struct auth *auth, const char *text,
                              struct auth_principal *ret) MUST_CHECK;
/* Makes a browser session of 12 h for a key's principal. ret: 43 base62 characters and NUL. */
enum status auth_session_create(struct auth *auth, const struct auth_principal *principal,
                                char ret[64]) MUST_CHECK;
enum status auth_check_session(struct auth *auth, const char *session,
                               struct auth_principal *ret) MUST_CHECK;
void auth_session_end(struct auth *auth, const char *session);

/* Download token of an agent's session: scopes artifacts:read only (and its job's replica). */
enum status auth_agent_token_make(struct auth *auth, const char *volunteer,
                                  char ret[AUTH_SECRET_BYTES]) MUST_CHECK;
void auth_agent_token_end(struct auth *auth, const char *token);

#endif
