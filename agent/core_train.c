/* Doing leases on the training thread: steps, the update at the end, evaluations. Surprising
 * decision: a lease that will not meet its deadline ends early with the steps that are done; an
 * update in time is worth more than a full one that comes too late. */
#include "agent/core_worker_internal.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"

#include <stdio.h>
#include <string.h>

#define RAMP_STEPS 30        /* of the learning rate after a replica was loaded */
#define BROKEN_STEPS_MAX 3   /* not finite in a row: the replica is thrown away */
#define ASK_AHEAD_STEPS 2    /* at least; else an eighth of the lease */
#define DEADLINE_PART_USED 8 /* of 10 parts; the rest is for the upload */
#define PROGRESS_US 1000000
#define ODD_STEP_TIMES 20

bool worker_can_work(const struct worker *worker)
{
    return worker->lease_count > 0 && replica_is_loaded(worker->replica) &&
           (worker->begun || worker->unanswered_count < UNANSWERED_MAX);
}

static double smoothed(double mean, double value, double part)
{
    return mean > 0 ? (1 - part) * mean + part * value : value;
}

static struct core_mail *lease_report(const struct worker *worker, enum core_mail_type type)
{
    struct core_mail *mail = core_mail_create(type);
    if (!mail)
        return NULL;
    const struct wire_lease *lease = &worker->leases[0].wire;
    text_copy(mail->job, sizeof mail->job, lease->job);
    text_copy(mail->lease, sizeof mail->lease, lease->lease);
    mail->base = worker->base;
    mail->version = replica_x_version(worker->replica);
    mail->step = worker->step;
    mail->steps = lease->steps;
    mail->samples = worker->step * worker->spec.training.batch_size;
    mail->loss = worker->step > 0 ? worker->loss_sum / (double)worker->step : 0.0;
    mail->samples_per_s = worker->samples_per_s;
    mail->step_ms = worker->step_ms;
    mail->overhead_ms = worker->overhead_ms;
    mail->steps_done = worker->steps_done;
    mail->samples_done = worker->samples_done;
    int64_t worked_us = clock_monotonic_us() - worker->begun_us - worker->rested_us;
    mail->utilisation = worked_us > 0 ? (double)worker->computed_us / (double)worked_us : 0.0;
    return mail;
}

/* --- pace ------------------------------------------------------------------------------------- */

static void account(struct worker *worker, int64_t from_us)
{
    int64_t now_us = clock_monotonic_us();
    duty_computed(&worker->duty, now_us - from_us);
    int64_t rest_us = duty_rest_us(&worker->duty);
    if (rest_us > 0) {
        worker->rest_from_us = now_us;
        worker->rest_until_us = now_us + rest_us;
    }
}

/* Samples per second of wall time, rests included, over about the last second. */
static void measure_rate(struct worker *worker, uint64_t samples)
{
    int64_t now_us = clock_monotonic_us();
    worker->rate_samples += samples;
    int64_t passed_us = now_us - worker->rate_from_us;
    if (worker->rate_from_us == 0 || passed_us > 30 * PROGRESS_US) {
        worker->rate_from_us = now_us;
        worker->rate_samples = 0;
    } else if (passed_us >= PROGRESS_US) {
        double rate = (double)worker->rate_samples * 1e6 / (double)passed_us;
        worker->samples_per_s =
            worker->samples_per_s > 0 ? 0.5 * worker->samples_per_s + 0.5 * rate : rate;
        worker->rate_from_us = now_us;
        worker->rate_samples = 0;
    }
}

static void report_progress(struct worker *worker)
{
    int64_t now_us = clock_monotonic_us();
    if (now_us - worker->progress_us < PROGRESS_US)
        return;
    worker->progress_us = now_us;
    worker_report(worker, lease_report(worker, CORE_PROGRESS));
}

/* --- training --------------------------------------------------------------------------------- */

static void begin(struct worker *worker)
{
    const struct wire_lease *lease = &worker->leases[0].wire;
    worker->begun = true;
    worker->leases[0].received_us = clock_monotonic_us(); /* its deadline counts from here */
    if (worker->begun_us == 0)
        worker->begun_us = worker->leases[0].received_us;
    worker->step = 0;
    worker->loss_sum = 0.0;
    bool trains = strcmp(lease->kind, "train") == 0;
    if (trains)
        replica_begin_lease(worker->replica);
    worker->base = replica_x_version(worker->replica);
    if (trains) {
        trainer_begin_lease(worker->trainer, lease->block_first, lease->block_count, lease->seed);
    }
    worker_say(worker, trains ? "training" : "evaluating");
    worker->progress_us = 0;
    report_progress(worker);
}

static double learning_rate(struct worker *worker, const struct wire_lease *lease)
{
    uint64_t position = lease->samples_position + worker->step * worker->spec.training.batch_size;
    double rate = job_spec_learning_rate(&worker->spec, position);
    if (worker->ramp_steps < RAMP_STEPS)
        rate *= (double)(worker->ramp_steps + 1) / RAMP_STEPS;
    return rate;
}

