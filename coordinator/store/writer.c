/* The writer: one thread takes what waits in the queue and writes it as one transaction; rows leave
 * the queue only after the COMMIT was answered. Exactly once: the transaction also stores the last
 * row's number, and begins by locking that number, so that after a lost connection the next try
 * waits for the fate of the lost transaction and skips what it wrote. Surprising: a batch ends at
 * an enrolment, whose agent waits for the answer; and while the database is away, enrolments are
 * answered "not now" at once, whereas all other rows are kept. */
#include "coordinator/store/writer.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/id.h"
#include "common/base/rng.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define BATCH_ROWS_MAX 512
#define CLOSE_US (INT64_C(5) * 1000000)
#define IDLE_MS 1000
#define READY_US (INT64_C(3) * 1000000) /* an answer this old still counts */
#define RETRY_MS_MIN 50
#define RETRY_MS_MAX 1000
#define PRUNE_US (INT64_C(3600) * 1000000)
#define IDEMPOTENCY_MS (INT64_C(24) * 3600 * 1000)
#define WRITERS_MS (INT64_C(30) * 24 * 3600 * 1000)

struct writer {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards head … close_deadline_us */
    pthread_cond_t changed;
    struct row *head, *tail;
    uint64_t count;
    uint64_t last_seq;
    bool closing;
    int64_t close_deadline_us;

    struct pq *pq; /* from here on: the writer's thread only */
    char id[ID_BYTES];
    int64_t prune_at_us;
    int64_t retry_ms;

    atomic_int_fast64_t answered_us; /* last success; 0 after a failure */
    atomic_uint_fast64_t dropped;
};

/* --- the queue --- */

enum status writer_post(struct writer *writer, const struct row *row)
{
    struct row *copy = malloc(sizeof *copy);
    if (!copy)
        return STATUS_NO_MEMORY;
    *copy = *row;
    copy->next = NULL;
    copy->refused = false;
    enum status status = STATUS_OK;
    pthread_mutex_lock(&writer->mutex);
    if (writer->closing) {
        status = STATUS_CLOSED;
    } else if (writer->count >= WRITER_ROWS_MAX) {
        status = STATUS_BUSY;
    } else {
        copy->seq = ++writer->last_seq;
        if (writer->tail)
            writer->tail->next = copy;
        else
            writer->head = copy;
        writer->tail = copy;
        if (writer->count++ == 0)
            pthread_cond_signal(&writer->changed);
    }
    pthread_mutex_unlock(&writer->mutex);
    if (status != STATUS_OK)
        free(copy);
    return status;
}

uint64_t writer_queued(struct writer *writer)
{
    pthread_mutex_lock(&writer->mutex);
    uint64_t count = writer->count;
    pthread_mutex_unlock(&writer->mutex);
    return count;
}

uint64_t writer_dropped(struct writer *writer)
{
    return atomic_load(&writer->dropped);
}

bool writer_is_ready(struct writer *writer)
{
    int64_t answered_us = atomic_load(&writer->answered_us);
    return answered_us != 0 && clock_monotonic_us() - answered_us < READY_US;
}

/* Unlinks the first rows and returns them as a list of their own. */
static struct row *unlink_first(struct writer *writer, size_t rows)
{
    pthread_mutex_lock(&writer->mutex);
    struct row *first = writer->head, *last = NULL;
    for (size_t i = 0; i < rows; i++) {
        last = writer->head;
        writer->head = last->next;
    }
    if (last)
        last->next = NULL;
    if (!writer->head)
        writer->tail = NULL;
    writer->count -= rows;
    pthread_mutex_unlock(&writer->mutex);
    return rows ? first : NULL;
}

static struct row *unlink_enrolments(struct writer *writer)
{
    struct row *found = NULL, **found_end = &found;
    pthread_mutex_lock(&writer->mutex);
    struct row **link = &writer->head;
    writer->tail = NULL;
    while (*link) {
        struct row *row = *link;
        if (row->kind == ROW_ENROL) {
            *link = row->next;
            row->next = NULL;
            *found_end = row;
            found_end = &row->next;
            writer->count--;
        } else {
            writer->tail = row;
            link = &row->next;
        }
    }
    pthread_mutex_unlock(&writer->mutex);
    return found;
}

/* --- answers --- */

static void answer_enrolment(const struct row *row)
{
    const struct row_enrol *enrol = &row->enrol;
    if (row->refused)
        enrol->done(enrol->context, STATUS_INVALID,
                    "the database refuses the agent's label or machine description", NULL);
    else
        enrol->done(enrol->context, enrol->answer, enrol->sentence,
                    enrol->answer == STATUS_OK ? &enrol->volunteer : NULL);
}

