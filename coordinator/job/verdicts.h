/* The answers already given: lease id → verdict, kept for ever, so that the same retry gets the
 * same answer, also after a restart. Owned by one job; used on the core's thread. */
#ifndef RAVEN_COORDINATOR_JOB_VERDICTS_H
#define RAVEN_COORDINATOR_JOB_VERDICTS_H

#include "common/base/buffer.h"
#include "common/base/id.h"
#include "common/base/status.h"

#include <stdint.h>

enum verdict {
    VERDICT_NONE,
#define VERDICT(name, number, word) VERDICT_##name = number,
#include "coordinator/job/verdicts.def"
#undef VERDICT
};

enum verdict_reason {
#define REASON(name, number, verdict, text) REASON_##name = number,
#include "coordinator/job/verdicts.def"
#undef REASON
};

struct verdict_entry {
    char lease[ID_BYTES];
    char volunteer[ID_BYTES];
    enum verdict verdict;
    enum verdict_reason reason;
    uint64_t version; /* first version that contains it; 0 unless applied */
};

struct verdict_table {
    struct verdict_entry *entries; /* in order of arrival */
    uint32_t count, capacity;
    uint32_t *slots; /* open addressing: index + 1 into entries, 0 empty */
    uint32_t slot_count;
};

const char *verdict_word(enum verdict verdict);
const char *verdict_reason_text(enum verdict_reason reason);
enum verdict verdict_of_reason(enum verdict_reason reason);
/* From the text a ledger record holds; NONE when unknown. */
enum verdict_reason verdict_reason_from_text(const char *text);

void verdict_table_init(struct verdict_table *table);
void verdict_table_done(struct verdict_table *table);
/* NULL when this lease has no answer yet. Valid until the next add. */
const struct verdict_entry *verdict_table_find(const struct verdict_table *table,
                                               const char *lease);
/* The first answer wins: adding a lease that has one changes nothing. */
enum status verdict_table_add(struct verdict_table *table,
                              const struct verdict_entry *entry) MUST_CHECK;

#endif
