/* A bounded queue of messages from any thread to one loop, with an eventfd the loop can poll.
 * Messages are intrusive: embed struct mail first in your message. */
#ifndef RAVEN_COMMON_BASE_MAILBOX_H
#define RAVEN_COMMON_BASE_MAILBOX_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct mail {
    struct mail *next;
    int type; /* the receiver's own enum */
};

struct mailbox;

enum status mailbox_create(size_t count_max, struct mailbox **ret) MUST_CHECK;
void mailbox_free(struct mailbox *box); /* must be empty and unused */

/* Any thread. STATUS_BUSY when count_max messages wait, STATUS_CLOSED after mailbox_close: the
 * caller then still owns the message. On OK the receiver owns it. */
enum status mailbox_post(struct mailbox *box, struct mail *mail) MUST_CHECK;
void mailbox_close(struct mailbox *box);

/* Receiver only. Waits up to timeout_ms (-1: for ever, 0: not at all); NULL on time-out or when
 * closed and empty. First in, first out. */
struct mail *mailbox_take(struct mailbox *box, int timeout_ms);
int mailbox_fd(const struct mailbox *box); /* readable while messages wait */
size_t mailbox_count(struct mailbox *box); /* any thread, for metrics */

#endif
