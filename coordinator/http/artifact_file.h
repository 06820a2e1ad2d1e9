/* The files of artifacts: where they lie and what may be in them. */
#ifndef RAVEN_COORDINATOR_HTTP_ARTIFACT_FILE_H
#define RAVEN_COORDINATOR_HTTP_ARTIFACT_FILE_H

#include "common/base/file.h"
#include "coordinator/store/store.h"

#include <jansson.h>

#define KIND_TEXT "dataset_text"
#define KIND_IDX "dataset_idx"

/* "<dir>/<64 hex>": the content of every ready artifact with this SHA-256. */
enum status artifact_path(const char *dir, const struct store_artifact *artifact,
                          char ret[PATH_BYTES]) MUST_CHECK;
/* "<dir>/art_….part": what has been uploaded so far. */
enum status artifact_part_path(const char *dir, const char *id, char ret[PATH_BYTES]) MUST_CHECK;

/* STATUS_CORRUPT when the whole file's SHA-256 is not the declared one. */
enum status artifact_check_hash(int fd, const struct store_artifact *artifact,
                                struct error *err) MUST_CHECK;
/* STATUS_UNSUPPORTED with a sentence when the file is not of its kind. ret_items: images, bytes …
 */
enum status artifact_check_kind(const char *path, const struct store_artifact *artifact,
                                uint64_t *ret_items, struct error *err) MUST_CHECK;

json_t *artifact_to_json(const struct store_artifact *artifact);

#endif
