/* The table of routes and how a path finds its row. */
#ifndef RAVEN_COORDINATOR_HTTP_ROUTE_H
#define RAVEN_COORDINATOR_HTTP_ROUTE_H

#include "common/base/id.h"
#include "coordinator/auth/auth.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct request;

enum route_access { ACCESS_PUBLIC, ACCESS_SIGNED };
enum route_body { BODY_NONE, BODY_JSON, BODY_STREAM };
enum route_flags { FLAG_INLINE = 1, FLAG_KEY = 2, FLAG_AGENT = 4 };

struct route {
    const char *method, *path;
    enum route_access access;
    uint32_t scope; /* of enum auth_scope */
    enum route_body body;
    uint32_t flags;
    const char *query; /* names, separated by spaces */
    void (*handle)(struct request *request);
};

#define ROUTE_PARAMETER_BYTES 64 /* longer segments match no route */

/* NULL when no row has this path, or none of them this method (then *ret_allow lists theirs,
 * "GET, HEAD"; else it is empty). ret_parameter: the segment that "{id}" matched, or "". */
const struct route *route_find(const char *method, const char *path,
                               char ret_parameter[ROUTE_PARAMETER_BYTES], char *ret_allow,
                               size_t allow_bytes);
bool route_allows_query(const struct route *route, const char *name);

struct store_artifact;
/* The artifact that {id} names. False: answered (404, or the store's trouble). */
bool route_find_artifact(struct request *request, struct store_artifact *ret);

#define ROUTE(method, path, access, scope, body, flags, query, handler)                            \
    void handler(struct request *request);
#include "coordinator/http/routes.def"
#undef ROUTE

#endif