/* Without keep_unsent the next lease starts from what this update leaves over. */
static bool must_wait_for_packing(const struct worker *worker)
{
    return !worker->spec.update.keep_unsent || worker->spec.update.residual_decay < 1.0;
}

static void end_training(struct worker *worker)
{
    const struct wire_lease *lease = &worker->leases[0].wire;
    int64_t from_us = clock_monotonic_us();
    struct core_mail *report = lease_report(worker, CORE_UPDATE);
    if (report) { /* else the lease is lost; what it learned stays in x */
        text_copy(worker->unanswered[worker->unanswered_count++], ID_BYTES, lease->lease);
        packer_pack(worker->packer, worker->replica, report, (uint32_t)lease->k);
        if (must_wait_for_packing(worker))
            packer_flush(worker->packer, worker->replica);
    }
    double overhead_ms = (double)(clock_monotonic_us() - from_us) / 1e3;
    worker->overhead_ms = smoothed(worker->overhead_ms, overhead_ms, 0.5);
    bool last = worker->lease_count == 1;
    worker_drop_lease(worker, 0);
    if (!last && worker->unanswered_count == UNANSWERED_MAX)
        worker_say(worker, "waiting for an answer");
}

static bool is_late(const struct worker *worker)
{
    const struct lease_work *lease = &worker->leases[0];
    int64_t used_ms = (clock_monotonic_us() - lease->received_us) / 1000;
    uint64_t limit_ms = lease->wire.deadline_ms / 10 * DEADLINE_PART_USED;
    return lease->wire.deadline_ms > 0 && used_ms > 0 && (uint64_t)used_ms > limit_ms;
}

/* Of wall time, the rests that the owner's limit asks for included. */
static void note_step(struct worker *worker, int64_t computed_us)
{
    worker->computed_us += computed_us;
    worker->steps_done++;
    worker->samples_done += worker->spec.training.batch_size;
    double step_ms = (double)computed_us / 1e3 * 100.0 / worker->settings.cpu_percent;
    /* One such step says that the PC slept or the agent was stopped, not that it is slow. */
    bool odd = worker->step_ms > 0 && step_ms > ODD_STEP_TIMES * worker->step_ms;
    if (!odd || worker->odd_step)
        worker->step_ms = smoothed(worker->step_ms, step_ms, 0.1);
    worker->odd_step = odd;
}

static void train_step(struct worker *worker)
{
    const struct wire_lease *lease = &worker->leases[0].wire;
    double loss = 0.0;
    struct error err = {0};
    int64_t from_us = clock_monotonic_us();
    enum status status = trainer_step(worker->trainer, replica_x(worker->replica),
                                      learning_rate(worker, lease), &loss, &err);
    if (status) {
        if (status != STATUS_NOT_FINITE || ++worker->broken_steps >= BROKEN_STEPS_MAX)
            worker_lose_replica(worker, err.text);
        return;
    }
    note_step(worker, clock_monotonic_us() - from_us);
    worker->broken_steps = 0;
    worker->ramp_steps++;
    worker->step++;
    worker->loss_sum += loss;
    measure_rate(worker, worker->spec.training.batch_size);
    report_progress(worker);

    uint64_t ahead = lease->steps / 8 > ASK_AHEAD_STEPS ? lease->steps / 8 : ASK_AHEAD_STEPS;
    if (worker->lease_count <= worker->ahead && worker->step + ahead >= lease->steps)
        worker_want_more(worker);
    if (worker->step >= lease->steps || is_late(worker))
        end_training(worker);
}

/* --- evaluation ------------------------------------------------------------------------------- */

static void evaluate(struct worker *worker)
{
    const struct wire_lease *lease = &worker->leases[0].wire;
    struct error err = {0};
    double loss = 0.0, accuracy = 0.0;
    uint64_t samples = lease->steps * worker->spec.training.batch_size;
    const float *w = replica_hold_w(worker->replica);
    uint64_t version = replica_version(worker->replica);
    enum status status = trainer_evaluate(worker->trainer, w, samples, &worker->interrupt, &loss,
                                          &accuracy, &samples, &err);
    replica_release_w(worker->replica);
    if (status == STATUS_CLOSED) {
        atomic_store(&worker->interrupt, false);
        return; /* the order that says why is in the mailbox */
    }
    struct core_mail *mail = status ? NULL : lease_report(worker, CORE_EVALUATION);
    if (mail) {
        mail->version = version;
        mail->loss = loss;
        mail->accuracy = accuracy;
        mail->samples = samples;
    }
    worker_report(worker, mail);
    worker_drop_lease(worker, 0);
}

void worker_work(struct worker *worker)
{
    int64_t from_us = clock_monotonic_us();
    if (!worker->begun)
        begin(worker);
    if (strcmp(worker->leases[0].wire.kind, "train") == 0)
        train_step(worker);
    else
        evaluate(worker);
    account(worker, from_us);
}
