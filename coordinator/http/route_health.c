/* GET /livez, /readyz, /v1/version and the pages of the problem types. On libmicrohttpd's threads:
 * nothing here waits, so liveness is answered even when every worker hangs on the database. */
#include "common/wire/wire.h"
#include "coordinator/http/respond.h"

static void answer_health(struct request *request, const char *reason)
{
    if (!reason) {
        respond_json(request, MHD_HTTP_OK, json_pack("{ss}", "status", "ok"));
        return;
    }
    respond_json(request, MHD_HTTP_SERVICE_UNAVAILABLE,
                 json_pack("{ss ss}", "status", "unavailable", "reason", reason));
    respond_header(request, MHD_HTTP_HEADER_RETRY_AFTER, "2");
}

void route_livez(struct request *request)
{
    bool alive = core_is_alive(request->http->core);
    answer_health(request, alive ? NULL : "the core's loop does not turn");
}

void route_readyz(struct request *request)
{
    struct http *http = request->http;
    const char *reason = NULL;
    if (atomic_load(&http->draining))
        reason = "the coordinator is stopping";
    else if (!core_is_alive(http->core))
        reason = "the core's loop does not turn";
    else if (!store_is_ready(http->store))
        reason = "the database does not answer";
    answer_health(request, reason);
}

void route_version(struct request *request)
{
    respond_json(request, MHD_HTTP_OK,
                 json_pack("{ss si}", "version", RAVEN_VERSION, "protocol", WIRE_PROTOCOL));
}

void route_problem(struct request *request)
{
    const char *title, *text;
    char page[600];
    if (!problem_describe(request->parameter, &title, &text)) {
        respond_problem(request, PROBLEM_NOT_FOUND, "There is no such kind of problem.");
        return;
    }
    snprintf(page, sizeof page, "%s\n\n%s\n", title, text);
    respond_text(request, MHD_HTTP_OK, "text/plain; charset=utf-8", page);
}
