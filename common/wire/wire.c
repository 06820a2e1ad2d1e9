/* Encoder and decoder of control messages, both driven by tables made from messages.def. Plain
 * functions, any thread. Surprising: nesting depth is counted on the raw bytes before the JSON
 * parser sees them, because a recursive parser's stack is the thing to protect. */
#include "common/wire/wire.h"

#include "common/base/bytes.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#define DEPTH_MAX 4
#define U64_MAX ((UINT64_C(1) << 53) - 1)
#define FIELD_BYTES_MAX 64 /* longest FIELD_HEX */

enum kind { KIND_TEXT, KIND_U64, KIND_F64, KIND_BOOL, KIND_HEX, KIND_HASH };

struct field {
    const char *name;
    enum kind kind;
    size_t offset; /* in struct wire_message */
    size_t size;   /* KIND_TEXT: bytes without NUL; KIND_HEX: bytes */
};

struct spec {
    const char *name;
    enum wire_sender sender;
    const struct field *fields;
    size_t field_count;
};

#define ENTRY(m, name, kind, size) {#name, kind, offsetof(struct wire_message, m.name), size},
#define MESSAGE(name, sender, purpose) static const struct field fields_of_##name[] = {
#define FIELD_TEXT(m, name, max) ENTRY(m, name, KIND_TEXT, max)
#define FIELD_U64(m, name) ENTRY(m, name, KIND_U64, 0)
#define FIELD_F64(m, name) ENTRY(m, name, KIND_F64, 0)
#define FIELD_BOOL(m, name) ENTRY(m, name, KIND_BOOL, 0)
#define FIELD_HEX(m, name, count)                                                                  \
    ENTRY(m, name, KIND_HEX, (count) + 0 * sizeof(char[(count) <= FIELD_BYTES_MAX ? 1 : -1]))
#define FIELD_HASH(m, name) ENTRY(m, name, KIND_HASH, 0)
#define END(name)                                                                                  \
    }                                                                                              \
    ;
#include "common/wire/messages.def"

static const struct spec specs[WIRE_TYPE_COUNT] = {
#define MESSAGE(name, sender, purpose)                                                             \
    [WIRE_##name] = {#name, WIRE_FROM_##sender, fields_of_##name, COUNT_OF(fields_of_##name)},
#include "common/wire/messages.def"
};

static bool type_is_known(enum wire_type type)
{
    return (int)type > WIRE_NONE && (int)type < WIRE_TYPE_COUNT;
}

const char *wire_type_name(enum wire_type type)
{
    return type_is_known(type) ? specs[type].name : "?";
}

/* --- encode ---------------------------------------------------------------------------------- */

static json_t *encode_text(const char *text, size_t bytes_max)
{
    size_t bytes = strnlen(text, bytes_max + 1);
    return bytes <= bytes_max ? json_stringn(text, bytes) : NULL;
}

static json_t *encode_u64(uint64_t value)
{
    return value <= U64_MAX ? json_integer((json_int_t)value) : NULL;
}

static json_t *encode_hex(const void *data, size_t bytes)
{
    char hex[2 * FIELD_BYTES_MAX + 1];
    hex_encode(data, bytes, hex);
    return json_string(hex);
}

static json_t *encode_hash(uint64_t value)
{
    char hex[17];
    (void)snprintf(hex, sizeof hex, "%016" PRIx64, value);
    return json_string(hex);
}

/* A new reference; NULL when the value cannot be said in JSON. */
static json_t *encode_field(const struct field *field, const void *value)
{
    switch (field->kind) {
    case KIND_TEXT:
        return encode_text(value, field->size);
    case KIND_U64:
        return encode_u64(*(const uint64_t *)value);
    case KIND_F64:
        return json_real(*(const double *)value); /* NULL for NaN and infinity */
    case KIND_BOOL:
        return json_boolean(*(const bool *)value);
    case KIND_HEX:
        return encode_hex(value, field->size);
    case KIND_HASH:
        return encode_hash(*(const uint64_t *)value);
    }
    return NULL;
}

static int append_dump(const char *text, size_t bytes, void *context)
{
    return buffer_append(context, text, bytes) == STATUS_OK ? 0 : -1;
}

static enum status dump(const json_t *object, struct buffer *ret)
{
    size_t bytes_before = ret->bytes;
    size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(17);
    enum status status = STATUS_OK;
    if (json_dump_callback(object, append_dump, ret, flags) != 0)
        status =
            ret->bytes_max - ret->bytes < WIRE_TEXT_BYTES_MAX ? STATUS_TOO_LARGE : STATUS_NO_MEMORY;
    else if (ret->bytes - bytes_before > WIRE_TEXT_BYTES_MAX)
        status = STATUS_TOO_LARGE;
    if (status != STATUS_OK)
        ret->bytes = bytes_before;
    return status;
}

enum status wire_encode(const struct wire_message *message, struct buffer *ret)
{
    if (!type_is_known(message->type))
        return STATUS_INVALID;
    const struct spec *spec = &specs[message->type];
    json_t *object = json_object();
    if (!object)
        return STATUS_NO_MEMORY;
    enum status status = STATUS_OK;
    if (json_object_set_new(object, "type", json_string(spec->name)) != 0)
        status = STATUS_NO_MEMORY;
    for (size_t i = 0; i < spec->field_count && status == STATUS_OK; i++) {
        const struct field *field = &spec->fields[i];
        json_t *value = encode_field(field, (const uint8_t *)message + field->offset);
        if (!value)
            status = STATUS_INVALID;
        else if (json_object_set_new(object, field->name, value) != 0)
            status = STATUS_NO_MEMORY;
    }
    if (status == STATUS_OK)
        status = dump(object, ret);
    json_decref(object);
    return status;
}

/* --- decode ---------------------------------------------------------------------------------- */

/* Brackets outside strings. For text that is not JSON the answer means nothing, but then the parser
 * refuses it at its first wrong byte, which is at most this deep. */
static bool depth_is_within(const char *text, size_t bytes, int depth_max)
{
    bool in_string = false;
    int depth = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > depth_max)
                return false;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return true;
}

