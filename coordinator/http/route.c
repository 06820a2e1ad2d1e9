/* Finds the row of routes.def for a method and path. Any thread; nothing here changes. */
#include "coordinator/http/route.h"

#include "common/base/bytes.h"

#include <stdio.h>
#include <string.h>

#define INLINE FLAG_INLINE
#define KEY FLAG_KEY
#define AGENT FLAG_AGENT
static const struct route routes[] = {
#define ROUTE(method, path, access, scope, body, flags, query, handler)                            \
    {method, path, ACCESS_##access, scope, BODY_##body, flags, query, handler},
#include "coordinator/http/routes.def"
#undef ROUTE
};
#undef INLINE
#undef KEY
#undef AGENT

static bool path_matches(const char *pattern, const char *path,
                         char parameter[ROUTE_PARAMETER_BYTES])
{
    static const char placeholder[] = "{id}";
    parameter[0] = 0;
    const char *at = strstr(pattern, placeholder);
    if (!at)
        return strcmp(pattern, path) == 0;
    size_t before = (size_t)(at - pattern);
    if (strncmp(pattern, path, before) != 0)
        return false;
    size_t segment = strcspn(path + before, "/");
    if (segment == 0 || segment >= ROUTE_PARAMETER_BYTES ||
        strcmp(at + strlen(placeholder), path + before + segment) != 0)
        return false;
    memcpy(parameter, path + before, segment);
    parameter[segment] = 0;
    return true;
}

static bool serves(const struct route *route, const char *method)
{
    return strcmp(route->method, method) == 0 ||
           (strcmp(route->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

static void allow(char *text, size_t bytes, const char *method)
{
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", method);
}

const struct route *route_find(const char *method, const char *path,
                               char ret_parameter[ROUTE_PARAMETER_BYTES], char *ret_allow,
                               size_t allow_bytes)
{
    ret_allow[0] = 0;
    ret_parameter[0] = 0;
    for (size_t i = 0; i < COUNT_OF(routes); i++) {
        char parameter[ROUTE_PARAMETER_BYTES];
        if (!path_matches(routes[i].path, path, parameter))
            continue;
        if (serves(&routes[i], method)) {
            memcpy(ret_parameter, parameter, sizeof parameter);
            return &routes[i];
        }
        allow(ret_allow, allow_bytes, routes[i].method);
        if (strcmp(routes[i].method, "GET") == 0)
            allow(ret_allow, allow_bytes, "HEAD");
    }
    return NULL;
}

bool route_allows_query(const struct route *route, const char *name)
{
    size_t bytes = strlen(name);
    for (const char *at = route->query; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (length == bytes && memcmp(at, name, length) == 0)
            return true;
        at += length;
    }
    return false;
}
