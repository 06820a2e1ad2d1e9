/* A hash map from peer number to agent. Removal shifts the following entries back instead of
 * leaving tombstones: peers come and go for months, and a table of tombstones would probe ever
 * longer. */
#include "coordinator/hub/peer_table.h"

#include <stdlib.h>

#define SLOTS_FIRST 64

static size_t home_of(const struct peer_table *table, uint64_t peer)
{
    return (size_t)((peer * 0x9E3779B97F4A7C15u) >> 32) & (table->slot_count - 1);
}

/* The slot that holds peer, or the free slot where it would go. The table is never full. */
static size_t find_slot(const struct peer_table *table, uint64_t peer)
{
    size_t i = home_of(table, peer);
    while (table->slots[i].peer != 0 && table->slots[i].peer != peer)
        i = (i + 1) & (table->slot_count - 1);
    return i;
}

static enum status grow(struct peer_table *table)
{
    struct peer_table larger = {0};
    larger.slot_count = table->slot_count ? table->slot_count * 2 : SLOTS_FIRST;
    larger.slots = calloc(larger.slot_count, sizeof larger.slots[0]);
    if (!larger.slots)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < table->slot_count; i++)
        if (table->slots[i].peer != 0)
            larger.slots[find_slot(&larger, table->slots[i].peer)] = table->slots[i];
    larger.count = table->count;
    free(table->slots);
    *table = larger;
    return STATUS_OK;
}

void peer_table_init(struct peer_table *table)
{
    *table = (struct peer_table){0};
}

void peer_table_done(struct peer_table *table)
{
    free(table->slots);
    peer_table_init(table);
}

enum status peer_table_put(struct peer_table *table, uint64_t peer, struct agent *agent)
{
    if (4 * (table->count + 1) > 3 * table->slot_count) {
        enum status status = grow(table);
        if (status)
            return status;
    }
    table->slots[find_slot(table, peer)] = (struct peer_slot){peer, agent};
    table->count++;
    return STATUS_OK;
}

struct agent *peer_table_get(const struct peer_table *table, uint64_t peer)
{
    if (table->count == 0 || peer == 0)
        return NULL;
    return table->slots[find_slot(table, peer)].agent;
}

void peer_table_remove(struct peer_table *table, uint64_t peer)
{
    if (!peer_table_get(table, peer))
        return;
    size_t mask = table->slot_count - 1;
    size_t hole = find_slot(table, peer);
    for (size_t i = (hole + 1) & mask; table->slots[i].peer != 0; i = (i + 1) & mask) {
        size_t home = home_of(table, table->slots[i].peer);
        if (((i - home) & mask) < ((i - hole) & mask))
            continue; /* its home lies after the hole: it must stay */
        table->slots[hole] = table->slots[i];
        hole = i;
    }
    table->slots[hole] = (struct peer_slot){0};
    table->count--;
}
