/* Outcomes and the sentence a person reads. Plain functions, any thread. Surprising: the sentence
 * is formatted into a local array first, so that a caller may wrap err->text into err itself. */
#include "common/base/status.h"

#include "common/base/bytes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *status_text(enum status status)
{
    switch (status) {
#define STATUS(name, number, text, retry)                                                          \
    case STATUS_##name:                                                                            \
        return text;
#include "common/base/status.def"
#undef STATUS
    }
    return "unknown status";
}

bool status_is_retryable(enum status status)
{
    switch (status) {
#define STATUS(name, number, text, retry)                                                          \
    case STATUS_##name:                                                                            \
        return retry;
#include "common/base/status.def"
#undef STATUS
    }
    return false;
}

static void error_store(struct error *err, enum status status, const char *text)
{
    err->status = status;
    (void)text_copy(err->text, sizeof err->text, text);
    text_sanitize(err->text);
}

enum status error_set(struct error *err, enum status status, const char *format, ...)
{
    if (!err)
        return status;
    char text[sizeof err->text + 4]; /* text_copy cuts, at a character */
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error_store(err, status, text);
    return status;
}

static enum status status_of_errno(int errnum)
{
    switch (errnum) {
    case ENOSPC:
    case EDQUOT:
        return STATUS_NO_SPACE;
    case ENOENT:
        return STATUS_NOT_FOUND;
    case EEXIST:
        return STATUS_EXISTS;
    case EACCES:
        return STATUS_DENIED;
    default:
        return STATUS_IO;
    }
}

enum status error_set_errno(struct error *err, int errnum, const char *format, ...)
{
    enum status status = status_of_errno(errnum);
    if (!err)
        return status;
    char text[sizeof err->text + 4]; /* text_copy cuts, at a character */
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char whole[2 * sizeof err->text];
    char reason[128];
    (void)snprintf(whole, sizeof whole, "%s: %s", text, strerror_r(errnum, reason, sizeof reason));
    error_store(err, status, whole);
    return status;
}
