/* Live jobs: starting and recovering them, choosing one for an agent, what happens when a record is
 * durable, the once-a-second work (deadlines, snapshots, completion). A finished job stays readable
 * in memory until FINISHED_KEPT newer ones have finished. The loop's thread. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/core_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct live_job *live_job_find(struct core *core, const char *id)
{
    for (struct live_job *live = core->jobs; live; live = live->next)
        if (strcmp(live->id, id) == 0)
            return live;
    return NULL;
}

/* The agent's own job while it runs (switching costs a download), else the one with fewest helpers.
 */
struct live_job *live_job_choose(struct core *core, const struct session *session)
{
    struct live_job *best = NULL;
    uint32_t fewest = UINT32_MAX;
    for (struct live_job *live = core->jobs; live; live = live->next) {
        if (live->finished_us || job_is_failed(live->job))
            continue;
        if (strcmp(session->job, live->id) == 0 ||
            (session->job[0] == 0 && strcmp(session->have_job, live->id) == 0))
            return live;
        uint32_t active = job_active_volunteers(live->job);
        if (active < fewest) {
            fewest = active;
            best = live;
        }
    }
    return best;
}

/* On the ledger's thread. */
static void on_durable(void *context, uint64_t sequence, enum status status)
{
    struct live_job *live = context;
    struct mail_durable *mail = core_mail_make(sizeof *mail);
    text_copy(mail->job, sizeof mail->job, live->id);
    mail->sequence = sequence;
    mail->status = status;
    core_mail_surely(live->core, MAIL_DURABLE, &mail->mail);
}

void live_job_free(struct core *core, struct live_job *live)
{
    struct live_job **link = &core->jobs;
    while (*link && *link != live)
        link = &(*link)->next;
    if (*link)
        *link = live->next;
    core_forget_replicas(live);
    job_close(live->job);
    json_decref(live->published);
    json_decref(live->spec_json);
    free(live->spec);
    free(live->artifacts);
    free(live);
}

enum status live_job_prepare(const struct core *core, const struct store_job *job,
                             struct error *err)
{
    char dir[PATH_BYTES];
    struct job_spec spec;
    enum status status = path_format(dir, "%s/%s", core->jobs_dir, job->id);
    if (status == STATUS_OK)
        status = job_spec_parse_text(job->spec, strlen(job->spec), &spec, err);
    if (status)
        return status;
    struct job_create_options options = {
        .id = job->id, .dir = dir, .spec = &spec, .blocks = job->blocks};
    return job_create(&options, err);
}

static enum status open_job(struct core *core, struct live_job *live, struct error *err)
{
    char dir[PATH_BYTES];
    struct job_recovery recovery;
    struct job_open_options options = {.durable = on_durable,
                                       .context = live,
                                       .now_us = clock_monotonic_us(),
                                       .ledger_segment_bytes = core->ledger_segment_bytes};
    enum status status = path_format(dir, "%s/%s", core->jobs_dir, live->id);
    if (status == STATUS_OK)
        status = job_open(dir, &options, &live->job, &recovery, err);
    if (status)
        return status;
    text_copy(live->name, sizeof live->name, job_spec_of(live->job)->name);
    if (recovery.records || recovery.torn_bytes)
        core_event(core, "job.recovered", recovery.damaged_snapshots ? "warn" : "info", live->id,
                   "recovered version %llu with hash %016llx from %llu ledger records, %llu torn "
                   "bytes cut",
                   (unsigned long long)recovery.version, (unsigned long long)job_hash(live->job),
                   (unsigned long long)recovery.records, (unsigned long long)recovery.torn_bytes);
    return STATUS_OK;
}

