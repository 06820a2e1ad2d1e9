/* A growing byte buffer with a fixed maximum. Owned by one thread at a time. Surprising: capacity
 * may exceed bytes_max by one byte, the NUL of buffer_text. */
#include "common/base/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_init(struct buffer *buffer, size_t bytes_max)
{
    *buffer = (struct buffer){.bytes_max = bytes_max};
}

void buffer_done(struct buffer *buffer)
{
    free(buffer->data);
    buffer_init(buffer, buffer->bytes_max);
}

void buffer_clear(struct buffer *buffer)
{
    buffer->bytes = 0;
}

/* Doubles up to the maximum, so that appending is linear in total. */
static enum status grow(struct buffer *buffer, size_t need_bytes)
{
    if (need_bytes <= buffer->capacity_bytes)
        return STATUS_OK;
    size_t capacity_bytes = buffer->capacity_bytes < 64 ? 64 : buffer->capacity_bytes;
    while (capacity_bytes < need_bytes)
        if (__builtin_mul_overflow(capacity_bytes, 2, &capacity_bytes))
            capacity_bytes = SIZE_MAX;
    if (capacity_bytes > buffer->bytes_max)
        capacity_bytes = need_bytes > buffer->bytes_max ? need_bytes : buffer->bytes_max;
    uint8_t *data = realloc(buffer->data, capacity_bytes);
    if (!data)
        return STATUS_NO_MEMORY;
    buffer->data = data;
    buffer->capacity_bytes = capacity_bytes;
    return STATUS_OK;
}

enum status buffer_reserve(struct buffer *buffer, size_t more_bytes)
{
    if (more_bytes > buffer->bytes_max - buffer->bytes)
        return STATUS_TOO_LARGE;
    return grow(buffer, buffer->bytes + more_bytes);
}

enum status buffer_append(struct buffer *buffer, const void *data, size_t bytes)
{
    if (bytes == 0)
        return STATUS_OK;
    enum status status = buffer_reserve(buffer, bytes);
    if (status != STATUS_OK)
        return status;
    memcpy(buffer->data + buffer->bytes, data, bytes);
    buffer->bytes += bytes;
    return STATUS_OK;
}

enum status buffer_append_text(struct buffer *buffer, const char *text)
{
    return buffer_append(buffer, text, strlen(text));
}

enum status buffer_printf(struct buffer *buffer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        return STATUS_INVALID;
    size_t bytes = (size_t)length;
    enum status status = buffer_reserve(buffer, bytes);
    if (status == STATUS_OK)
        status = grow(buffer, buffer->bytes + bytes + 1); /* vsnprintf writes a NUL */
    if (status != STATUS_OK)
        return status;
    va_start(args, format);
    (void)vsnprintf((char *)buffer->data + buffer->bytes, bytes + 1, format, args);
    va_end(args);
    buffer->bytes += bytes;
    return STATUS_OK;
}

char *buffer_text(struct buffer *buffer)
{
    if (buffer->bytes == SIZE_MAX || grow(buffer, buffer->bytes + 1) != STATUS_OK)
        return NULL;
    buffer->data[buffer->bytes] = '\0';
    return (char *)buffer->data;
}

void buffer_take(struct buffer *buffer, uint8_t **ret_data, size_t *ret_bytes)
{
    *ret_data = buffer->data;
    *ret_bytes = buffer->bytes;
    buffer_init(buffer, buffer->bytes_max);
}