static void fail_enrolments(struct writer *writer)
{
    struct row *row = unlink_enrolments(writer);
    while (row) {
        struct row *next = row->next;
        row->enrol.done(row->enrol.context, STATUS_UNAVAILABLE,
                        "the database is away; enrolment is not possible now", NULL);
        free(row);
        row = next;
    }
}

static void finish_rows(struct writer *writer, size_t rows)
{
    struct row *row = unlink_first(writer, rows);
    while (row) {
        struct row *next = row->next;
        if (row->refused)
            atomic_fetch_add(&writer->dropped, 1);
        if (row->kind == ROW_ENROL)
            answer_enrolment(row);
        free(row);
        row = next;
    }
}

/* --- one batch --- */

static int64_t deadline(struct writer *writer)
{
    int64_t at_us = clock_monotonic_us() + PQ_CALL_US;
    pthread_mutex_lock(&writer->mutex);
    if (writer->closing && writer->close_deadline_us < at_us)
        at_us = writer->close_deadline_us;
    pthread_mutex_unlock(&writer->mutex);
    return at_us;
}

static enum status run(struct writer *writer, const char *sql)
{
    return pq_run(writer->pq, sql, NULL, deadline(writer), NULL, NULL);
}

/* Locks this writer's row until the end of the transaction. */
static enum status lock_written(struct writer *writer, uint64_t *ret_seq)
{
    PGresult *result = NULL;
    struct pq_args args = {0};
    pq_add_text(&args, writer->id);
    pq_add_i64(&args, clock_wall_ms());
    enum status status =
        pq_run(writer->pq,
               "INSERT INTO writers (id, seq, seen_ms) VALUES ($1, 0, $2)"
               " ON CONFLICT (id) DO UPDATE SET seen_ms = excluded.seen_ms RETURNING seq",
               &args, deadline(writer), &result, NULL);
    if (status == STATUS_OK)
        *ret_seq = pq_u64(result, 0, 0);
    PQclear(result);
    return status;
}

static enum status note_written(struct writer *writer, uint64_t seq)
{
    struct pq_args args = {0};
    pq_add_text(&args, writer->id);
    pq_add_u64(&args, seq);
    return pq_run(writer->pq, "UPDATE writers SET seq = $2 WHERE id = $1", &args, deadline(writer),
                  NULL, NULL);
}

/* guarded: a refused row is undone alone and marked, instead of breaking the transaction. */
static enum status write_row(struct writer *writer, struct row *row, bool guarded)
{
    enum status status = guarded ? run(writer, "SAVEPOINT before_row") : STATUS_OK;
    if (status == STATUS_OK)
        status = row_write(writer->pq, row, deadline(writer), NULL);
    if (!guarded)
        return status;
    if (status == STATUS_INVALID) {
        row->refused = true;
        status = run(writer, "ROLLBACK TO SAVEPOINT before_row");
    }
    if (status == STATUS_OK)
        status = run(writer, "RELEASE SAVEPOINT before_row");
    return status;
}

static enum status write_within(struct writer *writer, struct row *first, size_t rows, bool guarded)
{
    uint64_t written_seq = 0, seq = 0;
    enum status status = run(writer, "BEGIN");
    if (status == STATUS_OK)
        status = lock_written(writer, &written_seq);
    struct row *row = first;
    for (size_t i = 0; i < rows && status == STATUS_OK; i++) {
        if (i > 0) /* never beyond the batch: its last link belongs to the posting threads */
            row = row->next;
        seq = row->seq;
        row->refused = false;
        if (seq > written_seq)
            status = write_row(writer, row, guarded);
    }
    if (status == STATUS_OK && seq > written_seq)
        status = note_written(writer, seq);
    if (status == STATUS_OK)
        status = pq_commit(writer->pq, deadline(writer), NULL);
    if (status != STATUS_OK)
        pq_rollback(writer->pq, deadline(writer));
    return status;
}

/* The batch stays linked while this runs: only this thread unlinks. */
static enum status write_batch(struct writer *writer, struct row *first, size_t rows)
{
    enum status status = pq_ready(writer->pq, deadline(writer), NULL);
    if (status == STATUS_OK)
        status = write_within(writer, first, rows, false);
    if (status == STATUS_INVALID)
        status = write_within(writer, first, rows, true);
    return status;
}

/* --- the thread --- */

static struct timespec after_ms(int64_t ms)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += ms / 1000;
    at.tv_nsec += ms % 1000 * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

/* The next batch, still linked; 0 rows after IDLE_MS without any. False: closed and empty, or late.
 */
