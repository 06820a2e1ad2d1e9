/* Making, recovering and closing a job. Its directory is self-contained: job.json (what it is), the
 * ledger's segments and the snapshots; PostgreSQL is not needed to rebuild the model. Recovery
 * reads the newest whole snapshot and replays the ledger, comparing every commit's hash. */
#include "coordinator/job/job_internal.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum status job_make_aggregate(const struct graph *graph, const float *theta,
                               struct aggregate **ret)
{
    uint32_t tensors = graph_parameter_tensors(graph);
    uint64_t *counts = calloc(tensors, sizeof *counts);
    if (!counts)
        return STATUS_NO_MEMORY;
    for (uint32_t i = 0; i < tensors; i++)
        counts[i] = graph_parameter(graph, i)->count;
    enum status status = aggregate_create(theta, graph->parameter_count, counts, tensors, ret);
    free(counts);
    return status;
}

static enum status write_description(const struct job_create_options *options, struct error *err)
{
    char path[PATH_BYTES];
    json_t *spec = job_spec_to_json(options->spec);
    json_t *json = json_pack("{s:s, s:I, s:o}", "id", options->id, "blocks",
                             (json_int_t)options->blocks, "spec", spec);
    char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    enum status status = path_format(path, "%s/job.json", options->dir);
    if (status == STATUS_OK)
        status = text ? file_write_atomic(path, text, strlen(text), 0600, err)
                      : error_set(err, STATUS_NO_MEMORY, "no memory for job.json");
    free(text);
    json_decref(json);
    return status;
}

static enum status write_first_snapshot(const struct job_create_options *options, struct error *err)
{
    struct graph *graph = NULL;
    struct job *job = NULL;
    struct buffer state;
    buffer_init(&state, 1u << 20);
    enum status status = graph_build(&options->spec->model, &graph, err);
    if (status)
        return status;
    float *theta = malloc(graph->parameter_count * sizeof *theta);
    job = calloc(1, sizeof *job);
    if (!theta || !job) {
        status = error_set(err, STATUS_NO_MEMORY, "no memory for %llu parameters",
                           (unsigned long long)graph->parameter_count);
        goto out;
    }
    graph_initialise(graph, options->spec->training.seed, theta);
    series_init(&job->points);
    series_init(&job->evaluations);
    job->figures.loss = job->figures.held_out_loss_first = (double)NAN;
    job->figures.held_out_loss = job->figures.held_out_accuracy = (double)NAN;
    status = job_make_aggregate(graph, theta, &job->aggregate);
    if (status == STATUS_OK)
        status = job_state_write(job, &state);
    if (status) {
        error_set(err, status, "the first snapshot could not be made");
        goto out;
    }
    struct snapshot snapshot = {.layout = graph_layout_hash(graph),
                                .n = graph->parameter_count,
                                .theta = theta,
                                .w = theta,
                                .state = state.data,
                                .state_bytes = state.bytes};
    status = snapshot_write(options->dir, &snapshot, err);
out:
    if (job)
        aggregate_free(job->aggregate);
    free(job);
    free(theta);
    buffer_done(&state);
    graph_free(graph);
    return status;
}

enum status job_create(const struct job_create_options *options, struct error *err)
{
    char path[PATH_BYTES];
    enum status status = file_make_dirs(options->dir, 0700, err);
    if (status == STATUS_OK)
        status = path_format(path, "%s/job.json", options->dir);
    if (status)
        return status;
    if (access(path, F_OK) == 0)
        return STATUS_OK;
    /* job.json last: a directory without it is not a job yet and is made again. */
    status = write_first_snapshot(options, err);
    return status ? status : write_description(options, err);
}

