/* Little-endian loads and stores, checked size arithmetic, small helpers on raw bytes. */
#ifndef RAVEN_COMMON_BASE_BYTES_H
#define RAVEN_COMMON_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t load_u16(const void *p)
{
    const uint8_t *b = p;
    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t load_u32(const void *p)
{
    const uint8_t *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t load_u64(const void *p)
{
    return (uint64_t)load_u32(p) | (uint64_t)load_u32((const uint8_t *)p + 4) << 32;
}

static inline float load_f32(const void *p)
{
    uint32_t bits = load_u32(p);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double load_f64(const void *p)
{
    uint64_t bits = load_u64(p);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void store_u16(void *p, uint16_t v)
{
    uint8_t *b = p;
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
}

static inline void store_u32(void *p, uint32_t v)
{
    uint8_t *b = p;
    for (int i = 0; i < 4; i++)
        b[i] = (uint8_t)(v >> (8 * i));
}

static inline void store_u64(void *p, uint64_t v)
{
    store_u32(p, (uint32_t)v);
    store_u32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

static inline void store_f32(void *p, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    store_u32(p, bits);
}

static inline void store_f64(void *p, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    store_u64(p, bits);
}

/* False when the true result does not fit; *ret is then untouched. */
static inline bool size_add(size_t a, size_t b, size_t *ret)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *ret = sum;
    return true;
}

static inline bool size_mul(size_t a, size_t b, size_t *ret)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *ret = product;
    return true;
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Copies at most ret_bytes - 1 bytes, never half a UTF-8 character, and always NUL-terminates;
 * false when it was cut. ret_bytes > 0. */
bool text_copy(char *ret, size_t ret_bytes, const char *text);
/* In place: control characters and bytes that are not well-formed UTF-8 become '?'. */
void text_sanitize(char *text);

/* Lower-case hex of data[bytes] into ret[2 * bytes + 1]. */
void hex_encode(const void *data, size_t bytes, char *ret);
/* Exactly 2 * bytes lower- or upper-case hex digits, nothing after them; else false. */
bool hex_decode(const char *text, void *ret, size_t bytes);

#endif
