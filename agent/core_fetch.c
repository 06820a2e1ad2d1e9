/* The download thread. Surprising decision: it tries for ever (with the session's jittered
 * back-off), because only the session knows whether anybody still wants the file; it then cancels.
 */
#include "agent/core_fetch.h"

#include "agent/session/backoff.h"
#include "agent/session/download.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INBOX_MAX 64
#define MISSING_ATTEMPTS_MAX 3
#define PROGRESS_LOG_US 2000000
#define NAP_US 50000

struct fetcher {
    struct mailbox *inbox, *core;
    pthread_t thread;
    atomic_uint generation;
    atomic_bool stopping;
    unsigned current; /* generation of the mail in work */
    struct backoff backoff;
    const char *what; /* in work, for the log */
    int64_t logged_us;
};

static bool is_cancelled(void *user)
{
    struct fetcher *fetcher = user;
    return atomic_load(&fetcher->stopping) || atomic_load(&fetcher->generation) != fetcher->current;
}

static void on_progress(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    struct fetcher *fetcher = user;
    int64_t now_us = clock_monotonic_us();
    if (done_bytes < total_bytes && now_us - fetcher->logged_us < PROGRESS_LOG_US)
        return;
    fetcher->logged_us = now_us;
    double percent = total_bytes > 0 ? 100.0 * (double)done_bytes / (double)total_bytes : 100.0;
    log_info("download", "%s: %.0f %% of %.1f MB", fetcher->what, percent,
             (double)total_bytes / 1e6);
}

static void report(struct fetcher *fetcher, enum core_mail_type type,
                   const struct fetch_mail *fetch, const char *text)
{
    struct core_mail *mail = core_mail_create(type);
    if (!mail)
        return;
    mail->generation = fetcher->current;
    mail->is_replica = fetch->mail.type == FETCH_REPLICA;
    text_copy(mail->job, sizeof mail->job,
              mail->is_replica ? fetch->replica.job : fetch->order.job);
    mail->version = fetch->replica.version;
    text_copy(mail->path, sizeof mail->path, fetch->path);
    text_copy(mail->text, sizeof mail->text, text);
    if (type == CORE_FETCHED && !mail->is_replica && (mail->order = malloc(sizeof *mail->order)))
        *mail->order = fetch->order;
    if (mailbox_post(fetcher->core, &mail->mail))
        core_mail_free(mail);
}

static void nap(struct fetcher *fetcher, int64_t wait_ms)
{
    int64_t until_us = clock_monotonic_us() + wait_ms * 1000;
    while (!is_cancelled(fetcher) && clock_monotonic_us() < until_us)
        clock_sleep_us(NAP_US);
}

/* True when the file is there; false when cancelled or given up (reported). */
static bool fetch_file(struct fetcher *fetcher, const struct fetch_mail *fetch,
                       const struct download *download)
{
    unsigned missing = 0;
    fetcher->logged_us = clock_monotonic_us();
    backoff_init(&fetcher->backoff, (uint64_t)fetcher->logged_us);
    while (!is_cancelled(fetcher)) {
        struct error err = {0};
        enum status status = download_run(download, &err);
        if (!status)
            return true;
        if (is_cancelled(fetcher))
            return false;
        if (status == STATUS_NOT_FOUND && ++missing == MISSING_ATTEMPTS_MAX) {
            report(fetcher, CORE_FETCH_FAILED, fetch, err.text);
            return false;
        }
        report(fetcher, CORE_FETCH_TROUBLE, fetch, err.text);
        nap(fetcher, backoff_next_ms(&fetcher->backoff, 0) + NAP_US / 1000);
    }
    return false;
}

