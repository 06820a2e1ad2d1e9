/* Checks of a request's raw target and of its headers' framing. Pure functions, any thread. Its
 * surprise: Transfer-Encoding is refused altogether, even a plain "chunked"; every client of ours
 * knows its length, and one way of framing cannot be played against another. */
#include "coordinator/http/guard.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Escapes that would change what the path means once they are decoded. */
static bool is_sly(int byte, bool in_path)
{
    if (byte < 0x20 || byte == 0x7f)
        return true;
    return in_path && (byte == '/' || byte == '\\' || byte == '.');
}

static bool escape_is_clean(const char *at, bool in_path)
{
    int high = hex_digit(at[1]);
    int low = high < 0 ? -1 : hex_digit(at[2]);
    return low >= 0 && !is_sly(high * 16 + low, in_path);
}

bool guard_uri_is_clean(const char *uri)
{
    bool in_path = true;
    if (uri[0] != '/' || strlen(uri) > GUARD_URI_BYTES_MAX)
        return false;
    for (const char *c = uri; *c; c++) {
        if (*c == '?')
            in_path = false;
        if (*c <= 0x20 || *c >= 0x7f || *c == '#' || *c == '\\')
            return false;
        if (*c == '%' && !escape_is_clean(c, in_path))
            return false;
        if (in_path && ((c[0] == '/' && c[1] == '/') || (c[0] == '.' && c[1] == '.')))
            return false;
    }
    return true;
}

static bool is_token(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)text[i]) &&
            (text[i] == 0 || !strchr("!#$%&'*+-.^_`|~", text[i])))
            return false;
    return bytes > 0;
}

static bool is_field_value(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static bool is_name(const char *text, size_t bytes, const char *name)
{
    return bytes == strlen(name) && strncasecmp(text, name, bytes) == 0;
}

static bool parse_length(const char *text, size_t bytes, uint64_t *ret)
{
    uint64_t length = 0;
    if (bytes == 0 || bytes > 18) /* 18 digits cannot overflow */
        return false;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        length = length * 10 + (uint64_t)(text[i] - '0');
    }
    *ret = length;
    return true;
}

void guard_see_header(struct guard *guard, const char *name, size_t name_bytes, const char *value,
                      size_t value_bytes)
{
    guard->header_bytes += name_bytes + value_bytes + 4;
    if (!is_token(name, name_bytes))
        guard->has_bad_name = true;
    if (!is_field_value(value, value_bytes))
        guard->has_bad_value = true;
    if (is_name(name, name_bytes, "host"))
        guard->hosts++;
    else if (is_name(name, name_bytes, "transfer-encoding"))
        guard->has_transfer_encoding = true;
    else if (is_name(name, name_bytes, "content-length")) {
        guard->content_lengths++;
        if (!parse_length(value, value_bytes, &guard->content_length))
            guard->has_bad_value = true;
    }
}

const char *guard_complaint(const struct guard *guard, const char *version)
{
    if (strcmp(version, "HTTP/1.1") != 0)
        return "Only HTTP/1.1 is served here.";
    if (guard->has_transfer_encoding)
        return "Transfer-Encoding is not accepted: send a Content-Length.";
    if (guard->content_lengths > 1)
        return "More than one Content-Length header.";
    if (guard->hosts != 1)
        return "Exactly one Host header is needed.";
    if (guard->has_bad_name)
        return "A header's name has characters that are not allowed.";
    if (guard->has_bad_value)
        return "A header's value is malformed.";
    return NULL;
}
