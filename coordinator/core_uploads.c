/* Updates on their way up. An upload belongs to the volunteer, not to the session, and its bytes
 * go to <data>/uploads/<volunteer>/<lease>-<start of its SHA-256> as they come, so that it resumes
 * at the byte after a reconnect, a restart of the agent or a restart of the coordinator. The
 * loop's thread. Surprising decision: nothing here is fsynced. The file proves nothing; only the
 * SHA-256 of the whole does, and after a power cut the agent simply sends it again. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/core_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RESTARTS_MAX 3u
#define LEFTOVER_S (7 * 24 * 3600)
#define STORAGE_RETRY_MS 10000

/* --- files ------------------------------------------------------------------------------------ */

static enum status path_of(const struct core *core, const char *volunteer, const char *lease,
                           const uint8_t sha256[SHA256_BYTES], char ret[PATH_BYTES])
{
    char start[17];
    hex_encode(sha256, 8, start);
    return path_format(ret, "%s/%s/%s-%s", core->uploads_dir, volunteer, lease, start);
}

static void sweep_directory(const char *dir, time_t before)
{
    DIR *stream = opendir(dir);
    struct dirent *entry;
    while (stream && (entry = readdir(stream))) {
        char path[PATH_BYTES];
        struct stat info;
        if (entry->d_name[0] == '.' || path_format(path, "%s/%s", dir, entry->d_name) ||
            lstat(path, &info) < 0)
            continue;
        if (S_ISDIR(info.st_mode)) {
            sweep_directory(path, before);
            rmdir(path); /* stays unless empty */
        } else if (info.st_mtime < before) {
            unlink(path);
        }
    }
    if (stream)
        closedir(stream);
}

enum status core_uploads_open(struct core *core, const char *dir, struct error *err)
{
    if (!text_copy(core->uploads_dir, sizeof core->uploads_dir, dir))
        return error_set(err, STATUS_TOO_LARGE, "the path %s is too long", dir);
    sweep_directory(dir, time(NULL) - LEFTOVER_S);
    return file_make_dirs(dir, 0700, err);
}

static void upload_close(struct upload *upload)
{
    if (upload->lease[0] && upload->fd >= 0)
        close(upload->fd);
    upload->fd = -1;
}

/* Gives the place free and removes the file. */
static void upload_end(struct core *core, const struct volunteer *volunteer, struct upload *upload)
{
    char path[PATH_BYTES];
    if (path_of(core, volunteer->id, upload->lease, upload->sha256, path) == STATUS_OK)
        unlink(path);
    upload_close(upload);
    *upload = (struct upload){.fd = -1};
}

/* Opens the file and takes over what is in it already. */
static enum status open_file(struct core *core, const struct volunteer *volunteer,
                             struct upload *upload)
{
    char path[PATH_BYTES], dir[PATH_BYTES];
    struct stat info;
    enum status status = path_format(dir, "%s/%s", core->uploads_dir, volunteer->id);
    if (!status)
        status = path_of(core, volunteer->id, upload->lease, upload->sha256, path);
    if (status)
        return status;
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return STATUS_IO;
    upload->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (upload->fd < 0)
        return STATUS_IO;
    bool of_use = fstat(upload->fd, &info) == 0 && (uint64_t)info.st_size <= upload->bytes;
    if (!of_use && ftruncate(upload->fd, 0) < 0)
        return STATUS_IO;
    upload->received = of_use ? (uint64_t)info.st_size : 0;
    return STATUS_OK;
}

/* --- the table -------------------------------------------------------------------------------- */

void volunteer_rewind_uploads(struct volunteer *volunteer)
{
    for (size_t i = 0; i < UPLOADS_MAX; i++) {
        volunteer->uploads[i].stream = 0;
        upload_close(&volunteer->uploads[i]);
    }
}

bool volunteer_is_uploading(const struct volunteer *volunteer)
{
    for (size_t i = 0; i < UPLOADS_MAX; i++)
        if (volunteer->uploads[i].stream != 0)
            return true;
    return false;
}

