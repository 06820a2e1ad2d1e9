/* Getting a job and its replica: from the coordinator's message over the downloads to the training
 * thread. Session thread. Surprising decision: what is half prepared when a session ends is dropped
 * (the download token died with it); the files stay, so the next session goes on where this ended.
 */
#include "agent/core_internal.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/base/log.h"
#include "common/tensorfile/replica_file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARTIFACT_BYTES_MAX (1ull << 40)
#define CANNOT_DO_RETRY_MS 60000

static enum status read_artifact(struct core *core, const json_t *artifacts, const char *id,
                                 struct job_artifact *ret, struct error *err)
{
    const json_t *object = json_object_get(artifacts, id);
    const char *sha256 = json_string_value(json_object_get(object, "sha256"));
    const json_t *bytes = json_object_get(object, "bytes");
    if (!id_is_valid(id, "art") || !sha256 || !hex_decode(sha256, ret->sha256, 32) ||
        !json_is_integer(bytes) || json_integer_value(bytes) <= 0 ||
        (uint64_t)json_integer_value(bytes) > ARTIFACT_BYTES_MAX)
        return error_set(err, STATUS_INVALID, "the job's artifact \"%.40s\" is not described", id);
    text_copy(ret->id, sizeof ret->id, id);
    ret->bytes = (uint64_t)json_integer_value(bytes);
    char name[SHA256_HEX_BYTES];
    hex_encode(ret->sha256, 32, name);
    if (path_format(ret->path, "%s/cache/%s", core->settings.config->state_dir, name))
        return error_set(err, STATUS_TOO_LARGE, "the state directory's path is too long");
    return STATUS_OK;
}

/* What is no address is no mirror; the coordinator has the files anyhow. */
static void read_mirrors(const json_t *artifacts, struct job_order *order)
{
    const json_t *mirrors = json_object_get(artifacts, "mirrors"), *item;
    size_t i;
    json_array_foreach(mirrors, i, item)
    {
        const char *url = json_string_value(item);
        if (url && order->mirror_count < WIRE_MIRRORS_MAX &&
            text_copy(order->mirrors[order->mirror_count], sizeof order->mirrors[0], url))
            order->mirror_count++;
    }
}

static enum status read_artifacts(struct core *core, const struct wire_job *job,
                                  struct job_order *order, struct error *err)
{
    const struct data_spec *data = &order->spec.data;
    const char *text[] = {data->train};
    const char *images[] = {data->images, data->labels, data->held_out_images,
                            data->held_out_labels};
    const char *const *ids = data->kind == DATA_TEXT ? text : images;
    size_t count = data->kind == DATA_TEXT     ? COUNT_OF(text)
                   : data->kind == DATA_IMAGES ? COUNT_OF(images)
                                               : 0;
    json_t *artifacts = json_loads(job->artifacts, JSON_REJECT_DUPLICATES, NULL);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < count && !status; i++)
        status = read_artifact(core, artifacts, ids[i], &order->artifacts[i], err);
    order->artifact_count = count;
    read_mirrors(artifacts, order);
    json_decref(artifacts);
    return status;
}

static struct fetch_mail *make_fetch(struct core *core, enum fetch_mail_type type)
{
    struct fetch_mail *mail = calloc(1, sizeof *mail);
    if (!mail)
        return NULL;
    mail->mail.type = type;
    text_copy(mail->base_url, sizeof mail->base_url, core->base_url);
    text_copy(mail->token, sizeof mail->token, core->token);
    return mail;
}

static void post_fetch(struct core *core, struct fetch_mail *mail)
{
    if (mail && fetcher_post(core->fetcher, mail) == STATUS_OK)
        return;
    free(mail);
    session_end(core->session, END_INTERNAL, "the agent's download thread takes no orders");
}

static void cannot_do(struct core *core, const char *job, const char *why)
{
    log_error(CORE_LOG, "job %s cannot be done here: %s", job, why);
    core_note_trouble(core, why);
    core_set_state(core, "waiting", why);
    core->preparing = false;
    core->job[0] = '\0';
    core_ask_later(core, CANNOT_DO_RETRY_MS);
}

