/* The packing thread; see the header. Surprising decision: it never touches x. It asks the training
 * thread to settle by a mail, which is taken between two steps. */
#include "agent/core_packer.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define ORDERS_MAX 8192
#define FLUSH_LOOK_US 1000
#define POST_RETRY_US 20000
#define NICE 5

enum order_type { ORDER_MERGE, ORDER_PACK };

struct order {
    struct mail mail;
    struct replica *replica;
    struct delta_in *delta;   /* ORDER_MERGE */
    struct core_mail *report; /* ORDER_PACK */
    uint32_t k;
};

struct packer {
    struct packer_settings settings;
    struct mailbox *orders;
    pthread_t thread;
    atomic_bool stopping;
    atomic_size_t open; /* orders that are not done */
};

static void order_free(struct order *order)
{
    delta_in_free(order->delta);
    core_mail_free(order->report);
    free(order);
}

/* --- reports ---------------------------------------------------------------------------------- */

static void tell_core(struct packer *packer, struct core_mail *mail)
{
    enum status status = mail ? STATUS_BUSY : STATUS_OK;
    while (status == STATUS_BUSY && !atomic_load(&packer->stopping)) {
        status = mailbox_post(packer->settings.core, &mail->mail);
        if (status == STATUS_BUSY)
            clock_sleep_us(POST_RETRY_US);
    }
    if (status)
        core_mail_free(mail);
}

static void tell_worker(struct packer *packer, struct worker_mail *mail)
{
    if (mail && mailbox_post(packer->settings.worker, &mail->mail))
        worker_mail_free(mail);
}

static void ask_to_settle(struct packer *packer)
{
    struct worker_mail *mail = calloc(1, sizeof *mail);
    if (mail)
        mail->mail.type = WORKER_SETTLE;
    tell_worker(packer, mail);
}

static void report_lost(struct packer *packer, const char *lease, const char *why)
{
    struct worker_mail *mail = calloc(1, sizeof *mail);
    if (mail) {
        mail->mail.type = WORKER_LOST;
        text_copy(mail->lost.lease, sizeof mail->lost.lease, lease);
        text_copy(mail->lost.why, sizeof mail->lost.why, why);
    }
    tell_worker(packer, mail);
}

/* --- orders ----------------------------------------------------------------------------------- */

static void merge(struct packer *packer, struct order *order)
{
    const struct wire_delta *announced = &order->delta->announced;
    struct error err = {0};
    enum status status =
        replica_merge(order->replica, order->delta->data.data, order->delta->data.bytes,
                      announced->version, announced->hash, &err);
    if (status == STATUS_STALE)
        return;
    if (status) {
        report_lost(packer, "", err.text);
        return;
    }
    ask_to_settle(packer);
    struct core_mail *mail = core_mail_create(CORE_MERGED);
    if (mail) {
        text_copy(mail->job, sizeof mail->job, announced->job);
        mail->version = announced->version;
        mail->hash = announced->hash;
    }
    tell_core(packer, mail);
}

static void pack(struct packer *packer, struct order *order)
{
    struct core_mail *report = order->report;
    struct error err = {0};
    enum status status =
        replica_end_lease(order->replica, report->lease, order->k, &report->payload, &err);
    ask_to_settle(packer); /* what came meanwhile */
    if (status) {
        report_lost(packer, report->lease,
                    status == STATUS_NOT_FINITE ? "the local parameters are not finite any more"
                                                : err.text);
        return;
    }
    order->report = NULL;
    tell_core(packer, report);
}

static void *pack_thread(void *user)
{
    struct packer *packer = user;
    /* Training goes first where both want a processor; on Linux this is the thread's own value. */
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    while (!atomic_load(&packer->stopping)) {
        struct order *order = (struct order *)mailbox_take(packer->orders, -1);
        if (!order)
            continue;
        if (order->mail.type == ORDER_MERGE)
            merge(packer, order);
        else
            pack(packer, order);
        order_free(order);
        atomic_fetch_sub(&packer->open, 1);
    }
    return NULL;
}

static void give_order(struct packer *packer, enum order_type type, struct order content)
{
    struct order *order = malloc(sizeof *order);
    if (order) {
        *order = content;
        order->mail = (struct mail){.type = (int)type};
        atomic_fetch_add(&packer->open, 1);
        if (mailbox_post(packer->orders, &order->mail) == STATUS_OK)
            return;
        atomic_fetch_sub(&packer->open, 1);
        free(order);
    }
    report_lost(packer, content.report ? content.report->lease : "",
                "the agent's packing thread takes no orders");
    delta_in_free(content.delta);
    core_mail_free(content.report);
}

void packer_merge(struct packer *packer, struct replica *replica, struct delta_in *delta)
{
    give_order(packer, ORDER_MERGE, (struct order){.replica = replica, .delta = delta});
}

void packer_pack(struct packer *packer, struct replica *replica, struct core_mail *report,
                 uint32_t k)
{
    give_order(packer, ORDER_PACK, (struct order){.replica = replica, .report = report, .k = k});
}

void packer_flush(struct packer *packer, struct replica *replica)
{
    while (atomic_load(&packer->open) > 0) {
        if (replica)
            replica_settle(replica);
        clock_sleep_us(FLUSH_LOOK_US);
    }
    if (replica)
        replica_settle(replica);
}

/* --- life ------------------------------------------------------------------------------------- */

enum status packer_start(const struct packer_settings *settings, struct packer **ret,
                         struct error *err)
{
    struct packer *packer = calloc(1, sizeof *packer);
    if (!packer)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the packing thread");
    packer->settings = *settings;
    enum status status = mailbox_create(ORDERS_MAX, &packer->orders);
    if (status) {
        free(packer);
        return error_set(err, status, "no mailbox for the packing thread");
    }
    int failed = pthread_create(&packer->thread, NULL, pack_thread, packer);
    if (failed) {
        mailbox_free(packer->orders);
        free(packer);
        return error_set_errno(err, failed, "cannot start the packing thread");
    }
    *ret = packer;
    return STATUS_OK;
}

void packer_stop(struct packer *packer)
{
    if (!packer)
        return;
    atomic_store(&packer->stopping, true);
    mailbox_close(packer->orders);
    pthread_join(packer->thread, NULL);
    struct mail *mail;
    while ((mail = mailbox_take(packer->orders, 0)))
        order_free((struct order *)mail);
    mailbox_free(packer->orders);
    free(packer);
}
