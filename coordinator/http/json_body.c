/* Parses and reads JSON bodies. Any thread. Its surprise: the depth is counted before the parser
 * runs, because the parser recurses and has a far higher limit of its own. */
#include "coordinator/http/json_body.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "coordinator/http/respond.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_too_deep(const char *text, size_t bytes)
{
    uint32_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        if (in_string) {
            if (text[i] == '\\')
                i++;
            else if (text[i] == '"')
                in_string = false;
        } else if (text[i] == '"') {
            in_string = true;
        } else if (text[i] == '{' || text[i] == '[') {
            if (++depth > JSON_DEPTH_MAX)
                return true;
        } else if ((text[i] == '}' || text[i] == ']') && depth > 0) {
            depth--;
        }
    }
    return false;
}

enum status json_body_parse(const void *data, size_t bytes, json_t **ret, struct error *err)
{
    json_error_t where;
    if (bytes == 0)
        return error_set(err, STATUS_INVALID, "The body is empty; a JSON object is needed.");
    if (is_too_deep(data, bytes))
        return error_set(err, STATUS_INVALID, "The JSON is nested deeper than %u levels.",
                         JSON_DEPTH_MAX);
    json_t *json = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!json)
        return error_set(err, STATUS_INVALID, "Line %d, column %d: %s.", where.line, where.column,
                         where.text);
    if (!json_is_object(json)) {
        json_decref(json);
        return error_set(err, STATUS_INVALID, "The body must be a JSON object.");
    }
    *ret = json;
    return STATUS_OK;
}

json_t *request_json(struct request *request)
{
    json_t *json = NULL;
    struct error err = {0};
    if (json_body_parse(request->body.data, request->body.bytes, &json, &err))
        respond_problem(request, PROBLEM_INVALID_REQUEST, "%s", err.text);
    return json;
}

static bool is_listed(const char *names, const char *name)
{
    size_t bytes = strlen(name);
    for (const char *at = names; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (length == bytes && memcmp(at, name, length) == 0)
            return true;
        at += length;
    }
    return false;
}

/* RFC 6901: '~' and '/' inside a name are escaped; cut to what fits. */
static void pointer_to(const char *name, char ret[96])
{
    size_t n = 0;
    ret[n++] = '/';
    for (; *name && n < 92; name++) {
        if (*name == '~' || *name == '/') {
            ret[n++] = '~';
            ret[n++] = *name == '~' ? '0' : '1';
        } else {
            ret[n++] = *name;
        }
    }
    ret[n] = 0;
    text_sanitize(ret); /* the cut may have halved a character */
}

void json_fields_known(const json_t *object, const char *names, struct spec_complaints *list)
{
    const char *name;
    json_t *value;
    char pointer[96];
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (is_listed(names, name))
            continue;
        pointer_to(name, pointer);
        spec_complain(list, pointer, "unknown", "there is no such field; use %s", names);
    }
}

static const json_t *field(const json_t *object, const char *name, bool required, char pointer[96],
                           struct spec_complaints *list)
{
    const json_t *value = json_object_get(object, name);
    pointer_to(name, pointer);
    if (!value && required)
        spec_complain(list, pointer, "missing", "%s is needed", name);
    return value;
}

/* UTF-8 characters, that is bytes that do not continue one. */
static size_t characters(const char *text)
{
    size_t count = 0;
    for (; *text; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

const char *json_field_text(const json_t *object, const char *name, size_t characters_max,
                            bool required, struct spec_complaints *list)
{
    char pointer[96];
    const json_t *value = field(object, name, required, pointer, list);
    if (!value)
        return NULL;
    const char *text = json_string_value(value);
    if (!text)
        spec_complain(list, pointer, "type", "%s must be text", name);
    else if (text[0] == 0 && required)
        spec_complain(list, pointer, "min", "%s must not be empty", name);
    else if (characters(text) > characters_max)
        spec_complain(list, pointer, "max", "%s has more than %zu characters", name,
                      characters_max);
    else
        return text;
    return NULL;
}

uint64_t json_field_number(const json_t *object, const char *name, uint64_t smallest,
                           uint64_t largest, bool required, uint64_t fallback,
                           struct spec_complaints *list)
{
    char pointer[96];
    const json_t *value = field(object, name, required, pointer, list);
    if (!value)
        return fallback;
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value))
        spec_complain(list, pointer, "type", "%s must be a whole number", name);
    else if (number < 0 || (uint64_t)number < smallest)
        spec_complain(list, pointer, "min", "%s must be at least %" PRIu64, name, smallest);
    else if ((uint64_t)number > largest)
        spec_complain(list, pointer, "max", "%s must be at most %" PRIu64, name, largest);
    else
        return (uint64_t)number;
    return fallback;
}

json_t *json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *json_time(int64_t wall_ms)
{
    char text[CLOCK_RFC3339_BYTES];
    if (wall_ms == 0)
        return json_null();
    clock_format_rfc3339(wall_ms, text);
    return json_string(text);
}

json_t *json_text_or_null(const char *text)
{
    return text && text[0] ? json_string(text) : json_null();
}
