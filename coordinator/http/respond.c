/* Builds answers as libmicrohttpd responses with the headers every answer has. Any thread: the
 * response belongs to the request until libmicrohttpd's thread queues it. Its surprise: an answer
 * that cannot be built for want of memory stays NULL, and the connection is then closed. */
#include "coordinator/http/respond.h"

#include "common/base/bytes.h"
#include "coordinator/http/range.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLICY_PAGES                                                                               \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "              \
    "font-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; "                   \
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
/* Downloads are strangers' bytes: even opened in a browser they may do nothing. */
#define POLICY_DOWNLOADS "sandbox; default-src 'none'; frame-ancestors 'none'"

static void add(struct MHD_Response *response, const char *name, const char *value)
{
    /* Fails only for want of memory or a malformed value; the answer is then sent without. */
    (void)MHD_add_response_header(response, name, value);
}

static void set(struct request *request, int status, struct MHD_Response *response,
                const char *policy)
{
    static const char *const always[][2] = {
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"X-Frame-Options", "DENY"},
        {"Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"},
    };
    if (request->response)
        MHD_destroy_response(request->response);
    request->response = response;
    request->status = status;
    if (!response)
        return;
    for (size_t i = 0; i < COUNT_OF(always); i++)
        add(response, always[i][0], always[i][1]);
    add(response, "Content-Security-Policy", policy);
    add(response, "X-Request-Id", request->id);
}

void respond_header(struct request *request, const char *name, const char *format, ...)
{
    char value[512];
    va_list args;
    if (!request->response)
        return;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    add(request->response, name, value);
}

/* Takes text over. */
static void respond_owned(struct request *request, int status, const char *type, char *text)
{
    struct MHD_Response *response =
        text ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE) : NULL;
    if (!response)
        free(text);
    set(request, status, response, POLICY_PAGES);
    respond_header(request, MHD_HTTP_HEADER_CONTENT_TYPE, "%s", type);
    respond_header(request, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
}

void respond_json_as(struct request *request, int status, const char *type, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(json);
    respond_owned(request, status, type, text);
}

void respond_json(struct request *request, int status, json_t *json)
{
    respond_json_as(request, status, "application/json", json);
}

void respond_json_text(struct request *request, int status, const char *text)
{
    respond_owned(request, status, "application/json", strdup(text));
}

void respond_text(struct request *request, int status, const char *type, const char *text)
{
    respond_owned(request, status, type, strdup(text));
}

void respond_empty_cached(struct request *request, int status)
{
    set(request, status, MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT),
        POLICY_PAGES);
}

void respond_empty(struct request *request, int status)
{
    respond_empty_cached(request, status);
    respond_header(request, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
}

void respond_static(struct request *request, const char *type, const void *data, size_t bytes)
{
    /* libmicrohttpd never writes to persistent buffers. */
    set(request, MHD_HTTP_OK,
        MHD_create_response_from_buffer(bytes, (void *)(uintptr_t)data, MHD_RESPMEM_PERSISTENT),
        POLICY_PAGES);
    respond_header(request, MHD_HTTP_HEADER_CONTENT_TYPE, "%s", type);
}

struct part {
    uint64_t first, count, total;
    int status;
};

/* What of the content to send; false when that was answered already (304, 416). */
static bool choose_part(struct request *request, uint64_t total, const char *etag, struct part *ret)
{
    struct part part = {.count = total, .total = total, .status = MHD_HTTP_OK};
    const char *known = request_header(request, MHD_HTTP_HEADER_IF_NONE_MATCH);
    const char *condition = request_header(request, MHD_HTTP_HEADER_IF_RANGE);
    const char *range = request_header(request, MHD_HTTP_HEADER_RANGE);
    if (known && (strstr(known, etag) || strcmp(known, "*") == 0)) {
        respond_empty_cached(request, MHD_HTTP_NOT_MODIFIED);
        respond_header(request, MHD_HTTP_HEADER_ETAG, "%s", etag);
        return false;
    }
    if (strcmp(request->method, "GET") != 0 || (condition && strcmp(condition, etag) != 0))
        range = NULL;
    enum range_kind kind = range_parse(range, total, &part.first, &part.count);
    if (kind == RANGE_OUTSIDE) {
        respond_problem(request, PROBLEM_RANGE, "The content has %" PRIu64 " bytes.", total);
        respond_header(request, MHD_HTTP_HEADER_CONTENT_RANGE, "bytes */%" PRIu64, total);
        return false;
    }
    if (kind == RANGE_PART)
        part.status = MHD_HTTP_PARTIAL_CONTENT;
    *ret = part;
    return true;
}

/* Only characters that need no quoting anywhere. */
static void plain_filename(const char *filename, char ret[129])
{
    size_t n = 0;
    for (; filename[n] && n < 128; n++) {
        bool plain = strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-",
                            filename[n]) != NULL;
        ret[n] = plain ? filename[n] : '_';
    }
    ret[n] = 0;
}

static void describe_part(struct request *request, const struct part *part, const char *etag,
                          const char *filename)
{
    char plain[129];
    plain_filename(filename, plain);
    request->is_download = true;
    respond_header(request, MHD_HTTP_HEADER_CONTENT_TYPE, "application/octet-stream");
    respond_header(request, MHD_HTTP_HEADER_CACHE_CONTROL, "private, no-cache");
    respond_header(request, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
    respond_header(request, MHD_HTTP_HEADER_ETAG, "%s", etag);
    respond_header(request, MHD_HTTP_HEADER_CONTENT_DISPOSITION, "attachment; filename=\"%s\"",
                   plain);
    if (part->status == MHD_HTTP_PARTIAL_CONTENT)
        respond_header(request, MHD_HTTP_HEADER_CONTENT_RANGE,
                       "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, part->first,
                       part->first + part->count - 1, part->total);
}

static void unref(void *shared)
{
    shared_unref(shared);
}

void respond_shared(struct request *request, struct shared *shared, const char *etag,
                    const char *filename)
{
    struct part part;
    if (!choose_part(request, shared_bytes(shared), etag, &part)) {
        shared_unref(shared);
        return;
    }
    void *from = (void *)(uintptr_t)(shared_data(shared) + part.first);
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback_cls(
        (size_t)part.count, from, unref, shared);
    if (!response)
        shared_unref(shared);
    set(request, part.status, response, POLICY_DOWNLOADS);
    describe_part(request, &part, etag, filename);
}

void respond_file(struct request *request, int fd, uint64_t bytes, const char *etag,
                  const char *filename)
{
    struct part part;
    if (!choose_part(request, bytes, etag, &part)) {
        close(fd);
        return;
    }
    struct MHD_Response *response =
        MHD_create_response_from_fd_at_offset64(part.count, fd, part.first);
    if (!response)
        close(fd);
    set(request, part.status, response, POLICY_DOWNLOADS);
    describe_part(request, &part, etag, filename);
}
