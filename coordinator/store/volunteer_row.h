/* Inside coordinator/store: the columns of a volunteer and how to read them. */
#ifndef RAVEN_COORDINATOR_STORE_VOLUNTEER_ROW_H
#define RAVEN_COORDINATOR_STORE_VOLUNTEER_ROW_H

#include "coordinator/store/pq.h"
#include "coordinator/store/store.h"

#define VOLUNTEER_COLUMNS                                                                          \
    "id, public_key, label, group_name, state, cpu, threads, memory_bytes, backend,"               \
    " agent_version, created_ms, last_seen_ms, updates_applied, samples, last_end_reason"

enum status volunteer_row_read(const PGresult *result, int row,
                               struct store_volunteer *ret) MUST_CHECK;

#endif
