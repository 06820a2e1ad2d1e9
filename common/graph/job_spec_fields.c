/* The tables of job settings, and the generic reader and writer over them. Plain functions, any
 * thread. Surprising: values are stored through byte offsets into struct job_spec, which is what
 * lets one table serve reading, defaults and writing. */
#include "common/graph/job_spec_fields.h"

#include "common/base/bytes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct job_spec, member)
#define EXACT_INTEGER_MAX 9007199254740991.0 /* 2^53 - 1: every JSON reader keeps it exact */
#define NEEDED .required = true
#define OR(value) .initial = (value)
#define LOW_FOR(row) .limit = LIMIT_LOW, .limited = &(row)
#define HIGH_FOR(row) .limit = LIMIT_HIGH, .limited = &(row)
#define WHOLE(field, member, low, high, ...)                                                       \
    {                                                                                              \
        .name = field, .type = FIELD_TYPE_U32, .offset = AT(member), .min = low, .max = high,      \
        __VA_ARGS__                                                                                \
    }
#define BIG(field, member, low, high, ...)                                                         \
    {                                                                                              \
        .name = field, .type = FIELD_TYPE_U64, .offset = AT(member), .min = low, .max = high,      \
        __VA_ARGS__                                                                                \
    }
#define REAL(field, member, low, high, ...)                                                        \
    {                                                                                              \
        .name = field, .type = FIELD_TYPE_REAL, .offset = AT(member), .min = low, .max = high,     \
        __VA_ARGS__                                                                                \
    }
#define FLAG(field, member, ...)                                                                   \
    {                                                                                              \
        .name = field, .type = FIELD_TYPE_BOOL, .offset = AT(member), __VA_ARGS__                  \
    }
#define WORD(field, member, list, ...)                                                             \
    {                                                                                              \
        .name = field, .type = FIELD_TYPE_WORD, .offset = AT(member), .min = 1,                    \
        .max = COUNT_OF(list), .words = list, __VA_ARGS__                                          \
    }
#define LIST(field, member, count, low, high)                                                      \
    {                                                                                              \
        .name = field, .type = FIELD_TYPE_LIST, .offset = AT(member), .count_offset = AT(count),   \
        .min = low, .max = high, NEEDED                                                            \
    }
#define ARTIFACT(field, member)                                                                    \
    {                                                                                              \
        .name = field, .type = FIELD_TYPE_ARTIFACT, .offset = AT(member), NEEDED                   \
    }

