/* The settings of a job, as researchers submit them, the coordinator stores them and agents get
 * them: parsed from JSON with every complaint at once, each with its JSON pointer.
 *
 * {
 *   "name": "KJV byte GPT",                                   1 … 80 characters
 *   "model": {"preset": "gpt", "layers": 2, "width": 64, "heads": 4, "context": 64,
 *             "vocabulary": 256}
 *          | {"preset": "mlp", "inputs": 784, "hidden": [512, 512], "classes": 10}
 *          | {"preset": "cnn", "height": 28, "width": 28, "channels": [32, 64], "classes": 10}
 *          | {"preset": "synthetic", "parameters": 30800000,       1 … 2^31
 *             "step_ms": 250},                                     0.1 … 60000
 *   "data": {"kind": "text", "train": "art_…", "held_out_ratio": 0.05}
 *         | {"kind": "images", "images": "art_…", "labels": "art_…",
 *            "held_out_images": "art_…", "held_out_labels": "art_…"}
 *         | {"kind": "synthetic"},
 *   "training": {"batch_size": 8, "steps_per_lease": 30, "learning_rate": 0.003,
 *                "final_learning_rate_ratio": 0.1, "warmup_samples": 1600,
 *                "total_samples": 72000, "steps_min": 8, "steps_max": 256,
 *                "weight_decay": 0.1, "gradient_clip": 1.0,
 *                "adam_beta1": 0.9, "adam_beta2": 0.95, "seed": 1},
 *   "update": {"adaptive": true, "k_per_chunk": 64, "k_min": 16, "k_max": 256,
 *              "downlink_k_per_chunk": 128, "values": "sign", "downlink_values": "sign",
 *              "keep_unsent": true, "residual_decay": 1.0},
 *             values: "sign" | "two_bits" | "four_bits" | "eight_bits" | "fp32" (all, not only k)
 *   "aggregation": {"outer_rate": 0},                         0: from the rule min(1, 2/sqrt(R))
 *   "evaluation": {"every_versions": 20, "samples": 320},
 *   "lease": {"deadline_seconds": 60}
 * }
 * model, data and name are required; within training batch_size and total_samples too; the rest has
 * the defaults above. Unknown fields are refused (typos are found). "text" goes with preset gpt,
 * "images" with mlp and cnn, "synthetic" with synthetic: no learning, but a cheap quadratic problem
 * of that many parameters whose step takes step_ms, to try links without GPUs.
 *
 * adaptive: an agent starts with steps_per_lease and k_per_chunk and then chooses both by its link,
 * within the limits; false: always exactly these two. The limits enclose the start values, and
 * their defaults make way for them (k_per_chunk 400 alone means k_max 400). */
#ifndef RAVEN_COMMON_GRAPH_JOB_SPEC_H
#define RAVEN_COMMON_GRAPH_JOB_SPEC_H

#include "common/base/buffer.h"
#include "common/base/id.h"
#include "common/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define JOB_SPEC_BYTES_MAX (16u * 1024) /* canonical JSON text */
#define MODEL_HIDDEN_MAX 8

enum model_preset { MODEL_MLP, MODEL_CNN, MODEL_GPT, MODEL_SYNTHETIC };

struct model_spec {
    enum model_preset preset;
    uint32_t layers, width, heads, context, vocabulary;      /* gpt */
    uint32_t inputs, hidden[MODEL_HIDDEN_MAX], hidden_count; /* mlp */
    uint32_t image_height, image_width;                      /* cnn */
    uint32_t channels[MODEL_HIDDEN_MAX], channels_count;     /* cnn: one 3×3 conv + pool each */
    uint32_t classes;                                        /* mlp, cnn */
    uint64_t parameters;                                     /* synthetic */
    double step_ms;                                          /* synthetic: wall time of a step */
};

enum data_kind { DATA_TEXT, DATA_IMAGES, DATA_SYNTHETIC };

struct data_spec {
    enum data_kind kind;
    char train[ID_BYTES]; /* text */
    double held_out_ratio;
    char images[ID_BYTES], labels[ID_BYTES]; /* images */
    char held_out_images[ID_BYTES], held_out_labels[ID_BYTES];
};

struct job_spec {
    char name[81 * 4];
    struct model_spec model;
    struct data_spec data;
    struct {
        uint32_t batch_size, steps_per_lease;
        uint32_t steps_min, steps_max; /* of a lease; enclose steps_per_lease */
        double learning_rate, final_learning_rate_ratio;
        uint64_t warmup_samples, total_samples;
        double weight_decay, gradient_clip, adam_beta1, adam_beta2;
        uint64_t seed;
    } training;
    struct {
        bool adaptive; /* agents choose steps and k by their link */
        uint32_t k_per_chunk, downlink_k_per_chunk;
        uint32_t k_min, k_max;            /* enclose k_per_chunk */
        uint32_t values, downlink_values; /* as enum codec_values: 1 sign … 5 fp32 */
        bool keep_unsent;
        double residual_decay;
    } update;
    double outer_rate;
    uint32_t evaluate_every_versions, evaluate_samples;
    uint32_t lease_deadline_seconds;
};

/* One complaint. pointer: RFC 6901, for example "/model/width"; code: "unknown", "missing", "type",
 * "min", "max", "choice", "not_found", …; detail names field, value and cure. */
struct spec_complaint {
    char pointer[96];
    char code[24];
    char detail[224];
};

#define SPEC_COMPLAINTS_MAX 32

struct spec_complaints {
    struct spec_complaint items[SPEC_COMPLAINTS_MAX];
    uint32_t count; /* stops at the maximum */
};

void spec_complain(struct spec_complaints *list, const char *pointer, const char *code,
                   const char *format, ...) PRINTF_LIKE(4, 5);

/* STATUS_INVALID with every complaint in ret_complaints (never empty then). Does not look artifacts
 * up: the coordinator's HTTP route does. Strings in ret are NUL-terminated UTF-8. */
enum status job_spec_parse(const json_t *json, struct job_spec *ret,
                           struct spec_complaints *ret_complaints) MUST_CHECK;
/* The same from text; for agents and recovery. err: the first complaint as a sentence. */
enum status job_spec_parse_text(const char *text, size_t bytes, struct job_spec *ret,
                                struct error *err) MUST_CHECK;
/* Complete canonical form with every default written out, at most JOB_SPEC_BYTES_MAX. New
 * reference, NULL when memory is out. */
json_t *job_spec_to_json(const struct job_spec *spec);

/* Inner learning rate at a global sample position: linear warm-up over warmup_samples, then cosine
 * from learning_rate to learning_rate * final_learning_rate_ratio at total_samples, flat after. */
double job_spec_learning_rate(const struct job_spec *spec, uint64_t samples_position);

#endif
