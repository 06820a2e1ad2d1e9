/* Lists: one page as JSON, or a whole table in steps. On the caller's thread. Surprising: one row
 * more than the page is asked for; whether it exists is has_more, without a count of the table. */
#include "coordinator/store/internal.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/id.h"

#define LIMIT_MAX 200

json_t *page_time(const PGresult *result, int row, int column)
{
    int64_t wall_ms = pq_i64(result, row, column);
    char text[CLOCK_RFC3339_BYTES];
    if (wall_ms == 0)
        return json_null();
    clock_format_rfc3339(wall_ms, text);
    return json_string(text);
}

json_t *page_text_or_null(const PGresult *result, int row, int column)
{
    const char *text = pq_text(result, row, column);
    return text[0] ? json_string(text) : json_null();
}

static enum status build_page(const PGresult *result, int rows, page_object_fn object, json_t **ret,
                              struct error *err)
{
    json_t *page = json_array();
    for (int row = 0; page && row < rows; row++) {
        if (json_array_append_new(page, object(result, row)) != 0) {
            json_decref(page);
            page = NULL;
        }
    }
    if (!page)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the page");
    *ret = page;
    return STATUS_OK;
}

enum status store_page(struct store *store, const char *sql, struct pq_args *args, uint32_t limit,
                       page_object_fn object, json_t **ret, bool *ret_more, struct error *err)
{
    if (limit < 1 || limit > LIMIT_MAX)
        return error_set(err, STATUS_INVALID, "limit is %u: give 1 to %d", (unsigned)limit,
                         LIMIT_MAX);
    PGresult *result = NULL;
    pq_add_u64(args, (uint64_t)limit + 1);
    enum status status = store_query(store, sql, args, &result, err);
    if (status != STATUS_OK)
        return status;
    int rows = PQntuples(result);
    bool more = rows > (int)limit;
    status = build_page(result, more ? (int)limit : rows, object, ret, err);
    if (status == STATUS_OK)
        *ret_more = more;
    PQclear(result);
    return status;
}

static enum status load_step(struct store *store, const char *sql, char after[ID_BYTES],
                             load_row_fn each, void *context, int *ret_rows, struct error *err)
{
    PGresult *result = NULL;
    struct pq_args args = {0};
    pq_add_text(&args, after);
    pq_add_i64(&args, LOAD_STEP);
    enum status status = store_query(store, sql, &args, &result, err);
    if (status != STATUS_OK)
        return status;
    int rows = PQntuples(result);
    for (int row = 0; row < rows && status == STATUS_OK; row++) {
        status = each(context, result, row);
        if (status != STATUS_OK)
            (void)error_set(err, status, "cannot load %s: %s", pq_text(result, row, 0),
                            status_text(status));
    }
    if (rows > 0)
        (void)text_copy(after, ID_BYTES, pq_text(result, rows - 1, 0));
    PQclear(result);
    *ret_rows = rows;
    return status;
}

enum status store_load(struct store *store, const char *sql, load_row_fn each, void *context,
                       struct error *err)
{
    char after[ID_BYTES] = "";
    int rows = LOAD_STEP;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && rows == LOAD_STEP)
        status = load_step(store, sql, after, each, context, &rows, err);
    return status;
}
