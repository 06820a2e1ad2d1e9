/* Credentials in memory: three tables (keys, browser sessions, agents' tokens) of SHA-256 hashes
 * and the setup token, under one mutex. Any thread; nothing here waits for anything but that mutex.
 * Surprising: a lookup walks the whole table, comparing in constant time: a request needs one, and
 * ten thousand comparisons take a fraction of a millisecond. */
#include "coordinator/auth/auth.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "coordinator/auth/secret.h"

#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 10000u
#define SESSIONS_MAX 4096u /* the one that ends first gives way */
#define TOKENS_MAX 65536u
#define SESSION_US (INT64_C(12) * 3600 * 1000000)

/* What a secret with this hash stands for. */
struct entry {
    uint8_t hash[SHA256_BYTES];
    struct auth_principal principal;
    int64_t expires_wall_ms; /* 0: never */
    int64_t expires_us;      /* monotonic; 0: never */
};

struct table {
    struct entry *entries;
    size_t count, capacity, count_max;
};

struct auth {
    pthread_mutex_t mutex;
    struct table keys, sessions, tokens;
    bool setup_armed;
    uint8_t setup_hash[SHA256_BYTES];
    int64_t setup_expires_us;
};

/* --- a table of hashes --- */

static bool entry_is_live(const struct entry *entry)
{
    return (entry->expires_wall_ms == 0 || entry->expires_wall_ms > clock_wall_ms()) &&
           (entry->expires_us == 0 || entry->expires_us > clock_monotonic_us());
}

static struct entry *table_find_hash(const struct table *table, const uint8_t hash[SHA256_BYTES])
{
    struct entry *found = NULL;
    for (size_t i = 0; i < table->count; i++)
        if (sodium_memcmp(table->entries[i].hash, hash, SHA256_BYTES) == 0)
            found = &table->entries[i];
    return found;
}

static struct entry *table_find_text(const struct table *table, const char *secret)
{
    uint8_t hash[SHA256_BYTES];
    auth_secret_hash(secret, hash);
    return table_find_hash(table, hash);
}

static void table_remove(struct table *table, struct entry *entry)
{
    *entry = table->entries[--table->count];
    sodium_memzero(&table->entries[table->count], sizeof *entry);
}

static void table_remove_principal(struct table *table, const char *id)
{
    for (size_t i = table->count; i-- > 0;)
        if (strcmp(table->entries[i].principal.id, id) == 0)
            table_remove(table, &table->entries[i]);
}

static void table_remove_dead(struct table *table)
{
    for (size_t i = table->count; i-- > 0;)
        if (!entry_is_live(&table->entries[i]))
            table_remove(table, &table->entries[i]);
}

static void table_remove_first_to_end(struct table *table)
{
    struct entry *first = table->entries;
    for (size_t i = 1; i < table->count; i++)
        if (table->entries[i].expires_us < first->expires_us)
            first = &table->entries[i];
    table_remove(table, first);
}

static enum status table_add(struct table *table, const struct entry *entry)
{
    if (table->count == table->count_max)
        return STATUS_BUSY;
    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? 2 * table->capacity : 16;
        struct entry *entries = realloc(table->entries, capacity * sizeof *entries);
        if (!entries)
            return STATUS_NO_MEMORY;
        table->entries = entries;
        table->capacity = capacity;
    }
    table->entries[table->count++] = *entry;
    return STATUS_OK;
}

static void table_done(struct table *table)
{
    if (table->entries)
        sodium_memzero(table->entries, table->capacity * sizeof *table->entries);
    free(table->entries);
}

/* --- life --- */

enum status auth_create(struct auth **ret)
{
    struct auth *auth = calloc(1, sizeof *auth);
    if (!auth)
        return STATUS_NO_MEMORY;
    if (pthread_mutex_init(&auth->mutex, NULL)) {
        free(auth);
        return STATUS_NO_MEMORY;
    }
    auth->keys.count_max = KEYS_MAX;
    auth->sessions.count_max = SESSIONS_MAX;
    auth->tokens.count_max = TOKENS_MAX;
    *ret = auth;
    return STATUS_OK;
}

void auth_free(struct auth *auth)
{
    if (!auth)
        return;
    table_done(&auth->keys);
    table_done(&auth->sessions);
    table_done(&auth->tokens);
    pthread_mutex_destroy(&auth->mutex);
    free(auth);
}

/* --- API keys --- */

static struct entry *key_by_id(struct auth *auth, const char *id)
{
    for (size_t i = 0; i < auth->keys.count; i++)
        if (strcmp(auth->keys.entries[i].principal.id, id) == 0)
            return &auth->keys.entries[i];
    return NULL;
}

enum status auth_key_add(struct auth *auth, const char *id, const uint8_t hash[SHA256_BYTES],
                         uint32_t scopes, int64_t expires_wall_ms)
{
    struct entry entry = {.principal = {.kind = PRINCIPAL_KEY, .scopes = scopes & SCOPE_ALL},
                          .expires_wall_ms = expires_wall_ms};
    memcpy(entry.hash, hash, SHA256_BYTES);
    if (!text_copy(entry.principal.id, sizeof entry.principal.id, id))
        return STATUS_INVALID;
    pthread_mutex_lock(&auth->mutex);
    struct entry *known = key_by_id(auth, id);
    enum status status = STATUS_OK;
    if (known)
        *known = entry;
    else
        status = table_add(&auth->keys, &entry);
    pthread_mutex_unlock(&auth->mutex);
    return status;
}