static const struct spec_field mlp_fields[] = {
    WHOLE("inputs", model.inputs, 1, 1048576, NEEDED),
    LIST("hidden", model.hidden, model.hidden_count, 1, 65536),
    WHOLE("classes", model.classes, 2, 256, NEEDED), /* labels are bytes */
};
static const struct spec_field cnn_fields[] = {
    WHOLE("height", model.image_height, 2, 1024, NEEDED),
    WHOLE("width", model.image_width, 2, 1024, NEEDED),
    LIST("channels", model.channels, model.channels_count, 1, 2048),
    WHOLE("classes", model.classes, 2, 256, NEEDED),
};
static const struct spec_field gpt_fields[] = {
    WHOLE("layers", model.layers, 1, 128, NEEDED),
    WHOLE("width", model.width, 1, 8192, NEEDED),
    WHOLE("heads", model.heads, 1, 128, NEEDED),
    WHOLE("context", model.context, 1, 4096, NEEDED),
    WHOLE("vocabulary", model.vocabulary, 2, 256, NEEDED), /* tokens are bytes */
};
static const struct spec_field synthetic_model_fields[] = {
    BIG("parameters", model.parameters, 1, 2147483648.0, NEEDED),
    REAL("step_ms", model.step_ms, 0.1, 60000, NEEDED),
};
static const struct spec_field text_fields[] = {
    ARTIFACT("train", data.train),
    REAL("held_out_ratio", data.held_out_ratio, 0.0001, 0.5, OR(0.05)),
};
static const struct spec_field images_fields[] = {
    ARTIFACT("images", data.images),
    ARTIFACT("labels", data.labels),
    ARTIFACT("held_out_images", data.held_out_images),
    ARTIFACT("held_out_labels", data.held_out_labels),
};
static const struct spec_field training_fields[] = {
    WHOLE("batch_size", training.batch_size, 1, 4096, NEEDED),
    WHOLE("steps_per_lease", training.steps_per_lease, 1, 4096, OR(30)),
    WHOLE("steps_min", training.steps_min, 1, 65536, OR(8), LOW_FOR(training_fields[1])),
    WHOLE("steps_max", training.steps_max, 1, 65536, OR(256), HIGH_FOR(training_fields[1])),
    REAL("learning_rate", training.learning_rate, 1e-9, 10, OR(0.003)),
    REAL("final_learning_rate_ratio", training.final_learning_rate_ratio, 0, 1, OR(0.1)),
    BIG("warmup_samples", training.warmup_samples, 0, EXACT_INTEGER_MAX, OR(1600)),
    BIG("total_samples", training.total_samples, 1, EXACT_INTEGER_MAX, NEEDED),
    REAL("weight_decay", training.weight_decay, 0, 10, OR(0.1)),
    REAL("gradient_clip", training.gradient_clip, 0, 1e6, OR(1)),
    REAL("adam_beta1", training.adam_beta1, 0, 0.9999, OR(0.9)),
    REAL("adam_beta2", training.adam_beta2, 0, 0.999999, OR(0.95)),
    BIG("seed", training.seed, 0, EXACT_INTEGER_MAX, OR(1)),
};
/* In the order of enum codec_values. */
static const char *const value_words[] = {"sign", "two_bits", "four_bits", "eight_bits", "fp32"};
static const struct spec_field update_fields[] = {
    WHOLE("k_per_chunk", update.k_per_chunk, 1, 512, OR(64)),
    WHOLE("k_min", update.k_min, 1, 512, OR(16), LOW_FOR(update_fields[0])),
    WHOLE("k_max", update.k_max, 1, 512, OR(256), HIGH_FOR(update_fields[0])),
    FLAG("adaptive", update.adaptive, OR(1)),
    WHOLE("downlink_k_per_chunk", update.downlink_k_per_chunk, 1, 512, OR(128)),
    WORD("values", update.values, value_words, OR(1)),
    WORD("downlink_values", update.downlink_values, value_words, OR(1)),
    FLAG("keep_unsent", update.keep_unsent, OR(1)),
    REAL("residual_decay", update.residual_decay, 0, 1, OR(1)),
};
static const struct spec_field aggregation_fields[] = {
    REAL("outer_rate", outer_rate, 0, 2, OR(0)),
};
static const struct spec_field evaluation_fields[] = {
    WHOLE("every_versions", evaluate_every_versions, 1, 1000000, OR(20)),
    WHOLE("samples", evaluate_samples, 1, 1000000, OR(320)),
};
static const struct spec_field lease_fields[] = {
    WHOLE("deadline_seconds", lease_deadline_seconds, 5, 86400, OR(60)),
};

#define SECTION(title, value, rows)                                                                \
    {                                                                                              \
        .name = title, .tag = value, .fields = rows, .field_count = COUNT_OF(rows)                 \
    }

const struct spec_section spec_models[SPEC_MODELS] = {
    [MODEL_MLP] = SECTION("model", "mlp", mlp_fields),
    [MODEL_CNN] = SECTION("model", "cnn", cnn_fields),
    [MODEL_GPT] = SECTION("model", "gpt", gpt_fields),
    [MODEL_SYNTHETIC] = SECTION("model", "synthetic", synthetic_model_fields),
};
const struct spec_section spec_data_kinds[SPEC_DATA_KINDS] = {
    [DATA_TEXT] = SECTION("data", "text", text_fields),
    [DATA_IMAGES] = SECTION("data", "images", images_fields),
    [DATA_SYNTHETIC] = {.name = "data", .tag = "synthetic"}, /* it needs nothing but its kind */
};
const struct spec_section spec_sections[SPEC_SECTIONS] = {
    SECTION("training", NULL, training_fields),
    SECTION("update", NULL, update_fields),
    SECTION("aggregation", NULL, aggregation_fields),
    SECTION("evaluation", NULL, evaluation_fields),
    SECTION("lease", NULL, lease_fields),
};

static void store_number(struct job_spec *spec, const struct spec_field *field, double value)
{
    void *at = (char *)spec + field->offset;
    switch (field->type) {
    case FIELD_TYPE_U32:
    case FIELD_TYPE_WORD:
        *(uint32_t *)at = (uint32_t)value;
        break;
    case FIELD_TYPE_U64:
        *(uint64_t *)at = (uint64_t)value;
        break;
    case FIELD_TYPE_REAL:
        *(double *)at = value;
        break;
    case FIELD_TYPE_BOOL:
        *(bool *)at = value != 0;
        break;
    case FIELD_TYPE_LIST:
    case FIELD_TYPE_ARTIFACT:
        break; /* not numbers: always required, so they have no default */
    }
}

