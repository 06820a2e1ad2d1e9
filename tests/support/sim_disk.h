/* A disk in memory that tests link in the place of coordinator/ledger/disk.c: it knows what is only
 * in the page cache and what a power cut would leave. One thread. Everything random comes from the
 * seed. The model:
 *   - a write dirties 512-byte sectors; a power cut keeps or loses each dirty one;
 *   - a longer file may keep its length without its data;
 *   - creating, renaming and deleting reach the disk in order, at the latest with the directory's
 *     fsync: a power cut keeps a beginning of them;
 *   - a failed sync writes any of the dirty sectors and forgets that the others were dirty: the
 *     next sync "succeeds" without them;
 *   - a killed process leaves the page cache. */
#ifndef RAVEN_TESTS_SIM_DISK_H
#define RAVEN_TESTS_SIM_DISK_H

#include <stdbool.h>
#include <stdint.h>

enum sim_fault {
    SIM_NOTHING,
    SIM_POWER_CUT,
    SIM_KILL,
    SIM_SYNC_FAILS,  /* EIO, once */
    SIM_WRITE_FAILS, /* EIO, once, after any part of it */
    SIM_WRITE_SHORT, /* from then on all writes are short or interrupted */
    SIM_NO_SPACE,    /* from then on, until the next start */
};

/* An empty disk. */
void sim_disk_format(uint64_t seed);
/* The fault strikes at the operation-th change of the disk from now, counted from 1. */
void sim_disk_plan(enum sim_fault fault, uint64_t operation);
bool sim_disk_has_struck(void); /* the planned fault, since the last start */
/* After a power cut or a kill every call fails with EIO until the next start. */
bool sim_disk_is_dead(void);
/* Ends SIM_NO_SPACE. */
void sim_disk_free(void);
/* A new process, after a power cut on what that left. Forgets the plan. */
void sim_disk_start(void);

#endif
