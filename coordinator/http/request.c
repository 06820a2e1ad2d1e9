/* Reading headers and query parameters of a request. The thread that has the request. */
#include "coordinator/http/request.h"

#include "coordinator/http/respond.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_ROWS 50
#define PAGE_ROWS_MAX 200

const char *request_header(const struct request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

const char *request_query(const struct request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

bool request_number(struct request *request, const char *name, uint64_t smallest, uint64_t largest,
                    uint64_t fallback, uint64_t *ret)
{
    const char *text = request_query(request, name);
    char *end = NULL;
    if (!text) {
        *ret = fallback;
        return true;
    }
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno || number < smallest ||
        number > largest) {
        respond_problem(request, PROBLEM_INVALID_REQUEST,
                        "%s must be a whole number from %" PRIu64 " to %" PRIu64 ".", name,
                        smallest, largest);
        return false;
    }
    *ret = number;
    return true;
}

bool request_page(struct request *request, const char *prefix, uint32_t *ret_limit,
                  const char **ret_cursor)
{
    uint64_t limit;
    const char *cursor = request_query(request, "cursor");
    if (!request_number(request, "limit", 1, PAGE_ROWS_MAX, PAGE_ROWS, &limit))
        return false;
    if (cursor && !id_is_valid(cursor, prefix)) {
        respond_problem(request, PROBLEM_INVALID_CURSOR,
                        "Use next_cursor of the page before as it was given.");
        return false;
    }
    *ret_limit = (uint32_t)limit;
    *ret_cursor = cursor ? cursor : "";
    return true;
}
