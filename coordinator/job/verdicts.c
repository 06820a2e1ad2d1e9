/* A hash table of final answers. Entries are never removed, so deletion needs no tombstones; the
 * arrival order is kept because snapshots write the entries in that order. */
#include "coordinator/job/verdicts.h"

#include "common/base/checksum.h"

#include <stdlib.h>
#include <string.h>

const char *verdict_word(enum verdict verdict)
{
    switch (verdict) {
#define VERDICT(name, number, word)                                                                \
    case VERDICT_##name:                                                                           \
        return word;
#include "coordinator/job/verdicts.def"
#undef VERDICT
    case VERDICT_NONE:
        break;
    }
    return "";
}

const char *verdict_reason_text(enum verdict_reason reason)
{
    switch (reason) {
#define REASON(name, number, verdict, text)                                                        \
    case REASON_##name:                                                                            \
        return text;
#include "coordinator/job/verdicts.def"
#undef REASON
    }
    return "";
}

enum verdict verdict_of_reason(enum verdict_reason reason)
{
    switch (reason) {
#define REASON(name, number, verdict, text)                                                        \
    case REASON_##name:                                                                            \
        return VERDICT_##verdict;
#include "coordinator/job/verdicts.def"
#undef REASON
    }
    return VERDICT_REFUSED;
}

enum verdict_reason verdict_reason_from_text(const char *reason)
{
#define REASON(name, number, verdict, text)                                                        \
    if (strcmp(reason, text) == 0)                                                                 \
        return REASON_##name;
#include "coordinator/job/verdicts.def"
#undef REASON
    return REASON_NONE;
}

void verdict_table_init(struct verdict_table *table)
{
    memset(table, 0, sizeof *table);
}

void verdict_table_done(struct verdict_table *table)
{
    free(table->entries);
    free(table->slots);
    memset(table, 0, sizeof *table);
}

static uint32_t slot_of(const struct verdict_table *table, const char *lease)
{
    uint32_t slot = (uint32_t)checksum_xxh3(lease, strlen(lease)) & (table->slot_count - 1);
    while (table->slots[slot] && strcmp(table->entries[table->slots[slot] - 1].lease, lease) != 0)
        slot = (slot + 1) & (table->slot_count - 1);
    return slot;
}

const struct verdict_entry *verdict_table_find(const struct verdict_table *table, const char *lease)
{
    if (table->slot_count == 0)
        return NULL;
    uint32_t index = table->slots[slot_of(table, lease)];
    return index ? &table->entries[index - 1] : NULL;
}

static enum status grow(struct verdict_table *table)
{
    uint32_t capacity = table->capacity ? table->capacity * 2 : 64;
    struct verdict_entry *entries = realloc(table->entries, capacity * sizeof *entries);
    if (!entries)
        return STATUS_NO_MEMORY;
    table->entries = entries;
    uint32_t *slots = calloc((size_t)capacity * 2, sizeof *slots);
    if (!slots)
        return STATUS_NO_MEMORY;
    free(table->slots);
    table->slots = slots;
    table->slot_count = capacity * 2;
    table->capacity = capacity;
    for (uint32_t i = 0; i < table->count; i++)
        slots[slot_of(table, entries[i].lease)] = i + 1;
    return STATUS_OK;
}

enum status verdict_table_add(struct verdict_table *table, const struct verdict_entry *entry)
{
    if (verdict_table_find(table, entry->lease))
        return STATUS_OK;
    if (table->count == table->capacity) {
        enum status status = grow(table);
        if (status)
            return status;
    }
    table->entries[table->count] = *entry;
    table->slots[slot_of(table, entry->lease)] = ++table->count;
    return STATUS_OK;
}