static void describe_words(const struct spec_field *field, char *ret, size_t ret_bytes)
{
    size_t used = 0;
    for (uint32_t i = 0; i < (uint32_t)field->max; i++)
        used += (size_t)snprintf(ret + used, ret_bytes - used, "%s\"%s\"", i > 0 ? " or " : "",
                                 field->words[i]);
}

/* "a whole number from 1 to 8192": the cure that ends every complaint about a field. */
static void describe(const struct spec_field *field, char *ret, size_t ret_bytes)
{
    switch (field->type) {
    case FIELD_TYPE_U32:
    case FIELD_TYPE_U64:
        (void)snprintf(ret, ret_bytes, "a whole number from %.0f to %.0f", field->min, field->max);
        break;
    case FIELD_TYPE_REAL:
        (void)snprintf(ret, ret_bytes, "a number from %.6g to %.6g", field->min, field->max);
        break;
    case FIELD_TYPE_BOOL:
        (void)snprintf(ret, ret_bytes, "true or false");
        break;
    case FIELD_TYPE_WORD:
        describe_words(field, ret, ret_bytes);
        break;
    case FIELD_TYPE_LIST:
        (void)snprintf(ret, ret_bytes, "a list of 1 to %d whole numbers from %.0f to %.0f",
                       MODEL_HIDDEN_MAX, field->min, field->max);
        break;
    case FIELD_TYPE_ARTIFACT:
        (void)snprintf(ret, ret_bytes, "the id of an artifact, art_ and 26 characters");
        break;
    }
}

static void complain_about(struct spec_complaints *list, const char *pointer, const char *code,
                           const struct spec_field *field, const json_t *value)
{
    char cure[120], text[SPEC_VALUE_BYTES];
    describe(field, cure, sizeof cure);
    if (value)
        spec_complain(list, pointer, code, "%s is %s; use %s", field->name,
                      spec_value_text(value, text), cure);
    else
        spec_complain(list, pointer, code, "%s is missing; add %s", field->name, cure);
}

/* Reads one number of a field's kind; NAN after a complaint. */
static double read_number(const struct spec_field *field, const char *pointer, const json_t *value,
                          struct spec_complaints *list)
{
    bool fits = field->type == FIELD_TYPE_REAL ? json_is_number(value) : json_is_integer(value);
    const char *code = "type";
    if (fits) {
        double number = json_number_value(value);
        code = number < field->min ? "min" : "max";
        if (number >= field->min && number <= field->max)
            return number;
    }
    complain_about(list, pointer, code, field, value);
    return (double)NAN;
}

static void read_list(const struct spec_field *field, const char *pointer, const json_t *value,
                      struct job_spec *spec, struct spec_complaints *list)
{
    size_t count = json_array_size(value);
    if (!json_is_array(value) || count == 0 || count > MODEL_HIDDEN_MAX) {
        const char *code = !json_is_array(value) ? "type" : count == 0 ? "min" : "max";
        complain_about(list, pointer, code, field, value);
        return;
    }
    uint32_t *entries = (uint32_t *)(void *)((char *)spec + field->offset);
    *(uint32_t *)(void *)((char *)spec + field->count_offset) = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        char at[128];
        (void)snprintf(at, sizeof at, "%s/%zu", pointer, i);
        double number = read_number(field, at, json_array_get(value, i), list);
        entries[i] = isnan(number) ? 0 : (uint32_t)number;
    }
}

static void read_word(const struct spec_field *field, const char *pointer, const json_t *value,
                      struct job_spec *spec, struct spec_complaints *list)
{
    const char *word = json_string_value(value);
    for (uint32_t i = 0; word && i < (uint32_t)field->max; i++) {
        if (strcmp(word, field->words[i]) == 0) {
            store_number(spec, field, i + 1);
            return;
        }
    }
    complain_about(list, pointer, word ? "enum" : "type", field, value);
}

static void read_field(const struct spec_field *field, const char *pointer, const json_t *value,
                       struct job_spec *spec, struct spec_complaints *list)
{
    const char *id = json_string_value(value);
    double number;
    switch (field->type) {
    case FIELD_TYPE_U32:
    case FIELD_TYPE_U64:
    case FIELD_TYPE_REAL:
        number = read_number(field, pointer, value, list);
        if (!isnan(number))
            store_number(spec, field, number);
        break;
    case FIELD_TYPE_BOOL:
        if (json_is_boolean(value))
            store_number(spec, field, json_is_true(value));
        else
            complain_about(list, pointer, "type", field, value);
        break;
    case FIELD_TYPE_WORD:
        read_word(field, pointer, value, spec, list);
        break;
    case FIELD_TYPE_LIST:
        read_list(field, pointer, value, spec, list);
        break;
    case FIELD_TYPE_ARTIFACT:
        if (id && strlen(id) == json_string_length(value) && id_is_valid(id, "art"))
            memcpy((char *)spec + field->offset, id, strlen(id) + 1);
        else
            complain_about(list, pointer, id ? "format" : "type", field, value);
        break;
    }
}

