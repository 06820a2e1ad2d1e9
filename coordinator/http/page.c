/* The envelope of lists. Any thread. Its surprise: the cursor is simply the last id; rows are
 * ordered by id, so that a page stays right while others are added. */
#include "coordinator/http/page.h"

#include "coordinator/http/respond.h"

void respond_page(struct request *request, json_t *rows, bool has_more)
{
    const json_t *last = json_array_get(rows, json_array_size(rows) - 1);
    const char *id = has_more ? json_string_value(json_object_get(last, "id")) : NULL;
    respond_json(
        request, MHD_HTTP_OK,
        json_pack("{so sb ss?}", "data", rows, "has_more", (int)has_more, "next_cursor", id));
}
