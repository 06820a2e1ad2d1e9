/* Names of the scopes, both ways. Plain functions, any thread. Surprising: an empty text is valid
 * and means no scope, so that a key can be made which may do nothing but ask who it is. */
#include "common/base/bytes.h"
#include "coordinator/auth/auth.h"

#include <stdio.h>
#include <string.h>

static const struct {
    enum auth_scope scope;
    const char *name;
} scopes_known[] = {
    {SCOPE_JOBS_READ, "jobs:read"},
    {SCOPE_JOBS_WRITE, "jobs:write"},
    {SCOPE_ARTIFACTS_READ, "artifacts:read"},
    {SCOPE_ARTIFACTS_WRITE, "artifacts:write"},
    {SCOPE_VOLUNTEERS_READ, "volunteers:read"},
    {SCOPE_VOLUNTEERS_WRITE, "volunteers:write"},
    {SCOPE_METRICS_READ, "metrics:read"},
    {SCOPE_EVENTS_READ, "events:read"},
    {SCOPE_KEYS_ADMIN, "keys:admin"},
};

_Static_assert((1 << COUNT_OF(scopes_known)) - 1 == SCOPE_ALL, "every scope has a name");

const char *auth_scope_name(enum auth_scope scope)
{
    for (size_t i = 0; i < COUNT_OF(scopes_known); i++)
        if (scopes_known[i].scope == scope)
            return scopes_known[i].name;
    return scope == SCOPE_NONE ? "none" : "unknown";
}

static uint32_t scope_of(const char *name, size_t length)
{
    for (size_t i = 0; i < COUNT_OF(scopes_known); i++)
        if (strlen(scopes_known[i].name) == length &&
            memcmp(scopes_known[i].name, name, length) == 0)
            return (uint32_t)scopes_known[i].scope;
    return SCOPE_NONE;
}

enum status auth_scopes_parse(const char *text, uint32_t *ret)
{
    uint32_t scopes = 0;
    for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        uint32_t scope = scope_of(at, length);
        if (scope == SCOPE_NONE)
            return STATUS_INVALID;
        scopes |= scope;
        at += length;
    }
    *ret = scopes;
    return STATUS_OK;
}

void auth_scopes_format(uint32_t scopes, char *ret, size_t ret_bytes)
{
    char text[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < COUNT_OF(scopes_known); i++)
        if (scopes & (uint32_t)scopes_known[i].scope)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "",
                                     scopes_known[i].name);
    (void)text_copy(ret, ret_bytes, text);
}
