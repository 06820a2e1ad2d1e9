/* Parses "bytes=first-last", "bytes=first-" and "bytes=-suffix". Pure, any thread. Its surprise: a
 * malformed or multiple range is not an error but means the whole, as RFC 9110 asks. */
#include "coordinator/http/range.h"

#include <ctype.h>
#include <stdbool.h>
#include <strings.h>

/* Digits at *text, which moves past them; numbers beyond 64 bits become UINT64_MAX. */
static bool take_number(const char **text, uint64_t *ret)
{
    uint64_t number = 0;
    const char *at = *text;
    for (; isdigit((unsigned char)*at); at++)
        if (__builtin_mul_overflow(number, 10u, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
            number = UINT64_MAX / 10; /* huge, whatever digits follow */
    bool any = at != *text;
    *text = at;
    *ret = number;
    return any;
}

enum range_kind range_parse(const char *text, uint64_t total, uint64_t *ret_first,
                            uint64_t *ret_count)
{
    uint64_t first = 0, last = UINT64_MAX;
    if (!text || strncasecmp(text, "bytes=", 6) != 0)
        return RANGE_WHOLE;
    text += 6;
    bool has_first = take_number(&text, &first);
    if (*text++ != '-')
        return RANGE_WHOLE;
    bool has_last = take_number(&text, &last);
    if (*text != 0 || (!has_first && !has_last))
        return RANGE_WHOLE;
    if (!has_first) { /* the last `last` bytes */
        if (last == 0 || total == 0)
            return RANGE_OUTSIDE;
        first = last < total ? total - last : 0;
        last = total - 1;
    } else if (has_last && last < first) {
        return RANGE_WHOLE;
    }
    if (first >= total)
        return RANGE_OUTSIDE;
    if (!has_last || last >= total)
        last = total - 1;
    *ret_first = first;
    *ret_count = last - first + 1;
    return RANGE_PART;
}
