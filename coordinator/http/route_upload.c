/* HEAD and PATCH /v1/artifacts/{id}/upload: resumable uploads. The body goes straight to a .part
 * file on libmicrohttpd's thread; opening, the final fsync, hashing and the rename run on a worker.
 * Its surprise: the size of the .part file is the offset. Nothing else remembers it, so it can
 * neither be lost nor disagree. */
#include "common/base/bytes.h"
#include "coordinator/http/artifact_file.h"
#include "coordinator/http/respond.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct upload {
    struct upload *next; /* under http->lock */
    struct http *http;
    struct store_artifact artifact;
    char path[PATH_BYTES]; /* .part */
    int fd;
    uint64_t offset; /* where the next byte goes */
    enum status failed;
    struct error err;
};

/* False when another request is uploading this artifact. */
static bool claim(struct http *http, struct upload *upload)
{
    bool is_free = true;
    pthread_mutex_lock(&http->lock);
    for (struct upload *other = http->uploads; other; other = other->next)
        if (strcmp(other->artifact.id, upload->artifact.id) == 0)
            is_free = false;
    if (is_free) {
        upload->next = http->uploads;
        http->uploads = upload;
    }
    pthread_mutex_unlock(&http->lock);
    return is_free;
}

static void release(void *context)
{
    struct upload *upload = context;
    struct http *http = upload->http;
    pthread_mutex_lock(&http->lock);
    struct upload **link = &http->uploads;
    while (*link && *link != upload)
        link = &(*link)->next;
    if (*link)
        *link = upload->next;
    pthread_mutex_unlock(&http->lock);
    if (upload->fd >= 0)
        close(upload->fd);
    free(upload);
}

void route_upload_offset(struct request *request)
{
    struct store_artifact artifact;
    char path[PATH_BYTES];
    struct stat file = {0};
    if (!route_find_artifact(request, &artifact))
        return;
    uint64_t offset = artifact.size_bytes;
    if (strcmp(artifact.state, "ready") != 0) {
        bool exists =
            artifact_part_path(request->http->artifacts_dir, artifact.id, path) == STATUS_OK &&
            stat(path, &file) == 0;
        offset = exists ? (uint64_t)file.st_size : 0;
    }
    respond_empty(request, MHD_HTTP_OK);
    respond_header(request, "Upload-Offset", "%" PRIu64, offset);
    respond_header(request, "Upload-Length", "%" PRIu64, artifact.size_bytes);
}

static bool parse_offset(const char *text, uint64_t *ret)
{
    char *end;
    if (!text || text[0] < '0' || text[0] > '9' || strlen(text) > 18)
        return false;
    *ret = strtoull(text, &end, 10);
    return *end == 0;
}