void core_take_job(struct core *core, const struct wire_job *job)
{
    if (strcmp(job->job, core->job) == 0 && (core->job_loaded || core->preparing))
        return;
    struct fetch_mail *mail = make_fetch(core, FETCH_ARTIFACTS);
    if (!mail) {
        session_end(core->session, END_INTERNAL, "out of memory");
        return;
    }
    struct job_order *order = &mail->order;
    struct error err = {0};
    enum status status = id_is_valid(job->job, "job")
                             ? job_spec_parse_text(job->spec, strlen(job->spec), &order->spec, &err)
                             : error_set(&err, STATUS_INVALID, "its id is malformed");
    if (!status)
        status = read_artifacts(core, job, order, &err);
    if (status) {
        free(mail);
        cannot_do(core, job->job, err.text);
        return;
    }
    text_copy(order->job, sizeof order->job, job->job);
    order->parameters = job->parameters;
    order->layout = job->layout;

    fetcher_cancel(core->fetcher);
    text_copy(core->job, sizeof core->job, job->job);
    core->job_loaded = false;
    core->replica_coming = false;
    core->preparing = true;
    core->parameters = job->parameters;
    core->spec = order->spec;
    core_forget_choice(core);
    log_info(CORE_LOG, "job %s: %s, %llu parameters", job->job, order->spec.name,
             (unsigned long long)job->parameters);
    core_set_state(core, "downloading", "");
    struct status_fields *fields = status_board_lock(core->board);
    text_copy(fields->job, sizeof fields->job, job->job);
    status_board_unlock(core->board);
    post_fetch(core, mail);
}

void core_take_snapshot(struct core *core, const struct wire_snapshot *snapshot)
{
    if (strcmp(snapshot->job, core->job) != 0 || core->replica_coming)
        return;
    if (snapshot->bytes != REPLICA_HEADER_BYTES + 4 * core->parameters ||
        snapshot->path[0] != '/') {
        session_end(core->session, END_PROTOCOL_ERROR, "the snapshot's size or path is wrong");
        return;
    }
    struct fetch_mail *mail = make_fetch(core, FETCH_REPLICA);
    if (mail) {
        const char *dir = core->settings.config->state_dir;
        mail->replica = *snapshot;
        if (path_format(mail->path, "%s/cache/replica-%s", dir, snapshot->job) ||
            path_format(mail->part_path, "%s/cache/replica.part", dir) ||
            path_format(mail->etag_path, "%s/cache/replica.etag", dir)) {
            free(mail);
            mail = NULL;
        }
    }
    core->replica_coming = true;
    core->preparing = true;
    log_info(CORE_LOG, "fetching version %llu of the model (%.1f MB)",
             (unsigned long long)snapshot->version, (double)snapshot->bytes / 1e6);
    core_set_state(core, "downloading", "");
    post_fetch(core, mail);
}

static void clear_job_figures(struct core *core)
{
    struct status_fields *fields = status_board_lock(core->board);
    fields->job[0] = fields->lease[0] = '\0';
    fields->version = fields->step = fields->steps = 0;
    fields->loss = fields->samples_per_s = 0.0;
    status_board_unlock(core->board);
}

void core_take_cancel(struct core *core, const struct wire_cancel *cancel)
{
    bool whole_job = cancel->lease[0] == '\0';
    log_info(CORE_LOG, "%s %s cancelled: %s", whole_job ? "job" : "lease",
             whole_job ? cancel->job : cancel->lease, cancel->reason);
    struct worker_mail *mail = calloc(1, sizeof *mail);
    if (mail) {
        mail->mail.type = WORKER_CANCEL;
        mail->cancel = *cancel;
    }
    worker_interrupt(core->worker);
    core_order(core, mail);
    if (!whole_job || strcmp(cancel->job, core->job) != 0)
        return;
    fetcher_cancel(core->fetcher);
    core->job[0] = '\0';
    core->have_job[0] = '\0';
    core->have_version = core->have_hash = 0;
    core->job_loaded = core->preparing = core->replica_coming = false;
    clear_job_figures(core);
    core_set_state(core, "waiting", cancel->reason);
    core_ask(core);
}

void core_forget_preparation(struct core *core)
{
    if (!core->fetcher)
        return;
    fetcher_cancel(core->fetcher);
    core->preparing = core->replica_coming = false;
    if (!core->job_loaded)
        core->job[0] = '\0';
}
