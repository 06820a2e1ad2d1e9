/* Creating with an idempotency key, on the caller's thread: the effect and the answer that was
 * given for it are one transaction. Surprising: the key is inserted first, so that a second request
 * with the same key waits inside PostgreSQL for the fate of the first one. */
#include "coordinator/store/internal.h"

#include "common/base/clock.h"

#include <stdlib.h>
#include <string.h>

#define KEPT_MS (INT64_C(24) * 3600 * 1000)

static enum status forget_expired(struct pq *pq, const struct store_idempotency *idempotency,
                                  int64_t deadline_us, struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, idempotency->scope);
    pq_add_text(&args, idempotency->key);
    pq_add_i64(&args, clock_wall_ms() - KEPT_MS);
    return pq_run(pq, "DELETE FROM idempotency WHERE scope = $1 AND key = $2 AND created_ms < $3",
                  &args, deadline_us, NULL, err);
}

static enum status claim(struct pq *pq, const struct store_idempotency *idempotency,
                         int64_t deadline_us, bool *ret_claimed, struct error *err)
{
    PGresult *result = NULL;
    struct pq_args args = {0};
    pq_add_text(&args, idempotency->scope);
    pq_add_text(&args, idempotency->key);
    pq_add_bytes(&args, idempotency->fingerprint, sizeof idempotency->fingerprint);
    pq_add_i64(&args, idempotency->answer_status);
    pq_add_text(&args, idempotency->answer_body);
    pq_add_i64(&args, clock_wall_ms());
    enum status status =
        pq_run(pq,
               "INSERT INTO idempotency (scope, key, fingerprint, status, body, created_ms)"
               " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (scope, key) DO NOTHING"
               " RETURNING 1",
               &args, deadline_us, &result, err);
    if (status == STATUS_OK)
        *ret_claimed = PQntuples(result) == 1;
    PQclear(result);
    return status;
}

static enum status read_answer(const PGresult *result, const struct store_idempotency *idempotency,
                               struct store_replay *ret_replay, struct error *err)
{
    uint8_t fingerprint[SHA256_BYTES];
    if (PQntuples(result) == 0)
        return error_set(err, STATUS_UNAVAILABLE,
                         "the first request with this Idempotency-Key is just ending; try again");
    if (!pq_bytes(result, 0, 0, fingerprint, sizeof fingerprint) ||
        memcmp(fingerprint, idempotency->fingerprint, sizeof fingerprint) != 0)
        return error_set(err, STATUS_STATE,
                         "this Idempotency-Key was used for a request with another body");
    char *body = strdup(pq_text(result, 0, 2));
    if (!body)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the first answer");
    ret_replay->status = (int)pq_i64(result, 0, 1);
    ret_replay->body = body;
    return error_set(err, STATUS_EXISTS, "this request was answered before");
}

static enum status replay(struct pq *pq, const struct store_idempotency *idempotency,
                          int64_t deadline_us, struct store_replay *ret_replay, struct error *err)
{
    PGresult *result = NULL;
    struct pq_args args = {0};
    pq_add_text(&args, idempotency->scope);
    pq_add_text(&args, idempotency->key);
    enum status status = pq_run(
        pq, "SELECT fingerprint, status, body FROM idempotency WHERE scope = $1 AND key = $2",
        &args, deadline_us, &result, err);
    if (status == STATUS_OK)
        status = read_answer(result, idempotency, ret_replay, err);
    PQclear(result);
    return status;
}

static enum status create_within(struct pq *pq, const char *sql, const struct pq_args *args,
                                 const struct store_idempotency *idempotency, int64_t deadline_us,
                                 struct store_replay *ret_replay, struct error *err)
{
    bool claimed = true;
    enum status status = pq_run(pq, "BEGIN", NULL, deadline_us, NULL, err);
    if (status == STATUS_OK && idempotency)
        status = forget_expired(pq, idempotency, deadline_us, err);
    if (status == STATUS_OK && idempotency)
        status = claim(pq, idempotency, deadline_us, &claimed, err);
    if (status == STATUS_OK && !claimed)
        return replay(pq, idempotency, deadline_us, ret_replay, err);
    if (status == STATUS_OK)
        status = pq_run(pq, sql, args, deadline_us, NULL, err);
    if (status == STATUS_OK)
        status = pq_commit(pq, deadline_us, err);
    return status;
}

enum status store_create(struct store *store, const char *sql, const struct pq_args *args,
                         const struct store_idempotency *idempotency,
                         struct store_replay *ret_replay, struct error *err)
{
    struct pq *pq;
    int64_t deadline_us;
    enum status status = store_take(store, &pq, &deadline_us, err);
    if (status != STATUS_OK)
        return status;
    status = create_within(pq, sql, args, idempotency, deadline_us, ret_replay, err);
    if (status != STATUS_OK)
        pq_rollback(pq, deadline_us);
    store_give(store, pq);
    return status;
}
