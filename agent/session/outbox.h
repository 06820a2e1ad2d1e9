/* Updates on disk until the coordinator's durable answer: what was trained survives the agent. One
 * file per update, <state directory>/outbox/<lease>: the offer as one line of JSON (wire/wire.h),
 * a newline, the payload. Any thread; different leases may be saved at the same time. */
#ifndef RAVEN_AGENT_SESSION_OUTBOX_H
#define RAVEN_AGENT_SESSION_OUTBOX_H

#include "common/base/shared.h"
#include "common/base/status.h"
#include "common/wire/wire.h"

#include <stddef.h>
#include <stdint.h>

#define OUTBOX_UPDATES_MAX 16
#define OUTBOX_BYTES_MAX (1ull << 30)

/* Makes dir. */
enum status outbox_open(const char *dir, struct error *err) MUST_CHECK;
/* Durable on return: file and name. offer: with bytes and sha256. */
enum status outbox_save(const char *dir, const struct wire_offer *offer,
                        const struct shared *payload, struct error *err) MUST_CHECK;
/* A file that comes back after a power cut does no harm: the coordinator knows its answer. */
void outbox_remove(const char *dir, const char *lease);
/* Calls take for each whole update (it takes the payload), oldest first, at most
 * OUTBOX_UPDATES_MAX. Files that are not whole are removed and counted. */
enum status outbox_load(const char *dir,
                        void (*take)(void *user, const struct wire_offer *offer,
                                     struct shared *payload),
                        void *user, size_t *ret_damaged, struct error *err) MUST_CHECK;

#endif
