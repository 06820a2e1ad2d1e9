/* The dashboards' stream (docs/PROTOCOL.md): once a second each channel's whole state is built as
 * JSON, compared key by key with what was published before, and handed to the hub as a snapshot and
 * a delta. The loop's thread. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "coordinator/core_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VOLUNTEERS_SHOWN 200u
#define JOBS_SHOWN 20u
#define TRAINING_SILENCE_US 5000000

/* Arrays of which a delta holds only the new entries. */
static const char *const appended_keys[] = {"points", "evaluations", "events"};

void rate_add(struct rate *rate, uint64_t amount)
{
    rate->buckets[RATE_SECONDS - 1] += amount;
}

void rate_turn(struct rate *rate)
{
    memmove(rate->buckets, rate->buckets + 1, (RATE_SECONDS - 1) * sizeof rate->buckets[0]);
    rate->buckets[RATE_SECONDS - 1] = 0;
    if (rate->filled < RATE_SECONDS - 1)
        rate->filled++;
}

/* Mean of the whole seconds seen, at most the last nine. */
static double rate_per_s(const struct rate *rate)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < RATE_SECONDS - 1; i++)
        sum += rate->buckets[i];
    return rate->filled ? (double)sum / rate->filled : 0;
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *staleness_json(const uint64_t staleness[8])
{
    json_t *array = json_array();
    for (int i = 0; i < 8; i++)
        json_array_append_new(array, integer(staleness[i]));
    return array;
}

static json_t *series_json(const struct series *series)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < series->count; i++) {
        const struct series_entry *entry = &series->entries[i];
        json_t *row = json_array();
        json_array_append_new(row, json_integer(entry->at_ms));
        json_array_append_new(row, integer(entry->version));
        json_array_append_new(row, number(entry->first));
        json_array_append_new(row, number(entry->second));
        json_array_append_new(array, row);
    }
    return array;
}

void core_live_event(struct core *core, const struct store_event *event)
{
    char at[CLOCK_RFC3339_BYTES];
    clock_format_rfc3339(event->at_ms, at);
    json_t *json =
        json_pack("{s:I, s:s, s:s, s:s, s:s, s:s}", "seq", (json_int_t)++core->event_sequence,
                  "type", event->type, "severity", event->severity, "subject", event->subject,
                  "text", event->text, "at", at);
    if (json)
        json_array_append_new(core->events, json);
    while (json_array_size(core->events) > EVENTS_LIVE_MAX)
        json_array_remove(core->events, 0);
}

/* --- deltas ------------------------------------------------------------------------------------
 */

static bool is_appended(const char *key)
{
    for (size_t i = 0; i < COUNT_OF(appended_keys); i++)
        if (strcmp(key, appended_keys[i]) == 0)
            return true;
    return false;
}

/* The last `count` entries of array, as a new array. */
static json_t *tail_of(const json_t *array, uint64_t count)
{
    size_t size = json_array_size(array);
    json_t *tail = json_array();
    for (size_t i = size - (count < size ? (size_t)count : size); i < size; i++)
        json_array_append(tail, json_array_get(array, i));
    return tail;
}

static void copy_changed(const json_t *now, const json_t *before, json_t *ret_delta)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)now, key,
                        value) if (!is_appended(key) &&
                                   !json_equal(value, json_object_get(before, key)))
        json_object_set(ret_delta, key, value);
}

