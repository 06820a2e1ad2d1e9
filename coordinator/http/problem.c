/* Error answers as application/problem+json, from the table problems.def. Any thread. Its surprise:
 * the detail of an internal failure goes to the event log, never to the client. */
#include "common/base/bytes.h"
#include "coordinator/http/respond.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *slug;
    int status;
    const char *title, *text;
} problems[] = {
#define PROBLEM(name, slug, status, title, text) {slug, status, title, text},
#include "coordinator/http/problems.def"
#undef PROBLEM
};

#define RETRY_AFTER_SECONDS 2
#define RETRY_AFTER_LIMIT_SECONDS 60

static void answer(struct request *request, enum problem problem, const char *title,
                   const char *detail, json_t *errors)
{
    char type[64], clean[400], path[256];
    snprintf(type, sizeof type, "/problems/%s", problems[problem].slug);
    text_copy(clean, sizeof clean, detail);
    text_sanitize(clean);
    text_copy(path, sizeof path, request->uri_is_clean && request->path ? request->path : "");
    text_sanitize(path);
    json_t *json =
        json_pack("{ss ss si ss ss* ss}", "type", type, "title",
                  title ? title : problems[problem].title, "status", problems[problem].status,
                  "detail", clean, "instance", path[0] ? path : NULL, "request_id", request->id);
    if (json && errors)
        json_object_set(json, "errors", errors);
    json_decref(errors);
    respond_json_as(request, problems[problem].status, "application/problem+json", json);
    if (problem == PROBLEM_UNAVAILABLE)
        respond_header(request, MHD_HTTP_HEADER_RETRY_AFTER, "%d", RETRY_AFTER_SECONDS);
    if (problem == PROBLEM_RATE_LIMITED)
        respond_header(request, MHD_HTTP_HEADER_RETRY_AFTER, "%d", RETRY_AFTER_LIMIT_SECONDS);
    if (problem == PROBLEM_UNAUTHENTICATED)
        respond_header(request, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"raven\"");
}

void respond_problem(struct request *request, enum problem problem, const char *format, ...)
{
    char detail[400];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    answer(request, problem, NULL, detail, NULL);
}

void respond_complaints(struct request *request, const char *title,
                        const struct spec_complaints *complaints)
{
    char detail[64];
    json_t *errors = json_array();
    for (uint32_t i = 0; errors && i < complaints->count; i++) {
        const struct spec_complaint *one = &complaints->items[i];
        char text[sizeof one->detail];
        text_copy(text, sizeof text, one->detail);
        text_sanitize(text);
        json_array_append_new(errors, json_pack("{ss ss ss}", "pointer", one->pointer, "code",
                                                one->code, "detail", text));
    }
    snprintf(detail, sizeof detail, "%u %s attention.", complaints->count,
             complaints->count == 1 ? "value needs" : "values need");
    answer(request, PROBLEM_VALIDATION, title, detail, errors);
}

void respond_status(struct request *request, enum status status, const struct error *err)
{
    const char *sentence = err && err->text[0] ? err->text : status_text(status);
    switch (status) {
    case STATUS_NOT_FOUND:
        respond_problem(request, PROBLEM_NOT_FOUND, "%s has nothing.", request->path);
        return;
    case STATUS_NO_SPACE:
        respond_problem(request, PROBLEM_STORAGE, "The coordinator's disk is full.");
        return;
    case STATUS_UNAVAILABLE:
    case STATUS_BUSY:
    case STATUS_TIMEOUT:
    case STATUS_CLOSED:
    case STATUS_NO_MEMORY:
        respond_problem(request, PROBLEM_UNAVAILABLE,
                        "The coordinator is busy or its database "
                        "does not answer; try again soon.");
        return;
    default:
        core_event(request->http->core, "http.failed", "error", "", "request %s, %s %s: %s",
                   request->id, request->method, request->path, sentence);
        respond_problem(request, PROBLEM_INTERNAL, "The cause is in the events, request %s.",
                        request->id);
    }
}

bool problem_describe(const char *slug, const char **ret_title, const char **ret_text)
{
    for (size_t i = 0; i < COUNT_OF(problems); i++)
        if (strcmp(problems[i].slug, slug) == 0) {
            *ret_title = problems[i].title;
            *ret_text = problems[i].text;
            return true;
        }
    return false;
}
