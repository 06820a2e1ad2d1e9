/* A growing byte buffer with a maximum that is fixed at init: no unbounded input can fill memory.
 * Not thread-safe; the owner calls buffer_done. */
#ifndef RAVEN_COMMON_BASE_BUFFER_H
#define RAVEN_COMMON_BASE_BUFFER_H

#include "common/base/status.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct buffer {
    uint8_t *data; /* NULL until the first byte; NUL-terminated only by buffer_text */
    size_t bytes;
    size_t capacity_bytes;
    size_t bytes_max;
};

void buffer_init(struct buffer *buffer, size_t bytes_max);
void buffer_done(struct buffer *buffer);  /* frees; the buffer may be used again (same maximum) */
void buffer_clear(struct buffer *buffer); /* bytes = 0, keeps the memory */

/* All return STATUS_TOO_LARGE beyond bytes_max and STATUS_NO_MEMORY; on failure nothing changed. */
enum status buffer_reserve(struct buffer *buffer, size_t more_bytes) MUST_CHECK;
enum status buffer_append(struct buffer *buffer, const void *data, size_t bytes) MUST_CHECK;
enum status buffer_append_text(struct buffer *buffer, const char *text) MUST_CHECK;
enum status buffer_printf(struct buffer *buffer, const char *format, ...)
    PRINTF_LIKE(2, 3) MUST_CHECK;

/* NUL-terminates (not counted in bytes) and returns the text, or NULL when memory is out. */
char *buffer_text(struct buffer *buffer) MUST_CHECK;

/* Moves the bytes out: the caller owns *ret_data (free()); the buffer is empty afterwards. */
void buffer_take(struct buffer *buffer, uint8_t **ret_data, size_t *ret_bytes);

#endif
