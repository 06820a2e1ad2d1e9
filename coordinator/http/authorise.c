/* Who is asking, and may they: bearer key or session cookie, Origin for unsafe requests of
 * browsers, scope of the route. Memory only, libmicrohttpd's thread. Its surprise: with an
 * Authorization header the cookie is not even looked at, so a wrong key never falls back to a
 * session. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "coordinator/http/hosts.h"
#include "coordinator/http/respond.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define COOKIE "raven_session="

bool request_session(const struct request *request, char ret[64])
{
    const char *at = request_header(request, MHD_HTTP_HEADER_COOKIE);
    while (at && *at) {
        at += strspn(at, "; ");
        size_t bytes = strcspn(at, ";");
        if (strncmp(at, COOKIE, strlen(COOKIE)) == 0) {
            size_t value_bytes = bytes - strlen(COOKIE);
            if (value_bytes == 0 || value_bytes >= 64)
                return false;
            memcpy(ret, at + strlen(COOKIE), value_bytes);
            ret[value_bytes] = 0;
            return true;
        }
        at += bytes;
    }
    return false;
}

void request_refuse_credential(struct request *request, const char *sentence)
{
    struct http *http = request->http;
    if (rate_fail(&http->rate, request->peer->rate_key, clock_monotonic_us()))
        respond_problem(request, PROBLEM_RATE_LIMITED,
                        "More than %u wrong credentials came from your address within a minute.",
                        RATE_FAILURES_PER_MINUTE);
    else
        respond_problem(request, PROBLEM_UNAUTHENTICATED, "%s", sentence);
}

static bool is_unsafe(const struct request *request)
{
    return strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0;
}

/* Browsers send Origin with every unsafe request; with a cookie it has to be there. */
static bool check_origin(struct request *request, bool has_to_be_there)
{
    const char *origin = request_header(request, MHD_HTTP_HEADER_ORIGIN);
    const char *host = request_header(request, MHD_HTTP_HEADER_HOST);
    if (!is_unsafe(request) || (!origin && !has_to_be_there))
        return true;
    if (origin && host && origin_is_of_host(origin, host))
        return true;
    respond_problem(request, PROBLEM_FORBIDDEN_ORIGIN,
                    origin ? "Requests from other sites are refused."
                           : "A request with a session cookie needs its Origin header.");
    return false;
}

static bool sign_in_by_key(struct request *request, const char *header)
{
    static const char scheme[] = "Bearer ";
    if (strncasecmp(header, scheme, strlen(scheme)) != 0) {
        respond_problem(request, PROBLEM_UNAUTHENTICATED,
                        "The Authorization header must be: Bearer rvn_sk_...");
        return false;
    }
    const char *key = header + strlen(scheme) + strspn(header + strlen(scheme), " ");
    if (auth_check_bearer(request->http->auth, key, &request->principal)) {
        request_refuse_credential(request, "This key is unknown, revoked or has expired.");
        return false;
    }
    return true;
}

static bool sign_in_by_cookie(struct request *request)
{
    char session[64];
    if (!request_session(request, session)) {
        respond_problem(request, PROBLEM_UNAUTHENTICATED,
                        "Send Authorization: Bearer with an API key, or sign in.");
        return false;
    }
    if (auth_check_session(request->http->auth, session, &request->principal)) {
        request_refuse_credential(request, "This session has ended; sign in again.");
        return false;
    }
    return check_origin(request, true);
}

static bool check_scope(struct request *request)
{
    const struct route *route = request->route;
    char missing[256];
    if (request->principal.kind == PRINCIPAL_AGENT && !(route->flags & FLAG_AGENT)) {
        respond_problem(request, PROBLEM_FORBIDDEN_SCOPE,
                        "A download token opens only an artifact's content and a job's replica.");
        return false;
    }
    uint32_t lacking = route->scope & ~request->principal.scopes;
    if (lacking == 0)
        return true;
    auth_scopes_format(lacking, missing, sizeof missing);
    respond_problem(request, PROBLEM_FORBIDDEN_SCOPE, "This needs the scope %s.", missing);
    return false;
}

bool request_authorise(struct request *request)
{
    const char *header = request_header(request, MHD_HTTP_HEADER_AUTHORIZATION);
    if (request->route->access == ACCESS_PUBLIC)
        return check_origin(request, false);
    bool known = header ? sign_in_by_key(request, header) : sign_in_by_cookie(request);
    return known && check_scope(request);
}
