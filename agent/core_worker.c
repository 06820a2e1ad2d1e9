/* The training thread's loop and its orders. Surprising decision: resting (the duty cycle) is done
 * by waiting on the mailbox, so that deltas are merged and a stop is seen while it rests. */
#include "agent/core_worker.h"

#include "agent/core_worker_internal.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INBOX_MAX 8192
#define POST_RETRY_US 20000

void worker_report(struct worker *worker, struct core_mail *mail)
{
    if (!mail)
        return; /* out of memory: the report is lost, the next one may come through */
    bool skippable = mail->mail.type == CORE_PROGRESS || mail->mail.type == CORE_STATE;
    enum status status;
    while ((status = mailbox_post(worker->settings.core, &mail->mail)) == STATUS_BUSY &&
           !skippable && !atomic_load(&worker->stopping))
        clock_sleep_us(POST_RETRY_US);
    if (status)
        core_mail_free(mail);
}

void worker_say(struct worker *worker, const char *state)
{
    struct core_mail *mail = core_mail_create(CORE_STATE);
    if (mail)
        text_copy(mail->text, sizeof mail->text, state);
    worker_report(worker, mail);
}

void worker_want_more(struct worker *worker)
{
    if (worker->wanting || worker->lease_count == LEASES_MAX)
        return;
    worker->wanting = true;
    worker_report(worker, core_mail_create(CORE_WANT));
}

void worker_drop_lease(struct worker *worker, size_t index)
{
    if (index == 0)
        worker->begun = false;
    worker->lease_count--;
    memmove(&worker->leases[index], &worker->leases[index + 1],
            (worker->lease_count - index) * sizeof worker->leases[0]);
    if (worker->lease_count == 0)
        worker_say(worker, "waiting");
    if (worker->lease_count == 0 || worker->lease_count < worker->ahead)
        worker_want_more(worker);
}

void worker_lose_replica(struct worker *worker, const char *why)
{
    packer_flush(worker->packer, worker->replica);
    worker->replica_held = false;
    replica_unload(worker->replica);
    struct core_mail *mail = core_mail_create(CORE_HAVE);
    if (mail) {
        text_copy(mail->job, sizeof mail->job, worker->job);
        text_copy(mail->text, sizeof mail->text, why);
    }
    worker_report(worker, mail); /* before the leases go and more work is asked for */
    while (worker->lease_count > 0)
        worker_drop_lease(worker, worker->lease_count - 1);
}

/* --- orders ----------------------------------------------------------------------------------- */

static void merge(struct worker *worker, struct worker_mail *mail)
{
    struct delta_in *delta = mail->delta;
    if (!worker->replica || strcmp(delta->announced.job, worker->job) != 0 ||
        !replica_is_loaded(worker->replica))
        return;
    mail->delta = NULL;
    packer_merge(worker->packer, worker->replica, delta);
}

static void settle(struct worker *worker)
{
    if (worker->replica && replica_is_loaded(worker->replica))
        replica_settle(worker->replica);
}

static void forget_unanswered(struct worker *worker, const char *lease)
{
    for (size_t i = 0; i < worker->unanswered_count; i++) {
        if (strcmp(worker->unanswered[i], lease) != 0)
            continue;
        worker->unanswered_count--;
        memmove(worker->unanswered[i], worker->unanswered[i + 1],
                (worker->unanswered_count - i) * sizeof worker->unanswered[0]);
        return;
    }
}

/* Several orders may fail for the same reason: the first one counts. */
static void take_loss(struct worker *worker, const struct worker_mail *mail)
{
    forget_unanswered(worker, mail->lost.lease);
    if (worker->replica && worker->replica_held)
        worker_lose_replica(worker, mail->lost.why);
}

static void take_lease(struct worker *worker, const struct wire_lease *lease)
{
    worker->wanting = false;
    bool usable = worker->replica && replica_is_loaded(worker->replica) &&
                  strcmp(lease->job, worker->job) == 0 && lease->steps > 0 &&
                  worker->lease_count < LEASES_MAX;
    if (!usable) {
        worker_want_more(worker);
        return;
    }
    worker->leases[worker->lease_count++] =
        (struct lease_work){.wire = *lease, .received_us = clock_monotonic_us()};
    if (worker->lease_count < worker->ahead)
        worker_want_more(worker);
}

static void hold(struct worker *worker, uint64_t ahead)
{
    worker->ahead = ahead;
    if (worker->lease_count > 0 && worker->lease_count < ahead)
        worker_want_more(worker);
}