static const char *decode_text(const json_t *value, size_t bytes_max, char *ret)
{
    if (!json_is_string(value))
        return "must be text";
    size_t bytes = json_string_length(value);
    if (bytes > bytes_max)
        return "is too long";
    memcpy(ret, json_string_value(value), bytes); /* ret is zero already; the parser refuses NUL */
    return NULL;
}

static const char *decode_u64(const json_t *value, uint64_t *ret)
{
    if (!json_is_integer(value))
        return "must be an integer";
    json_int_t number = json_integer_value(value);
    if (number < 0 || (uint64_t)number > U64_MAX)
        return "must be 0 to 2^53 - 1";
    *ret = (uint64_t)number;
    return NULL;
}

static const char *decode_f64(const json_t *value, double *ret)
{
    if (!json_is_number(value) || !isfinite(json_number_value(value)))
        return "must be a finite number";
    *ret = json_number_value(value);
    return NULL;
}

static const char *decode_hex(const json_t *value, size_t bytes, uint8_t *ret)
{
    if (!json_is_string(value) || json_string_length(value) != 2 * bytes ||
        !hex_decode(json_string_value(value), ret, bytes))
        return "must be hex digits of the exact length";
    return NULL;
}

static const char *decode_hash(const json_t *value, uint64_t *ret)
{
    uint8_t big_endian[8];
    const char *complaint = decode_hex(value, sizeof big_endian, big_endian);
    if (complaint)
        return complaint;
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof big_endian; i++)
        hash = hash << 8 | big_endian[i];
    *ret = hash;
    return NULL;
}

/* NULL when value fits, else the complaint that follows the field's name. */
static const char *decode_field(const struct field *field, const json_t *value, void *ret)
{
    if (!value)
        return "is missing";
    switch (field->kind) {
    case KIND_TEXT:
        return decode_text(value, field->size, ret);
    case KIND_U64:
        return decode_u64(value, ret);
    case KIND_F64:
        return decode_f64(value, ret);
    case KIND_BOOL:
        *(bool *)ret = json_is_true(value);
        return json_is_boolean(value) ? NULL : "must be true or false";
    case KIND_HEX:
        return decode_hex(value, field->size, ret);
    case KIND_HASH:
        return decode_hash(value, ret);
    }
    return "has an unknown kind";
}

static enum status find_type(const json_t *object, enum wire_sender sender, enum wire_type *ret,
                             struct error *err)
{
    const json_t *value = json_object_get(object, "type");
    if (!json_is_string(value))
        return error_set(err, STATUS_INVALID, "message without a type");
    const char *name = json_string_value(value);
    for (int type = WIRE_NONE + 1; type < WIRE_TYPE_COUNT; type++) {
        if (strcmp(name, specs[type].name) != 0)
            continue;
        if (!(specs[type].sender & sender))
            return error_set(err, STATUS_DENIED, "this side may not send a '%s' message", name);
        *ret = (enum wire_type)type;
        return STATUS_OK;
    }
    return error_set(err, STATUS_UNSUPPORTED, "unknown message type '%.40s'", name);
}

static enum status decode_object(const json_t *object, enum wire_sender sender,
                                 struct wire_message *ret, struct error *err)
{
    struct wire_message message;
    memset(&message, 0, sizeof message);
    enum status status = find_type(object, sender, &message.type, err);
    if (status != STATUS_OK)
        return status;
    const struct spec *spec = &specs[message.type];
    for (size_t i = 0; i < spec->field_count; i++) {
        const struct field *field = &spec->fields[i];
        const json_t *value = json_object_get(object, field->name);
        const char *complaint = decode_field(field, value, (uint8_t *)&message + field->offset);
        if (complaint)
            return error_set(err, STATUS_INVALID, "%s.%s %s", spec->name, field->name, complaint);
    }
    memcpy(ret, &message, sizeof message);
    return STATUS_OK;
}

enum status wire_decode(const char *text, size_t bytes, enum wire_sender sender,
                        struct wire_message *ret, struct error *err)
{
    if (bytes > WIRE_TEXT_BYTES_MAX)
        return error_set(err, STATUS_TOO_LARGE, "control message of %zu bytes, limit %u", bytes,
                         WIRE_TEXT_BYTES_MAX);
    if (!depth_is_within(text, bytes, DEPTH_MAX))
        return error_set(err, STATUS_INVALID, "control message nested deeper than %d", DEPTH_MAX);
    json_error_t json_err;
    json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &json_err);
    if (!object)
        return error_set(err, STATUS_INVALID, "control message is not JSON: %s at byte %d",
                         json_err.text, json_err.position);
    enum status status = json_is_object(object)
                             ? decode_object(object, sender, ret, err)
                             : error_set(err, STATUS_INVALID, "control message is no JSON object");
    json_decref(object);
    return status;
}
