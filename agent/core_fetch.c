/* The download thread. Surprising decision: it tries for ever (with the session's jittered
 * back-off), because only the session knows whether anybody still wants the file; it then cancels.
 */
#include "agent/core_fetch.h"

#include "agent/session/backoff.h"
#include "agent/session/download.h"
#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    struct route route;
    uint64_t bytes_per_s_max;
    /* What the log says of the file in work. */
    const char *what;
    int64_t logged_us;
    uint64_t logged_bytes;
    double bytes_per_s; /* smoothed; 0: not known */
};

static bool is_cancelled(void *user)
{
    struct fetcher *fetcher = user;
    return atomic_load(&fetcher->stopping) || atomic_load(&fetcher->generation) != fetcher->current;
}

/* "1:02:03" or "4:05" */
static void duration_text(double seconds, char ret[32])
{
    unsigned long long s = seconds < 360000 ? (unsigned long long)seconds : 359999;
    if (s >= 3600)
        snprintf(ret, 32, "%llu:%02llu:%02llu", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(ret, 32, "%llu:%02llu", s / 60, s % 60);
}

static void measure_rate(struct fetcher *fetcher, uint64_t done_bytes, int64_t now_us)
{
    int64_t passed_us = now_us - fetcher->logged_us;
    if (passed_us <= 0 || fetcher->logged_bytes == UINT64_MAX || done_bytes < fetcher->logged_bytes)
        return;
    double rate = (double)(done_bytes - fetcher->logged_bytes) * 1e6 / (double)passed_us;
    fetcher->bytes_per_s = fetcher->bytes_per_s > 0 ? 0.5 * (fetcher->bytes_per_s + rate) : rate;
}

static void on_progress(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    struct fetcher *fetcher = user;
    int64_t now_us = clock_monotonic_us();
    bool first = fetcher->logged_bytes == UINT64_MAX; /* what was there already is no speed */
    if (first)
        fetcher->logged_us = now_us;
    if (!first && done_bytes < total_bytes && now_us - fetcher->logged_us < PROGRESS_LOG_US)
        return;
    measure_rate(fetcher, done_bytes, now_us);
    fetcher->logged_us = now_us;
    fetcher->logged_bytes = done_bytes;
    if (first && done_bytes < total_bytes)
        return;
    double percent = total_bytes > 0 ? 100.0 * (double)done_bytes / (double)total_bytes : 100.0;
    char rate[32] = "", left[48] = "", duration[32];
    if (fetcher->bytes_per_s > 0)
        snprintf(rate, sizeof rate, ", %.2f MB/s", fetcher->bytes_per_s / 1e6);
    if (fetcher->bytes_per_s > 0 && done_bytes < total_bytes) {
        duration_text((double)(total_bytes - done_bytes) / fetcher->bytes_per_s, duration);
        snprintf(left, sizeof left, ", %s left", duration);
    }
    log_info("download", "%s: %.0f %% of %.1f MB%s%s", fetcher->what, percent,
             (double)total_bytes / 1e6, rate, left);
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
                       const struct download *wanted)
{
    unsigned missing = 0;
    struct download_history history = {0};
    struct download download = *wanted;
    download.history = &history;
    download.route = &fetcher->route;
    download.bytes_per_s_max = fetcher->bytes_per_s_max;
    download.progress = on_progress;
    download.is_cancelled = is_cancelled;
    download.user = fetcher;
    fetcher->logged_bytes = UINT64_MAX;
    fetcher->bytes_per_s = 0;
    backoff_init(&fetcher->backoff, (uint64_t)clock_monotonic_us());
    while (!is_cancelled(fetcher)) {
        struct error err = {0};
        enum status status = download_run(&download, &err);
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

static void on_mirror_failed(void *user, const char *text)
{
    (void)user;
    log_warn("download", "%s; another source is asked", text);
}

static bool fetch_artifact(struct fetcher *fetcher, const struct fetch_mail *fetch,
                           const struct job_artifact *artifact)
{
    char urls[WIRE_MIRRORS_MAX + 1][512], part[PATH_BYTES], hex[SHA256_HEX_BYTES];
    struct download_source sources[WIRE_MIRRORS_MAX + 1] = {0};
    size_t mirrors = fetch->order.mirror_count;
    if (path_format(part, "%s.part", artifact->path)) {
        report(fetcher, CORE_FETCH_FAILED, fetch, "the state directory's path is too long");
        return false;
    }
    hex_encode(artifact->sha256, sizeof artifact->sha256, hex);
    for (size_t i = 0; i < mirrors; i++) {
        snprintf(urls[i], sizeof urls[i], "%s/%s", fetch->order.mirrors[i], hex);
        sources[i].url = urls[i];
    }
    snprintf(urls[mirrors], sizeof urls[mirrors], "%s/v1/artifacts/%s/content", fetch->base_url,
             artifact->id);
    sources[mirrors] = (struct download_source){.url = urls[mirrors], .token = fetch->token};
    fetcher->what = artifact->id;
    struct download download = {
        .sources = sources,
        .source_count = mirrors + 1,
        .path = artifact->path,
        .part_path = part,
        .bytes = artifact->bytes,
        .sha256 = artifact->sha256,
        .mirror_failed = on_mirror_failed,
    };
    return fetch_file(fetcher, fetch, &download);
}

static bool fetch_artifacts(struct fetcher *fetcher, const struct fetch_mail *fetch)
{
    for (size_t i = 0; i < fetch->order.artifact_count; i++) {
        const struct job_artifact *artifact = &fetch->order.artifacts[i];
        if (download_is_complete(artifact->path, artifact->bytes, artifact->sha256))
            continue;
        if (!fetch_artifact(fetcher, fetch, artifact))
            return false;
    }
    return true;
}

static bool fetch_replica(struct fetcher *fetcher, const struct fetch_mail *fetch)
{
    char url[512];
    snprintf(url, sizeof url, "%s%s", fetch->base_url, fetch->replica.path);
    fetcher->what = "the model";
    struct download_source source = {.url = url, .token = fetch->token};
    struct download download = {
        .sources = &source,
        .source_count = 1,
        .path = fetch->path,
        .part_path = fetch->part_path,
        .etag_path = fetch->etag_path,
        .bytes = fetch->replica.bytes,
    };
    return fetch_file(fetcher, fetch, &download);
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

void fetcher_configure(struct fetcher *fetcher, const struct route *route, uint64_t bytes_per_s_max)
{
    fetcher->route = *route; /* the first order's mailbox carries it over to the thread */
    fetcher->bytes_per_s_max = bytes_per_s_max;
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