enum status job_read_description(const char *dir, struct job *job, struct error *err)
{
    char path[PATH_BYTES];
    struct buffer text;
    buffer_init(&text, 1u << 20);
    enum status status = path_format(path, "%s/job.json", dir);
    if (status == STATUS_OK)
        status = file_read(path, &text, err);
    json_error_t where;
    json_t *json = status ? NULL : json_loadb((const char *)text.data, text.bytes, 0, &where);
    buffer_done(&text);
    if (status)
        return status;
    const char *id = json_string_value(json_object_get(json, "id"));
    json_t *blocks = json_object_get(json, "blocks");
    struct spec_complaints *complaints = malloc(sizeof *complaints);
    if (!complaints) {
        status = error_set(err, STATUS_NO_MEMORY, "no memory to read %s", path);
    } else if (!id || !id_is_valid(id, "job") || !json_is_integer(blocks)) {
        status = error_set(err, STATUS_CORRUPT, "%s is not a job description", path);
    } else if (job_spec_parse(json_object_get(json, "spec"), &job->spec, complaints)) {
        status = error_set(err, STATUS_CORRUPT, "%s: %s %s", path, complaints->items[0].pointer,
                           complaints->items[0].detail);
    } else {
        text_copy(job->id, sizeof job->id, id);
        job->blocks = (uint64_t)json_integer_value(blocks);
    }
    free(complaints);
    json_decref(json);
    return status;
}

static enum status replay_update(struct job *job, const struct ledger_record *record,
                                 struct error *err)
{
    float *factors = malloc(LEDGER_TENSORS_MAX * sizeof *factors);
    struct ledger_update update;
    struct codec_payload payload;
    if (!factors)
        return error_set(err, STATUS_NO_MEMORY, "no memory to replay");
    enum status status = ledger_update_read(record->body, record->body_bytes, factors, &update);
    if (status == STATUS_UNSUPPORTED)
        error_set(err, status,
                  "record %llu was written by another version of RAVEN, whose updates this one "
                  "cannot read; open the job with that version",
                  (unsigned long long)record->sequence);
    else if (status)
        error_set(err, status, "record %llu is not an update",
                  (unsigned long long)record->sequence);
    else
        status = codec_open(update.payload, (size_t)update.payload_bytes, job_parameters(job), NULL,
                            &payload, err);
    if (!status)
        status =
            job_absorb_update(job, &update, &payload, job->replay_wall_ms, &job->replayed, err);
    free(factors);
    return status;
}

static enum status replay_commit(struct job *job, const struct ledger_record *record,
                                 struct error *err)
{
    struct ledger_commit commit;
    enum status status = ledger_commit_read(record->body, record->body_bytes, &commit);
    if (status)
        return error_set(err, status, "record %llu is not a commit",
                         (unsigned long long)record->sequence);
    /* Updates that became durable together precede their commits: look the version's hash up. */
    uint64_t hash = commit.hash;
    bool known = commit.version <= job_version(job);
    if (commit.version == job_version(job))
        hash = job_hash(job);
    else if (known)
        (void)job_delta(job, commit.version, &hash);
    if (known && hash == commit.hash)
        return STATUS_OK;
    return error_set(err, STATUS_CORRUPT,
                     "replaying to version %llu gives hash %016llx for version %llu, the ledger "
                     "says %016llx",
                     (unsigned long long)job_version(job), (unsigned long long)hash,
                     (unsigned long long)commit.version, (unsigned long long)commit.hash);
}

static enum status replay_verdict(struct job *job, const struct ledger_record *record,
                                  struct error *err)
{
    struct ledger_verdict verdict;
    enum status status = ledger_verdict_read(record->body, record->body_bytes, &verdict);
    if (status == STATUS_OK)
        status = job_absorb_verdict(job, verdict.volunteer, verdict.lease,
                                    verdict_reason_from_text(verdict.reason), &job->replayed);
    return status ? error_set(err, status, "record %llu is not a verdict",
                              (unsigned long long)record->sequence)
                  : STATUS_OK;
}

static enum status replay_record(void *context, const struct ledger_record *record,
                                 struct error *err)
{
    struct job *job = context;
    switch (record->type) {
    case LEDGER_UPDATE:
        return replay_update(job, record, err);
    case LEDGER_COMMIT:
        return replay_commit(job, record, err);
    case LEDGER_VERDICT:
        return replay_verdict(job, record, err);
    case LEDGER_CONTROL:
        return control_replay(job, record->body, record->body_bytes, err);
    }
    return error_set(err, STATUS_UNSUPPORTED, "record %llu has the unknown type %d",
                     (unsigned long long)record->sequence, (int)record->type);
}