static struct upload *by_stream(struct volunteer *volunteer, uint64_t stream)
{
    for (size_t i = 0; i < UPLOADS_MAX; i++)
        if (stream != 0 && volunteer->uploads[i].stream == stream)
            return &volunteer->uploads[i];
    return NULL;
}

static struct upload *by_lease(struct volunteer *volunteer, const char *lease)
{
    for (size_t i = 0; i < UPLOADS_MAX; i++)
        if (strcmp(volunteer->uploads[i].lease, lease) == 0)
            return &volunteer->uploads[i];
    return NULL;
}

static bool is_same(const struct upload *upload, const struct wire_offer *offer)
{
    return upload->bytes == offer->bytes &&
           memcmp(upload->sha256, offer->sha256, SHA256_BYTES) == 0;
}

/* The upload of this offer, new or resumed, with its file open; NULL: the disk refuses. */
static struct upload *begin(struct core *core, struct volunteer *volunteer,
                            const struct wire_offer *offer)
{
    struct upload *other = by_stream(volunteer, offer->stream);
    if (other && strcmp(other->lease, offer->lease) != 0)
        upload_end(core, volunteer, other); /* the agent uses the number for something else now */
    struct upload *upload = by_lease(volunteer, offer->lease);
    if (upload && !is_same(upload, offer))
        upload_end(core, volunteer, upload);
    else if (upload && upload->fd >= 0) {
        upload->stream = (uint32_t)offer->stream;
        return upload;
    }
    if (!upload || upload->lease[0] == '\0')
        upload = by_lease(volunteer, "");
    if (!upload) {
        upload = &volunteer->uploads[0]; /* more than an agent can hold: the oldest place */
        upload_end(core, volunteer, upload);
    }
    *upload = (struct upload){.stream = (uint32_t)offer->stream,
                              .base = offer->base,
                              .samples = offer->samples,
                              .loss = offer->loss,
                              .bytes = offer->bytes,
                              .fd = -1};
    text_copy(upload->lease, sizeof upload->lease, offer->lease);
    text_copy(upload->job, sizeof upload->job, offer->job);
    memcpy(upload->sha256, offer->sha256, SHA256_BYTES);
    if (open_file(core, volunteer, upload) == STATUS_OK)
        return upload;
    upload_end(core, volunteer, upload);
    return NULL;
}

/* --- messages --------------------------------------------------------------------------------- */

static void send_want(struct core *core, struct session *session, const struct upload *upload)
{
    struct wire_message message = {.type = WIRE_want};
    message.want.stream = upload->stream;
    message.want.from = upload->received;
    hub_send(core->hub, session->peer, &message);
}

/* The agent keeps its update and offers it again when it comes back. */
void core_offer_later(struct core *core, struct session *session)
{
    hub_close(core->hub, session->peer, END_STORAGE, end_reason_text(END_STORAGE),
              STORAGE_RETRY_MS);
}

static void storage_failed(struct core *core, struct session *session)
{
    core_event(core, "storage.full", "error", session->volunteer->id,
               "an update cannot be kept below %s: %s; free some space", core->uploads_dir,
               strerror(errno));
    core_offer_later(core, session);
}

/* The whole payload, if its SHA-256 is right; NULL with *ret_status. */
static struct shared *read_whole(const struct upload *upload, enum status *ret_status)
{
    uint8_t *data = malloc((size_t)upload->bytes), sha256[SHA256_BYTES];
    *ret_status = STATUS_NO_MEMORY;
    if (!data)
        return NULL;
    *ret_status = file_pread_all(upload->fd, data, (size_t)upload->bytes, 0, NULL);
    if (*ret_status == STATUS_OK) {
        sha256_of(data, (size_t)upload->bytes, sha256);
        if (memcmp(sha256, upload->sha256, SHA256_BYTES) == 0)
            return shared_create_take(data, (size_t)upload->bytes);
        *ret_status = STATUS_CORRUPT;
    }
    free(data);
    return NULL;
}

