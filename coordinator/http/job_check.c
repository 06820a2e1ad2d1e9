/* Checks a submitted job: its settings (common/graph), then its artifacts, then the model against
 * the data. On a worker. Its surprise: artifacts are looked up even when other settings are wrong,
 * so that the person hears everything at once. */
#include "coordinator/http/job_check.h"

#include "common/base/bytes.h"
#include "common/codec/codec.h"
#include "common/graph/graph.h"
#include "common/tensorfile/idx.h"
#include "coordinator/http/artifact_file.h"
#include "coordinator/ledger/ledger.h"
#include "coordinator/ledger/records.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct check {
    struct http *http;
    const json_t *data; /* the object at /data; may be anything */
    json_t *artifacts;
    struct spec_complaints *complaints;
    struct error *err;
    enum status failed; /* of the store: stops everything */
};

static bool remember(struct check *check, const struct store_artifact *artifact)
{
    char hex[SHA256_HEX_BYTES];
    hex_encode(artifact->sha256, SHA256_BYTES, hex);
    return json_object_set_new(
               check->artifacts, artifact->id,
               json_pack("{ss sI}", "sha256", hex, "bytes", (json_int_t)artifact->size_bytes)) == 0;
}

/* The ready artifact of this kind that the field names. A missing or malformed id is the spec's
 * business and complained about there. */
static bool look_up(struct check *check, const char *field, const char *kind,
                    struct store_artifact *ret)
{
    char pointer[40];
    const char *id = json_string_value(json_object_get(check->data, field));
    if (check->failed || !id || !id_is_valid(id, "art"))
        return false;
    snprintf(pointer, sizeof pointer, "/data/%s", field);
    enum status status = store_artifact_get(check->http->store, id, ret, check->err);
    if (status == STATUS_NOT_FOUND)
        spec_complain(check->complaints, pointer, "not_found", "there is no artifact %s", id);
    else if (status)
        check->failed = status;
    else if (strcmp(ret->kind, kind) != 0)
        spec_complain(check->complaints, pointer, "kind", "%s is a %s; a %s is needed", id,
                      ret->kind, kind);
    else if (strcmp(ret->state, "ready") != 0)
        spec_complain(check->complaints, pointer, "not_ready", "%s is %s", id, ret->state);
    else if (!remember(check, ret))
        check->failed = STATUS_NO_MEMORY;
    else
        return true;
    return false;
}

static bool open_idx(struct check *check, const char *field, uint32_t rank, struct idx *ret)
{
    struct store_artifact artifact;
    char pointer[40], path[PATH_BYTES];
    struct error why = {0};
    if (!look_up(check, field, KIND_IDX, &artifact))
        return false;
    snprintf(pointer, sizeof pointer, "/data/%s", field);
    if (artifact_path(check->http->artifacts_dir, &artifact, path) || idx_open(path, ret, &why)) {
        spec_complain(check->complaints, pointer, "unreadable", "the file of %s cannot be read",
                      artifact.id);
        return false;
    }
    if (ret->rank == rank)
        return true;
    spec_complain(check->complaints, pointer, "rank", "%s has %u dimensions; %s needs %u",
                  artifact.id, ret->rank, field, rank);
    idx_close(ret);
    return false;
}

/* spec: NULL when it was not valid. */
static void compare_with_model(struct check *check, const struct job_spec *spec,
                               const char *images_field, const struct idx *images)
{
    char pointer[40];
    uint64_t height = images->dims[1], width = images->dims[2];
    snprintf(pointer, sizeof pointer, "/data/%s", images_field);
    if (!spec)
        return;
    const struct model_spec *model = &spec->model;
    if (model->preset == MODEL_MLP && height * width != model->inputs)
        spec_complain(check->complaints, pointer, "shape",
                      "images of %" PRIu64 " × %" PRIu64 " do not fit a model of %u inputs", height,
                      width, model->inputs);
    if (model->preset == MODEL_CNN &&
        (height != model->image_height || width != model->image_width))
        spec_complain(check->complaints, pointer, "shape",
                      "images of %" PRIu64 " × %" PRIu64 " do not fit a model of %u × %u", height,
                      width, model->image_height, model->image_width);
}

static void compare_labels(struct check *check, const struct job_spec *spec,
                           const char *labels_field, const struct idx *labels)
{
    char pointer[40];
    uint8_t largest = 0;
    for (uint64_t i = 0; i < labels->count; i++)
        if (labels->data[i] > largest)
            largest = labels->data[i];
    snprintf(pointer, sizeof pointer, "/data/%s", labels_field);
    if (spec && largest >= spec->model.classes)
        spec_complain(check->complaints, pointer, "max",
                      "the largest label is %u, but the model has %u classes", largest,
                      spec->model.classes);
}

