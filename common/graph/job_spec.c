/* Job settings from JSON and back. Plain functions, any thread. Surprising: reading goes on after a
 * complaint, so that the person sees all of them at once; ret is written only when there is none.
 */
#include "common/graph/job_spec.h"

#include "common/base/bytes.h"
#include "common/graph/job_spec_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_CHARACTERS_MAX 80
#define TOP_FIELDS " name model data training update aggregation evaluation lease"

static size_t count_characters(const char *text)
{
    size_t count = 0;
    for (; *text; text++)
        count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

static bool has_control_characters(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7F)
            return true;
    }
    return false;
}

static void read_name(const json_t *value, struct job_spec *spec, struct spec_complaints *list)
{
    const char *cure = "text of 1 to 80 characters without control characters";
    const char *name = json_string_value(value);
    if (!value) {
        spec_complain(list, "/name", "missing", "name is missing; add %s", cure);
        return;
    }
    char text[SPEC_VALUE_BYTES];
    const char *code = NULL;
    if (!name)
        code = "type";
    else if (strlen(name) != json_string_length(value) || has_control_characters(name))
        code = "format";
    else if (count_characters(name) == 0)
        code = "min";
    else if (count_characters(name) > NAME_CHARACTERS_MAX)
        code = "max";
    if (code)
        spec_complain(list, "/name", code, "name is %s; use %s", spec_value_text(value, text),
                      cure);
    else
        (void)text_copy(spec->name, sizeof spec->name, name);
}

/* An object whose tag ("preset" or "kind") says which table applies. Returns the table's index, or
 * -1 after a complaint. */
static int read_tagged(const struct spec_section *sections, int count, const char *tag_name,
                       const json_t *object, struct job_spec *spec, struct spec_complaints *list)
{
    const char *section = sections[0].name;
    char choices[64] = "", pointer[64], text[SPEC_VALUE_BYTES];
    size_t used = 0;
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(choices + used, sizeof choices - used, "%s%s", i ? ", " : "",
                                 sections[i].tag);
    (void)snprintf(pointer, sizeof pointer, "/%s", section);
    if (!json_is_object(object)) {
        if (object)
            spec_complain(list, pointer, "type", "%s is %s; use an object with %s: one of %s",
                          section, spec_value_text(object, text), tag_name, choices);
        else
            spec_complain(list, pointer, "missing",
                          "%s is missing; add an object with %s: one "
                          "of %s",
                          section, tag_name, choices);
        return -1;
    }
    const json_t *tag = json_object_get(object, tag_name);
    for (int i = 0; i < count && json_is_string(tag); i++) {
        if (strcmp(json_string_value(tag), sections[i].tag) == 0) {
            spec_section_read(&sections[i], object, tag_name, spec, list);
            return i;
        }
    }
    (void)snprintf(pointer, sizeof pointer, "/%s/%s", section, tag_name);
    if (tag)
        spec_complain(list, pointer, json_is_string(tag) ? "choice" : "type",
                      "%s is %s; use one of %s", tag_name, spec_value_text(tag, text), choices);
    else
        spec_complain(list, pointer, "missing", "%s is missing; add one of %s", tag_name, choices);
    return -1;
}

enum status job_spec_parse(const json_t *json, struct job_spec *ret,
                           struct spec_complaints *ret_complaints)
{
    struct spec_complaints *list = ret_complaints;
    list->count = 0;
    if (!json_is_object(json)) {
        spec_complain(list, "", "type",
                      "the job is not a JSON object; use {\"name\": …, "
                      "\"model\": {…}, \"data\": {…}, \"training\": {…}}");
        return STATUS_INVALID;
    }
    struct job_spec spec;
    memset(&spec, 0, sizeof spec); /* padding too: parsed settings can be compared by bytes */
    read_name(json_object_get(json, "name"), &spec, list);
    int preset = read_tagged(spec_models, SPEC_MODELS, "preset", json_object_get(json, "model"),
                             &spec, list);
    int kind = read_tagged(spec_data_kinds, SPEC_DATA_KINDS, "kind", json_object_get(json, "data"),
                           &spec, list);
    for (int i = 0; i < SPEC_SECTIONS; i++)
        spec_section_read(&spec_sections[i], json_object_get(json, spec_sections[i].name), NULL,
                          &spec, list);
    spec_refuse_unknown("", json, TOP_FIELDS, list);
    if (preset >= 0 && kind >= 0) {
        spec.model.preset = (enum model_preset)preset;
        spec.data.kind = (enum data_kind)kind;
        spec_check_together(&spec, list);
    }
    if (list->count > 0)
        return STATUS_INVALID;
    *ret = spec;
    return STATUS_OK;
}

enum status job_spec_parse_text(const char *text, size_t bytes, struct job_spec *ret,
                                struct error *err)
{
    if (bytes > JOB_SPEC_BYTES_MAX)
        return error_set(err, STATUS_TOO_LARGE,
                         "the job's settings have %zu bytes; the limit is %u", bytes,
                         JOB_SPEC_BYTES_MAX);
    json_error_t where;
    json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!json)
        return error_set(err, STATUS_INVALID, "the job's settings are not JSON: line %d: %s",
                         where.line, where.text);
    enum status status = STATUS_OK;
    struct spec_complaints *list = malloc(sizeof *list);
    if (!list)
        status = error_set(err, STATUS_NO_MEMORY, "reading the job's settings: out of memory");
    else
        status = job_spec_parse(json, ret, list);
    if (status == STATUS_INVALID && list)
        error_set(err, status, "the job's settings: %s: %s", list->items[0].pointer,
                  list->items[0].detail);
    free(list);
    json_decref(json);
    return status;
}

json_t *job_spec_to_json(const struct job_spec *spec)
{
    json_t *json = json_object();
    if (!json)
        return NULL;
    bool failed =
        json_object_set_new(json, "name", json_string(spec->name)) != 0 ||
        json_object_set_new(json, "model",
                            spec_section_write(&spec_models[spec->model.preset], "preset", spec)) !=
            0 ||
        json_object_set_new(
            json, "data", spec_section_write(&spec_data_kinds[spec->data.kind], "kind", spec)) != 0;
    for (int i = 0; !failed && i < SPEC_SECTIONS; i++)
        failed = json_object_set_new(json, spec_sections[i].name,
                                     spec_section_write(&spec_sections[i], NULL, spec)) != 0;
    if (failed) {
        json_decref(json);
        return NULL;
    }
    return json;
}