static uint32_t stored_u32(const struct job_spec *spec, const struct spec_field *field)
{
    return *(const uint32_t *)(const void *)((const char *)spec + field->offset);
}

static void store_default(const struct spec_field *field, struct job_spec *spec)
{
    double value = field->initial;
    if (field->limit == LIMIT_LOW)
        value = fmin(value, stored_u32(spec, field->limited));
    else if (field->limit == LIMIT_HIGH)
        value = fmax(value, stored_u32(spec, field->limited));
    store_number(spec, field, value);
}

/* Values that were complained about already are 0 and judged no further. */
static void check_limit(const struct spec_field *field, const char *pointer,
                        const struct job_spec *spec, struct spec_complaints *list)
{
    bool is_low = field->limit == LIMIT_LOW;
    uint32_t limit = stored_u32(spec, field), value = stored_u32(spec, field->limited);
    if (limit == 0 || value == 0 || (is_low ? limit <= value : limit >= value))
        return;
    spec_complain(list, pointer, is_low ? "max" : "min",
                  "%s is %u, but %s is %u; use %u or %s here, or a %s %s", field->name, limit,
                  field->limited->name, value, value, is_low ? "less" : "more",
                  is_low ? "larger" : "smaller", field->limited->name);
}

void spec_section_read(const struct spec_section *section, const json_t *object,
                       const char *tag_name, struct job_spec *spec, struct spec_complaints *list)
{
    char parent[32], known[256] = "";
    (void)snprintf(parent, sizeof parent, "/%s", section->name);
    if (object && !json_is_object(object)) {
        char text[SPEC_VALUE_BYTES];
        spec_complain(list, parent, "type", "%s is %s; use an object with its settings",
                      section->name, spec_value_text(object, text));
        return;
    }
    size_t used = 0;
    if (tag_name)
        used = (size_t)snprintf(known, sizeof known, " %s", tag_name);
    for (size_t i = 0; i < section->field_count; i++) {
        const struct spec_field *field = &section->fields[i];
        char pointer[96];
        (void)snprintf(pointer, sizeof pointer, "%s/%s", parent, field->name);
        used += (size_t)snprintf(known + used, sizeof known - used, " %s", field->name);
        const json_t *value = json_object_get(object, field->name);
        if (value)
            read_field(field, pointer, value, spec, list);
        else if (field->required)
            complain_about(list, pointer, "missing", field, NULL);
        else
            store_default(field, spec);
        if (field->limit != LIMIT_NONE)
            check_limit(field, pointer, spec, list);
    }
    spec_refuse_unknown(parent, object, known, list);
}

static json_t *write_field(const struct spec_field *field, const struct job_spec *spec)
{
    const void *at = (const char *)spec + field->offset;
    json_t *list;
    uint32_t count;
    switch (field->type) {
    case FIELD_TYPE_U32:
        return json_integer(*(const uint32_t *)at);
    case FIELD_TYPE_U64:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case FIELD_TYPE_REAL:
        return json_real(*(const double *)at);
    case FIELD_TYPE_BOOL:
        return json_boolean(*(const bool *)at);
    case FIELD_TYPE_WORD:
        return json_string(field->words[*(const uint32_t *)at - 1]);
    case FIELD_TYPE_LIST:
        list = json_array();
        count = *(const uint32_t *)(const void *)((const char *)spec + field->count_offset);
        for (uint32_t i = 0; list && i < count; i++) {
            if (json_array_append_new(list, json_integer(((const uint32_t *)at)[i]))) {
                json_decref(list);
                list = NULL;
            }
        }
        return list;
    case FIELD_TYPE_ARTIFACT:
        return json_string(at);
    }
    return NULL;
}

json_t *spec_section_write(const struct spec_section *section, const char *tag_name,
                           const struct job_spec *spec)
{
    json_t *object = json_object();
    bool failed = !object;
    if (!failed && tag_name)
        failed = json_object_set_new(object, tag_name, json_string(section->tag)) != 0;
    for (size_t i = 0; !failed && i < section->field_count; i++) {
        const struct spec_field *field = &section->fields[i];
        failed = json_object_set_new(object, field->name, write_field(field, spec)) != 0;
    }
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}
