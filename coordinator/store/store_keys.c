/* API keys and invites in PostgreSQL, on the caller's thread. Surprising: nothing here can be used
 * to log in: of every secret only its SHA-256 is kept. */
#include "coordinator/store/internal.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"

enum status store_key_create(struct store *store, const struct store_key *key, struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, key->id);
    pq_add_text(&args, key->name);
    pq_add_bytes(&args, key->hash, sizeof key->hash);
    pq_add_u64(&args, key->scopes);
    pq_add_i64(&args, key->created_ms);
    pq_add_i64(&args, key->expires_ms);
    return store_query(store,
                       "INSERT INTO keys (id, name, hash, scopes, created_ms, expires_ms)"
                       " VALUES ($1, $2, $3, $4, $5, $6)",
                       &args, NULL, err);
}

struct key_load {
    store_key_fn each;
    void *context;
    int64_t now_ms;
};

static enum status load_key(void *context, const PGresult *result, int row)
{
    struct key_load *load = context;
    struct store_key key = {.scopes = (uint32_t)pq_u64(result, row, 3),
                            .created_ms = pq_i64(result, row, 4),
                            .expires_ms = pq_i64(result, row, 5)};
    if (key.expires_ms != 0 && key.expires_ms <= load->now_ms)
        return STATUS_OK;
    if (!text_copy(key.id, sizeof key.id, pq_text(result, row, 0)) ||
        !pq_bytes(result, row, 2, key.hash, sizeof key.hash))
        return STATUS_CORRUPT;
    (void)text_copy(key.name, sizeof key.name, pq_text(result, row, 1));
    load->each(load->context, &key);
    return STATUS_OK;
}

enum status store_keys_load(struct store *store, store_key_fn each, void *context,
                            struct error *err)
{
    struct key_load load = {.each = each, .context = context, .now_ms = clock_wall_ms()};
    return store_load(store,
                      "SELECT id, name, hash, scopes, created_ms, expires_ms FROM keys"
                      " WHERE revoked_ms = 0 AND id > $1 ORDER BY id LIMIT $2",
                      load_key, &load, err);
}

enum status store_invite_create(struct store *store, const struct store_invite *invite,
                                const struct store_idempotency *idempotency,
                                struct store_replay *ret_replay, struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, invite->id);
    pq_add_bytes(&args, invite->hash, sizeof invite->hash);
    pq_add_text(&args, invite->group);
    pq_add_u64(&args, invite->max_uses);
    pq_add_u64(&args, invite->uses);
    pq_add_i64(&args, invite->created_ms);
    pq_add_i64(&args, invite->expires_ms);
    return store_create(store,
                        "INSERT INTO invites"
                        " (id, hash, group_name, max_uses, uses, created_ms, expires_ms)"
                        " VALUES ($1, $2, $3, $4, $5, $6, $7)",
                        &args, idempotency, ret_replay, err);
}