static struct shared *frame_json(const char *type, const char *channel, const char *epoch,
                                 uint64_t sequence, json_t *data)
{
    json_t *frame = json_pack("{s:s, s:s, s:I, s:O}", "t", type, "ch", channel, "seq",
                              (json_int_t)sequence, "d", data);
    if (frame && epoch)
        json_object_set_new(frame, "epoch", json_string(epoch));
    char *text = frame ? json_dumps(frame, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(frame);
    return text ? shared_create_take((uint8_t *)text, strlen(text)) : NULL;
}

static void publish(struct core *core, const char *channel, uint64_t sequence, json_t *now,
                    json_t *delta)
{
    const char *epoch = hub_epoch(core->hub);
    struct shared *snapshot = frame_json("snap", channel, epoch, sequence, now);
    struct shared *change = delta ? frame_json("d", channel, NULL, sequence, delta) : NULL;
    if (snapshot)
        hub_publish(core->hub, channel, sequence, snapshot, change);
    shared_unref(snapshot);
    shared_unref(change);
}

/* --- parts of both channels ------------------------------------------------------------------- */

static const char *volunteer_state(struct core *core, const struct volunteer *volunteer)
{
    if (!volunteer->session)
        return "offline";
    if (volunteer_is_uploading(volunteer))
        return "uploading";
    struct live_job *live = live_job_find(core, volunteer->session->job);
    bool fresh = clock_monotonic_us() - volunteer->session->progress_us < TRAINING_SILENCE_US;
    return live && fresh && job_leases_of(live->job, volunteer->id) ? "training" : "idle";
}

/* What its controller decided, from what, and why; null before its first decision. */
static json_t *choice_json(const struct session *session)
{
    if (!session || session->choice.job[0] == '\0')
        return json_null();
    const struct wire_choice *choice = &session->choice;
    json_t *json = json_object();
    json_object_set_new(json, "steps", integer(choice->steps));
    json_object_set_new(json, "k", integer(choice->k));
    json_object_set_new(json, "ahead", integer(choice->ahead));
    json_object_set_new(json, "step_ms", number(choice->step_ms));
    json_object_set_new(json, "up_bytes_per_s", number(choice->up_bytes_per_s));
    json_object_set_new(json, "down_bytes_per_s", number(choice->down_bytes_per_s));
    json_object_set_new(json, "transfer_ms", number(choice->transfer_ms));
    json_object_set_new(json, "compute_ms", number(choice->compute_ms));
    json_object_set_new(json, "reason", json_string(choice->reason));
    return json;
}

static json_t *volunteer_json(struct core *core, const struct volunteer *volunteer)
{
    const struct session *session = volunteer->session;
    json_t *json = json_object();
    json_object_set_new(json, "id", json_string(volunteer->id));
    json_object_set_new(json, "label", json_string(volunteer->label));
    json_object_set_new(json, "state", json_string(volunteer_state(core, volunteer)));
    json_object_set_new(json, "samples_per_s", number(session ? session->samples_per_s : 0));
    json_object_set_new(json, "rtt_ms", session ? number(session->rtt_ms) : json_null());
    json_object_set_new(json, "clock_offset_ms",
                        session ? json_integer(session->clock_offset_ms) : json_null());
    json_object_set_new(json, "loss", number(session ? session->loss : volunteer->loss));
    json_object_set_new(json, "updates_applied", integer(volunteer->updates_applied));
    json_object_set_new(json, "samples", integer(volunteer->samples));
    json_object_set_new(json, "staleness", integer(volunteer->staleness));
    json_object_set_new(json, "utilisation", session ? number(session->utilisation) : json_null());
    json_object_set_new(json, "choice", choice_json(session));
    return json;
}

/* Connected ones first, then those seen since the start. job: only this one's, NULL for all. */
static json_t *volunteers_json(struct core *core, const char *job)
{
    json_t *array = json_array();
    for (int connected = 1; connected >= 0; connected--)
        for (struct volunteer *volunteer = core->volunteers; volunteer;
             volunteer = volunteer->next) {
            if ((volunteer->session != NULL) != connected ||
                (!connected && (job || volunteer->seen_us == 0)) ||
                (connected && job && strcmp(volunteer->session->job, job) != 0) ||
                json_array_size(array) >= VOLUNTEERS_SHOWN)
                continue;
            json_array_append_new(array, volunteer_json(core, volunteer));
        }
    return array;
}

static const char *loss_unit(const struct live_job *live)
{
    switch (job_spec_of(live->job)->data.kind) {
    case DATA_TEXT:
        return "bits/byte";
    case DATA_SYNTHETIC:
        return "of the start's variance";
    default:
        return "nats";
    }
}

static json_t *job_row_json(const struct live_job *live)
{
    struct job_figures figures;
    job_read_figures(live->job, &figures);
    json_t *json = json_object();
    json_object_set_new(json, "id", json_string(live->id));
    json_object_set_new(json, "name", json_string(live->name));
    json_object_set_new(json, "state", json_string(live->state));
    json_object_set_new(json, "version", integer(job_version(live->job)));
    json_object_set_new(json, "samples", integer(figures.samples));
    json_object_set_new(json, "total_samples",
                        integer(job_spec_of(live->job)->training.total_samples));
    json_object_set_new(json, "loss_smoothed", number(figures.loss_smoothed));
    json_object_set_new(json, "held_out_loss", number(figures.held_out_loss));
    json_object_set_new(json, "held_out_accuracy", number(figures.held_out_accuracy));
    json_object_set_new(json, "unit", json_string(loss_unit(live)));
    return json;
}

/* --- overview -----------------------------------------------------------------------------------
 */

struct totals {
    uint64_t applied, uplink, uplink_fp32, downlink, downlink_fp32;
    uint64_t staleness[8];
    double samples_per_s, updates_per_s;
    uint32_t running;
};

static void add_totals(struct totals *totals, const struct live_job *live)
{
    struct job_figures figures;
    job_read_figures(live->job, &figures);
    uint64_t dense = 4 * job_parameters(live->job);
    totals->applied += figures.updates_applied;
    totals->uplink += figures.uplink_bytes;
    totals->uplink_fp32 += figures.updates_applied * dense;
    totals->downlink += figures.downlink_bytes;
    totals->downlink_fp32 += job_version(live->job) * dense;
    for (int i = 0; i < 8; i++)
        totals->staleness[i] += figures.staleness[i];
    totals->samples_per_s += rate_per_s(&live->samples);
    totals->updates_per_s += rate_per_s(&live->updates);
    totals->running += live->finished_us == 0;
}

/* The job whose points the overview shows: the newest running one, else the newest. */
static struct live_job *shown_job(struct core *core)
{
    struct live_job *shown = NULL;
    for (struct live_job *live = core->jobs; live; live = live->next)
        if (!shown || !live->finished_us || shown->finished_us)
            shown = live;
    return shown;
}

static void set_volunteer_counts(struct core *core, json_t *json)
{
    uint64_t total = 0, connected = 0, training = 0;
    for (struct volunteer *volunteer = core->volunteers; volunteer; volunteer = volunteer->next) {
        const char *state = volunteer_state(core, volunteer);
        total++;
        connected += volunteer->session != NULL;
        training += strcmp(state, "training") == 0 || strcmp(state, "uploading") == 0;
    }
    json_object_set_new(json, "volunteers_total", integer(total));
    json_object_set_new(json, "volunteers_connected", integer(connected));
    json_object_set_new(json, "volunteers_training", integer(training));
}

static json_t *overview_json(struct core *core, const struct live_job *shown)
{
    struct totals totals = {0};
    json_t *json = json_object();
    json_t *rows = json_array();
    for (struct live_job *live = core->jobs; live; live = live->next) {
        add_totals(&totals, live);
        if (json_array_size(rows) < JOBS_SHOWN)
            json_array_insert_new(rows, 0, job_row_json(live));
    }
    set_volunteer_counts(core, json);
    json_object_set_new(json, "jobs_running", integer(totals.running));
    json_object_set_new(json, "samples_per_s", number(totals.samples_per_s));
    json_object_set_new(json, "updates_per_s", number(totals.updates_per_s));
    json_object_set_new(json, "updates_applied", integer(totals.applied));
    json_object_set_new(json, "updates_stale", integer(core->updates_stale));
    json_object_set_new(json, "updates_refused", integer(core->updates_refused));
    json_object_set_new(json, "uplink_bytes", integer(totals.uplink));
    json_object_set_new(json, "uplink_fp32_bytes", integer(totals.uplink_fp32));
    json_object_set_new(json, "downlink_bytes", integer(totals.downlink));
    json_object_set_new(json, "downlink_fp32_bytes", integer(totals.downlink_fp32));
    json_object_set_new(json, "staleness", staleness_json(totals.staleness));
    json_object_set_new(json, "job", shown ? json_string(shown->id) : json_null());
    json_object_set_new(json, "jobs", rows);
    json_object_set_new(json, "volunteers", volunteers_json(core, NULL));
    json_object_set(json, "events", core->events);
    struct job_figures figures;
    if (shown)
        job_read_figures(shown->job, &figures);
    json_object_set_new(json, "points", shown ? series_json(figures.points) : json_array());
    return json;
}

static void publish_overview(struct core *core)
{
    struct live_job *shown = shown_job(core);
    json_t *now = overview_json(core, shown), *delta = NULL;
    struct job_figures figures;
    uint64_t points = 0;
    if (shown) {
        job_read_figures(shown->job, &figures);
        points = figures.points->appended;
    }
    bool same_job = strcmp(core->points_job, shown ? shown->id : "") == 0;
    if (core->published && same_job) { /* another job's points: everyone needs a snapshot */
        delta = json_object();
        copy_changed(now, core->published, delta);
        if (points > core->points_published)
            json_object_set_new(
                delta, "points",
                tail_of(json_object_get(now, "points"), points - core->points_published));
        if (core->event_sequence > core->events_published)
            json_object_set_new(
                delta, "events",
                tail_of(core->events, core->event_sequence - core->events_published));
    }
    publish(core, "overview", ++core->sequence, now, delta);
    text_copy(core->points_job, sizeof core->points_job, shown ? shown->id : "");
    core->points_published = points;
    core->events_published = core->event_sequence;
    json_decref(core->published);
    json_decref(delta);
    core->published = now;
}

/* --- a job's channel
 * ------------------------------------------------------------------------------ */

static json_t *events_of(struct core *core, const char *subject, uint64_t after)
{
    json_t *array = json_array(), *event;
    size_t i;
    json_array_foreach(
        core->events, i,
        event) if (strcmp(json_string_value(json_object_get(event, "subject")), subject) == 0 &&
                   json_integer_value(json_object_get(event, "seq")) > (json_int_t)after)
        json_array_append(array, event);
    return array;
}

static void set_job_traffic(const struct live_job *live, const struct job_figures *figures,
                            json_t *json)
{
    uint64_t dense = 4 * job_parameters(live->job);
    json_object_set_new(json, "updates_applied", integer(figures->updates_applied));
    json_object_set_new(json, "updates_stale", integer(figures->updates_stale));
    json_object_set_new(json, "updates_refused", integer(figures->updates_refused));
    json_object_set_new(json, "uplink_bytes", integer(figures->uplink_bytes));
    json_object_set_new(json, "uplink_fp32_bytes", integer(figures->updates_applied * dense));
    json_object_set_new(json, "downlink_bytes", integer(figures->downlink_bytes));
    json_object_set_new(json, "downlink_fp32_bytes", integer(job_version(live->job) * dense));
    json_object_set_new(json, "staleness", staleness_json(figures->staleness));
}

static json_t *job_json(struct core *core, const struct live_job *live,
                        const struct job_figures *figures)
{
    const struct job_spec *spec = job_spec_of(live->job);
    json_t *preset = json_object_get(json_object_get(live->spec_json, "model"), "preset");
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)job_hash(live->job));
    json_t *json = job_row_json(live);
    json_object_set_new(json, "reason", live->reason[0] ? json_string(live->reason) : json_null());
    json_object_set(json, "preset", preset);
    json_object_set_new(json, "parameters", integer(job_parameters(live->job)));
    json_object_set_new(json, "loss", number(figures->loss));
    json_object_set_new(json, "held_out_loss_first", number(figures->held_out_loss_first));
    json_object_set_new(json, "samples_per_s", number(rate_per_s(&live->samples)));
    json_object_set_new(json, "updates_per_s", number(rate_per_s(&live->updates)));
    set_job_traffic(live, figures, json);
    json_object_set_new(json, "learning_rate",
                        number(job_spec_learning_rate(spec, figures->samples)));
    json_object_set_new(json, "outer_rate", number(figures->outer_rate));
    json_object_set_new(json, "hash", json_string(hash));
    json_object_set(json, "spec", live->spec_json);
    json_object_set_new(json, "points", series_json(figures->points));
    json_object_set_new(json, "evaluations", series_json(figures->evaluations));
    json_object_set_new(json, "volunteers", volunteers_json(core, live->id));
    json_object_set_new(json, "events", events_of(core, live->id, 0));
    return json;
}

