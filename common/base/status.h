/* Outcomes of every fallible call. A function returns enum status; its ret_ outputs are untouched
 * on failure. struct error carries the sentence a person reads: what failed, where, the cure. */
#ifndef RAVEN_COMMON_BASE_STATUS_H
#define RAVEN_COMMON_BASE_STATUS_H

#include <stdbool.h>

enum status {
#define STATUS(name, number, text, retry) STATUS_##name = number,
#include "common/base/status.def"
#undef STATUS
};

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_arg, first_arg) __attribute__((format(printf, format_arg, first_arg)))

struct error {
    enum status status;
    char text[320];
};

/* Text for people, static storage. Unknown numbers give "unknown status". */
const char *status_text(enum status status);
bool status_is_retryable(enum status status);

/* Store status and a formatted sentence in err (err may be NULL) and return status. Control
 * characters and malformed UTF-8 in the result become '?', so that a name from outside cannot forge
 * log lines or break a JSON document. Arguments may point into err->text. */
enum status error_set(struct error *err, enum status status, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* As error_set, with ": <strerror(errnum)>" appended. Maps ENOSPC, EDQUOT, ENOENT, EEXIST, EACCES
 * to their status; everything else becomes STATUS_IO. */
enum status error_set_errno(struct error *err, int errnum, const char *format, ...)
    PRINTF_LIKE(3, 4);

#endif
