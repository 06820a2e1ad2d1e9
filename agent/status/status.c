/* The status board. Any thread. The struct, its JSON and the text for people all come from
 * status.def, so that they cannot disagree. */
#include "agent/status/status.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

struct status_board {
    pthread_mutex_t lock;
    struct status_fields fields;
};

enum status status_board_create(struct status_board **ret)
{
    struct status_board *board = calloc(1, sizeof *board);
    if (!board)
        return STATUS_NO_MEMORY;
    if (pthread_mutex_init(&board->lock, NULL)) {
        free(board);
        return STATUS_SYSTEM;
    }
    *ret = board;
    return STATUS_OK;
}

void status_board_free(struct status_board *board)
{
    if (!board)
        return;
    pthread_mutex_destroy(&board->lock);
    free(board);
}

struct status_fields *status_board_lock(struct status_board *board)
{
    pthread_mutex_lock(&board->lock);
    return &board->fields;
}

void status_board_unlock(struct status_board *board)
{
    pthread_mutex_unlock(&board->lock);
}

static json_t *fields_to_json(const struct status_fields *fields)
{
    json_t *json = json_object();
    if (!json)
        return NULL;
    int failed = 0;
#define STATUS_TEXT(name, bytes, label)                                                            \
    failed |= json_object_set_new(json, #name, json_string(fields->name));
#define STATUS_U64(name, label)                                                                    \
    failed |= json_object_set_new(json, #name, json_integer((json_int_t)fields->name));
#define STATUS_F64(name, label)                                                                    \
    failed |= json_object_set_new(json, #name,                                                     \
                                  isfinite(fields->name) ? json_real(fields->name) : json_null());
#include "agent/status/status.def"
#undef STATUS_TEXT
#undef STATUS_U64
#undef STATUS_F64
    if (failed) {
        json_decref(json);
        return NULL;
    }
    return json;
}

enum status status_board_json(struct status_board *board, struct buffer *ret)
{
    struct status_fields fields = *status_board_lock(board);
    status_board_unlock(board);
    json_t *json = fields_to_json(&fields);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    if (!text)
        return STATUS_NO_MEMORY;
    enum status status = buffer_append_text(ret, text);
    free(text);
    return status ? status : buffer_append_text(ret, "\n");
}

static enum status append_line(struct buffer *ret, const char *label, const json_t *value)
{
    const char *text = json_string_value(value);
    if (text && text[0])
        return buffer_printf(ret, "%-30s %s\n", label, text);
    if (json_is_integer(value) && json_integer_value(value) != 0)
        return buffer_printf(ret, "%-30s %lld\n", label, (long long)json_integer_value(value));
    if (json_is_real(value) && json_real_value(value) > 0)
        return buffer_printf(ret, "%-30s %.4g\n", label, json_real_value(value));
    return STATUS_OK;
}

enum status status_text_of_json(const char *json, size_t bytes, struct buffer *ret,
                                struct error *err)
{
    json_t *object = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        return error_set(err, STATUS_CORRUPT, "the agent's answer is not a status");
    }
    enum status status = STATUS_OK;
#define STATUS_TEXT(name, bytes_max, label)                                                        \
    if (!status)                                                                                   \
        status = append_line(ret, label, json_object_get(object, #name));
#define STATUS_U64(name, label) STATUS_TEXT(name, 0, label)
#define STATUS_F64(name, label) STATUS_TEXT(name, 0, label)
#include "agent/status/status.def"
#undef STATUS_TEXT
#undef STATUS_U64
#undef STATUS_F64
    json_decref(object);
    return status ? error_set(err, status, "cannot print the status") : STATUS_OK;
}
