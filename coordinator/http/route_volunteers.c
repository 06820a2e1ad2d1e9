/* GET /v1/volunteers and POST /v1/invites. On a worker. Its surprise: the database keeps an
 * invite's answer without its token; the whole answer of the last few invites is in memory, for a
 * client that repeats its request because the first answer got lost. After that a repetition has no
 * token. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "coordinator/http/creation.h"
#include "coordinator/http/json_body.h"
#include "coordinator/http/page.h"
#include "coordinator/http/respond.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INVITE_USES 1
#define INVITE_USES_MAX 10000
#define INVITE_SECONDS (7 * 24 * 3600)
#define INVITE_SECONDS_MAX (365 * 24 * 3600)

/* What only the core knows. False when it does not answer: then nobody else is asked. */
static bool add_live(struct request *request, json_t *volunteer, bool ask)
{
    struct core_volunteer_live live = {0};
    const char *id = json_string_value(json_object_get(volunteer, "id"));
    enum status status =
        ask && id ? core_volunteer_read(request->http->core, id, &live) : STATUS_UNAVAILABLE;
    bool known = status == STATUS_OK && live.connected;
    json_object_set_new(volunteer, "connected", json_boolean(known));
    json_object_set_new(volunteer, "training", json_boolean(known && live.training));
    json_object_set_new(volunteer, "job", json_text_or_null(known ? live.job : NULL));
    json_object_set_new(volunteer, "samples_per_second",
                        known ? json_number(live.samples_per_s) : json_null());
    json_object_set_new(volunteer, "rtt_ms", known ? json_number(live.rtt_ms) : json_null());
    json_object_set_new(volunteer, "clock_offset_ms",
                        known ? json_integer(live.clock_offset_ms) : json_null());
    return status != STATUS_UNAVAILABLE;
}

void route_volunteers(struct request *request)
{
    uint32_t limit;
    const char *cursor;
    json_t *rows = NULL, *row;
    size_t i;
    bool more = false, ask = true;
    struct error err = {0};
    if (!request_page(request, "vol", &limit, &cursor))
        return;
    enum status status =
        store_volunteers_page(request->http->store, cursor, limit, &rows, &more, &err);
    if (status) {
        respond_status(request, status, &err);
        return;
    }
    json_array_foreach(rows, i, row) ask = add_live(request, row, ask);
    respond_page(request, rows, more);
}

/* --- invites --- */

static void remember_answer(struct http *http, char *answer)
{
    pthread_mutex_lock(&http->lock);
    char **slot = &http->invite_answers[http->invite_next++ % INVITE_ANSWERS_KEPT];
    free(*slot);
    *slot = answer;
    pthread_mutex_unlock(&http->lock);
}

/* The whole answer that goes with a stored one; the caller frees. NULL: not kept any more. */
static char *recall_answer(struct http *http, const char *stored)
{
    char *found = NULL;
    char needle[ID_BYTES + 16];
    json_t *json = json_loads(stored, 0, NULL);
    const char *id = json_string_value(json_object_get(json, "id"));
    snprintf(needle, sizeof needle, "{\"id\":\"%s\"", id ? id : "");
    pthread_mutex_lock(&http->lock);
    for (size_t i = 0; id && !found && i < INVITE_ANSWERS_KEPT; i++)
        if (http->invite_answers[i] &&
            strncmp(http->invite_answers[i], needle, strlen(needle)) == 0)
            found = strdup(http->invite_answers[i]);
    pthread_mutex_unlock(&http->lock);
    json_decref(json);
    return found;
}

/* What a person types on the PC that is to help; the address is the one the asker used. */
static void write_command(const struct request *request, const char *token, char *ret, size_t bytes)
{
    const char *origin = request_header(request, MHD_HTTP_HEADER_ORIGIN);
    const char *forwarded = request_header(request, "X-Forwarded-Proto");
    const char *host = request_header(request, MHD_HTTP_HEADER_HOST);
    bool over_tls = (origin && strncmp(origin, "https://", 8) == 0) ||
                    (forwarded && strcmp(forwarded, "https") == 0);
    snprintf(ret, bytes, "RAVEN_INVITE=%s raven-agent join http%s://%s", token, over_tls ? "s" : "",
             host);
}

static json_t *describe(const struct request *request, const struct store_invite *invite,
                        const char *token)
{
    char command[512];
    write_command(request, token ? token : "", command, sizeof command);
    return json_pack("{ss ss? ss sI so ss?}", "id", invite->id, "token", token, "group",
                     invite->group, "max_uses", (json_int_t)invite->max_uses, "expires_at",
                     json_time(invite->expires_ms), "command", token ? command : NULL);
}

static void create_invite(struct request *request, struct store_invite *invite)
{
    struct creation creation = {0};
    struct store_replay replay = {0};
    struct error err = {0};
    char token[AUTH_SECRET_BYTES];
    auth_secret_make("inv", token);
    auth_secret_hash(token, invite->hash);
    json_t *stored = describe(request, invite, NULL);
    json_t *whole = describe(request, invite, token);
    char *text = whole ? json_dumps(whole, JSON_COMPACT) : NULL;
    json_decref(whole);
    sodium_memzero(token, sizeof token);
    if (!text || !stored || !creation_begin(request, stored, &creation)) {
        respond_status(request, STATUS_NO_MEMORY, NULL);
        free(text);
        json_decref(stored);
        return;
    }
    json_decref(stored);
    enum status status =
        store_invite_create(request->http->store, invite, &creation.idempotency, &replay, &err);
    char *again = status == STATUS_EXISTS ? recall_answer(request->http, replay.body) : NULL;
    if (again) {
        free(replay.body);
        replay.body = again;
    }
    if (creation_is_new(request, status, &replay, &err, NULL, NULL)) {
        creation_answer(request, text, NULL, NULL);
        core_event(request->http->core, "invite.created", "info", invite->id,
                   "an invite for %u PC(s) was made by %s", invite->max_uses,
                   request->principal.id);
        remember_answer(request->http, text);
    } else {
        free(text);
    }
    creation_done(&creation);
}

void route_invite_create(struct request *request)
{
    struct spec_complaints complaints = {0};
    struct store_invite invite = {.created_ms = clock_wall_ms()};
    json_t *json = request_json(request);
    if (!json)
        return;
    json_fields_known(json, "group max_uses expires_in_seconds", &complaints);
    const char *group = json_field_text(json, "group", 40, false, &complaints);
    invite.max_uses = (uint32_t)json_field_number(json, "max_uses", 1, INVITE_USES_MAX, false,
                                                  INVITE_USES, &complaints);
    uint64_t seconds = json_field_number(json, "expires_in_seconds", 60, INVITE_SECONDS_MAX, false,
                                         INVITE_SECONDS, &complaints);
    invite.expires_ms = invite.created_ms + (int64_t)seconds * 1000;
    if (!text_copy(invite.group, sizeof invite.group, group ? group : ""))
        spec_complain(&complaints, "/group", "max", "group has more than 40 bytes");
    text_sanitize(invite.group);
    id_make(invite.id, "inv");
    if (complaints.count > 0)
        respond_complaints(request, "The invite is not valid", &complaints);
    else
        create_invite(request, &invite);
    json_decref(json);
}
