/* Writes one posted row, on the writer's thread, inside its transaction. Surprising: each kind is
 * one statement, also where two tables change, so that a lease and its credit cannot part. */
#include "coordinator/store/rows.h"

static enum status write_event(struct pq *pq, struct row *row, int64_t deadline_us,
                               struct error *err)
{
    const struct store_event *event = &row->event;
    struct pq_args args = {0};
    pq_add_text(&args, event->type);
    pq_add_text(&args, event->severity);
    pq_add_text(&args, event->subject);
    pq_add_text(&args, event->text);
    pq_add_i64(&args, event->at_ms);
    return pq_run(pq,
                  "INSERT INTO events (type, severity, subject, text, at_ms)"
                  " VALUES ($1, $2, $3, $4, $5)",
                  &args, deadline_us, NULL, err);
}

/* A final state stays; started and finished keep their first time. */
static enum status write_job_state(struct pq *pq, struct row *row, int64_t deadline_us,
                                   struct error *err)
{
    const struct row_job_state *change = &row->job_state;
    struct pq_args args = {0};
    pq_add_text(&args, change->job);
    pq_add_text(&args, change->state);
    pq_add_text(&args, change->reason);
    pq_add_i64(&args, change->at_ms);
    return pq_run(pq,
                  "UPDATE jobs SET state = $2, reason = $3,"
                  " started_ms = CASE WHEN $2 = 'running' AND started_ms = 0 THEN $4::bigint"
                  "              ELSE started_ms END,"
                  " finished_ms = CASE WHEN $2 IN ('completed', 'cancelled', 'failed')"
                  "               THEN $4::bigint ELSE 0 END"
                  " WHERE id = $1 AND state NOT IN ('completed', 'cancelled', 'failed')",
                  &args, deadline_us, NULL, err);
}

static enum status write_session_opened(struct pq *pq, struct row *row, int64_t deadline_us,
                                        struct error *err)
{
    const struct row_session *session = &row->session;
    struct pq_args args = {0};
    pq_add_text(&args, session->id);
    pq_add_text(&args, session->volunteer);
    pq_add_text(&args, session->text);
    pq_add_i64(&args, session->at_ms);
    return pq_run(pq,
                  "WITH opened AS ("
                  " INSERT INTO sessions (id, volunteer, address, opened_ms)"
                  " VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING"
                  " RETURNING volunteer, opened_ms)"
                  " UPDATE volunteers SET last_seen_ms = greatest(last_seen_ms, opened.opened_ms)"
                  " FROM opened WHERE volunteers.id = opened.volunteer",
                  &args, deadline_us, NULL, err);
}

static enum status write_session_closed(struct pq *pq, struct row *row, int64_t deadline_us,
                                        struct error *err)
{
    const struct row_session *session = &row->session;
    struct pq_args args = {0};
    pq_add_text(&args, session->id);
    pq_add_text(&args, session->text);
    pq_add_i64(&args, session->at_ms);
    return pq_run(pq,
                  "WITH closed AS ("
                  " UPDATE sessions SET closed_ms = $3, end_reason = $2"
                  " WHERE id = $1 AND closed_ms = 0 RETURNING volunteer, closed_ms)"
                  " UPDATE volunteers SET last_end_reason = $2,"
                  " last_seen_ms = greatest(last_seen_ms, closed.closed_ms)"
                  " FROM closed WHERE volunteers.id = closed.volunteer",
                  &args, deadline_us, NULL, err);
}

/* Only "granted" gives way, and only to its own volunteer: a stranger's refusal that names a lease
 * must not end it. The credit goes with the row that was really written as "applied". */
static enum status write_lease(struct pq *pq, struct row *row, int64_t deadline_us,
                               struct error *err)
{
    const struct store_lease *lease = &row->lease;
    struct pq_args args = {0};
    pq_add_text(&args, lease->id);
    pq_add_text(&args, lease->job);
    pq_add_text(&args, lease->volunteer);
    pq_add_text(&args, lease->kind);
    pq_add_text(&args, lease->state);
    pq_add_u64(&args, lease->base_version);
    pq_add_u64(&args, lease->version);
    pq_add_u64(&args, lease->steps);
    pq_add_u64(&args, lease->samples);
    pq_add_u64(&args, lease->payload_bytes);
    pq_add_i64(&args, lease->at_ms);
    return pq_run(
        pq,
        "WITH written AS ("
        " INSERT INTO leases AS old (id, job, volunteer, kind, state, base_version, version,"
        " steps, samples, payload_bytes, granted_ms, finished_ms)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,"
        " CASE WHEN $5 = 'granted' THEN $11::bigint ELSE 0 END,"
        " CASE WHEN $5 = 'granted' THEN 0 ELSE $11::bigint END)"
        " ON CONFLICT (id) DO UPDATE SET state = excluded.state, version = excluded.version,"
        " steps = greatest(old.steps, excluded.steps),"
        " samples = CASE WHEN excluded.samples = 0 THEN old.samples ELSE excluded.samples END,"
        " payload_bytes = excluded.payload_bytes,"
        " finished_ms = excluded.finished_ms"
        " WHERE old.state = 'granted' AND old.volunteer = excluded.volunteer"
        " RETURNING volunteer, state)"
        " UPDATE volunteers SET updates_applied = updates_applied + 1, samples = samples + $9"
        " FROM written WHERE written.state = 'applied' AND volunteers.id = written.volunteer",
        &args, deadline_us, NULL, err);
}

/* The same point comes again when the core replays its ledger. */
static enum status write_point(struct pq *pq, struct row *row, int64_t deadline_us,
                               struct error *err)
{
    const struct store_point *point = &row->point;
    struct pq_args args = {0};
    pq_add_text(&args, point->job);
    pq_add_bool(&args, point->held_out);
    pq_add_u64(&args, point->version);
    pq_add_i64(&args, point->at_ms);
    pq_add_u64(&args, point->samples);
    pq_add_f64(&args, point->loss);
    pq_add_f64(&args, point->loss_smoothed);
    pq_add_f64(&args, point->accuracy);
    return pq_run(pq,
                  "INSERT INTO points"
                  " (job, held_out, version, at_ms, samples, loss, loss_smoothed, accuracy)"
                  " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING",
                  &args, deadline_us, NULL, err);
}

static enum status write_enrol(struct pq *pq, struct row *row, int64_t deadline_us,
                               struct error *err)
{
    return row_write_enrol(pq, &row->enrol, deadline_us, err);
}

typedef enum status (*write_fn)(struct pq *pq, struct row *row, int64_t deadline_us,
                                struct error *err);

enum status row_write(struct pq *pq, struct row *row, int64_t deadline_us, struct error *err)
{
    static const write_fn writers[] = {
        [ROW_EVENT] = write_event,
        [ROW_JOB_STATE] = write_job_state,
        [ROW_SESSION_OPENED] = write_session_opened,
        [ROW_SESSION_CLOSED] = write_session_closed,
        [ROW_LEASE] = write_lease,
        [ROW_POINT] = write_point,
        [ROW_ENROL] = write_enrol,
    };
    return writers[row->kind](pq, row, deadline_us, err);
}
