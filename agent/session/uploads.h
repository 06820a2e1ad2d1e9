/* The updates on their way up: offered, wanted, being sent, waiting for the durable answer. Kept
 * across sessions, so that after a reconnect each is offered again under the same stream number.
 * Session thread; no network in here. */
#ifndef RAVEN_AGENT_SESSION_UPLOADS_H
#define RAVEN_AGENT_SESSION_UPLOADS_H

#include "common/base/shared.h"
#include "common/base/status.h"
#include "common/wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UPLOADS_MAX 8

struct upload {
    struct wire_offer offer;
    struct shared *payload;
    bool wanted;       /* in this session */
    uint64_t position; /* next byte to send */
};

struct uploads {
    struct upload items[UPLOADS_MAX]; /* oldest first */
    size_t count;
    uint32_t next_stream;
};

void uploads_init(struct uploads *uploads);
void uploads_done(struct uploads *uploads);

/* Takes one reference of payload and fills offer's stream, bytes and sha256 in. STATUS_BUSY when
 * full: the caller keeps its reference. */
enum status uploads_add(struct uploads *uploads, const struct wire_offer *offer,
                        struct shared *payload, const struct upload **ret) MUST_CHECK;
/* A new session: nothing is wanted yet. */
void uploads_rewind(struct uploads *uploads);
/* STATUS_NOT_FOUND for an unknown stream (answered meanwhile), STATUS_INVALID for from > bytes. */
enum status uploads_want(struct uploads *uploads, uint64_t stream, uint64_t from) MUST_CHECK;
bool uploads_have_data(const struct uploads *uploads);
/* Writes the next frame, at most FRAME_HEADER_BYTES + payload_bytes_max; 0 when nothing to send. */
size_t uploads_next_frame(struct uploads *uploads, size_t payload_bytes_max, uint8_t *ret);
/* Removes the update of this lease; false when there is none. The caller unrefs ret->payload. */
bool uploads_answer(struct uploads *uploads, const char *lease, struct upload *ret);

#endif
