/* Building answers. Each call gives the request its one answer; handlers return right after. All of
 * them may run on any thread. When memory is out the connection is closed instead. */
#ifndef RAVEN_COORDINATOR_HTTP_RESPOND_H
#define RAVEN_COORDINATOR_HTTP_RESPOND_H

#include "common/base/shared.h"
#include "common/graph/job_spec.h"
#include "coordinator/http/request.h"

enum problem {
#define PROBLEM(name, slug, status, title, text) PROBLEM_##name,
#include "coordinator/http/problems.def"
#undef PROBLEM
    PROBLEM_COUNT
};

/* Steals json (NULL: memory was out). */
void respond_json(struct request *request, int status, json_t *json);
void respond_json_as(struct request *request, int status, const char *type, json_t *json);
void respond_json_text(struct request *request, int status, const char *text);
void respond_empty(struct request *request, int status);        /* not to be cached */
void respond_empty_cached(struct request *request, int status); /* the caller adds Cache-Control */
void respond_text(struct request *request, int status, const char *type, const char *text);
/* Bytes that live as long as the server. */
void respond_static(struct request *request, const char *type, const void *data, size_t bytes);
/* Takes the reference over. etag: with its quotes. Honours Range, If-Range and If-None-Match. */
void respond_shared(struct request *request, struct shared *shared, const char *etag,
                    const char *filename);
/* Takes fd over; the same. */
void respond_file(struct request *request, int fd, uint64_t bytes, const char *etag,
                  const char *filename);

/* One more header of the answer that was just given. */
void respond_header(struct request *request, const char *name, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* detail: a sentence with field, value and cure. */
void respond_problem(struct request *request, enum problem problem, const char *format, ...)
    PRINTF_LIKE(3, 4);
void respond_complaints(struct request *request, const char *title,
                        const struct spec_complaints *complaints);
/* What a failed call of the store or the core means to the client; internal ones become an event
 * and the answer has the request id only. */
void respond_status(struct request *request, enum status status, const struct error *err);

/* Slug and explanation of a problem's page; false for an unknown slug. */
bool problem_describe(const char *slug, const char **ret_title, const char **ret_text);

#endif
