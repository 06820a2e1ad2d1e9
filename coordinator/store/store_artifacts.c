/* Artifacts in PostgreSQL: what is known about each file; the bytes are elsewhere. On the caller's
 * thread. Surprising: two artifacts may have the same content while both are uploaded. */
#include "coordinator/store/internal.h"

#include "common/base/bytes.h"

#define COLUMNS "id, kind, filename, size_bytes, sha256, state, items, created_ms, reason"

enum status store_artifact_create(struct store *store, const struct store_artifact *artifact,
                                  const struct store_idempotency *idempotency,
                                  struct store_replay *ret_replay, struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, artifact->id);
    pq_add_text(&args, artifact->kind);
    pq_add_text(&args, artifact->filename);
    pq_add_u64(&args, artifact->size_bytes);
    pq_add_bytes(&args, artifact->sha256, sizeof artifact->sha256);
    pq_add_text(&args, artifact->state);
    pq_add_u64(&args, artifact->items);
    pq_add_i64(&args, artifact->created_ms);
    pq_add_text(&args, artifact->reason);
    return store_create(store,
                        "INSERT INTO artifacts (" COLUMNS ")"
                        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                        &args, idempotency, ret_replay, err);
}

static enum status read_artifact(const PGresult *result, int row, struct store_artifact *ret)
{
    struct store_artifact artifact = {.size_bytes = pq_u64(result, row, 3),
                                      .items = pq_u64(result, row, 6),
                                      .created_ms = pq_i64(result, row, 7)};
    if (!text_copy(artifact.id, sizeof artifact.id, pq_text(result, row, 0)) ||
        !text_copy(artifact.kind, sizeof artifact.kind, pq_text(result, row, 1)) ||
        !pq_bytes(result, row, 4, artifact.sha256, sizeof artifact.sha256) ||
        !text_copy(artifact.state, sizeof artifact.state, pq_text(result, row, 5)))
        return STATUS_CORRUPT;
    (void)text_copy(artifact.filename, sizeof artifact.filename, pq_text(result, row, 2));
    (void)text_copy(artifact.reason, sizeof artifact.reason, pq_text(result, row, 8));
    *ret = artifact;
    return STATUS_OK;
}

/* what: names the wanted one in the sentence of STATUS_NOT_FOUND. */
static enum status get_one(struct store *store, const char *sql, const struct pq_args *args,
                           const char *what, struct store_artifact *ret, struct error *err)
{
    PGresult *result = NULL;
    enum status status = store_query(store, sql, args, &result, err);
    if (status == STATUS_OK && PQntuples(result) == 0)
        status = error_set(err, STATUS_NOT_FOUND, "there is no %s", what);
    else if (status == STATUS_OK && read_artifact(result, 0, ret) != STATUS_OK)
        status = error_set(err, STATUS_CORRUPT, "the row of %s cannot be read", what);
    PQclear(result);
    return status;
}

enum status store_artifact_get(struct store *store, const char *id, struct store_artifact *ret,
                               struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, id);
    return get_one(store, "SELECT " COLUMNS " FROM artifacts WHERE id = $1", &args, id, ret, err);
}

enum status store_artifact_find(struct store *store, const uint8_t sha256[SHA256_BYTES],
                                const char *kind, struct store_artifact *ret, struct error *err)
{
    struct pq_args args = {0};
    pq_add_bytes(&args, sha256, SHA256_BYTES);
    pq_add_text(&args, kind);
    return get_one(store,
                   "SELECT " COLUMNS " FROM artifacts"
                   " WHERE sha256 = $1 AND kind = $2 AND state = 'ready' ORDER BY id LIMIT 1",
                   &args, "ready artifact with this content", ret, err);
}

enum status store_artifact_set_state(struct store *store, const char *id, const char *state,
                                     uint64_t items, struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, id);
    pq_add_text(&args, state);
    pq_add_u64(&args, items);
    return store_change(store, "UPDATE artifacts SET state = $2, items = $3 WHERE id = $1", &args,
                        id, err);
}

enum status store_artifact_reject(struct store *store, const char *id, const char *reason,
                                  struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, id);
    pq_add_text(&args, reason);
    return store_change(store, "UPDATE artifacts SET state = 'rejected', reason = $2 WHERE id = $1",
                        &args, id, err);
}

enum status store_artifact_delete(struct store *store, const char *id, struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, id);
    return store_change(store, "DELETE FROM artifacts WHERE id = $1", &args, id, err);
}

static json_t *artifact_object(const PGresult *result, int row)
{
    struct store_artifact artifact;
    char sha256[SHA256_HEX_BYTES];
    if (read_artifact(result, row, &artifact) != STATUS_OK)
        return NULL;
    hex_encode(artifact.sha256, sizeof artifact.sha256, sha256);
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:o, s:I, s:o}", "id", artifact.id, "kind",
                     artifact.kind, "filename", artifact.filename, "size_bytes",
                     (json_int_t)artifact.size_bytes, "sha256", sha256, "state", artifact.state,
                     "reason", page_text_or_null(result, row, 8), "items",
                     (json_int_t)artifact.items, "created_at", page_time(result, row, 7));
}

enum status store_artifacts_page(struct store *store, const char *after, uint32_t limit,
                                 json_t **ret, bool *ret_more, struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, after);
    return store_page(store,
                      "SELECT " COLUMNS " FROM artifacts WHERE ($1 = '' OR id < $1)"
                      " ORDER BY id DESC LIMIT $2",
                      &args, limit, artifact_object, ret, ret_more, err);
}
