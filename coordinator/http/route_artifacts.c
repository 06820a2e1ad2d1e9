/* Declaring, listing and downloading artifacts; uploads are in route_upload.c. On workers. Its
 * surprise: declaring a content that is known already answers 200 with the artifact that has it,
 * and nothing needs to be uploaded. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "coordinator/http/artifact_file.h"
#include "coordinator/http/creation.h"
#include "coordinator/http/json_body.h"
#include "coordinator/http/page.h"
#include "coordinator/http/respond.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FILENAME_CHARACTERS_MAX 128
#define SPARE_BYTES (64u << 20) /* of the disk, never given to artifacts */

bool route_find_artifact(struct request *request, struct store_artifact *ret)
{
    struct error err = {0};
    enum status status = STATUS_NOT_FOUND;
    if (id_is_valid(request->parameter, "art"))
        status = store_artifact_get(request->http->store, request->parameter, ret, &err);
    if (status == STATUS_NOT_FOUND)
        respond_problem(request, PROBLEM_NOT_FOUND, "There is no artifact with this id.");
    else if (status)
        respond_status(request, status, &err);
    return status == STATUS_OK;
}

void route_artifacts(struct request *request)
{
    uint32_t limit;
    const char *cursor;
    json_t *rows = NULL;
    bool more = false;
    struct error err = {0};
    if (!request_page(request, "art", &limit, &cursor))
        return;
    enum status status =
        store_artifacts_page(request->http->store, cursor, limit, &rows, &more, &err);
    if (status)
        respond_status(request, status, &err);
    else
        respond_page(request, rows, more);
}

void route_artifact(struct request *request)
{
    struct store_artifact artifact;
    if (route_find_artifact(request, &artifact))
        respond_json(request, MHD_HTTP_OK, artifact_to_json(&artifact));
}

void route_artifact_content(struct request *request)
{
    struct store_artifact artifact;
    char path[PATH_BYTES], hex[SHA256_HEX_BYTES], etag[SHA256_HEX_BYTES + 16];
    struct stat file;
    if (!route_find_artifact(request, &artifact))
        return;
    if (strcmp(artifact.state, "ready") != 0) {
        respond_problem(request, PROBLEM_INVALID_STATE, "The artifact is %s, not ready.",
                        artifact.state);
        return;
    }
    int fd = artifact_path(request->http->artifacts_dir, &artifact, path)
                 ? -1
                 : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &file) || (uint64_t)file.st_size != artifact.size_bytes) {
        struct error err = {0};
        error_set(&err, STATUS_IO, "the file of %s is missing or has another size", artifact.id);
        if (fd >= 0)
            close(fd);
        respond_status(request, STATUS_IO, &err);
        return;
    }
    hex_encode(artifact.sha256, SHA256_BYTES, hex);
    snprintf(etag, sizeof etag, "\"sha256-%s\"", hex);
    respond_file(request, fd, artifact.size_bytes, etag, artifact.filename);
}

/* --- declaring --- */

static void read_text(const json_t *json, const char *name, char *ret, size_t ret_bytes,
                      struct spec_complaints *complaints)
{
    char pointer[40];
    const char *text = json_field_text(json, name, FILENAME_CHARACTERS_MAX, true, complaints);
    snprintf(pointer, sizeof pointer, "/%s", name);
    if (text && !text_copy(ret, ret_bytes, text))
        spec_complain(complaints, pointer, "max", "%s is longer than %zu bytes", name,
                      ret_bytes - 1);
}

static bool has_control_characters(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    return false;
}

static void read_declaration(const json_t *json, struct store_artifact *ret,
                             struct spec_complaints *complaints)
{
    json_fields_known(json, "kind filename size_bytes sha256", complaints);
    read_text(json, "kind", ret->kind, sizeof ret->kind, complaints);
    read_text(json, "filename", ret->filename, sizeof ret->filename, complaints);
    ret->size_bytes =
        json_field_number(json, "size_bytes", 1, (1ull << 53) - 1, true, 0, complaints);
    const char *hex = json_field_text(json, "sha256", 64, true, complaints);
    if (hex && !hex_decode(hex, ret->sha256, SHA256_BYTES))
        spec_complain(complaints, "/sha256", "type", "sha256 must be 64 hex digits");
    if (ret->kind[0] && strcmp(ret->kind, KIND_TEXT) != 0 && strcmp(ret->kind, KIND_IDX) != 0)
        spec_complain(complaints, "/kind", "choice", "kind must be " KIND_TEXT " or " KIND_IDX);
    if (strchr(ret->filename, '/') || has_control_characters(ret->filename))
        spec_complain(complaints, "/filename", "type",
                      "filename must have no '/' and no control characters");
}

/* False: answered. */
static bool has_room(struct request *request, uint64_t bytes)
{
    struct http *http = request->http;
    struct statvfs disk;
    if (bytes > http->artifact_bytes_max) {
        respond_problem(request, PROBLEM_TOO_LARGE,
                        "size_bytes is %" PRIu64 "; this coordinator takes artifacts of up to "
                        "%" PRIu64 " bytes (--artifact-mib-max).",
                        bytes, http->artifact_bytes_max);
        return false;
    }
    if (statvfs(http->artifacts_dir, &disk) == 0 &&
        (uint64_t)disk.f_bavail * disk.f_frsize < bytes + SPARE_BYTES) {
        respond_problem(request, PROBLEM_STORAGE,
                        "The coordinator's disk has no room for %" PRIu64 " bytes.", bytes);
        return false;
    }
    return true;
}

static void declare(struct request *request, struct store_artifact *artifact)
{
    struct creation creation = {0};
    struct store_replay replay = {0};
    struct error err = {0};
    id_make(artifact->id, "art");
    artifact->created_ms = clock_wall_ms();
    text_copy(artifact->state, sizeof artifact->state, "uploading");
    json_t *answer = artifact_to_json(artifact);
    bool begun = answer && creation_begin(request, answer, &creation);
    json_decref(answer);
    if (!begun) {
        respond_status(request, STATUS_NO_MEMORY, NULL);
        return;
    }
    enum status status =
        store_artifact_create(request->http->store, artifact, &creation.idempotency, &replay, &err);
    if (creation_is_new(request, status, &replay, &err, "/v1/artifacts/", "/upload"))
        creation_answer(request, creation.answer, "/v1/artifacts/", "/upload");
    creation_done(&creation);
}

void route_artifact_create(struct request *request)
{
    struct spec_complaints complaints = {0};
    struct store_artifact artifact = {0}, known;
    struct error err = {0};
    json_t *json = request_json(request);
    if (!json)
        return;
    read_declaration(json, &artifact, &complaints);
    json_decref(json);
    if (complaints.count > 0) {
        respond_complaints(request, "The artifact is not valid", &complaints);
        return;
    }
    enum status status =
        store_artifact_find(request->http->store, artifact.sha256, artifact.kind, &known, &err);
    if (status == STATUS_OK)
        respond_json(request, MHD_HTTP_OK, artifact_to_json(&known));
    else if (status != STATUS_NOT_FOUND)
        respond_status(request, status, &err);
    else if (has_room(request, artifact.size_bytes))
        declare(request, &artifact);
}