static bool next_batch(struct writer *writer, struct row **ret_first, size_t *ret_rows)
{
    struct timespec until = after_ms(IDLE_MS);
    pthread_mutex_lock(&writer->mutex);
    while (!writer->head && !writer->closing &&
           pthread_cond_timedwait(&writer->changed, &writer->mutex, &until) == 0)
        continue;
    size_t rows = 0;
    for (struct row *row = writer->head; row && rows < BATCH_ROWS_MAX; row = row->next) {
        rows++;
        if (row->kind == ROW_ENROL)
            break;
    }
    bool late = writer->closing && clock_monotonic_us() >= writer->close_deadline_us;
    bool go_on = !late && (rows > 0 || !writer->closing);
    *ret_first = writer->head;
    *ret_rows = rows;
    pthread_mutex_unlock(&writer->mutex);
    return go_on;
}

static void prune(struct writer *writer)
{
    struct pq_args answers = {0}, writers = {0};
    pq_add_i64(&answers, clock_wall_ms() - IDEMPOTENCY_MS);
    pq_add_i64(&writers, clock_wall_ms() - WRITERS_MS);
    if (pq_run(writer->pq, "DELETE FROM idempotency WHERE created_ms < $1", &answers,
               deadline(writer), NULL, NULL) == STATUS_OK &&
        pq_run(writer->pq, "DELETE FROM writers WHERE seen_ms < $1", &writers, deadline(writer),
               NULL, NULL) == STATUS_OK)
        writer->prune_at_us = clock_monotonic_us() + PRUNE_US;
}

static enum status ping(struct writer *writer)
{
    enum status status = pq_ready(writer->pq, deadline(writer), NULL);
    if (status == STATUS_OK)
        status = run(writer, "SELECT 1");
    if (status == STATUS_OK && clock_monotonic_us() >= writer->prune_at_us)
        prune(writer);
    return status;
}

/* Also ends when closing begins; then in short steps, so as not to miss the deadline. */
static void wait_before_retry(struct writer *writer)
{
    uint32_t random;
    random_bytes(&random, sizeof random);
    writer->retry_ms = writer->retry_ms ? 2 * writer->retry_ms : RETRY_MS_MIN;
    if (writer->retry_ms > RETRY_MS_MAX)
        writer->retry_ms = RETRY_MS_MAX;
    struct timespec until = after_ms(writer->retry_ms / 2 + random % writer->retry_ms / 2);
    struct timespec soon = after_ms(RETRY_MS_MIN);
    pthread_mutex_lock(&writer->mutex);
    bool closing = writer->closing;
    while (writer->closing == closing &&
           pthread_cond_timedwait(&writer->changed, &writer->mutex, closing ? &soon : &until) == 0)
        continue;
    pthread_mutex_unlock(&writer->mutex);
}

static void *write_rows(void *argument)
{
    struct writer *writer = argument;
    struct row *first;
    size_t rows;
    while (next_batch(writer, &first, &rows)) {
        enum status status = rows ? write_batch(writer, first, rows) : ping(writer);
        if (status == STATUS_OK) {
            writer->retry_ms = 0;
            atomic_store(&writer->answered_us, clock_monotonic_us());
            finish_rows(writer, rows);
        } else {
            atomic_store(&writer->answered_us, 0);
            fail_enrolments(writer);
            wait_before_retry(writer);
        }
    }
    fail_enrolments(writer);
    return NULL;
}

/* --- life --- */

static void writer_free(struct writer *writer)
{
    for (struct row *row = writer->head, *next; row; row = next) {
        next = row->next;
        free(row);
    }
    pq_free(writer->pq);
    pthread_cond_destroy(&writer->changed);
    pthread_mutex_destroy(&writer->mutex);
    free(writer);
}

enum status writer_create(struct pq *pq, struct writer **ret, struct error *err)
{
    struct writer *writer = calloc(1, sizeof *writer);
    if (!writer) {
        pq_free(pq);
        return error_set(err, STATUS_NO_MEMORY, "no memory for the database writer");
    }
    writer->pq = pq;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&writer->mutex, NULL);
    pthread_cond_init(&writer->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    id_make(writer->id, "wri");
    atomic_store(&writer->answered_us, clock_monotonic_us());
    if (pthread_create(&writer->thread, NULL, write_rows, writer) != 0) {
        writer_free(writer);
        return error_set(err, STATUS_SYSTEM, "cannot start the database writer");
    }
    *ret = writer;
    return STATUS_OK;
}

void writer_close(struct writer *writer)
{
    if (!writer)
        return;
    pthread_mutex_lock(&writer->mutex);
    writer->closing = true;
    writer->close_deadline_us = clock_monotonic_us() + CLOSE_US;
    pthread_cond_signal(&writer->changed);
    pthread_mutex_unlock(&writer->mutex);
    pthread_join(writer->thread, NULL);
    writer_free(writer);
}
