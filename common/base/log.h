/* The log sink: one line per call on standard error, "time LEVEL module: text". Control characters
 * are escaped. Only the two programs log; libraries return a status. Thread-safe. The level is the
 * project's only global. */
#ifndef RAVEN_COMMON_BASE_LOG_H
#define RAVEN_COMMON_BASE_LOG_H

#include "common/base/status.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

void log_set_level(enum log_level level);
void log_line(enum log_level level, const char *module, const char *format, ...) PRINTF_LIKE(3, 4);

#define log_debug(module, ...) log_line(LOG_DEBUG, module, __VA_ARGS__)
#define log_info(module, ...) log_line(LOG_INFO, module, __VA_ARGS__)
#define log_warn(module, ...) log_line(LOG_WARN, module, __VA_ARGS__)
#define log_error(module, ...) log_line(LOG_ERROR, module, __VA_ARGS__)

#endif
