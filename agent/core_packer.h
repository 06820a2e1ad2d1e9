/* The packing thread: merges deltas into w and makes updates, while the training thread goes on.
 * It belongs to one worker; the training thread gives the orders, the reports go to core's mailbox
 * and, where the training thread must act, to the worker's own. */
#ifndef RAVEN_AGENT_CORE_PACKER_H
#define RAVEN_AGENT_CORE_PACKER_H

#include "agent/core_mail.h"
#include "agent/update/replica.h"

struct packer_settings {
    struct mailbox *core, *worker; /* must outlive the packer */
};

struct packer;

enum status packer_start(const struct packer_settings *settings, struct packer **ret,
                         struct error *err) MUST_CHECK;
void packer_stop(struct packer *packer); /* NULL is fine; nothing may be under way (packer_flush) */

/* Both are done in this order; the replica must stay until packer_flush. They take what they are
 * given; out of memory is reported as a lost replica. */
void packer_merge(struct packer *packer, struct replica *replica, struct delta_in *delta);
/* report: a CORE_UPDATE, complete but for its payload. */
void packer_pack(struct packer *packer, struct replica *replica, struct core_mail *report,
                 uint32_t k);
/* Waits until everything ordered is done; settles the replica (NULL: none) as often as that needs.
 * On the training thread. */
void packer_flush(struct packer *packer, struct replica *replica);

#endif