static bool fetch_artifacts(struct fetcher *fetcher, const struct fetch_mail *fetch)
{
    for (size_t i = 0; i < fetch->order.artifact_count; i++) {
        const struct job_artifact *artifact = &fetch->order.artifacts[i];
        if (download_is_complete(artifact->path, artifact->bytes, artifact->sha256))
            continue;
        char url[512], part[PATH_BYTES];
        snprintf(url, sizeof url, "%s/v1/artifacts/%s/content", fetch->base_url, artifact->id);
        if (path_format(part, "%s.part", artifact->path)) {
            report(fetcher, CORE_FETCH_FAILED, fetch, "the state directory's path is too long");
            return false;
        }
        fetcher->what = artifact->id;
        struct download download = {
            .url = url,
            .token = fetch->token,
            .path = artifact->path,
            .part_path = part,
            .bytes = artifact->bytes,
            .sha256 = artifact->sha256,
            .progress = on_progress,
            .is_cancelled = is_cancelled,
            .user = fetcher,
        };
        if (!fetch_file(fetcher, fetch, &download))
            return false;
    }
    return true;
}

static bool fetch_replica(struct fetcher *fetcher, const struct fetch_mail *fetch)
{
    char url[512], part[PATH_BYTES];
    snprintf(url, sizeof url, "%s%s", fetch->base_url, fetch->replica.path);
    if (path_format(part, "%s.part", fetch->path)) {
        report(fetcher, CORE_FETCH_FAILED, fetch, "the state directory's path is too long");
        return false;
    }
    fetcher->what = "the model";
    char etag[DOWNLOAD_ETAG_BYTES] = "";
    struct download download = {
        .url = url,
        .token = fetch->token,
        .path = fetch->path,
        .part_path = part,
        .bytes = fetch->replica.bytes,
        .etag = &etag,
        .progress = on_progress,
        .is_cancelled = is_cancelled,
        .user = fetcher,
    };
    bool ok = fetch_file(fetcher, fetch, &download);
    if (!ok)
        unlink(part);
    return ok;
}

static void *fetch_thread(void *user)
{
    struct fetcher *fetcher = user;
    bool ready = false;
    while (!atomic_load(&fetcher->stopping)) {
        struct fetch_mail *fetch = (struct fetch_mail *)mailbox_take(fetcher->inbox, -1);
        if (!fetch)
            continue;
        fetcher->current = fetch->generation;
        if (!ready)
            ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK; /* with the first download */
        bool ok = !is_cancelled(fetcher) &&
                  (fetch->mail.type == FETCH_REPLICA ? fetch_replica(fetcher, fetch)
                                                     : fetch_artifacts(fetcher, fetch));
        if (ok)
            report(fetcher, CORE_FETCHED, fetch, "");
        explicit_bzero(fetch->token, sizeof fetch->token);
        free(fetch);
    }
    if (ready)
        curl_global_cleanup();
    return NULL;
}

enum status fetcher_start(struct mailbox *core, struct fetcher **ret, struct error *err)
{
    struct fetcher *fetcher = calloc(1, sizeof *fetcher);
    if (!fetcher)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the download thread");
    fetcher->core = core;
    enum status status = mailbox_create(INBOX_MAX, &fetcher->inbox);
    if (status) {
        free(fetcher);
        return error_set(err, status, "no mailbox for the download thread");
    }
    int failed = pthread_create(&fetcher->thread, NULL, fetch_thread, fetcher);
    if (failed) {
        mailbox_free(fetcher->inbox);
        free(fetcher);
        return error_set_errno(err, failed, "cannot start the download thread");
    }
    *ret = fetcher;
    return STATUS_OK;
}

void fetcher_stop(struct fetcher *fetcher)
{
    if (!fetcher)
        return;
    atomic_store(&fetcher->stopping, true);
    mailbox_close(fetcher->inbox);
    pthread_join(fetcher->thread, NULL);
    struct mail *mail;
    while ((mail = mailbox_take(fetcher->inbox, 0)))
        free(mail);
    mailbox_free(fetcher->inbox);
    free(fetcher);
}

enum status fetcher_post(struct fetcher *fetcher, struct fetch_mail *mail)
{
    mail->generation = atomic_load(&fetcher->generation);
    return mailbox_post(fetcher->inbox, &mail->mail);
}

void fetcher_cancel(struct fetcher *fetcher)
{
    atomic_fetch_add(&fetcher->generation, 1);
}

unsigned fetcher_generation(const struct fetcher *fetcher)
{
    return atomic_load(&fetcher->generation);
}
