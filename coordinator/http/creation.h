/* Creating with an Idempotency-Key: the answer is made first, stored in the transaction of the
 * effect, and given again when the same request comes again. */
#ifndef RAVEN_COORDINATOR_HTTP_CREATION_H
#define RAVEN_COORDINATOR_HTTP_CREATION_H

#include "coordinator/http/request.h"

#include <jansson.h>

struct creation {
    char scope[160];
    char *answer; /* owned JSON text */
    struct store_idempotency idempotency;
};

/* answer: what a success will say; borrowed. False: answered (no memory). */
bool creation_begin(struct request *request, const json_t *answer, struct creation *ret);
/* After the store's …_create returned. True: the effect is new, and the caller answers by
 * creation_answer. False: answered (a replay, a reused key, a failure). prefix and suffix: the
 * Location around the new id; NULL: none. */
bool creation_is_new(struct request *request, enum status status, struct store_replay *replay,
                     const struct error *err, const char *prefix, const char *suffix);
/* 201 with Location: prefix id suffix. */
void creation_answer(struct request *request, const char *text, const char *prefix,
                     const char *suffix);
void creation_done(struct creation *creation);

#endif
