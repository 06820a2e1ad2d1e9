/* Inside coordinator/store: the thread that writes posted rows, in order, exactly once. */
#ifndef RAVEN_COORDINATOR_STORE_WRITER_H
#define RAVEN_COORDINATOR_STORE_WRITER_H

#include "coordinator/store/rows.h"

#define WRITER_ROWS_MAX 65536u

struct writer;

/* Takes pq over, also on failure. */
enum status writer_create(struct pq *pq, struct writer **ret, struct error *err) MUST_CHECK;
void writer_close(struct writer *writer); /* writes what waits, up to 5 s; frees; NULL is fine */

/* Any thread. Copies the row. STATUS_BUSY when full, STATUS_CLOSED while closing. */
enum status writer_post(struct writer *writer, const struct row *row) MUST_CHECK;
bool writer_is_ready(struct writer *writer);
uint64_t writer_queued(struct writer *writer);
uint64_t writer_dropped(struct writer *writer);

#endif
