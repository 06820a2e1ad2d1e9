/* A PostgreSQL cluster of our own below the data directory: created on the first start, run as a
 * child process on a Unix socket only, stopped at exit. Never runs PostgreSQL as root: when the
 * coordinator is root, the child becomes the user "postgres" first. Called from main only. */
#ifndef RAVEN_COORDINATOR_STORE_PRIVATE_POSTGRES_H
#define RAVEN_COORDINATOR_STORE_PRIVATE_POSTGRES_H

#include "common/base/status.h"

struct private_postgres;

/* dir: made if missing. progress is told each step in a sentence ("creating the database, about
 * 2 seconds, once"). Returns when the server answers. */
enum status private_postgres_start(const char *dir, void (*progress)(const char *sentence),
                                   struct private_postgres **ret, struct error *err) MUST_CHECK;
const char *private_postgres_conninfo(const struct private_postgres *postgres);
void private_postgres_stop(struct private_postgres *postgres); /* fast shutdown; NULL is fine */

#endif