/* One pair of images and labels; returns the number of images, 0 when something is wrong. */
static uint64_t check_pair(struct check *check, const struct job_spec *spec,
                           const char *images_field, const char *labels_field)
{
    struct idx images, labels;
    char pointer[40];
    bool have_images = open_idx(check, images_field, 3, &images);
    bool have_labels = open_idx(check, labels_field, 1, &labels);
    uint64_t count = have_images && have_labels ? images.dims[0] : 0;
    if (have_images)
        compare_with_model(check, spec, images_field, &images);
    if (have_labels)
        compare_labels(check, spec, labels_field, &labels);
    if (have_images && have_labels && labels.dims[0] != count) {
        snprintf(pointer, sizeof pointer, "/data/%s", labels_field);
        spec_complain(check->complaints, pointer, "count",
                      "%" PRIu64 " labels for %" PRIu64 " images", labels.dims[0], count);
    }
    if (have_images)
        idx_close(&images);
    if (have_labels)
        idx_close(&labels);
    return count;
}

/* A record of the ledger holds one update, with its clip factors. */
static void check_update_bytes(const struct job_spec *spec, const struct graph *graph,
                               struct spec_complaints *complaints)
{
    struct codec_format usual = {(enum codec_values)spec->update.values, spec->update.k_per_chunk};
    struct codec_format largest = {usual.values, spec->update.k_max};
    size_t bytes = codec_bytes_max(graph->parameter_count, usual);
    size_t bytes_max = codec_bytes_max(graph->parameter_count, largest);
    size_t room = LEDGER_BODY_BYTES_MAX - LEDGER_TENSORS_MAX * sizeof(float) - 1024;
    if (bytes > room)
        spec_complain(complaints, "/update/values", "max",
                      "updates of %" PRIu64 " parameters would take up to %.0f MB, at most %.0f MB "
                      "are possible; use fewer k_per_chunk, values of fewer bits, or a smaller "
                      "model",
                      graph->parameter_count, (double)bytes / 1e6, (double)room / 1e6);
    else if (spec->update.adaptive && bytes_max > room)
        spec_complain(complaints, "/update/k_max", "max",
                      "updates with k_max %u would take up to %.0f MB, at most %.0f MB are "
                      "possible; use a smaller k_max, or adaptive false",
                      spec->update.k_max, (double)bytes_max / 1e6, (double)room / 1e6);
}

static void check_model(const struct job_spec *spec, struct check *check, uint64_t *ret_parameters)
{
    struct graph *graph = NULL;
    struct error why = {0};
    enum status status = graph_build(&spec->model, &graph, &why);
    if (status == STATUS_NO_MEMORY) {
        check->failed = status;
    } else if (status) {
        spec_complain(check->complaints, "/model", "model", "%s", why.text);
    } else {
        *ret_parameters = graph->parameter_count;
        check_update_bytes(spec, graph, check->complaints);
    }
    graph_free(graph);
}

enum status job_check(struct http *http, const json_t *json, struct job_facts *ret,
                      struct spec_complaints *complaints, struct error *err)
{
    struct store_artifact text = {0};
    struct error why = {0};
    uint64_t images = 0, held_out = 0;
    struct check check = {.http = http,
                          .data = json_object_get(json, "data"),
                          .artifacts = json_object(),
                          .complaints = complaints,
                          .err = err};
    ret->artifacts = check.artifacts;
    if (!check.artifacts)
        return error_set(err, STATUS_NO_MEMORY, "no memory to check the job");
    bool parsed = job_spec_parse(json, &ret->spec, complaints) == STATUS_OK;
    const struct job_spec *spec = parsed ? &ret->spec : NULL;
    const char *kind = json_string_value(json_object_get(check.data, "kind"));
    if (kind && strcmp(kind, "text") == 0) {
        look_up(&check, "train", KIND_TEXT, &text);
    } else if (kind && strcmp(kind, "images") == 0) {
        images = check_pair(&check, spec, "images", "labels");
        held_out = check_pair(&check, spec, "held_out_images", "held_out_labels");
    }
    if (parsed && !check.failed)
        check_model(spec, &check, &ret->parameters);
    if (check.failed)
        return check.failed;
    if (complaints->count == 0 &&
        data_plan_make(spec, text.size_bytes, images, held_out, &ret->plan, &why))
        spec_complain(complaints, "/data", "data", "%s", why.text);
    return complaints->count > 0 ? STATUS_INVALID : STATUS_OK;
}
