/* Control messages of the agent session: typed structs, JSON encoding and strict decoding, all from
 * messages.def. Plain functions without allocation that outlives the call; any thread. */
#ifndef RAVEN_COMMON_WIRE_WIRE_H
#define RAVEN_COMMON_WIRE_WIRE_H

#include "common/base/buffer.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_PROTOCOL 3
#define WIRE_SUBPROTOCOL "raven-agent.v1"
#define WIRE_HELLO_CONTEXT "raven-agent.v1 hello"
#define WIRE_MIRRORS_MAX 4 /* of a job's artifacts */
#define WIRE_MIRROR_CHARACTERS_MAX 256
#define WIRE_TEXT_BYTES_MAX (64u * 1024) /* one control message on the wire */

enum wire_type {
    WIRE_NONE,
#define MESSAGE(name, sender, purpose) WIRE_##name,
#include "common/wire/messages.def"
    WIRE_TYPE_COUNT
};

/* struct wire_hello, struct wire_lease, … */
#define MESSAGE(name, sender, purpose) struct wire_##name {
#define FIELD_TEXT(m, name, max) char name[(max) + 1];
#define FIELD_U64(m, name) uint64_t name;
#define FIELD_F64(m, name) double name;
#define FIELD_BOOL(m, name) bool name;
#define FIELD_HEX(m, name, count) uint8_t name[count];
#define FIELD_HASH(m, name) uint64_t name;
#define END(name)                                                                                  \
    }                                                                                              \
    ;
#include "common/wire/messages.def"

struct wire_message {
    enum wire_type type;
    union {
#define MESSAGE(name, sender, purpose) struct wire_##name name;
#include "common/wire/messages.def"
    };
};

enum wire_sender { WIRE_FROM_AGENT = 1, WIRE_FROM_COORDINATOR = 2, WIRE_FROM_BOTH = 3 };

const char *wire_type_name(enum wire_type type); /* "hello"; "?" for unknown numbers */

/* Appends the JSON text of message to ret. STATUS_INVALID: a number that is not finite or over
 * 2^53 - 1, or text that is no UTF-8; STATUS_TOO_LARGE: over WIRE_TEXT_BYTES_MAX. ret is then as
 * before. */
enum status wire_encode(const struct wire_message *message, struct buffer *ret) MUST_CHECK;

/* Decodes text[bytes] (hostile, need not be NUL-terminated). Refuses: not one JSON object, depth
 * over 4, duplicate keys, unknown type, a type that `sender` may not send, missing or ill-typed
 * fields, texts over their maximum, embedded NUL, integers outside 0 … 2^53 - 1. err names the
 * field. STATUS_UNSUPPORTED for an unknown type, STATUS_DENIED for the wrong sender,
 * STATUS_TOO_LARGE over WIRE_TEXT_BYTES_MAX, else STATUS_INVALID. Unused bytes of ret are zero. */
enum status wire_decode(const char *text, size_t bytes, enum wire_sender sender,
                        struct wire_message *ret, struct error *err) MUST_CHECK;

enum end_reason {
#define END_REASON(name, number, id, text, reconnect) END_##name = number,
#include "common/wire/end_reasons.def"
#undef END_REASON
};

/* Unknown numbers (a newer peer) give "unknown reason", "unknown" and true. */
const char *end_reason_text(enum end_reason reason);
const char *end_reason_name(enum end_reason reason); /* "connection_lost": for API and database */
bool end_reason_may_reconnect(enum end_reason reason);

#endif
