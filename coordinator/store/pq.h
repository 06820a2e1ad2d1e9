/* One PostgreSQL connection that never blocks past a deadline: connecting, sending and receiving
 * poll the socket. A connection that misses its deadline or breaks is dropped; pq_ready makes a new
 * one, with back-off. Not thread-safe: one thread at a time. Deadlines are monotonic microseconds.
 * A host NAME is looked up by libpq without a deadline: give an address or a socket directory. */
#ifndef RAVEN_COORDINATOR_STORE_PQ_H
#define RAVEN_COORDINATOR_STORE_PQ_H

#include "common/base/status.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PQ_CALL_US 2000000
#define PQ_ARGS_MAX 16

struct pq;

/* Parameters $1, $2 … of one statement. Texts and bytes are borrowed until the statement ran. */
struct pq_args {
    int count;
    const char *values[PQ_ARGS_MAX];
    int lengths[PQ_ARGS_MAX];
    int formats[PQ_ARGS_MAX];
    char numbers[PQ_ARGS_MAX][32];
};

void pq_add_text(struct pq_args *args, const char *text);
void pq_add_bytes(struct pq_args *args, const void *data, size_t bytes);
void pq_add_i64(struct pq_args *args, int64_t value);
void pq_add_u64(struct pq_args *args, uint64_t value);
void pq_add_f64(struct pq_args *args, double value); /* not finite: NULL */
void pq_add_bool(struct pq_args *args, bool value);

enum status pq_create(const char *conninfo, struct pq **ret) MUST_CHECK;
void pq_free(struct pq *pq); /* NULL is fine */

/* From now on each connection of this pq holds the advisory lock `key` of its database for as long
 * as it lives; where another one holds it, pq_ready is STATUS_BUSY. Before the first pq_ready. */
void pq_claim(struct pq *pq, int64_t key);

/* Ensures a working, idle connection. STATUS_UNAVAILABLE at once during a back-off; STATUS_BUSY:
 * see pq_claim. */
enum status pq_ready(struct pq *pq, int64_t deadline_us, struct error *err) MUST_CHECK;

/* One statement of constant text. STATUS_INVALID: the server refuses these values (the connection
 * lives); STATUS_SYSTEM: it refuses the statement; STATUS_UNAVAILABLE: no answer or not now (the
 * connection is dropped). *ret (ret may be NULL) is cleared by the caller with PQclear. */
enum status pq_run(struct pq *pq, const char *sql, const struct pq_args *args, int64_t deadline_us,
                   PGresult **ret, struct error *err) MUST_CHECK;
/* Several statements without parameters: a migration file, inside a transaction. */
enum status pq_run_script(struct pq *pq, const char *sql, int64_t deadline_us,
                          struct error *err) MUST_CHECK;
/* STATUS_UNAVAILABLE unless the server says that it did commit. */
enum status pq_commit(struct pq *pq, int64_t deadline_us, struct error *err) MUST_CHECK;
void pq_rollback(struct pq *pq, int64_t deadline_us); /* drops the connection when it fails */

/* Columns of a row; NULL reads as "" or 0. */
const char *pq_text(const PGresult *result, int row, int column);
int64_t pq_i64(const PGresult *result, int row, int column);
uint64_t pq_u64(const PGresult *result, int row, int column);
/* A bytea of exactly this many bytes, else false. */
bool pq_bytes(const PGresult *result, int row, int column, void *ret, size_t bytes);

#endif
