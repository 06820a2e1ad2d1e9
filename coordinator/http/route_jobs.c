/* Jobs: submit, list, look at, cancel, and the current replica. On workers. Its surprise: a job is
 * in the database before the core starts it, and the answer that was stored with it is given; its
 * state and progress of the moment are what GET is for. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "coordinator/http/creation.h"
#include "coordinator/http/job_check.h"
#include "coordinator/http/json_body.h"
#include "coordinator/http/page.h"
#include "coordinator/http/respond.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REASON_CHARACTERS_MAX 160
#define SETTLE_TRIES 100
#define SETTLE_US 10000

static json_t *describe_progress(const struct core_job_progress *p)
{
    char hash[17];
    json_t *staleness = json_array();
    for (size_t i = 0; staleness && i < COUNT_OF(p->staleness); i++)
        json_array_append_new(staleness, json_integer((json_int_t)p->staleness[i]));
    snprintf(hash, sizeof hash, "%016" PRIx64, p->hash);
    return json_pack(
        "{sI sI sI sI sI sI sI sI so so so so so sI sI so ss}", "version", (json_int_t)p->version,
        "samples", (json_int_t)p->samples, "total_samples", (json_int_t)p->total_samples,
        "parameters", (json_int_t)p->parameters, "volunteers", (json_int_t)p->volunteers,
        "updates_applied", (json_int_t)p->updates_applied, "updates_stale",
        (json_int_t)p->updates_stale, "updates_refused", (json_int_t)p->updates_refused, "loss",
        json_number(p->loss), "loss_smoothed", json_number(p->loss_smoothed), "held_out_loss_first",
        json_number(p->held_out_loss_first), "held_out_loss", json_number(p->held_out_loss),
        "held_out_accuracy", json_number(p->held_out_accuracy), "uplink_bytes",
        (json_int_t)p->uplink_bytes, "downlink_bytes", (json_int_t)p->downlink_bytes, "staleness",
        staleness, "hash", hash);
}

/* Adds "progress" and the state of this moment from the core when it has the job, else null. False:
 * the core does not answer. */
static bool add_progress(struct request *request, json_t *job, bool ask)
{
    struct core_job_progress progress;
    const char *id = json_string_value(json_object_get(job, "id"));
    enum status status =
        ask && id ? core_job_read(request->http->core, id, &progress) : STATUS_UNAVAILABLE;
    if (status == STATUS_OK)
        json_object_set_new(job, "state", json_string(progress.state));
    json_object_set_new(job, "progress",
                        status == STATUS_OK ? describe_progress(&progress) : json_null());
    return status != STATUS_UNAVAILABLE;
}

/* Everything but the progress. */
static json_t *describe(const struct store_job *job)
{
    json_t *spec = json_loads(job->spec, 0, NULL);
    const char *name = json_string_value(json_object_get(spec, "name"));
    return json_pack("{ss? ss ss so so so so so?}", "id", job->id[0] ? job->id : NULL, "name",
                     name ? name : "", "state", job->state, "reason",
                     json_text_or_null(job->reason), "created_at", json_time(job->created_ms),
                     "started_at", json_time(job->started_ms), "finished_at",
                     json_time(job->finished_ms), "spec", spec);
}

/* False: answered. The caller frees by store_job_done. */
static bool find(struct request *request, struct store_job *ret)
{
    struct error err = {0};
    enum status status = STATUS_NOT_FOUND;
    if (id_is_valid(request->parameter, "job"))
        status = store_job_get(request->http->store, request->parameter, ret, &err);
    if (status == STATUS_NOT_FOUND)
        respond_problem(request, PROBLEM_NOT_FOUND, "There is no job with this id.");
    else if (status)
        respond_status(request, status, &err);
    return status == STATUS_OK;
}

static void answer_job(struct request *request, int status, const struct store_job *job)
{
    json_t *json = describe(job);
    if (json)
        (void)add_progress(request, json, true);
    respond_json(request, status, json);
}

void route_job(struct request *request)
{
    struct store_job job;
    if (!find(request, &job))
        return;
    answer_job(request, MHD_HTTP_OK, &job);
    store_job_done(&job);
}

static bool is_state(const char *text)
{
    static const char *const states[] = {"queued", "running", "completed", "cancelled", "failed"};
    for (size_t i = 0; i < COUNT_OF(states); i++)
        if (strcmp(text, states[i]) == 0)
            return true;
    return false;
}