/* The file stays until the answer is durable: a coordinator that dies before takes it up again. */
static void submit(struct core *core, struct session *session, struct upload *upload,
                   struct live_job *live, struct shared *payload)
{
    struct error err = {0};
    enum status status = job_submit(live->job, session->volunteer->id, upload->lease, upload->base,
                                    upload->samples, upload->loss, payload, &err);
    if (status == STATUS_NO_SPACE || status == STATUS_BUSY)
        core_offer_later(core, session);
    else if (status)
        core_event(core, "update.failed", "error", live->id, "%s", err.text);
    upload_close(upload);
    upload->stream = 0;
}

void core_upload_answered(struct core *core, struct volunteer *volunteer, const char *lease)
{
    struct upload *upload = by_lease(volunteer, lease);
    if (upload)
        upload_end(core, volunteer, upload);
}

static void finish(struct core *core, struct session *session, struct upload *upload)
{
    struct live_job *live = live_job_find(core, upload->job);
    enum status status;
    struct shared *payload = read_whole(upload, &status);
    if (payload && live && !live->finished_us) {
        submit(core, session, upload, live, payload);
        shared_unref(payload);
        return;
    } else if (payload) {
        core_send_result(core, session, upload->lease, VERDICT_REFUSED, REASON_JOB_ENDED, 0);
    } else if (upload->restarts++ < RESTARTS_MAX && ftruncate(upload->fd, 0) == 0) {
        log_warn("core", "update of lease %s: %s; it is sent again", upload->lease,
                 status_text(status));
        upload->received = 0;
        send_want(core, session, upload);
        return;
    } else {
        core_send_result(core, session, upload->lease, VERDICT_REFUSED, REASON_CHECKSUM, 0);
    }
    shared_unref(payload);
    upload_end(core, session->volunteer, upload);
}

void core_take_offer(struct core *core, struct session *session, const struct wire_offer *offer)
{
    struct live_job *live = live_job_find(core, offer->job);
    if (offer->stream == 0 || offer->stream > UINT32_MAX || !id_is_valid(offer->lease, "lea")) {
        hub_close(core->hub, session->peer, END_PROTOCOL_ERROR,
                  "offer.stream is outside 1 … 4294967295, or offer.lease is malformed", 0);
        return;
    }
    if (!live) {
        core_send_result(core, session, offer->lease, VERDICT_REFUSED, REASON_JOB_ENDED, 0);
        return;
    }
    struct job_answer answer =
        job_examine_offer(live->job, session->volunteer->id, offer->lease, offer->bytes);
    if (answer.verdict == VERDICT_NONE && live->finished_us) {
        answer.verdict = VERDICT_REFUSED;
        answer.reason = REASON_JOB_ENDED;
    }
    if (answer.verdict != VERDICT_NONE) {
        core_send_result(core, session, offer->lease, answer.verdict, answer.reason,
                         answer.version);
        return;
    }
    if (answer.pending)
        return;
    if (job_is_full(live->job)) {
        core_offer_later(core, session);
        return;
    }
    struct upload *upload = begin(core, session->volunteer, offer);
    if (!upload)
        storage_failed(core, session);
    else if (upload->received == upload->bytes)
        finish(core, session, upload);
    else
        send_want(core, session, upload);
}

void core_agent_frame(struct core *core, struct session *session, const struct mail_frame *frame)
{
    struct upload *upload = by_stream(session->volunteer, frame->stream);
    if (!upload || frame->offset < upload->received)
        return; /* answered already, or sent again after a reconnect */
    if (frame->offset > upload->received) {
        send_want(core, session, upload);
        return;
    }
    if (frame->bytes > upload->bytes - upload->received) {
        hub_close(core->hub, session->peer, END_PROTOCOL_ERROR, "more bytes than offered", 0);
        return;
    }
    if (file_pwrite_all(upload->fd, frame->payload, frame->bytes, upload->received, NULL)) {
        storage_failed(core, session);
        return;
    }
    upload->received += frame->bytes;
    if (upload->received == upload->bytes)
        finish(core, session, upload);
}
