/* Complaints about settings: collecting them, showing a value, refusing unknown fields. Plain
 * functions, any thread. Surprising: everything from outside is sanitised here, because details end
 * up in HTTP answers and in logs. */
#include "common/graph/job_spec_fields.h"

#include "common/base/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void spec_complain(struct spec_complaints *list, const char *pointer, const char *code,
                   const char *format, ...)
{
    if (list->count >= SPEC_COMPLAINTS_MAX)
        return;
    struct spec_complaint *item = &list->items[list->count++];
    char text[sizeof item->detail + 4]; /* text_copy cuts, at a character */
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)text_copy(item->pointer, sizeof item->pointer, pointer);
    (void)text_copy(item->code, sizeof item->code, code);
    (void)text_copy(item->detail, sizeof item->detail, text);
    text_sanitize(item->pointer);
    text_sanitize(item->detail);
}

const char *spec_value_text(const json_t *value, char ret[SPEC_VALUE_BYTES])
{
    if (json_is_object(value) || (json_is_array(value) && json_array_size(value) > 16)) {
        (void)snprintf(ret, SPEC_VALUE_BYTES, "%s with %zu entries",
                       json_is_object(value) ? "an object" : "a list",
                       json_is_object(value) ? json_object_size(value) : json_array_size(value));
        return ret;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (!text_copy(ret, SPEC_VALUE_BYTES - 3, text ? text : "?"))
        strcat(ret, "…");
    free(text);
    return ret;
}

static bool is_known(const char *known, const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || strchr(name, ' '))
        return false;
    for (const char *at = known; (at = strstr(at, name)) != NULL; at++) {
        bool starts = at == known || at[-1] == ' ';
        if (starts && (at[length] == ' ' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* RFC 6901: '~' is written "~0" and '/' "~1"; long names are cut. */
static void append_pointer_token(char *ret, size_t ret_bytes, const char *name)
{
    size_t used = strlen(ret);
    for (; *name && used + 3 < ret_bytes; name++) {
        bool escape = *name == '~' || *name == '/';
        ret[used++] = escape ? '~' : *name;
        if (escape)
            ret[used++] = *name == '~' ? '0' : '1';
    }
    ret[used] = '\0';
}

void spec_refuse_unknown(const char *parent, const json_t *object, const char *known,
                         struct spec_complaints *list)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        if (is_known(known, name))
            continue;
        char pointer[96];
        (void)snprintf(pointer, sizeof pointer, "%s/", parent);
        append_pointer_token(pointer, sizeof pointer, name);
        char shown[40];
        if (!text_copy(shown, sizeof shown - 3, name))
            strcat(shown, "…");
        spec_complain(list, pointer, "unknown",
                      "%s is not a setting here; remove it or use one of:%s", shown, known);
    }
}