void route_jobs(struct request *request)
{
    uint32_t limit;
    const char *cursor, *state = request_query(request, "state");
    json_t *rows = NULL, *row;
    size_t i;
    bool more = false, ask = true;
    struct error err = {0};
    if (!request_page(request, "job", &limit, &cursor))
        return;
    if (state && !is_state(state)) {
        respond_problem(request, PROBLEM_INVALID_REQUEST,
                        "state must be queued, running, completed, cancelled or failed.");
        return;
    }
    enum status status = store_jobs_page(request->http->store, state ? state : "", cursor, limit,
                                         &rows, &more, &err);
    if (status) {
        respond_status(request, status, &err);
        return;
    }
    json_array_foreach(rows, i, row) ask = add_progress(request, row, ask);
    respond_page(request, rows, more);
}

/* --- cancelling --- */

static bool read_reason(struct request *request, char ret[REASON_CHARACTERS_MAX + 1])
{
    struct spec_complaints complaints = {0};
    json_t *json = request_json(request);
    if (!json)
        return false;
    json_fields_known(json, "reason", &complaints);
    const char *reason = json_field_text(json, "reason", REASON_CHARACTERS_MAX, false, &complaints);
    (void)text_copy(ret, REASON_CHARACTERS_MAX + 1,
                    reason && reason[0] ? reason : "no reason given");
    text_sanitize(ret);
    json_decref(json);
    if (complaints.count > 0)
        respond_complaints(request, "The reason is not valid", &complaints);
    return complaints.count == 0;
}

/* The core has ended the job already, but its final state is still on the way to the database. */
static void answer_ended(struct request *request, const char *id)
{
    struct store_job job = {0};
    struct error err = {0};
    enum status status = STATUS_OK;
    for (int i = 0; i < SETTLE_TRIES && status == STATUS_OK; i++) {
        store_job_done(&job);
        status = store_job_get(request->http->store, id, &job, &err);
        if (status || (strcmp(job.state, "queued") != 0 && strcmp(job.state, "running") != 0))
            break;
        clock_sleep_us(SETTLE_US);
    }
    if (status)
        respond_status(request, status, &err);
    else if (strcmp(job.state, "cancelled") == 0)
        answer_job(request, MHD_HTTP_OK, &job);
    else
        respond_problem(request, PROBLEM_INVALID_STATE,
                        "The job has just ended and cannot be cancelled any more.");
    store_job_done(&job);
}

static void cancel(struct request *request, struct store_job *job, const char *reason)
{
    struct error err = {0};
    core_event(request->http->core, "job.cancel_requested", "info", job->id, "asked by %s",
               request->principal.id);
    enum status status = core_job_cancel(request->http->core, job->id, reason, &err);
    if (status == STATUS_NOT_FOUND) {
        answer_ended(request, job->id);
        return;
    }
    if (status) {
        respond_status(request, status, &err);
        return;
    }
    /* The database follows in a moment; the answer tells what is true now. */
    text_copy(job->state, sizeof job->state, "cancelled");
    text_copy(job->reason, sizeof job->reason, reason);
    answer_job(request, MHD_HTTP_ACCEPTED, job);
}

void route_job_cancel(struct request *request)
{
    struct store_job job;
    char reason[REASON_CHARACTERS_MAX + 1];
    if (!read_reason(request, reason) || !find(request, &job))
        return;
    if (strcmp(job.state, "cancelled") == 0)
        answer_job(request, MHD_HTTP_OK, &job);
    else if (strcmp(job.state, "completed") == 0 || strcmp(job.state, "failed") == 0)
        respond_problem(request, PROBLEM_INVALID_STATE, "The job is %s already.", job.state);
    else
        cancel(request, &job, reason);
    store_job_done(&job);
}

/* --- submitting --- */

