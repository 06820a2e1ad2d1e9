/* Pages of the event list, on the caller's thread; events are posted (rows.c). Surprising: sequence
 * numbers have gaps where a batch was written again; their order is what counts. */
#include "coordinator/store/internal.h"

static json_t *event_object(const PGresult *result, int row)
{
    return json_pack("{s:I, s:s, s:s, s:s, s:s, s:o}", "seq", (json_int_t)pq_i64(result, row, 0),
                     "type", pq_text(result, row, 1), "severity", pq_text(result, row, 2),
                     "subject", pq_text(result, row, 3), "text", pq_text(result, row, 4), "at",
                     page_time(result, row, 5));
}

enum status store_events_page(struct store *store, uint64_t after, uint32_t limit, json_t **ret,
                              bool *ret_more, struct error *err)
{
    struct pq_args args = {0};
    if (after == 0)
        return store_page(store,
                          "SELECT seq, type, severity, subject, text, at_ms FROM events"
                          " ORDER BY seq DESC LIMIT $1",
                          &args, limit, event_object, ret, ret_more, err);
    pq_add_u64(&args, after);
    return store_page(store,
                      "SELECT seq, type, severity, subject, text, at_ms FROM events"
                      " WHERE seq > $1 ORDER BY seq LIMIT $2",
                      &args, limit, event_object, ret, ret_more, err);
}
