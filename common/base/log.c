/* The log sink on standard error. Any thread: one write(2) per line, so lines do not mix.
 * Surprising: a line longer than the buffer is cut and ends in "...", because logging must not
 * allocate. */
#include "common/base/log.h"

#include "common/base/clock.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES 1500

static atomic_int level_min = LOG_INFO;

void log_set_level(enum log_level level)
{
    atomic_store(&level_min, (int)level);
}

/* Control characters become \xNN: text from outside must not forge lines or move a terminal. */
static size_t escape(const char *text, char *ret, size_t ret_bytes)
{
    size_t used = 0;
    for (const char *p = text; *p && used + 5 < ret_bytes; p++) {
        unsigned char c = (unsigned char)*p;
        if (c < 0x20 || c == 0x7F)
            used += (size_t)snprintf(ret + used, ret_bytes - used, "\\x%02x", c);
        else
            ret[used++] = *p;
    }
    return used;
}

void log_line(enum log_level level, const char *module, const char *format, ...)
{
    static const char *const names[] = {"DEBUG", "INFO", "WARN", "ERROR"};
    if ((int)level < atomic_load(&level_min))
        return;
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length >= (int)sizeof text)
        memcpy(text + sizeof text - 4, "...", 4);

    char time[CLOCK_RFC3339_BYTES];
    clock_format_rfc3339(clock_wall_ms(), time);
    char line[4 * TEXT_BYTES + 128];
    size_t used = (size_t)snprintf(line, 128, "%s %s %.32s: ", time, names[level & 3], module);
    used += escape(text, line + used, sizeof line - used - 1);
    line[used++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, used);
    (void)written; /* nowhere to report a failing log */
}
