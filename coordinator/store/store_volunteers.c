/* Volunteers as PostgreSQL knows them, on the caller's thread; enrolling is in enrol.c. Surprising:
 * labels, processors and versions come from strangers' machines and are kept as they are: whoever
 * shows them must treat them as text. */
#include "coordinator/store/volunteer_row.h"

#include "common/base/bytes.h"
#include "coordinator/store/internal.h"

enum status volunteer_row_read(const PGresult *result, int row, struct store_volunteer *ret)
{
    struct store_volunteer volunteer = {.threads = (uint32_t)pq_u64(result, row, 6),
                                        .memory_bytes = pq_u64(result, row, 7),
                                        .created_ms = pq_i64(result, row, 10),
                                        .last_seen_ms = pq_i64(result, row, 11),
                                        .updates_applied = pq_u64(result, row, 12),
                                        .samples = pq_u64(result, row, 13)};
    if (!text_copy(volunteer.id, sizeof volunteer.id, pq_text(result, row, 0)) ||
        !pq_bytes(result, row, 1, volunteer.public_key, sizeof volunteer.public_key) ||
        !text_copy(volunteer.state, sizeof volunteer.state, pq_text(result, row, 4)))
        return STATUS_CORRUPT;
    (void)text_copy(volunteer.label, sizeof volunteer.label, pq_text(result, row, 2));
    (void)text_copy(volunteer.group, sizeof volunteer.group, pq_text(result, row, 3));
    (void)text_copy(volunteer.cpu, sizeof volunteer.cpu, pq_text(result, row, 5));
    (void)text_copy(volunteer.backend, sizeof volunteer.backend, pq_text(result, row, 8));
    (void)text_copy(volunteer.agent_version, sizeof volunteer.agent_version,
                    pq_text(result, row, 9));
    (void)text_copy(volunteer.last_end_reason, sizeof volunteer.last_end_reason,
                    pq_text(result, row, 14));
    *ret = volunteer;
    return STATUS_OK;
}

struct volunteer_load {
    store_volunteer_fn each;
    void *context;
};

static enum status load_volunteer(void *context, const PGresult *result, int row)
{
    struct volunteer_load *load = context;
    struct store_volunteer volunteer;
    enum status status = volunteer_row_read(result, row, &volunteer);
    if (status == STATUS_OK)
        load->each(load->context, &volunteer);
    return status;
}

enum status store_volunteers_load(struct store *store, store_volunteer_fn each, void *context,
                                  struct error *err)
{
    struct volunteer_load load = {.each = each, .context = context};
    return store_load(store,
                      "SELECT " VOLUNTEER_COLUMNS " FROM volunteers WHERE id > $1"
                      " ORDER BY id LIMIT $2",
                      load_volunteer, &load, err);
}

static json_t *volunteer_object(const PGresult *result, int row)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:s, s:I, s:I, s:o, s:o, s:o}", "id",
                     pq_text(result, row, 0), "label", pq_text(result, row, 2), "group",
                     pq_text(result, row, 3), "state", pq_text(result, row, 4), "cpu",
                     pq_text(result, row, 5), "threads", (json_int_t)pq_i64(result, row, 6),
                     "memory_bytes", (json_int_t)pq_i64(result, row, 7), "backend",
                     pq_text(result, row, 8), "agent_version", pq_text(result, row, 9),
                     "updates_applied", (json_int_t)pq_i64(result, row, 12), "samples",
                     (json_int_t)pq_i64(result, row, 13), "created_at", page_time(result, row, 10),
                     "last_seen_at", page_time(result, row, 11), "last_end_reason",
                     page_text_or_null(result, row, 14));
}

enum status store_volunteers_page(struct store *store, const char *after, uint32_t limit,
                                  json_t **ret, bool *ret_more, struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, after);
    return store_page(store,
                      "SELECT " VOLUNTEER_COLUMNS " FROM volunteers WHERE ($1 = '' OR id < $1)"
                      " ORDER BY id DESC LIMIT $2",
                      &args, limit, volunteer_object, ret, ret_more, err);
}
