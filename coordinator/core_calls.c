/* Questions from HTTP workers: a call is posted to the loop, which runs it and wakes the asker.
 * The asker waits two seconds (for a job's start more); then it leaves, and the call is freed by
 * whoever is last. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "coordinator/core_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALL_WAIT_S 2
#define START_WAIT_S 30 /* a large model is read and checked */

static struct call *call_create(void (*run)(struct core *, struct call *), const char *id)
{
    struct call *call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&call->lock, NULL);
    pthread_cond_init(&call->answered, &monotonic);
    pthread_condattr_destroy(&monotonic);
    atomic_store(&call->references, 2);
    call->run = run;
    text_copy(call->id, sizeof call->id, id);
    return call;
}

static void call_unref(struct call *call)
{
    if (atomic_fetch_sub(&call->references, 1) != 1)
        return;
    pthread_cond_destroy(&call->answered);
    pthread_mutex_destroy(&call->lock);
    store_job_done(&call->job);
    shared_unref(call->replica);
    free(call);
}

void core_call_run(struct core *core, struct call *call)
{
    call->run(core, call);
    pthread_mutex_lock(&call->lock);
    call->done = true;
    pthread_cond_signal(&call->answered);
    pthread_mutex_unlock(&call->lock);
    call_unref(call);
}

/* The call's own status, or STATUS_UNAVAILABLE when the loop did not answer in time: then nothing
 * else of the call may be read. The caller unrefs in any case. */
static enum status call_ask(struct core *core, struct call *call, int wait_s)
{
    call->mail.type = MAIL_CALL;
    if (mailbox_post(core->box, &call->mail)) {
        call_unref(call);
        return STATUS_UNAVAILABLE;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += wait_s;
    int waited = 0;
    pthread_mutex_lock(&call->lock);
    while (!call->done && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&call->answered, &call->lock, &until);
    enum status status = call->done ? call->status : STATUS_UNAVAILABLE;
    pthread_mutex_unlock(&call->lock);
    return status;
}

static void run_job_start(struct core *core, struct call *call)
{
    call->status = live_job_start(core, &call->job, &call->error);
}

enum status core_job_start(struct core *core, const struct store_job *job, struct error *err)
{
    enum status status = live_job_prepare(core, job, err);
    if (status)
        return status;
    struct call *call = call_create(run_job_start, job->id);
    if (!call)
        return error_set(err, STATUS_NO_MEMORY, "no memory to start the job");
    call->job = *job;
    call->job.spec = strdup(job->spec);
    call->job.artifacts = strdup(job->artifacts);
    status = STATUS_NO_MEMORY;
    if (call->job.spec && call->job.artifacts)
        status = call_ask(core, call, START_WAIT_S);
    else
        call_unref(call);
    if (status == STATUS_UNAVAILABLE)
        error_set(err, status, "the coordinator's core is busy; try again");
    else if (status)
        error_set(err, status, "%s", call->error.text);
    call_unref(call);
    return status;
}

static void run_job_cancel(struct core *core, struct call *call)
{
    struct live_job *live = live_job_find(core, call->id);
    call->status = STATUS_NOT_FOUND;
    if (!live || live->finished_us)
        return;
    live_job_finish(core, live, "cancelled", call->reason);
    call->status = STATUS_OK;
}

enum status core_job_cancel(struct core *core, const char *id, const char *reason,
                            struct error *err)
{
    struct call *call = call_create(run_job_cancel, id);
    if (!call)
        return error_set(err, STATUS_NO_MEMORY, "no memory to cancel the job");
    text_copy(call->reason, sizeof call->reason, reason);
    enum status status = call_ask(core, call, CALL_WAIT_S);
    if (status)
        error_set(err, status, "job %s: %s", id, status_text(status));
    call_unref(call);
    return status;
}

static void run_job_read(struct core *core, struct call *call)
{
    struct live_job *live = live_job_find(core, call->id);
    call->status = live ? STATUS_OK : STATUS_NOT_FOUND;
    if (!live)
        return;
    struct job_figures figures;
    struct core_job_progress *progress = &call->progress;
    job_read_figures(live->job, &figures);
    text_copy(progress->state, sizeof progress->state, live->state);
    progress->version = job_version(live->job);
    progress->samples = figures.samples;
    progress->total_samples = job_spec_of(live->job)->training.total_samples;
    progress->parameters = job_parameters(live->job);
    progress->updates_applied = figures.updates_applied;
    progress->updates_stale = figures.updates_stale;
    progress->updates_refused = figures.updates_refused;
    progress->volunteers = live->finished_us ? 0 : job_active_volunteers(live->job);
    progress->loss = figures.loss;
    progress->loss_smoothed = figures.loss_smoothed;
    progress->held_out_loss_first = figures.held_out_loss_first;
    progress->held_out_loss = figures.held_out_loss;
    progress->held_out_accuracy = figures.held_out_accuracy;
    progress->uplink_bytes = figures.uplink_bytes;
    progress->downlink_bytes = figures.downlink_bytes;
    memcpy(progress->staleness, figures.staleness, sizeof progress->staleness);
    progress->hash = job_hash(live->job);
}

enum status core_job_read(struct core *core, const char *id, struct core_job_progress *ret)
{
    struct call *call = call_create(run_job_read, id);
    if (!call)
        return STATUS_NO_MEMORY;
    enum status status = call_ask(core, call, CALL_WAIT_S);
    if (status == STATUS_OK)
        *ret = call->progress;
    call_unref(call);
    return status;
}

static void run_job_replica(struct core *core, struct call *call)
{
    struct live_job *live = live_job_find(core, call->id);
    call->status = live ? STATUS_NO_MEMORY : STATUS_NOT_FOUND;
    const struct kept_replica *replica = live ? core_replica(live, call->wanted_version) : NULL;
    if (!replica)
        return;
    call->replica = shared_ref(replica->bytes);
    call->status = STATUS_OK;
}

enum status core_job_replica(struct core *core, const char *id, uint64_t wanted_version,
                             struct shared **ret)
{
    struct call *call = call_create(run_job_replica, id);
    if (!call)
        return STATUS_NO_MEMORY;
    call->wanted_version = wanted_version;
    enum status status = call_ask(core, call, CALL_WAIT_S);
    if (status == STATUS_OK) {
        *ret = call->replica;
        call->replica = NULL;
    }
    call_unref(call);
    return status;
}

static void run_volunteer_read(struct core *core, struct call *call)
{
    struct volunteer *volunteer = volunteer_by_id(core, call->id);
    call->status = volunteer ? STATUS_OK : STATUS_NOT_FOUND;
    if (!volunteer || !volunteer->session)
        return;
    const struct session *session = volunteer->session;
    struct live_job *live = live_job_find(core, session->job);
    call->volunteer.connected = true;
    call->volunteer.training = live && job_leases_of(live->job, volunteer->id) > 0;
    call->volunteer.samples_per_s = session->samples_per_s;
    call->volunteer.rtt_ms = session->rtt_ms;
    call->volunteer.clock_offset_ms = session->clock_offset_ms;
    text_copy(call->volunteer.job, ID_BYTES, session->job);
}

enum status core_volunteer_read(struct core *core, const char *id, struct core_volunteer_live *ret)
{
    struct call *call = call_create(run_volunteer_read, id);
    if (!call)
        return STATUS_NO_MEMORY;
    enum status status = call_ask(core, call, CALL_WAIT_S);
    if (status == STATUS_OK)
        *ret = call->volunteer;
    call_unref(call);
    return status;
}
