/* Text and hex helpers. Plain functions, any thread. Surprising: text is never cut inside a UTF-8
 * character, because half a character would make a whole JSON document invalid later. */
#include "common/base/bytes.h"

static bool is_continuation(char c)
{
    return ((uint8_t)c & 0xC0) == 0x80;
}

bool text_copy(char *ret, size_t ret_bytes, const char *text)
{
    size_t length = strnlen(text, ret_bytes);
    bool whole = length < ret_bytes;
    if (!whole) {
        length = ret_bytes - 1;
        while (length > 0 && is_continuation(text[length]))
            length--;
    }
    memmove(ret, text, length);
    ret[length] = '\0';
    return whole;
}

/* Bytes of the well-formed UTF-8 character at text, 0 when it is malformed. Refuses overlong forms,
 * surrogates and everything above U+10FFFF. */
static size_t utf8_character_bytes(const char *text)
{
    const uint8_t *b = (const uint8_t *)text;
    if (b[0] < 0x80)
        return 1;
    size_t bytes = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : 2;
    if (b[0] < 0xC2 || b[0] > 0xF4)
        return 0;
    for (size_t i = 1; i < bytes; i++) /* stops at the NUL, which is no continuation */
        if (!is_continuation(text[i]))
            return 0;
    if ((b[0] == 0xE0 && b[1] < 0xA0) || (b[0] == 0xED && b[1] > 0x9F))
        return 0;
    if ((b[0] == 0xF0 && b[1] < 0x90) || (b[0] == 0xF4 && b[1] > 0x8F))
        return 0;
    return bytes;
}

void text_sanitize(char *text)
{
    for (char *p = text; *p;) {
        size_t bytes = utf8_character_bytes(p);
        bool c1_control = bytes == 2 && (uint8_t)p[0] == 0xC2 && (uint8_t)p[1] < 0xA0;
        if (bytes == 0 || (uint8_t)*p < 0x20 || *p == 0x7F) {
            *p = '?';
            bytes = 1;
        } else if (c1_control) {
            p[0] = p[1] = '?';
        }
        p += bytes;
    }
}

void hex_encode(const void *data, size_t bytes, char *ret)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *in = data;
    for (size_t i = 0; i < bytes; i++) {
        ret[2 * i] = digits[in[i] >> 4];
        ret[2 * i + 1] = digits[in[i] & 15];
    }
    ret[2 * bytes] = '\0';
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool hex_decode(const char *text, void *ret, size_t bytes)
{
    if (strnlen(text, 2 * bytes + 1) != 2 * bytes)
        return false;
    for (size_t i = 0; i < 2 * bytes; i++)
        if (hex_digit(text[i]) < 0)
            return false;
    uint8_t *out = ret;
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(hex_digit(text[2 * i]) << 4 | hex_digit(text[2 * i + 1]));
    return true;
}
