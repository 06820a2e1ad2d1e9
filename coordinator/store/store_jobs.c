/* Jobs in PostgreSQL, on the caller's thread; their states are posted (rows.c). Surprising: the
 * specification is kept as text, never as jsonb, so that its bytes come back as they were. */
#include "coordinator/store/internal.h"

#include "common/base/bytes.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS "id, spec, artifacts, blocks, state, reason, created_ms, started_ms, finished_ms"

enum status store_job_create(struct store *store, const struct store_job *job,
                             const struct store_idempotency *idempotency,
                             struct store_replay *ret_replay, struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, job->id);
    pq_add_text(&args, job->spec);
    pq_add_text(&args, job->artifacts);
    pq_add_u64(&args, job->blocks);
    pq_add_text(&args, job->state);
    pq_add_text(&args, job->reason);
    pq_add_i64(&args, job->created_ms);
    pq_add_i64(&args, job->started_ms);
    pq_add_i64(&args, job->finished_ms);
    return store_create(store,
                        "INSERT INTO jobs (" COLUMNS ")"
                        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                        &args, idempotency, ret_replay, err);
}

static enum status read_job(const PGresult *result, int row, struct store_job *ret)
{
    struct store_job job = {.blocks = pq_u64(result, row, 3),
                            .created_ms = pq_i64(result, row, 6),
                            .started_ms = pq_i64(result, row, 7),
                            .finished_ms = pq_i64(result, row, 8)};
    if (!text_copy(job.id, sizeof job.id, pq_text(result, row, 0)) ||
        !text_copy(job.state, sizeof job.state, pq_text(result, row, 4)))
        return STATUS_CORRUPT;
    (void)text_copy(job.reason, sizeof job.reason, pq_text(result, row, 5));
    job.spec = strdup(pq_text(result, row, 1));
    job.artifacts = strdup(pq_text(result, row, 2));
    if (!job.spec || !job.artifacts) {
        store_job_done(&job);
        return STATUS_NO_MEMORY;
    }
    *ret = job;
    return STATUS_OK;
}

void store_job_done(struct store_job *job)
{
    free(job->spec);
    free(job->artifacts);
    job->spec = NULL;
    job->artifacts = NULL;
}

enum status store_job_get(struct store *store, const char *id, struct store_job *ret,
                          struct error *err)
{
    PGresult *result = NULL;
    struct pq_args args = {0};
    pq_add_text(&args, id);
    enum status status =
        store_query(store, "SELECT " COLUMNS " FROM jobs WHERE id = $1", &args, &result, err);
    if (status == STATUS_OK && PQntuples(result) == 0) {
        status = error_set(err, STATUS_NOT_FOUND, "there is no %s", id);
    } else if (status == STATUS_OK) {
        status = read_job(result, 0, ret);
        if (status != STATUS_OK)
            (void)error_set(err, status, "cannot read %s: %s", id, status_text(status));
    }
    PQclear(result);
    return status;
}

static json_t *job_object(const PGresult *result, int row)
{
    json_t *spec = json_loads(pq_text(result, row, 1), 0, NULL);
    const char *name = json_string_value(json_object_get(spec, "name"));
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o?}", "id", pq_text(result, row, 0),
                     "name", name ? name : "", "state", pq_text(result, row, 4), "reason",
                     page_text_or_null(result, row, 5), "created_at", page_time(result, row, 6),
                     "started_at", page_time(result, row, 7), "finished_at",
                     page_time(result, row, 8), "spec", spec);
}

enum status store_jobs_page(struct store *store, const char *state, const char *after,
                            uint32_t limit, json_t **ret, bool *ret_more, struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, after);
    if (state[0] == '\0')
        return store_page(store,
                          "SELECT " COLUMNS " FROM jobs WHERE ($1 = '' OR id < $1)"
                          " ORDER BY id DESC LIMIT $2",
                          &args, limit, job_object, ret, ret_more, err);
    pq_add_text(&args, state);
    return store_page(store,
                      "SELECT " COLUMNS " FROM jobs WHERE ($1 = '' OR id < $1) AND state = $2"
                      " ORDER BY id DESC LIMIT $3",
                      &args, limit, job_object, ret, ret_more, err);
}

struct job_load {
    store_job_fn each;
    void *context;
};

static enum status load_job(void *context, const PGresult *result, int row)
{
    struct job_load *load = context;
    struct store_job job;
    enum status status = read_job(result, row, &job);
    if (status != STATUS_OK)
        return status;
    load->each(load->context, &job);
    store_job_done(&job);
    return STATUS_OK;
}

enum status store_jobs_load(struct store *store, store_job_fn each, void *context,
                            struct error *err)
{
    struct job_load load = {.each = each, .context = context};
    return store_load(store,
                      "SELECT " COLUMNS " FROM jobs WHERE state IN ('queued', 'running')"
                      " AND id > $1 ORDER BY id LIMIT $2",
                      load_job, &load, err);
}