/* The job message's `artifacts` with the mirrors of this coordinator; NULL when memory is out. */
static char *offer_mirrors(const struct core *core, const char *artifacts)
{
    if (!core->mirrors || !core->mirrors[0])
        return strdup(artifacts);
    json_t *object = json_loads(artifacts, 0, NULL), *list = json_array();
    for (const char *const *mirror = core->mirrors; *mirror; mirror++)
        json_array_append_new(list, json_string(*mirror));
    bool made = object && json_object_set_new(object, "mirrors", list) == 0;
    char *text = made ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

enum status live_job_start(struct core *core, const struct store_job *job, struct error *err)
{
    if (live_job_find(core, job->id))
        return STATUS_OK;
    struct live_job *live = calloc(1, sizeof *live);
    if (!live)
        return error_set(err, STATUS_NO_MEMORY, "no memory for job %s", job->id);
    live->core = core;
    text_copy(live->id, sizeof live->id, job->id);
    text_copy(live->state, sizeof live->state, "running");
    live->spec = strdup(job->spec);
    live->artifacts = offer_mirrors(core, job->artifacts);
    live->spec_json = json_loads(job->spec, 0, NULL);
    enum status status = STATUS_NO_MEMORY;
    if (live->spec && live->artifacts && live->spec_json)
        status = live_job_prepare(core, job, err);
    if (status == STATUS_OK)
        status = open_job(core, live, err);
    if (status) {
        live_job_free(core, live);
        return status;
    }
    struct live_job **link = &core->jobs;
    while (*link)
        link = &(*link)->next;
    *link = live;
    if (store_post_job_state(core->store, live->id, "running", "", clock_wall_ms()))
        log_error("core", "the state of %s could not be queued", live->id);
    core_event(core, "job.started", "info", live->id, "job %s runs: %llu parameters", live->name,
               (unsigned long long)job_parameters(live->job));
    return STATUS_OK;
}

static void forget_oldest_finished(struct core *core)
{
    uint32_t finished = 0;
    struct live_job *oldest = NULL;
    for (struct live_job *live = core->jobs; live; live = live->next) {
        if (!live->finished_us)
            continue;
        finished++;
        if (!oldest || live->finished_us < oldest->finished_us)
            oldest = live;
    }
    if (finished <= FINISHED_KEPT)
        return;
    char channel[ID_BYTES + 8] = "job:";
    text_copy(channel + 4, sizeof channel - 4, oldest->id);
    hub_unpublish(core->hub, channel);
    live_job_free(core, oldest);
}

static void tell_agents_job_ended(struct core *core, const struct live_job *live,
                                  const char *reason)
{
    struct wire_message message = {.type = WIRE_cancel};
    text_copy(message.cancel.job, sizeof message.cancel.job, live->id);
    text_copy(message.cancel.reason, sizeof message.cancel.reason, reason);
    for (struct session *session = core->sessions; session; session = session->next) {
        if (!session->volunteer || strcmp(session->job, live->id) != 0)
            continue;
        hub_send(core->hub, session->peer, &message);
        session->job[0] = 0;
        session->synced = false;
    }
}

void live_job_finish(struct core *core, struct live_job *live, const char *state,
                     const char *reason)
{
    struct error err = {0};
    char type[24] = "job.";
    text_copy(type + 4, sizeof type - 4, state);
    text_copy(live->state, sizeof live->state, state);
    text_copy(live->reason, sizeof live->reason, reason);
    live->finished_us = clock_monotonic_us();
    if (job_snapshot(live->job, &err) && err.text[0])
        log_warn("core", "no closing snapshot of %s: %s", live->id, err.text);
    tell_agents_job_ended(core, live, reason[0] ? reason : state);
    if (store_post_job_state(core->store, live->id, state, reason, clock_wall_ms()))
        log_error("core", "the state of %s could not be queued", live->id);
    core_event(core, type, strcmp(state, "failed") == 0 ? "error" : "info", live->id,
               "job %s %s%s%s", live->name, state, reason[0] ? ": " : "", reason);
    forget_oldest_finished(core);
}

void live_job_lease_row(struct core *core, const struct live_job *live,
                        const struct job_lease *lease, const char *state)
{
    struct store_lease row = {.base_version = lease->base,
                              .steps = lease->steps,
                              .samples = lease->samples,
                              .at_ms = clock_wall_ms()};
    text_copy(row.id, sizeof row.id, lease->id);
    text_copy(row.job, sizeof row.job, live->id);
    text_copy(row.volunteer, sizeof row.volunteer, lease->volunteer);
    text_copy(row.kind, sizeof row.kind, lease->evaluates ? "evaluate" : "train");
    text_copy(row.state, sizeof row.state, state);
    if (store_post_lease(core->store, &row))
        log_warn("core", "lease %s is not kept: the store's queue is full", lease->id);
}

static void record_outcome(struct core *core, struct live_job *live,
                           const struct job_outcome *outcome)
{
    int64_t wall_ms = clock_wall_ms();
    struct job_figures figures;
    job_read_figures(live->job, &figures);
    struct store_lease row = {.base_version = outcome->base,
                              .version = outcome->version,
                              .samples = outcome->samples,
                              .payload_bytes = outcome->payload_bytes,
                              .at_ms = wall_ms};
    text_copy(row.id, sizeof row.id, outcome->lease);
    text_copy(row.job, sizeof row.job, live->id);
    text_copy(row.volunteer, sizeof row.volunteer, outcome->volunteer);
    text_copy(row.kind, sizeof row.kind, "train");
    text_copy(row.state, sizeof row.state, verdict_word(outcome->verdict));
    enum status status = store_post_lease(core->store, &row);
    if (outcome->verdict == VERDICT_APPLIED) {
        struct store_point point = {.at_ms = wall_ms,
                                    .version = outcome->version,
                                    .samples = figures.samples,
                                    .loss = outcome->loss,
                                    .loss_smoothed = figures.loss_smoothed,
                                    .accuracy = (double)NAN};
        text_copy(point.job, sizeof point.job, live->id);
        if (store_post_point(core->store, &point))
            status = STATUS_BUSY;
    }
    if (status)
        log_warn("core", "lease %s is not kept: the store's queue is full", outcome->lease);
}

static void credit(struct live_job *live, struct volunteer *volunteer,
                   const struct job_outcome *outcome)
{
    rate_add(&live->updates, 1);
    rate_add(&live->samples, outcome->samples);
    if (!volunteer)
        return;
    volunteer->updates_applied++;
    volunteer->samples += outcome->samples;
    volunteer->loss = outcome->loss;
    if (volunteer->session)
        volunteer->session->loss = outcome->loss;
    volunteer->staleness = outcome->staleness;
}

void core_durable(struct core *core, const struct mail_durable *mail)
{
    struct live_job *live = live_job_find(core, mail->job);
    struct job_outcome outcome;
    if (!live)
        return;
    bool answered = job_durable(live->job, mail->sequence, mail->status, clock_wall_ms(), &outcome);
    struct volunteer *volunteer = answered ? volunteer_by_id(core, outcome.volunteer) : NULL;
    if (answered && outcome.verdict == VERDICT_NONE) {
        if (volunteer && volunteer->session)
            core_offer_later(core, volunteer->session);
    } else if (answered) {
        if (volunteer)
            core_upload_answered(core, volunteer, outcome.lease);
        if (volunteer && volunteer->session)
            core_send_result(core, volunteer->session, outcome.lease, outcome.verdict,
                             outcome.reason, outcome.version);
        if (outcome.verdict == VERDICT_APPLIED) {
            credit(live, volunteer, &outcome);
            for (struct session *session = core->sessions; session; session = session->next)
                if (session->synced && strcmp(session->job, live->id) == 0)
                    core_send_deltas(core, session, live);
        } else {
            core_event(core, "update.refused", "warn", outcome.volunteer, "lease %s: %s",
                       outcome.lease, verdict_reason_text(outcome.reason));
            *(outcome.verdict == VERDICT_STALE ? &core->updates_stale : &core->updates_refused) +=
                1;
        }
        record_outcome(core, live, &outcome);
    }
    if (job_is_failed(live->job) && !live->finished_us)
        live_job_finish(core, live, "failed",
                        "the ledger could not be written; see the log, free space and restart");
}

static void tell_space(struct core *core, struct live_job *live)
{
    bool full = job_is_full(live->job);
    if (full == live->full)
        return;
    live->full = full;
    text_copy(live->reason, sizeof live->reason,
              full ? "the coordinator's disk is full: nothing is lost, agents keep their updates, "
                     "and work goes on by itself when there is space"
                   : "");
    if (store_post_job_state(core->store, live->id, live->state, live->reason, clock_wall_ms()))
        log_error("core", "the state of %s could not be queued", live->id);
    if (full)
        core_event(core, "storage.full", "error", live->id,
                   "no space for the ledger of %s below %s; free some", live->name, core->jobs_dir);
    else
        core_event(core, "storage.back", "info", live->id, "there is space for the ledger of %s",
                   live->name);
}

static void tick_job(struct core *core, struct live_job *live, int64_t now_us)
{
    struct job_lease late;
    struct error err = {0};
    while (job_expire_next(live->job, now_us, &late)) {
        core_event(core, "lease.expired", "warn", late.volunteer,
                   "lease %s passed its deadline; its work goes to another volunteer", late.id);
        live_job_lease_row(core, live, &late, "expired");
    }
    tell_space(core, live);
    if (job_wants_snapshot(live->job)) {
        enum status status = job_snapshot(live->job, &err);
        if (status && status != STATUS_BUSY &&
            live->snapshot_warned_version != job_version(live->job)) {
            live->snapshot_warned_version = job_version(live->job);
            core_event(core, "snapshot.failed", "error", live->id, "%s", err.text);
        }
    }
    if (job_is_complete(live->job))
        live_job_finish(core, live, "completed", "");
}

void core_jobs_tick(struct core *core, int64_t now_us)
{
    struct live_job *next;
    for (struct live_job *live = core->jobs; live; live = next) {
        next = live->next;
        rate_turn(&live->updates);
        rate_turn(&live->samples);
        if (!live->finished_us)
            tick_job(core, live, now_us);
    }
}
