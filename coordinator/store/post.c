/* Posting: copies what is given into a row and queues it. Any thread, never waits. Surprising:
 * texts are cut to their column and cleaned, so that a label from outside cannot cost an event; ids
 * are not: a wrong one is refused. */
#include "coordinator/store/internal.h"

#include "common/base/bytes.h"
#include "coordinator/store/writer.h"

#include <string.h>

static void copy_text(char *ret, size_t ret_bytes, const char *text)
{
    (void)text_copy(ret, ret_bytes, text);
    text_sanitize(ret);
}

static bool copy_id(char ret[ID_BYTES], const char *id)
{
    return text_copy(ret, ID_BYTES, id);
}

enum status store_post_event(struct store *store, const struct store_event *event)
{
    struct row row = {.kind = ROW_EVENT, .event = *event};
    text_sanitize(row.event.type);
    text_sanitize(row.event.severity);
    text_sanitize(row.event.subject);
    text_sanitize(row.event.text);
    return writer_post(store_writer(store), &row);
}

enum status store_post_job_state(struct store *store, const char *job, const char *state,
                                 const char *reason, int64_t at_ms)
{
    struct row row = {.kind = ROW_JOB_STATE, .job_state = {.at_ms = at_ms}};
    struct row_job_state *change = &row.job_state;
    if (!copy_id(change->job, job) || !text_copy(change->state, sizeof change->state, state))
        return STATUS_INVALID;
    copy_text(change->reason, sizeof change->reason, reason ? reason : "");
    return writer_post(store_writer(store), &row);
}

enum status store_post_session_opened(struct store *store, const char *session,
                                      const char *volunteer, const char *address, int64_t at_ms)
{
    struct row row = {.kind = ROW_SESSION_OPENED, .session = {.at_ms = at_ms}};
    if (!copy_id(row.session.id, session) || !copy_id(row.session.volunteer, volunteer))
        return STATUS_INVALID;
    copy_text(row.session.text, sizeof row.session.text, address ? address : "");
    return writer_post(store_writer(store), &row);
}

enum status store_post_session_closed(struct store *store, const char *session,
                                      const char *end_reason, int64_t at_ms)
{
    struct row row = {.kind = ROW_SESSION_CLOSED, .session = {.at_ms = at_ms}};
    if (!copy_id(row.session.id, session))
        return STATUS_INVALID;
    copy_text(row.session.text, sizeof row.session.text, end_reason ? end_reason : "");
    return writer_post(store_writer(store), &row);
}

enum status store_post_lease(struct store *store, const struct store_lease *lease)
{
    struct row row = {.kind = ROW_LEASE, .lease = *lease};
    return writer_post(store_writer(store), &row);
}

enum status store_post_point(struct store *store, const struct store_point *point)
{
    struct row row = {.kind = ROW_POINT, .point = *point};
    return writer_post(store_writer(store), &row);
}

enum status store_post_enrol(struct store *store, const uint8_t invite_hash[SHA256_BYTES],
                             const struct store_volunteer *volunteer, store_enrol_fn done,
                             void *context)
{
    struct row row = {.kind = ROW_ENROL,
                      .enrol = {.volunteer = *volunteer, .done = done, .context = context}};
    memcpy(row.enrol.invite_hash, invite_hash, SHA256_BYTES);
    return writer_post(store_writer(store), &row);
}
