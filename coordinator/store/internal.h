/* Inside coordinator/store: what the entities' files share. The pool belongs to store.c: a call
 * takes one of its connections, uses it within the call's 2 seconds and gives it back. */
#ifndef RAVEN_COORDINATOR_STORE_INTERNAL_H
#define RAVEN_COORDINATOR_STORE_INTERNAL_H

#include "coordinator/store/pq.h"
#include "coordinator/store/store.h"

/* --- store.c --- */

/* One statement on a pooled connection; *ret (ret may be NULL) is the caller's to PQclear. */
enum status store_query(struct store *store, const char *sql, const struct pq_args *args,
                        PGresult **ret, struct error *err) MUST_CHECK;
/* As store_query for an UPDATE or DELETE by id: STATUS_NOT_FOUND when no row was touched. */
enum status store_change(struct store *store, const char *sql, const struct pq_args *args,
                         const char *id, struct error *err) MUST_CHECK;
/* A connection within *ret_deadline_us; every OK needs one store_give. */
enum status store_take(struct store *store, struct pq **ret, int64_t *ret_deadline_us,
                       struct error *err) MUST_CHECK;
void store_give(struct store *store, struct pq *pq);
struct writer *store_writer(struct store *store);

/* --- create.c --- */

/* Runs the INSERT and keeps the answer, in one transaction; see struct store_idempotency. */
enum status store_create(struct store *store, const char *sql, const struct pq_args *args,
                         const struct store_idempotency *idempotency,
                         struct store_replay *ret_replay, struct error *err) MUST_CHECK;

/* --- page.c --- */

typedef json_t *(*page_object_fn)(const PGresult *result, int row); /* NULL: out of memory */
/* args: all but the last parameter, the row limit, which is added here. */
enum status store_page(struct store *store, const char *sql, struct pq_args *args, uint32_t limit,
                       page_object_fn object, json_t **ret, bool *ret_more,
                       struct error *err) MUST_CHECK;
/* RFC 3339, or null for 0. */
json_t *page_time(const PGresult *result, int row, int column);
/* The text, or null for "". */
json_t *page_text_or_null(const PGresult *result, int row, int column);

/* Rows of a whole table in steps of LOAD_STEP, by id: $1 the id to go on after, $2 the step. The
 * id is column 0. each is called without a connection held. */
#define LOAD_STEP 1000
typedef enum status (*load_row_fn)(void *context, const PGresult *result, int row);
enum status store_load(struct store *store, const char *sql, load_row_fn each, void *context,
                       struct error *err) MUST_CHECK;

#endif
