/* The full state of a job at one version, so that recovery need not replay from the beginning.
 * Files <dir>/snapshot-<sequence>.rvs; temp, fsync, rename, fsync of the directory. The byte format
 * is at the top of snapshot.c: header with checksum, sections with length and XXH3-64 each. */
#ifndef RAVEN_COORDINATOR_LEDGER_SNAPSHOT_H
#define RAVEN_COORDINATOR_LEDGER_SNAPSHOT_H

#include "common/base/status.h"
#include "coordinator/ledger/ledger.h"

#include <stdint.h>

struct snapshot {
    struct ledger_position position; /* everything up to here is contained */
    uint64_t version;
    uint64_t layout; /* graph_layout_hash */
    uint64_t n;
    float *theta; /* [n] master */
    float *w;     /* [n] shadow */
    /* The job's own bookkeeping (data position, dedup table, clip history): opaque bytes. */
    uint8_t *state;
    uint64_t state_bytes;
};

enum status snapshot_write(const char *dir, const struct snapshot *snapshot,
                           struct error *err) MUST_CHECK;
/* The newest whole snapshot with sequence ≤ sequence_max; damaged ones are skipped and counted.
 * STATUS_NOT_FOUND when none is whole. The caller frees with snapshot_done. */
enum status snapshot_read_newest(const char *dir, uint64_t sequence_max, struct snapshot *ret,
                                 uint32_t *ret_damaged, struct error *err) MUST_CHECK;
/* The oldest one (written at version 0): where `verify` starts. */
enum status snapshot_read_oldest(const char *dir, struct snapshot *ret,
                                 struct error *err) MUST_CHECK;
/* Deletes all but the first and the newest `keep`. */
enum status snapshot_prune(const char *dir, uint32_t keep, struct error *err) MUST_CHECK;
void snapshot_done(struct snapshot *snapshot);

#endif
