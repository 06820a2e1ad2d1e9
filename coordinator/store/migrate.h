/* Inside coordinator/store: brings the schema to the newest file of sql_dir. */
#ifndef RAVEN_COORDINATOR_STORE_MIGRATE_H
#define RAVEN_COORDINATOR_STORE_MIGRATE_H

#include "coordinator/store/pq.h"

/* Files NNNN_name.sql, numbered from 0001 without gaps. Several openers at once are fine: each file
 * is applied once. STATUS_CORRUPT: an applied file was edited; STATUS_UNSUPPORTED: the schema is
 * newer than the files. Waits up to a minute for other openers. */
enum status migrate(struct pq *pq, const char *sql_dir, struct error *err) MUST_CHECK;

#endif
