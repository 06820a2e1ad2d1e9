/* What others may ask a job, and its snapshots. The core's thread. */
#include "coordinator/job/job.h"

#include "coordinator/job/job_internal.h"

#include <math.h>

const struct job_spec *job_spec_of(const struct job *job)
{
    return &job->spec;
}

uint64_t job_parameters(const struct job *job)
{
    return job->graph->parameter_count;
}

uint64_t job_layout(const struct job *job)
{
    return job->layout;
}

uint64_t job_blocks(const struct job *job)
{
    return job->blocks;
}

uint64_t job_version(const struct job *job)
{
    return aggregate_version(job->aggregate);
}

uint64_t job_hash(const struct job *job)
{
    return aggregate_hash(job->aggregate);
}

const float *job_replica(const struct job *job)
{
    return aggregate_w(job->aggregate);
}

void job_read_figures(const struct job *job, struct job_figures *ret)
{
    *ret = job->figures;
    ret->points = &job->points;
    ret->evaluations = &job->evaluations;
}

bool job_is_complete(const struct job *job)
{
    return job->figures.samples >= job->spec.training.total_samples && job->pending_count == 0 &&
           job->evaluated_once && job->evaluated_version == job_version(job);
}

bool job_is_failed(const struct job *job)
{
    return job->failed;
}

bool job_is_full(const struct job *job)
{
    return ledger_is_full(job->ledger);
}

bool job_wants_snapshot(const struct job *job)
{
    bool due = job_version(job) >= job->snapshot_version + SNAPSHOT_EVERY_VERSIONS;
    return !job->failed && (due || job->snapshot_due) && !job_is_full(job);
}

enum status job_snapshot(struct job *job, struct error *err)
{
    /* The state in memory must be exactly what the records up to `sequence` say. */
    if (job->failed || job->in_flight > 0)
        return STATUS_BUSY;
    struct buffer state;
    buffer_init(&state, LEDGER_BODY_BYTES_MAX);
    enum status status = job_state_write(job, &state);
    if (status) {
        error_set(err, status, "the state of %s is too large for a snapshot", job->id);
    } else {
        struct snapshot snapshot = {
            .position = {.sequence = job->durable_sequence},
            .version = job_version(job),
            .layout = job->layout,
            .n = job_parameters(job),
            .theta = (float *)aggregate_theta(job->aggregate),
            .w = (float *)aggregate_w(job->aggregate),
            .state = state.data,
            .state_bytes = state.bytes,
        };
        status = snapshot_write(job->dir, &snapshot, err);
    }
    buffer_done(&state);
    if (status == STATUS_OK) {
        job->snapshot_version = job_version(job);
        job->snapshot_due = false;
        status = snapshot_prune(job->dir, SNAPSHOTS_KEPT, err);
    }
    return status;
}