/* The row of a checked job. False: memory is out. The caller frees by store_job_done. */
static bool make_row(const struct job_facts *facts, bool is_dry, struct store_job *ret)
{
    json_t *spec = job_spec_to_json(&facts->spec);
    *ret = (struct store_job){.blocks = facts->plan.blocks, .created_ms = clock_wall_ms()};
    if (!is_dry)
        id_make(ret->id, "job");
    text_copy(ret->state, sizeof ret->state, "queued");
    ret->spec = spec ? json_dumps(spec, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    ret->artifacts = json_dumps(facts->artifacts, JSON_COMPACT);
    json_decref(spec);
    return ret->spec && ret->artifacts;
}

/* The row exists; nothing else does. */
static void give_up(struct request *request, const struct store_job *job, enum status status,
                    const struct error *err)
{
    if (status == STATUS_UNAVAILABLE) { /* the core may yet start it when it gets to it */
        struct error ignored;
        (void)!core_job_cancel(request->http->core, job->id, "not started in time", &ignored);
    }
    if (store_post_job_state(request->http->store, job->id, "failed", err->text, clock_wall_ms()))
        core_event(request->http->core, "store.full", "error", job->id,
                   "the failure of a job is not kept");
    respond_status(request, status, err);
}

static void create(struct request *request, const struct store_job *job, const json_t *answer)
{
    struct creation creation = {0};
    struct store_replay replay = {0};
    struct error err = {0};
    if (!creation_begin(request, answer, &creation))
        return;
    enum status status =
        store_job_create(request->http->store, job, &creation.idempotency, &replay, &err);
    if (!creation_is_new(request, status, &replay, &err, "/v1/jobs/", ""))
        goto done;
    status = core_job_start(request->http->core, job, &err);
    if (status) {
        give_up(request, job, status, &err);
        goto done;
    }
    core_event(request->http->core, "job.created", "info", job->id, "created by %s",
               request->principal.id);
    creation_answer(request, creation.answer, "/v1/jobs/", "");
done:
    creation_done(&creation);
}

static void submit(struct request *request, const struct job_facts *facts, bool is_dry)
{
    struct store_job job;
    json_t *answer = NULL;
    if (make_row(facts, is_dry, &job) && (answer = describe(&job)))
        json_object_set_new(answer, "progress", json_null());
    if (!answer) {
        respond_status(request, STATUS_NO_MEMORY, NULL);
    } else if (is_dry) {
        json_object_set_new(answer, "parameters", json_integer((json_int_t)facts->parameters));
        respond_json(request, MHD_HTTP_OK, json_incref(answer));
    } else {
        create(request, &job, answer);
    }
    json_decref(answer);
    store_job_done(&job);
}

void route_job_create(struct request *request)
{
    struct spec_complaints complaints = {0};
    struct job_facts facts = {0};
    struct error err = {0};
    const char *dry_run = request_query(request, "dry_run");
    if (dry_run && strcmp(dry_run, "true") != 0 && strcmp(dry_run, "false") != 0) {
        respond_problem(request, PROBLEM_INVALID_REQUEST, "dry_run must be true or false.");
        return;
    }
    json_t *json = request_json(request);
    if (!json)
        return;
    enum status status = job_check(request->http, json, &facts, &complaints, &err);
    if (status == STATUS_INVALID)
        respond_complaints(request, "The job is not valid", &complaints);
    else if (status)
        respond_status(request, status, &err);
    else
        submit(request, &facts, dry_run && strcmp(dry_run, "true") == 0);
    json_decref(facts.artifacts);
    json_decref(json);
}

/* --- replica --- */

/* The version that a cut download has the beginning of; 0: none. */
static uint64_t resumed_version(const struct request *request)
{
    const char *tag = request_header(request, MHD_HTTP_HEADER_IF_RANGE);
    return tag && tag[0] == '"' ? strtoull(tag + 1, NULL, 10) : 0;
}

void route_job_replica(struct request *request)
{
    struct shared *replica = NULL;
    char etag[64], name[ID_BYTES + 8];
    enum status status = STATUS_NOT_FOUND;
    if (id_is_valid(request->parameter, "job"))
        status = core_job_replica(request->http->core, request->parameter, resumed_version(request),
                                  &replica);
    if (status == STATUS_NOT_FOUND) {
        respond_problem(request, PROBLEM_NOT_FOUND, "No live job has this id.");
        return;
    }
    if (status) {
        respond_status(request, status, NULL);
        return;
    }
    const uint8_t *header = shared_data(replica); /* tensorfile/replica_file.h */
    snprintf(etag, sizeof etag, "\"%" PRIu64 "-%016" PRIx64 "\"", load_u64(header + 16),
             load_u64(header + 32));
    snprintf(name, sizeof name, "%.31s.rvw", request->parameter);
    respond_shared(request, replica, etag, name);
}