/* Opens the .part file and compares its size with the offset. False: answered. */
static bool open_part(struct request *request, struct upload *upload)
{
    struct stat file;
    if (artifact_part_path(request->http->artifacts_dir, upload->artifact.id, upload->path) ||
        (upload->fd = open(upload->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) < 0 ||
        fstat(upload->fd, &file)) {
        struct error err = {0};
        respond_status(request, error_set_errno(&err, errno, "cannot open %s", upload->path), &err);
        return false;
    }
    uint64_t size = (uint64_t)file.st_size;
    if (size != upload->offset) {
        respond_problem(request, PROBLEM_OFFSET_MISMATCH,
                        "The upload continues at %" PRIu64 ", not at %" PRIu64 ".", size,
                        upload->offset);
        respond_header(request, "Upload-Offset", "%" PRIu64, size);
        return false;
    }
    if (request->content_length > upload->artifact.size_bytes - size) {
        respond_problem(request, PROBLEM_TOO_LARGE,
                        "The artifact was declared with %" PRIu64 " bytes; the body goes beyond.",
                        upload->artifact.size_bytes);
        return false;
    }
    return true;
}

/* Asks for the disk space before the client sends for hours. False: answered. */
static bool reserve_space(struct request *request, struct upload *upload)
{
    if (request->content_length == 0 ||
        fallocate(upload->fd, FALLOC_FL_KEEP_SIZE, (off_t)upload->offset,
                  (off_t)request->content_length) == 0 ||
        (errno != ENOSPC && errno != EDQUOT)) /* some file systems cannot reserve */
        return true;
    respond_problem(request, PROBLEM_STORAGE,
                    "The coordinator's disk has no room for %" PRIu64 " more bytes.",
                    request->content_length);
    return false;
}

static bool prepare(struct request *request, struct upload *upload)
{
    if (strcmp(upload->artifact.state, "uploading") != 0) {
        respond_problem(request, PROBLEM_INVALID_STATE, "The artifact is %s.",
                        upload->artifact.state);
        return false;
    }
    if (!parse_offset(request_header(request, "Upload-Offset"), &upload->offset)) {
        respond_problem(request, PROBLEM_INVALID_REQUEST,
                        "An Upload-Offset header with a number is needed.");
        return false;
    }
    if (!claim(request->http, upload)) {
        respond_problem(request, PROBLEM_INVALID_STATE,
                        "Another request is uploading this artifact; if it was cut off, it ends "
                        "within 30 seconds.");
        return false;
    }
    return open_part(request, upload) && reserve_space(request, upload);
}

static void take_data(void *context, const void *data, size_t bytes)
{
    struct upload *upload = context;
    if (upload->failed == STATUS_OK)
        upload->failed = file_pwrite_all(upload->fd, data, bytes, upload->offset, &upload->err);
    if (upload->failed == STATUS_OK)
        upload->offset += bytes;
}

/* The rejected state is best effort: without it the artifact stays "uploading" from the start. */
static void reject(struct request *request, struct upload *upload, enum problem problem,
                   const char *sentence)
{
    struct error err = {0};
    char reason[sizeof upload->artifact.reason];
    text_copy(reason, sizeof reason, sentence);
    unlink(upload->path);
    if (store_artifact_reject(request->http->store, upload->artifact.id, reason, &err))
        core_event(request->http->core, "artifact.failed", "warn", upload->artifact.id,
                   "a rejected upload could not be marked: %s", err.text);
    core_event(request->http->core, "artifact.rejected", "warn", upload->artifact.id, "%s",
               sentence);
    respond_problem(request, problem, "%s", sentence);
}

static enum status publish(struct upload *upload, uint64_t items, struct error *err)
{
    const char *dir = upload->http->artifacts_dir;
    char final[PATH_BYTES];
    enum status status = artifact_path(dir, &upload->artifact, final);
    if (status)
        return error_set(err, status, "the path of %s is too long", upload->artifact.id);
    if (rename(upload->path, final))
        return error_set_errno(err, errno, "cannot rename %s", upload->path);
    status = file_sync_dir(dir, err);
    if (status)
        return status;
    return store_artifact_set_state(upload->http->store, upload->artifact.id, "ready", items, err);
}

/* The whole file is here. */
static void complete(struct request *request, struct upload *upload)
{
    struct error err = {0};
    uint64_t items = 0;
    enum status status = STATUS_OK;
    if (fsync(upload->fd))
        status = error_set_errno(&err, errno, "cannot sync %s", upload->path);
    if (status == STATUS_OK)
        status = artifact_check_hash(upload->fd, &upload->artifact, &err);
    if (status == STATUS_CORRUPT) {
        reject(request, upload, PROBLEM_CHECKSUM, err.text);
        return;
    }
    if (status == STATUS_OK)
        status = artifact_check_kind(upload->path, &upload->artifact, &items, &err);
    if (status == STATUS_UNSUPPORTED) {
        reject(request, upload, PROBLEM_UNSUPPORTED_FORMAT, err.text);
        return;
    }
    if (status == STATUS_OK)
        status = publish(upload, items, &err);
    if (status) {
        respond_status(request, status, &err);
        return;
    }
    core_event(request->http->core, "artifact.ready", "info", upload->artifact.id,
               "%s is ready, %" PRIu64 " bytes", upload->artifact.filename,
               upload->artifact.size_bytes);
    respond_empty(request, MHD_HTTP_NO_CONTENT);
    respond_header(request, "Upload-Offset", "%" PRIu64, upload->offset);
}

static void finish(struct request *request)
{
    struct upload *upload = request->sink.context;
    if (upload->failed) {
        respond_status(request, upload->failed, &upload->err);
        respond_header(request, "Upload-Offset", "%" PRIu64, upload->offset);
    } else if (upload->offset == upload->artifact.size_bytes) {
        complete(request, upload);
    } else {
        respond_empty(request, MHD_HTTP_NO_CONTENT);
        respond_header(request, "Upload-Offset", "%" PRIu64, upload->offset);
    }
}

void route_upload(struct request *request)
{
    struct upload *upload = calloc(1, sizeof *upload);
    if (!upload) {
        respond_status(request, STATUS_NO_MEMORY, NULL);
        return;
    }
    upload->http = request->http;
    upload->fd = -1;
    if (!route_find_artifact(request, &upload->artifact) || !prepare(request, upload)) {
        release(upload);
        return;
    }
    request->sink =
        (struct sink){.context = upload, .data = take_data, .finish = finish, .release = release};
}