static void set_new_entries(struct core *core, const struct live_job *live,
                            const struct job_figures *figures, const json_t *now, json_t *delta)
{
    if (figures->points->appended > live->points_published)
        json_object_set_new(delta, "points",
                            tail_of(json_object_get(now, "points"),
                                    figures->points->appended - live->points_published));
    if (figures->evaluations->appended > live->evaluations_published)
        json_object_set_new(delta, "evaluations",
                            tail_of(json_object_get(now, "evaluations"),
                                    figures->evaluations->appended - live->evaluations_published));
    json_t *events = events_of(core, live->id, live->events_published);
    if (json_array_size(events))
        json_object_set(delta, "events", events);
    json_decref(events);
}

static void publish_job(struct core *core, struct live_job *live)
{
    struct job_figures figures;
    job_read_figures(live->job, &figures);
    json_t *now = job_json(core, live, &figures), *delta = NULL;
    if (live->published) {
        delta = json_object();
        copy_changed(now, live->published, delta);
        set_new_entries(core, live, &figures, now, delta);
    }
    char channel[ID_BYTES + 8] = "job:";
    text_copy(channel + 4, sizeof channel - 4, live->id);
    publish(core, channel, ++live->sequence, now, delta);
    live->points_published = figures.points->appended;
    live->evaluations_published = figures.evaluations->appended;
    live->events_published = core->event_sequence;
    json_decref(live->published);
    json_decref(delta);
    live->published = now;
}

void core_live_tick(struct core *core)
{
    publish_overview(core);
    for (struct live_job *live = core->jobs; live; live = live->next)
        publish_job(core, live);
}
