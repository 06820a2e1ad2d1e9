/* GET /v1/events: what happened. On a worker. Its surprise: without `after` the page is the newest
 * events, newest first; with it, the ones that follow that number, oldest first, to tail the log.
 */
#include "coordinator/http/respond.h"

#include <inttypes.h>
#include <stdio.h>

#define SEQUENCE_MAX ((1ull << 53) - 1)

void route_events(struct request *request)
{
    uint64_t after, limit;
    json_t *rows = NULL;
    bool more = false;
    struct error err = {0};
    char cursor[24];
    if (!request_number(request, "after", 0, SEQUENCE_MAX, 0, &after) ||
        !request_number(request, "limit", 1, 200, 50, &limit))
        return;
    enum status status =
        store_events_page(request->http->store, after, (uint32_t)limit, &rows, &more, &err);
    if (status) {
        respond_status(request, status, &err);
        return;
    }
    const json_t *last = json_array_get(rows, json_array_size(rows) - 1);
    bool continues = more && after > 0;
    snprintf(cursor, sizeof cursor, "%" JSON_INTEGER_FORMAT,
             json_integer_value(json_object_get(last, "seq")));
    respond_json(request, MHD_HTTP_OK,
                 json_pack("{so sb ss?}", "data", rows, "has_more", (int)more, "next_cursor",
                           continues ? cursor : NULL));
}
