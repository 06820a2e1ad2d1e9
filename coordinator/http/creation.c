/* Idempotent creation. On a worker. Its surprise: an answer with a secret is stored without it; the
 * whole is kept in memory only (route_volunteers.c), so a copy of the database opens nothing. */
#include "coordinator/http/creation.h"

#include "coordinator/http/respond.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool creation_begin(struct request *request, const json_t *answer, struct creation *ret)
{
    char *text = json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (!text) {
        respond_status(request, STATUS_NO_MEMORY, NULL);
        return false;
    }
    snprintf(ret->scope, sizeof ret->scope, "%s %s %s", request->principal.id, request->method,
             request->path);
    ret->answer = text;
    ret->idempotency = (struct store_idempotency){
        .scope = ret->scope,
        .key = request_header(request, "Idempotency-Key"),
        .answer_status = MHD_HTTP_CREATED,
        .answer_body = text,
    };
    sha256_of(request->body.data, request->body.bytes, ret->idempotency.fingerprint);
    return true;
}

void creation_answer(struct request *request, const char *text, const char *prefix,
                     const char *suffix)
{
    json_t *json = json_loads(text, 0, NULL);
    const char *id = json_string_value(json_object_get(json, "id"));
    respond_json_text(request, MHD_HTTP_CREATED, text);
    if (id && prefix)
        respond_header(request, MHD_HTTP_HEADER_LOCATION, "%s%s%s", prefix, id, suffix);
    json_decref(json);
}

bool creation_is_new(struct request *request, enum status status, struct store_replay *replay,
                     const struct error *err, const char *prefix, const char *suffix)
{
    if (status == STATUS_OK)
        return true;
    if (status == STATUS_EXISTS && replay->body) {
        creation_answer(request, replay->body, prefix, suffix);
        request->status = replay->status;
        respond_header(request, "Idempotency-Replayed", "true");
        free(replay->body);
        replay->body = NULL;
    } else if (status == STATUS_STATE) {
        respond_problem(request, PROBLEM_KEY_REUSED,
                        "This Idempotency-Key came before with another body; use a new one.");
    } else {
        respond_status(request, status, err);
    }
    return false;
}

void creation_done(struct creation *creation)
{
    free(creation->answer);
    creation->answer = NULL;
}
