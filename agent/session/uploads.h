/* The updates on their way up: offered, wanted, being sent, waiting for the durable answer. Kept
 * across sessions, so that after a reconnect each is offered again and goes on where the
 * coordinator has got to. Session thread; no network and no disk in here. */
#ifndef RAVEN_AGENT_SESSION_UPLOADS_H
#define RAVEN_AGENT_SESSION_UPLOADS_H

#include "common/base/shared.h"
#include "common/base/status.h"
#include "common/wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the outbox held at the start and what was made since; training pauses at half of it. */
#define UPLOADS_MAX 32

struct upload {
    struct wire_offer offer;
    struct shared *payload;
    bool ready;        /* on disk: may be offered */
    bool wanted;       /* in this session */
    uint64_t position; /* next byte to send */
    uint64_t acked;    /* has arrived there */
};

struct uploads {
    struct upload items[UPLOADS_MAX]; /* oldest first */
    size_t count;
    uint32_t next_stream;
    int64_t progress_us; /* last ack, or when data began to wait for one */
};

void uploads_init(struct uploads *uploads);
void uploads_done(struct uploads *uploads);

/* Takes one reference of payload and fills offer's stream, bytes and sha256 in. STATUS_BUSY when
 * full: the caller keeps its reference. *ret is good until the next answer. */
enum status uploads_add(struct uploads *uploads, const struct wire_offer *offer,
                        struct shared *payload, struct upload **ret) MUST_CHECK;
struct upload *uploads_find(struct uploads *uploads, const char *lease); /* or NULL */
/* A new session: nothing is wanted yet. */
void uploads_rewind(struct uploads *uploads);
/* STATUS_NOT_FOUND for an unknown stream (answered meanwhile), STATUS_INVALID for from > bytes. */
enum status uploads_want(struct uploads *uploads, uint64_t stream, uint64_t from,
                         int64_t now_us) MUST_CHECK;
/* How many bytes this ack confirms that none before did. */
uint64_t uploads_ack(struct uploads *uploads, uint64_t stream, uint64_t received, int64_t now_us);
bool uploads_have_data(const struct uploads *uploads);
uint64_t uploads_unacked_bytes(const struct uploads *uploads);
/* Writes the next frame, at most FRAME_HEADER_BYTES + payload_bytes_max; 0 when nothing to send or
 * window_bytes wait for their ack already. */
size_t uploads_next_frame(struct uploads *uploads, size_t payload_bytes_max, uint64_t window_bytes,
                          int64_t now_us, uint8_t *ret);
/* Removes the update of this lease; false when there is none. The caller unrefs ret->payload. */
bool uploads_answer(struct uploads *uploads, const char *lease, struct upload *ret);

#endif