static enum status restore_snapshot(struct job *job, uint64_t *ret_sequence,
                                    struct job_recovery *recovery, struct error *err)
{
    struct snapshot snapshot;
    enum status status =
        snapshot_read_newest(job->dir, UINT64_MAX, &snapshot, &recovery->damaged_snapshots, err);
    if (status)
        return status;
    if (snapshot.layout != job->layout || snapshot.n != job->graph->parameter_count) {
        status = error_set(err, STATUS_CORRUPT, "the snapshot in %s is of another model", job->dir);
        goto out;
    }
    status = job_make_aggregate(job->graph, snapshot.theta, &job->aggregate);
    if (status) {
        error_set(err, status, "no memory for %llu parameters", (unsigned long long)snapshot.n);
        goto out;
    }
    aggregate_restore(job->aggregate, snapshot.theta, snapshot.w, snapshot.version);
    status = job_state_read(job, snapshot.state, (size_t)snapshot.state_bytes, err);
    job->snapshot_version = snapshot.version;
    *ret_sequence = snapshot.position.sequence;
out:
    snapshot_done(&snapshot);
    return status;
}

static enum status recover(struct job *job, uint64_t segment_bytes, struct job_recovery *recovery,
                           struct error *err)
{
    struct ledger_options options = {.segment_bytes = segment_bytes};
    struct ledger_open_report report = {0};
    uint64_t sequence = 0;
    enum status status = job_read_description(job->dir, job, err);
    if (status == STATUS_OK)
        status = graph_build(&job->spec.model, &job->graph, err);
    if (status)
        return status;
    job->layout = graph_layout_hash(job->graph);
    status = restore_snapshot(job, &sequence, recovery, err);
    if (status == STATUS_OK)
        status = ledger_open_with(job->dir, &options, sequence, replay_record, job, &job->ledger,
                                  &report, err);
    if (status)
        return status;
    if (report.end.sequence < sequence)
        return error_set(err, STATUS_CORRUPT,
                         "the snapshot in %s contains record %llu but the ledger ends at %llu",
                         job->dir, (unsigned long long)sequence,
                         (unsigned long long)report.end.sequence);
    job->durable_sequence = report.end.sequence;
    recovery->version = job_version(job);
    recovery->records = report.records;
    recovery->torn_bytes = report.torn_bytes;
    return STATUS_OK;
}

enum status job_open(const char *dir, const struct job_open_options *options, struct job **ret,
                     struct job_recovery *ret_recovery, struct error *err)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return error_set(err, STATUS_NO_MEMORY, "no memory to open %s", dir);
    memset(ret_recovery, 0, sizeof *ret_recovery);
    job->durable = options->durable;
    job->durable_context = options->context;
    job->pending_last = &job->pending_first;
    job->replay_wall_ms = clock_wall_ms();
    job->figures.loss_smoothed = (double)NAN;
    verdict_table_init(&job->verdicts);
    series_init(&job->points);
    series_init(&job->evaluations);
    if (!text_copy(job->dir, sizeof job->dir, dir)) {
        job_close(job);
        return error_set(err, STATUS_TOO_LARGE, "the path %s is too long", dir);
    }
    enum status status = recover(job, options->ledger_segment_bytes, ret_recovery, err);
    if (status) {
        job_close(job);
        return status;
    }
    for (uint32_t i = 0; i < job->leases.count; i++)
        job->leases.items[i].deadline_us = options->now_us + job->leases.items[i].patience_us;
    *ret = job;
    return STATUS_OK;
}

void job_close(struct job *job)
{
    if (!job)
        return;
    ledger_close(job->ledger);
    while (job->pending_first) {
        struct pending *pending = job->pending_first;
        job->pending_first = pending->next;
        pending_free(pending);
    }
    delta_ring_done(&job->deltas);
    verdict_table_done(&job->verdicts);
    free(job->leases.items);
    aggregate_free(job->aggregate);
    graph_free(job->graph);
    free(job);
}