void auth_key_remove(struct auth *auth, const char *id)
{
    pthread_mutex_lock(&auth->mutex);
    table_remove_principal(&auth->keys, id);
    table_remove_principal(&auth->sessions, id);
    pthread_mutex_unlock(&auth->mutex);
}

uint32_t auth_key_count(struct auth *auth)
{
    pthread_mutex_lock(&auth->mutex);
    uint32_t count = (uint32_t)auth->keys.count;
    pthread_mutex_unlock(&auth->mutex);
    return count;
}

/* --- setup --- */

void auth_setup_arm(struct auth *auth, const uint8_t hash[SHA256_BYTES], int64_t setup_ms)
{
    pthread_mutex_lock(&auth->mutex);
    memcpy(auth->setup_hash, hash, SHA256_BYTES);
    auth->setup_expires_us = clock_monotonic_us() + setup_ms * 1000;
    auth->setup_armed = true;
    pthread_mutex_unlock(&auth->mutex);
}

bool auth_setup_use(struct auth *auth, const char *token)
{
    if (!auth_secret_is_wellformed(token, "set"))
        return false;
    uint8_t hash[SHA256_BYTES];
    auth_secret_hash(token, hash);
    pthread_mutex_lock(&auth->mutex);
    bool right = auth->setup_armed && sodium_memcmp(auth->setup_hash, hash, SHA256_BYTES) == 0 &&
                 clock_monotonic_us() < auth->setup_expires_us;
    if (right)
        auth->setup_armed = false;
    pthread_mutex_unlock(&auth->mutex);
    return right;
}

/* --- credentials of a request --- */

static enum status check(struct auth *auth, const struct table *table, const char *secret,
                         struct auth_principal *ret)
{
    pthread_mutex_lock(&auth->mutex);
    const struct entry *entry = table_find_text(table, secret);
    bool live = entry && entry_is_live(entry);
    if (live)
        *ret = entry->principal;
    pthread_mutex_unlock(&auth->mutex);
    return live ? STATUS_OK : STATUS_DENIED;
}

enum status auth_check_bearer(struct auth *auth, const char *text, struct auth_principal *ret)
{
    if (auth_secret_is_wellformed(text, "sk"))
        return check(auth, &auth->keys, text, ret);
    if (auth_secret_is_wellformed(text, "agt"))
        return check(auth, &auth->tokens, text, ret);
    return STATUS_DENIED;
}

enum status auth_session_create(struct auth *auth, const struct auth_principal *principal,
                                char ret[64])
{
    char text[SECRET_BASE62_CHARACTERS + 1];
    secret_random_base62(text);
    struct entry entry = {.principal = *principal, .expires_us = clock_monotonic_us() + SESSION_US};
    entry.principal.kind = PRINCIPAL_BROWSER;
    auth_secret_hash(text, entry.hash);
    pthread_mutex_lock(&auth->mutex);
    const struct entry *key = key_by_id(auth, principal->id);
    enum status status = key && entry_is_live(key) ? STATUS_OK : STATUS_DENIED;
    if (status == STATUS_OK) {
        entry.principal.scopes &= key->principal.scopes;
        entry.expires_wall_ms = key->expires_wall_ms;
        if (auth->sessions.count == auth->sessions.count_max)
            table_remove_dead(&auth->sessions);
        if (auth->sessions.count == auth->sessions.count_max)
            table_remove_first_to_end(&auth->sessions);
        status = table_add(&auth->sessions, &entry);
    }
    pthread_mutex_unlock(&auth->mutex);
    if (status == STATUS_OK)
        (void)text_copy(ret, 64, text);
    return status;
}

enum status auth_check_session(struct auth *auth, const char *session, struct auth_principal *ret)
{
    if (strnlen(session, 64) != SECRET_BASE62_CHARACTERS)
        return STATUS_DENIED;
    return check(auth, &auth->sessions, session, ret);
}

static void end(struct auth *auth, struct table *table, const char *secret)
{
    pthread_mutex_lock(&auth->mutex);
    struct entry *entry = table_find_text(table, secret);
    if (entry)
        table_remove(table, entry);
    pthread_mutex_unlock(&auth->mutex);
}

void auth_session_end(struct auth *auth, const char *session)
{
    end(auth, &auth->sessions, session);
}

enum status auth_agent_token_make(struct auth *auth, const char *volunteer,
                                  char ret[AUTH_SECRET_BYTES])
{
    struct entry entry = {.principal = {.kind = PRINCIPAL_AGENT, .scopes = SCOPE_ARTIFACTS_READ}};
    if (!text_copy(entry.principal.id, sizeof entry.principal.id, volunteer))
        return STATUS_INVALID;
    char text[AUTH_SECRET_BYTES];
    auth_secret_make("agt", text);
    auth_secret_hash(text, entry.hash);
    pthread_mutex_lock(&auth->mutex);
    enum status status = table_add(&auth->tokens, &entry);
    pthread_mutex_unlock(&auth->mutex);
    if (status == STATUS_OK)
        (void)text_copy(ret, AUTH_SECRET_BYTES, text);
    return status;
}

void auth_agent_token_end(struct auth *auth, const char *token)
{
    end(auth, &auth->tokens, token);
}