static void take_answer(struct worker *worker, const struct wire_result *answer)
{
    forget_unanswered(worker, answer->lease);
    if (!worker->replica)
        return;
    bool applied = strcmp(answer->verdict, "applied") == 0;
    replica_answer(worker->replica, answer->lease, applied ? REPLICA_APPLIED : REPLICA_DROPPED,
                   answer->version);
    settle(worker);
}

static void cancel(struct worker *worker, const struct wire_cancel *order)
{
    bool whole_job = order->lease[0] == '\0';
    for (size_t i = worker->lease_count; i-- > 0;)
        if (whole_job ? strcmp(worker->leases[i].wire.job, order->job) == 0
                      : strcmp(worker->leases[i].wire.lease, order->lease) == 0)
            worker_drop_lease(worker, i);
    if (whole_job && strcmp(worker->job, order->job) == 0) {
        worker_unload_job(worker);
        worker_want_more(worker);
    }
}

static void obey(struct worker *worker, struct worker_mail *mail)
{
    switch ((enum worker_mail_type)mail->mail.type) {
    case WORKER_JOB:
        worker_load_job(worker, &mail->job);
        break;
    case WORKER_REPLICA:
        worker_load_replica(worker, mail->replica.job, mail->replica.path);
        break;
    case WORKER_DELTA:
        merge(worker, mail);
        break;
    case WORKER_LEASE:
        take_lease(worker, &mail->lease);
        break;
    case WORKER_ANSWER:
        take_answer(worker, &mail->answer);
        break;
    case WORKER_CANCEL:
        cancel(worker, &mail->cancel);
        break;
    case WORKER_AHEAD:
        hold(worker, mail->ahead);
        break;
    case WORKER_SETTLE:
        settle(worker);
        break;
    case WORKER_LOST:
        take_loss(worker, mail);
        break;
    }
    worker_mail_free(mail);
}

/* --- the thread ------------------------------------------------------------------------------- */

/* Milliseconds to wait for orders: 0 with work to do now, -1 with nothing to do. */
static int patience_ms(struct worker *worker)
{
    if (!worker_can_work(worker))
        return -1;
    int64_t left_us = worker->rest_until_us - clock_monotonic_us();
    return left_us <= 0 ? 0 : (int)((left_us + 999) / 1000);
}

static void end_rest(struct worker *worker)
{
    if (worker->rest_until_us == 0)
        return;
    int64_t rested_us = clock_monotonic_us() - worker->rest_from_us;
    duty_rested(&worker->duty, rested_us);
    worker->rested_us += rested_us;
    worker->rest_until_us = 0;
}

static void *work_thread(void *user)
{
    struct worker *worker = user;
    worker_want_more(worker);
    while (!atomic_load(&worker->stopping)) {
        struct mail *mail = mailbox_take(worker->inbox, patience_ms(worker));
        if (mail) {
            obey(worker, (struct worker_mail *)mail);
        } else if (worker_can_work(worker) && clock_monotonic_us() >= worker->rest_until_us) {
            end_rest(worker);
            worker_work(worker);
        }
    }
    worker_unload_job(worker);
    return NULL;
}

enum status worker_start(const struct worker_settings *settings, struct worker **ret,
                         struct error *err)
{
    struct worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the training thread");
    worker->settings = *settings;
    worker->ahead = 1;
    duty_init(&worker->duty, settings->cpu_percent);
    enum status status = mailbox_create(INBOX_MAX, &worker->inbox);
    if (status) {
        free(worker);
        return error_set(err, status, "no mailbox for the training thread");
    }
    struct packer_settings packer = {settings->core, worker->inbox};
    status = packer_start(&packer, &worker->packer, err);
    if (status) {
        mailbox_free(worker->inbox);
        free(worker);
        return status;
    }
    int failed = pthread_create(&worker->thread, NULL, work_thread, worker);
    if (failed) {
        packer_stop(worker->packer);
        mailbox_free(worker->inbox);
        free(worker);
        return error_set_errno(err, failed, "cannot start the training thread");
    }
    *ret = worker;
    return STATUS_OK;
}

void worker_stop(struct worker *worker)
{
    if (!worker)
        return;
    atomic_store(&worker->stopping, true);
    atomic_store(&worker->interrupt, true);
    mailbox_close(worker->inbox);
    pthread_join(worker->thread, NULL);
    packer_stop(worker->packer);
    struct mail *mail;
    while ((mail = mailbox_take(worker->inbox, 0)))
        worker_mail_free((struct worker_mail *)mail);
    mailbox_free(worker->inbox);
    backend_free(worker->backend);
    free(worker);
}

enum status worker_post(struct worker *worker, struct worker_mail *mail)
{
    return mailbox_post(worker->inbox, &mail->mail);
}

void worker_interrupt(struct worker *worker)
{
    atomic_store(&worker->interrupt, true);
}
