/* The running agent's state for people and scripts: one flat struct made from status.def, guarded
 * by a mutex, and its JSON form. Any thread. */
#ifndef RAVEN_AGENT_STATUS_STATUS_H
#define RAVEN_AGENT_STATUS_STATUS_H

#include "common/base/buffer.h"
#include "common/base/status.h"

#include <stdint.h>

struct status_fields {
#define STATUS_TEXT(name, bytes, label) char name[bytes];
#define STATUS_U64(name, label) uint64_t name;
#define STATUS_F64(name, label) double name;
#include "agent/status/status.def"
#undef STATUS_TEXT
#undef STATUS_U64
#undef STATUS_F64
};

struct status_board;

enum status status_board_create(struct status_board **ret) MUST_CHECK;
void status_board_free(struct status_board *board);

/* The fields, to change until status_board_unlock; hold it briefly. */
struct status_fields *status_board_lock(struct status_board *board);
void status_board_unlock(struct status_board *board);

/* Appends one JSON object and a newline. */
enum status status_board_json(struct status_board *board, struct buffer *ret) MUST_CHECK;

/* The same object as lines for people; fields that say nothing are left out. json is hostile. */
enum status status_text_of_json(const char *json, size_t bytes, struct buffer *ret,
                                struct error *err) MUST_CHECK;

#endif
