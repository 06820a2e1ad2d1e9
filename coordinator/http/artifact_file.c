/* Names, checks and description of artifacts' files. On a worker (it reads whole files). Its
 * surprise: contents are named by their hash, so two artifacts may share one file. */
#include "coordinator/http/artifact_file.h"

#include "common/base/bytes.h"
#include "common/tensorfile/idx.h"
#include "coordinator/http/json_body.h"

#include <stdlib.h>
#include <string.h>

#define READ_BYTES (1u << 20)

enum status artifact_path(const char *dir, const struct store_artifact *artifact,
                          char ret[PATH_BYTES])
{
    char hex[SHA256_HEX_BYTES];
    hex_encode(artifact->sha256, SHA256_BYTES, hex);
    return path_format(ret, "%s/%s", dir, hex);
}

enum status artifact_part_path(const char *dir, const char *id, char ret[PATH_BYTES])
{
    return path_format(ret, "%s/%s.part", dir, id);
}

enum status artifact_check_hash(int fd, const struct store_artifact *artifact, struct error *err)
{
    uint8_t hash[SHA256_BYTES];
    struct sha256 sha;
    uint64_t left = artifact->size_bytes;
    enum status status = STATUS_OK;
    uint8_t *data = malloc(READ_BYTES);
    if (!data)
        return error_set(err, STATUS_NO_MEMORY, "no memory to check %s", artifact->id);
    sha256_init(&sha);
    while (left > 0 && status == STATUS_OK) {
        size_t bytes = left < READ_BYTES ? (size_t)left : READ_BYTES;
        status = file_pread_all(fd, data, bytes, artifact->size_bytes - left, err);
        if (status == STATUS_OK)
            sha256_update(&sha, data, bytes);
        left -= bytes;
    }
    free(data);
    if (status)
        return status;
    sha256_final(&sha, hash);
    if (memcmp(hash, artifact->sha256, sizeof hash) != 0)
        return error_set(err, STATUS_CORRUPT,
                         "The uploaded bytes have another SHA-256 than was "
                         "declared; declare and upload the file again.");
    return STATUS_OK;
}

enum status artifact_check_kind(const char *path, const struct store_artifact *artifact,
                                uint64_t *ret_items, struct error *err)
{
    struct idx idx;
    struct error why = {0};
    if (strcmp(artifact->kind, KIND_IDX) != 0) {
        *ret_items = artifact->size_bytes;
        return STATUS_OK;
    }
    if (idx_open(path, &idx, &why))
        return error_set(err, STATUS_UNSUPPORTED,
                         "The file is no IDX file of bytes (a .gz must be unpacked first).");
    *ret_items = idx.dims[0];
    idx_close(&idx);
    return STATUS_OK;
}

json_t *artifact_to_json(const struct store_artifact *artifact)
{
    char hex[SHA256_HEX_BYTES];
    hex_encode(artifact->sha256, SHA256_BYTES, hex);
    return json_pack("{ss ss ss sI ss ss ss? sI so}", "id", artifact->id, "kind", artifact->kind,
                     "filename", artifact->filename, "size_bytes", (json_int_t)artifact->size_bytes,
                     "sha256", hex, "state", artifact->state, "reason",
                     artifact->reason[0] ? artifact->reason : NULL, "items",
                     (json_int_t)artifact->items, "created_at", json_time(artifact->created_ms));
}
