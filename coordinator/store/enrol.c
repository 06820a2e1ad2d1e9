/* Enrolment, on the writer's thread, inside its transaction: a known public key is returned as it
 * is; else one use of the invite is taken and the volunteer is created. Surprising: a refusal is an
 * answer, not a failure: it is kept in the row and told after the transaction, like a success. */
#include "coordinator/store/rows.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "coordinator/store/volunteer_row.h"

static void answer(struct row_enrol *enrol, enum status status, const char *sentence)
{
    enrol->answer = status;
    enrol->sentence = sentence;
}

static enum status find_known(struct pq *pq, struct row_enrol *enrol, bool *ret_found,
                              int64_t deadline_us, struct error *err)
{
    PGresult *result = NULL;
    struct pq_args args = {0};
    pq_add_bytes(&args, enrol->volunteer.public_key, sizeof enrol->volunteer.public_key);
    enum status status =
        pq_run(pq, "SELECT " VOLUNTEER_COLUMNS " FROM volunteers WHERE public_key = $1", &args,
               deadline_us, &result, err);
    bool found = status == STATUS_OK && PQntuples(result) == 1;
    if (found && volunteer_row_read(result, 0, &enrol->volunteer) != STATUS_OK)
        status = error_set(err, STATUS_SYSTEM, "the row of a volunteer cannot be read");
    if (status == STATUS_OK)
        *ret_found = found;
    PQclear(result);
    return status;
}

static const char *refusal_of(const PGresult *result, int64_t now_ms)
{
    if (PQntuples(result) == 0)
        return "this invite is not known here; ask for a new one";
    if (pq_i64(result, 0, 2) <= now_ms)
        return "this invite has expired; ask for a new one";
    if (pq_u64(result, 0, 3) >= pq_u64(result, 0, 4))
        return "this invite is used up; ask for a new one";
    return NULL;
}

static enum status use_invite(struct pq *pq, const char *invite, int64_t deadline_us,
                              struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, invite);
    return pq_run(pq, "UPDATE invites SET uses = uses + 1 WHERE id = $1", &args, deadline_us, NULL,
                  err);
}

static enum status insert_volunteer(struct pq *pq, const struct store_volunteer *volunteer,
                                    const char *invite, int64_t deadline_us, struct error *err)
{
    struct pq_args args = {0};
    pq_add_text(&args, volunteer->id);
    pq_add_bytes(&args, volunteer->public_key, sizeof volunteer->public_key);
    pq_add_text(&args, invite);
    pq_add_text(&args, volunteer->label);
    pq_add_text(&args, volunteer->group);
    pq_add_text(&args, volunteer->state);
    pq_add_text(&args, volunteer->cpu);
    pq_add_u64(&args, volunteer->threads);
    pq_add_u64(&args, volunteer->memory_bytes);
    pq_add_text(&args, volunteer->backend);
    pq_add_text(&args, volunteer->agent_version);
    pq_add_i64(&args, volunteer->created_ms);
    pq_add_i64(&args, volunteer->last_seen_ms);
    return pq_run(pq,
                  "INSERT INTO volunteers (id, public_key, invite, label, group_name, state, cpu,"
                  " threads, memory_bytes, backend, agent_version, created_ms, last_seen_ms)"
                  " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
                  &args, deadline_us, NULL, err);
}

static enum status create_volunteer(struct pq *pq, struct row_enrol *enrol, const char *invite,
                                    const char *group, int64_t now_ms, int64_t deadline_us,
                                    struct error *err)
{
    struct store_volunteer *volunteer = &enrol->volunteer;
    id_make(volunteer->id, "vol");
    (void)text_copy(volunteer->group, sizeof volunteer->group, group);
    (void)text_copy(volunteer->state, sizeof volunteer->state, "active");
    volunteer->created_ms = now_ms;
    volunteer->last_seen_ms = now_ms;
    volunteer->updates_applied = 0;
    volunteer->samples = 0;
    volunteer->last_end_reason[0] = '\0';
    enum status status = use_invite(pq, invite, deadline_us, err);
    if (status == STATUS_OK)
        status = insert_volunteer(pq, volunteer, invite, deadline_us, err);
    return status;
}

enum status row_write_enrol(struct pq *pq, struct row_enrol *enrol, int64_t deadline_us,
                            struct error *err)
{
    bool found = false;
    answer(enrol, STATUS_OK, "");
    enum status status = find_known(pq, enrol, &found, deadline_us, err);
    if (status != STATUS_OK || found)
        return status;
    PGresult *result = NULL;
    struct pq_args args = {0};
    int64_t now_ms = clock_wall_ms();
    pq_add_bytes(&args, enrol->invite_hash, sizeof enrol->invite_hash);
    status = pq_run(pq,
                    "SELECT id, group_name, expires_ms, uses, max_uses FROM invites"
                    " WHERE hash = $1 FOR UPDATE",
                    &args, deadline_us, &result, err);
    const char *refusal = status == STATUS_OK ? refusal_of(result, now_ms) : NULL;
    if (refusal)
        answer(enrol, STATUS_DENIED, refusal);
    else if (status == STATUS_OK)
        status = create_volunteer(pq, enrol, pq_text(result, 0, 0), pq_text(result, 0, 1), now_ms,
                                  deadline_us, err);
    PQclear(result);
    return status;
}
