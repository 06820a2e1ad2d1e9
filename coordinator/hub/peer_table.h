/* Peer number -> agent: open addressing, linear probing, no tombstones. Not thread-safe: the hub's
 * lock guards it, so that senders on other threads can ask whether a peer still lives. */
#ifndef RAVEN_COORDINATOR_HUB_PEER_TABLE_H
#define RAVEN_COORDINATOR_HUB_PEER_TABLE_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct agent;

struct peer_table {
    struct peer_slot {
        uint64_t peer; /* 0: free */
        struct agent *agent;
    } * slots;
    size_t slot_count; /* a power of two, or 0 before the first put */
    size_t count;
};

void peer_table_init(struct peer_table *table);
void peer_table_done(struct peer_table *table);
/* peer is not 0 and not in the table. */
enum status peer_table_put(struct peer_table *table, uint64_t peer, struct agent *agent) MUST_CHECK;
struct agent *peer_table_get(const struct peer_table *table, uint64_t peer); /* NULL: not there */
void peer_table_remove(struct peer_table *table, uint64_t peer);

#endif
