/* Tests of coordinator/store against a real PostgreSQL: what each call keeps, and hostile values.
 */
#include "tests/unit/coordinator/store/fixture.h"

#include "common/base/bytes.h"

#include <math.h>
#include <pthread.h>

#define HOUR_MS 3600000

/* --- keys --- */

struct keys_seen {
    int count;
    struct store_key last;
};

static void see_key(void *context, const struct store_key *key)
{
    struct keys_seen *seen = context;
    seen->count++;
    seen->last = *key;
}

static void keys_come_back_unless_expired(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    struct keys_seen seen = {0};
    int64_t now_ms = clock_wall_ms();
    struct store_key key = {.name = "admin'; DROP TABLE keys; --\\",
                            .scopes = 511,
                            .created_ms = now_ms,
                            .expires_ms = now_ms + HOUR_MS};
    id_make(key.id, "key");
    memset(key.hash, 0xA5, sizeof key.hash);
    fixture_ok(store_key_create(fixture->store, &key, &err), &err);
    struct store_key expired = key;
    id_make(expired.id, "key");
    expired.hash[0] = 0;
    expired.expires_ms = now_ms - 1;
    fixture_ok(store_key_create(fixture->store, &expired, &err), &err);
    fixture_ok(store_keys_load(fixture->store, see_key, &seen, &err), &err);
    assert_int_equal(seen.count, 1);
    assert_memory_equal(&seen.last.hash, key.hash, sizeof key.hash);
    assert_string_equal(seen.last.id, key.id);
    assert_string_equal(seen.last.name, key.name);
    assert_int_equal(seen.last.scopes, 511);
    assert_int_equal(seen.last.expires_ms, key.expires_ms);
}

static void more_keys_than_one_load_step(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    struct keys_seen seen = {0};
    fixture_exec(fixture->conninfo,
                 "INSERT INTO keys SELECT 'key_' || lpad(i::text, 26, '0'), 'k',"
                 " sha256(i::text::bytea), 1, 1, 0 FROM generate_series(1, 2003) i");
    fixture_ok(store_keys_load(fixture->store, see_key, &seen, &err), &err);
    assert_int_equal(seen.count, 2003);
}

/* --- invites and idempotency --- */

static struct store_invite make_invite(uint8_t mark, uint32_t max_uses, int64_t expires_ms)
{
    struct store_invite invite = {.group = "home",
                                  .max_uses = max_uses,
                                  .created_ms = clock_wall_ms(),
                                  .expires_ms = expires_ms};
    id_make(invite.id, "inv");
    memset(invite.hash, mark, sizeof invite.hash);
    return invite;
}

static void a_repeated_create_replays_the_answer(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    struct store_replay replay = {0};
    struct store_invite first = make_invite(1, 1, clock_wall_ms() + HOUR_MS);
    struct store_invite second = make_invite(2, 1, clock_wall_ms() + HOUR_MS);
    struct store_idempotency once = {.scope = "key_1 POST /v1/invites",
                                     .key = "it's \\ \"mine\"",
                                     .fingerprint = {7},
                                     .answer_status = 201,
                                     .answer_body = "{\"id\":\"first\"}"};
    fixture_ok(store_invite_create(fixture->store, &first, &once, &replay, &err), &err);
    assert_null(replay.body);
    once.answer_body = "{\"id\":\"second\"}";
    assert_int_equal(store_invite_create(fixture->store, &second, &once, &replay, &err),
                     STATUS_EXISTS);
    assert_int_equal(replay.status, 201);
    assert_string_equal(replay.body, "{\"id\":\"first\"}");
    free(replay.body);
    replay.body = NULL;
    once.fingerprint[31] = 1;
    assert_int_equal(store_invite_create(fixture->store, &second, &once, &replay, &err),
                     STATUS_STATE);
    assert_null(replay.body);
    once.scope = "key_2 POST /v1/invites";
    fixture_ok(store_invite_create(fixture->store, &second, &once, &replay, &err), &err);
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM invites"), 2);
}

static void a_failed_create_keeps_no_answer(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    struct store_replay replay = {0};
    struct store_invite invite = make_invite(1, 0, 0); /* max_uses 0 is refused by the schema */
    struct store_idempotency once = {
        .scope = "s", .key = "k", .answer_status = 201, .answer_body = "{}"};
    assert_int_equal(store_invite_create(fixture->store, &invite, &once, &replay, &err),
                     STATUS_INVALID);
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM idempotency"), 0);
    invite.max_uses = 1;
    fixture_ok(store_invite_create(fixture->store, &invite, &once, &replay, &err), &err);
}

static void an_answer_is_forgotten_after_a_day(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    struct store_replay replay = {0};
    struct store_invite first = make_invite(1, 1, 0), second = make_invite(2, 1, 0);
    struct store_idempotency once = {
        .scope = "s", .key = "k", .answer_status = 201, .answer_body = "{}"};
    fixture_ok(store_invite_create(fixture->store, &first, &once, &replay, &err), &err);
    fixture_exec(fixture->conninfo, "UPDATE idempotency SET created_ms = created_ms - 86400001");
    fixture_ok(store_invite_create(fixture->store, &second, &once, &replay, &err), &err);
}

struct race {
    struct store *store;
    uint8_t mark;
    enum status status;
};

static void *create_in_race(void *argument)
{
    struct race *race = argument;
    struct store_replay replay = {0};
    struct store_invite invite = make_invite(race->mark, 1, 0);
    struct store_idempotency once = {
        .scope = "s", .key = "race", .answer_status = 201, .answer_body = "{}"};
    race->status = store_invite_create(race->store, &invite, &once, &replay, NULL);
    free(replay.body);
    return NULL;
}

static void of_concurrent_creates_one_has_the_effect(void **state)
{
    struct fixture *fixture = *state;
    enum { RACERS = 8 };
    struct race races[RACERS];
    pthread_t threads[RACERS];
    for (int i = 0; i < RACERS; i++) {
        races[i] = (struct race){.store = fixture->store, .mark = (uint8_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, create_in_race, &races[i]), 0);
    }
    int created = 0;
    for (int i = 0; i < RACERS; i++) {
        pthread_join(threads[i], NULL);
        if (races[i].status == STATUS_OK)
            created++;
        else
            assert_int_equal(races[i].status, STATUS_EXISTS);
    }
    assert_int_equal(created, 1);
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM invites"), 1);
}

/* --- enrolment --- */

struct enrolled {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int calls;
    enum status status;
    char sentence[320];
    struct store_volunteer volunteer;
};

static void on_enrolled(void *context, enum status status, const char *sentence,
                        const struct store_volunteer *volunteer)
{
    struct enrolled *enrolled = context;
    pthread_mutex_lock(&enrolled->mutex);
    enrolled->calls++;
    enrolled->status = status;
    (void)text_copy(enrolled->sentence, sizeof enrolled->sentence, sentence);
    if (volunteer)
        enrolled->volunteer = *volunteer;
    pthread_cond_signal(&enrolled->changed);
    pthread_mutex_unlock(&enrolled->mutex);
}

static struct enrolled enrol(struct store *store, uint8_t invite_mark,
                             const struct store_volunteer *volunteer)
{
    struct enrolled enrolled = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                                .changed = PTHREAD_COND_INITIALIZER};
    uint8_t hash[SHA256_BYTES];
    memset(hash, invite_mark, sizeof hash);
    assert_int_equal(store_post_enrol(store, hash, volunteer, on_enrolled, &enrolled), STATUS_OK);
    pthread_mutex_lock(&enrolled.mutex);
    while (enrolled.calls == 0)
        pthread_cond_wait(&enrolled.changed, &enrolled.mutex);
    pthread_mutex_unlock(&enrolled.mutex);
    fixture_drain(store);
    assert_int_equal(enrolled.calls, 1);
    return enrolled;
}

static struct store_volunteer make_volunteer(uint8_t mark)
{
    struct store_volunteer volunteer = {.label = "attic PC'; DROP TABLE volunteers; --",
                                        .cpu = "AMD \\ EPYC",
                                        .threads = 2,
                                        .memory_bytes = UINT64_C(16) << 30,
                                        .backend = "cpu/avx2",
                                        .agent_version = "0.1.0"};
    memset(volunteer.public_key, mark, sizeof volunteer.public_key);
    return volunteer;
}

static void add_invite(struct fixture *fixture, uint8_t mark, uint32_t max_uses, int64_t expires_ms)
{
    struct error err = {0};
    struct store_invite invite = make_invite(mark, max_uses, expires_ms);
    fixture_ok(store_invite_create(fixture->store, &invite, NULL, NULL, &err), &err);
}

static void an_invite_enrols_as_often_as_it_says(void **state)
{
    struct fixture *fixture = *state;
    add_invite(fixture, 1, 2, clock_wall_ms() + HOUR_MS);
    struct store_volunteer a = make_volunteer(1), b = make_volunteer(2), c = make_volunteer(3);
    struct enrolled first = enrol(fixture->store, 1, &a);
    assert_int_equal(first.status, STATUS_OK);
    assert_true(id_is_valid(first.volunteer.id, "vol"));
    assert_string_equal(first.volunteer.state, "active");
    assert_string_equal(first.volunteer.group, "home");
    assert_string_equal(first.volunteer.label, a.label);
    assert_true(first.volunteer.created_ms > 0);
    struct enrolled again = enrol(fixture->store, 1, &a); /* known key: uses nothing */
    assert_int_equal(again.status, STATUS_OK);
    assert_string_equal(again.volunteer.id, first.volunteer.id);
    assert_int_equal(enrol(fixture->store, 1, &b).status, STATUS_OK);
    struct enrolled third = enrol(fixture->store, 1, &c);
    assert_int_equal(third.status, STATUS_DENIED);
    assert_non_null(strstr(third.sentence, "used up"));
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT uses FROM invites"), 2);
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM volunteers"), 2);
    assert_int_equal(enrol(fixture->store, 1, &a).status, STATUS_OK); /* still known */
}

static void unknown_and_expired_invites_are_refused(void **state)
{
    struct fixture *fixture = *state;
    add_invite(fixture, 1, 5, clock_wall_ms() - 1);
    struct store_volunteer volunteer = make_volunteer(1);
    struct enrolled expired = enrol(fixture->store, 1, &volunteer);
    assert_int_equal(expired.status, STATUS_DENIED);
    assert_non_null(strstr(expired.sentence, "expired"));
    struct enrolled unknown = enrol(fixture->store, 2, &volunteer);
    assert_int_equal(unknown.status, STATUS_DENIED);
    assert_non_null(strstr(unknown.sentence, "not known"));
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM volunteers"), 0);
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT sum(uses) FROM invites"), 0);
    assert_int_equal(store_dropped(fixture->store), 0);
}

static void an_enrolment_that_is_no_text_is_refused_and_uses_nothing(void **state)
{
    struct fixture *fixture = *state;
    add_invite(fixture, 1, 1, clock_wall_ms() + HOUR_MS);
    struct store_volunteer volunteer = make_volunteer(1);
    strcpy(volunteer.label, "bad \xff\xfe");
    struct enrolled bad = enrol(fixture->store, 1, &volunteer);
    assert_int_equal(bad.status, STATUS_INVALID);
    assert_true(strlen(bad.sentence) > 0);
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT uses FROM invites"), 0);
    strcpy(volunteer.label, "good");
    assert_int_equal(enrol(fixture->store, 1, &volunteer).status, STATUS_OK);
}

/* --- volunteers: sessions, leases, credits --- */

static void enrol_one(struct fixture *fixture, uint8_t mark, char ret_id[ID_BYTES])
{
    struct store_volunteer volunteer = make_volunteer(mark);
    add_invite(fixture, mark, 1, clock_wall_ms() + HOUR_MS);
    struct enrolled enrolled = enrol(fixture->store, mark, &volunteer);
    assert_int_equal(enrolled.status, STATUS_OK);
    strcpy(ret_id, enrolled.volunteer.id);
}

static void add_job(struct fixture *fixture, const char *id)
{
    struct error err = {0};
    char spec[] = "{\"name\": \"KJV\",  \"x\": 1.50}", artifacts[] = "{}";
    struct store_job job = {.spec = spec,
                            .artifacts = artifacts,
                            .blocks = 77,
                            .state = "queued",
                            .created_ms = 1764540000123};
    strcpy(job.id, id);
    fixture_ok(store_job_create(fixture->store, &job, NULL, NULL, &err), &err);
}

static void post_lease(struct store *store, const char *id, const char *volunteer,
                       const char *state, uint64_t samples)
{
    struct store_lease lease = {.kind = "train", .samples = samples, .at_ms = 1000, .steps = 30};
    strcpy(lease.id, id);
    strcpy(lease.job, "job_1");
    strcpy(lease.volunteer, volunteer);
    strcpy(lease.state, state);
    assert_int_equal(store_post_lease(store, &lease), STATUS_OK);
}

static long credit(struct fixture *fixture, const char *column, const char *volunteer)
{
    char sql[160];
    fixture_drain(fixture->store);
    (void)snprintf(sql, sizeof sql, "SELECT %s FROM volunteers WHERE id = '%s'", column, volunteer);
    return fixture_number(fixture->conninfo, sql);
}

static void a_lease_is_credited_once(void **state)
{
    struct fixture *fixture = *state;
    char a[ID_BYTES], b[ID_BYTES];
    enrol_one(fixture, 1, a);
    enrol_one(fixture, 2, b);
    add_job(fixture, "job_1");
    post_lease(fixture->store, "lea_1", a, "granted", 240);
    assert_int_equal(credit(fixture, "samples", a), 0);
    post_lease(fixture->store, "lea_1", b, "refused", 0); /* a stranger names this lease */
    post_lease(fixture->store, "lea_1", a, "applied", 240);
    post_lease(fixture->store, "lea_1", a, "applied", 240);
    post_lease(fixture->store, "lea_1", a, "expired", 0);
    post_lease(fixture->store, "lea_1", a, "granted", 240);
    assert_int_equal(credit(fixture, "samples", a), 240);
    assert_int_equal(credit(fixture, "updates_applied", a), 1);
    assert_int_equal(credit(fixture, "samples", b), 0);
    assert_int_equal(fixture_number(fixture->conninfo,
                                    "SELECT count(*) FROM leases WHERE state = 'applied'"
                                    " AND granted_ms = 1000 AND finished_ms = 1000 AND steps = 30"),
                     1);
}

static void a_lease_that_ended_otherwise_earns_nothing(void **state)
{
    struct fixture *fixture = *state;
    char a[ID_BYTES];
    enrol_one(fixture, 1, a);
    add_job(fixture, "job_1");
    post_lease(fixture->store, "lea_1", a, "granted", 240);
    post_lease(fixture->store, "lea_1", a, "expired", 240);
    post_lease(fixture->store, "lea_1", a, "applied", 240);
    post_lease(fixture->store, "lea_2", a, "applied", 5); /* its grant was not kept */
    assert_int_equal(credit(fixture, "samples", a), 5);
    assert_int_equal(credit(fixture, "updates_applied", a), 1);
}

struct volunteers_seen {
    int count;
    struct store_volunteer last;
};

static void see_volunteer(void *context, const struct store_volunteer *volunteer)
{
    struct volunteers_seen *seen = context;
    seen->count++;
    seen->last = *volunteer;
}

static void sessions_show_in_the_volunteer(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    struct volunteers_seen seen = {0};
    char a[ID_BYTES];
    json_t *page = NULL;
    bool more = true;
    enrol_one(fixture, 1, a);
    int64_t later_ms = clock_wall_ms() + HOUR_MS;
    assert_int_equal(
        store_post_session_opened(fixture->store, "ses_1", a, "203.0.113.9", later_ms - 1),
        STATUS_OK);
    assert_int_equal(store_post_session_closed(fixture->store, "ses_1", "silence", later_ms),
                     STATUS_OK);
    assert_int_equal(store_post_session_closed(fixture->store, "ses_1", "again", later_ms + 1),
                     STATUS_OK);
    fixture_drain(fixture->store);
    fixture_ok(store_volunteers_load(fixture->store, see_volunteer, &seen, &err), &err);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.last.last_end_reason, "silence");
    assert_int_equal(seen.last.last_seen_ms, later_ms);
    assert_int_equal(seen.last.memory_bytes, UINT64_C(16) << 30);
    assert_string_equal(seen.last.cpu, "AMD \\ EPYC");
    fixture_ok(store_volunteers_page(fixture->store, "", 50, &page, &more, &err), &err);
    assert_false(more);
    assert_int_equal(json_array_size(page), 1);
    const json_t *object = json_array_get(page, 0);
    char rfc3339[CLOCK_RFC3339_BYTES];
    clock_format_rfc3339(later_ms, rfc3339);
    assert_string_equal(json_string_value(json_object_get(object, "last_seen_at")), rfc3339);
    assert_string_equal(json_string_value(json_object_get(object, "last_end_reason")), "silence");
    assert_string_equal(json_string_value(json_object_get(object, "group")), "home");
    assert_int_equal(json_object_size(object), 14);
    json_decref(page);
}

/* --- artifacts and paging --- */

static struct store_artifact make_artifact(uint8_t mark)
{
    struct store_artifact artifact = {.kind = "dataset_text",
                                      .filename = "k'jv\\\".txt",
                                      .size_bytes = 4400000,
                                      .state = "uploading",
                                      .created_ms = 1764540000123};
    (void)snprintf(artifact.id, sizeof artifact.id, "art_%026d", mark);
    memset(artifact.sha256, mark, sizeof artifact.sha256);
    return artifact;
}

static void an_artifact_lives(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    struct store_artifact artifact = make_artifact(1), seen;
    fixture_ok(store_artifact_create(fixture->store, &artifact, NULL, NULL, &err), &err);
    assert_int_equal(
        store_artifact_find(fixture->store, artifact.sha256, "dataset_text", &seen, &err),
        STATUS_NOT_FOUND);
    fixture_ok(store_artifact_set_state(fixture->store, artifact.id, "ready", 9, &err), &err);
    fixture_ok(store_artifact_find(fixture->store, artifact.sha256, "dataset_text", &seen, &err),
               &err);
    assert_string_equal(seen.id, artifact.id);
    assert_string_equal(seen.filename, artifact.filename);
    assert_int_equal(seen.items, 9);
    assert_int_equal(
        store_artifact_find(fixture->store, artifact.sha256, "dataset_idx", &seen, &err),
        STATUS_NOT_FOUND);
    fixture_ok(store_artifact_reject(fixture->store, artifact.id, "not UTF-8", &err), &err);
    fixture_ok(store_artifact_get(fixture->store, artifact.id, &seen, &err), &err);
    assert_string_equal(seen.state, "rejected");
    assert_string_equal(seen.reason, "not UTF-8");
    assert_memory_equal(seen.sha256, artifact.sha256, sizeof seen.sha256);
    fixture_ok(store_artifact_delete(fixture->store, artifact.id, &err), &err);
    assert_int_equal(store_artifact_get(fixture->store, artifact.id, &seen, &err),
                     STATUS_NOT_FOUND);
    assert_int_equal(store_artifact_delete(fixture->store, artifact.id, &err), STATUS_NOT_FOUND);
    assert_int_equal(store_artifact_set_state(fixture->store, "art_x", "ready", 1, &err),
                     STATUS_NOT_FOUND);
}

static void unknown_states_and_kinds_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    struct store_artifact artifact = make_artifact(1);
    strcpy(artifact.state, "bogus");
    assert_int_equal(store_artifact_create(fixture->store, &artifact, NULL, NULL, &err),
                     STATUS_INVALID);
    artifact = make_artifact(1);
    artifact.size_bytes = UINT64_MAX;
    assert_int_equal(store_artifact_create(fixture->store, &artifact, NULL, NULL, &err),
                     STATUS_INVALID);
    artifact = make_artifact(1);
    fixture_ok(store_artifact_create(fixture->store, &artifact, NULL, NULL, &err), &err);
    assert_int_equal(store_artifact_create(fixture->store, &artifact, NULL, NULL, &err),
                     STATUS_INVALID); /* the same id again */
}

static void read_page(struct fixture *fixture, const char *after, uint32_t limit, bool expect_more,
                      const char *expect_marks)
{
    struct error err = {0};
    json_t *page = NULL;
    bool more = !expect_more;
    fixture_ok(store_artifacts_page(fixture->store, after, limit, &page, &more, &err), &err);
    assert_int_equal(more, expect_more);
    assert_int_equal(json_array_size(page), strlen(expect_marks));
    for (size_t i = 0; i < strlen(expect_marks); i++) {
        char id[64];
        (void)snprintf(id, sizeof id, "art_%026d", expect_marks[i] - '0');
        const json_t *object = json_array_get(page, i);
        assert_string_equal(json_string_value(json_object_get(object, "id")), id);
    }
    json_decref(page);
}

static void pages_go_from_new_to_old_without_gap(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    char after[64];
    read_page(fixture, "", 3, false, "");
    for (uint8_t mark = 1; mark <= 7; mark++) {
        struct store_artifact artifact = make_artifact(mark);
        fixture_ok(store_artifact_create(fixture->store, &artifact, NULL, NULL, &err), &err);
    }
    read_page(fixture, "", 3, true, "765");
    (void)snprintf(after, sizeof after, "art_%026d", 5);
    read_page(fixture, after, 3, true, "432");
    fixture_ok(store_artifact_delete(fixture->store, after, &err), &err);
    read_page(fixture, after, 3, true, "432"); /* the cursor's own row may be gone */
    read_page(fixture, after, 4, false, "4321");
    (void)snprintf(after, sizeof after, "art_%026d", 1);
    read_page(fixture, after, 3, false, "");
    json_t *page = NULL;
    bool more;
    assert_int_equal(store_artifacts_page(fixture->store, "", 0, &page, &more, &err),
                     STATUS_INVALID);
    assert_int_equal(store_artifacts_page(fixture->store, "", 201, &page, &more, &err),
                     STATUS_INVALID);
    assert_null(page);
}

static void an_artifact_object_has_the_documented_members(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    struct store_artifact artifact = make_artifact(1);
    json_t *page = NULL;
    bool more;
    fixture_ok(store_artifact_create(fixture->store, &artifact, NULL, NULL, &err), &err);
    fixture_ok(store_artifacts_page(fixture->store, "", 1, &page, &more, &err), &err);
    json_t *expected =
        json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:n, s:i, s:s}", "id", artifact.id, "kind",
                  "dataset_text", "filename", artifact.filename, "size_bytes", 4400000, "sha256",
                  "0101010101010101010101010101010101010101010101010101010101010101", "state",
                  "uploading", "reason", "items", 0, "created_at", "2025-11-30T22:00:00.123Z");
    assert_true(json_equal(json_array_get(page, 0), expected));
    json_decref(expected);
    json_decref(page);
}

/* --- jobs --- */

static void a_job_keeps_its_bytes_and_its_final_state(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->store;
    struct error err = {0};
    struct store_job job;
    add_job(fixture, "job_1");
    assert_int_equal(store_post_job_state(store, "job_1", "running", "", 2000), STATUS_OK);
    assert_int_equal(store_post_job_state(store, "job_1", "running", "", 2500), STATUS_OK);
    assert_int_equal(store_post_job_state(store, "job_1", "cancelled", "as asked", 3000),
                     STATUS_OK);
    assert_int_equal(store_post_job_state(store, "job_1", "completed", "late", 4000), STATUS_OK);
    fixture_drain(store);
    fixture_ok(store_job_get(store, "job_1", &job, &err), &err);
    assert_string_equal(job.spec, "{\"name\": \"KJV\",  \"x\": 1.50}");
    assert_string_equal(job.artifacts, "{}");
    assert_int_equal(job.blocks, 77);
    assert_string_equal(job.state, "cancelled");
    assert_string_equal(job.reason, "as asked");
    assert_int_equal(job.started_ms, 2000);
    assert_int_equal(job.finished_ms, 3000);
    store_job_done(&job);
    assert_int_equal(store_job_get(store, "job_2", &job, &err), STATUS_NOT_FOUND);
}

static void count_job(void *context, const struct store_job *job)
{
    char *ids = context;
    strcat(strcat(ids, job->id), " ");
}

static void jobs_are_listed_by_state_and_loaded_when_open(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->store;
    struct error err = {0};
    char ids[256] = "";
    json_t *page = NULL;
    bool more;
    add_job(fixture, "job_1");
    add_job(fixture, "job_2");
    add_job(fixture, "job_3");
    assert_int_equal(store_post_job_state(store, "job_1", "running", "", 2000), STATUS_OK);
    assert_int_equal(store_post_job_state(store, "job_2", "failed", "no data", 2000), STATUS_OK);
    fixture_drain(store);
    fixture_ok(store_jobs_load(store, count_job, ids, &err), &err);
    assert_string_equal(ids, "job_1 job_3 ");
    fixture_ok(store_jobs_page(store, "failed", "", 10, &page, &more, &err), &err);
    assert_int_equal(json_array_size(page), 1);
    json_t *expected = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:n, s:s, s:{s:s, s:f}}", "id", "job_2", "name", "KJV", "state",
        "failed", "reason", "no data", "created_at", "2025-11-30T22:00:00.123Z", "started_at",
        "finished_at", "1970-01-01T00:00:02.000Z", "spec", "name", "KJV", "x", 1.5);
    assert_true(json_equal(json_array_get(page, 0), expected));
    json_decref(expected);
    json_decref(page);
    fixture_ok(store_jobs_page(store, "", "job_3", 10, &page, &more, &err), &err);
    assert_int_equal(json_array_size(page), 2);
    json_decref(page);
    fixture_ok(store_jobs_page(store, "queued' OR '1'='1", "", 10, &page, &more, &err), &err);
    assert_int_equal(json_array_size(page), 0);
    json_decref(page);
}

/* --- events and points --- */

static void post_event(struct store *store, const char *text)
{
    struct store_event event = {
        .type = "job.created", .severity = "info", .subject = "job_1", .at_ms = 1764540000123};
    (void)text_copy(event.text, sizeof event.text, text);
    assert_int_equal(store_post_event(store, &event), STATUS_OK);
}

static void events_come_newest_first_or_after_a_number(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    json_t *page = NULL;
    bool more;
    post_event(fixture->store, "one");
    post_event(fixture->store, "'; DROP TABLE events; -- \\ $1 %s");
    post_event(fixture->store, "\xff\xfe bytes that are not UTF-8");
    fixture_drain(fixture->store);
    fixture_ok(store_events_page(fixture->store, 0, 2, &page, &more, &err), &err);
    assert_true(more);
    assert_string_equal(json_string_value(json_object_get(json_array_get(page, 0), "text")),
                        "?? bytes that are not UTF-8");
    assert_string_equal(json_string_value(json_object_get(json_array_get(page, 1), "text")),
                        "'; DROP TABLE events; -- \\ $1 %s");
    assert_string_equal(json_string_value(json_object_get(json_array_get(page, 1), "at")),
                        "2025-11-30T22:00:00.123Z");
    json_int_t middle = json_integer_value(json_object_get(json_array_get(page, 1), "seq"));
    json_decref(page);
    fixture_ok(store_events_page(fixture->store, (uint64_t)middle, 10, &page, &more, &err), &err);
    assert_false(more);
    assert_int_equal(json_array_size(page), 1);
    json_decref(page);
    assert_int_equal(store_dropped(fixture->store), 0);
}

static void points_are_kept_once_and_nan_as_null(void **state)
{
    struct fixture *fixture = *state;
    struct store_point point = {.job = "job_1",
                                .at_ms = 1,
                                .version = 3,
                                .samples = 240,
                                .loss = 2.7182818284590451,
                                .loss_smoothed = (double)NAN,
                                .accuracy = (double)INFINITY};
    add_job(fixture, "job_1");
    assert_int_equal(store_post_point(fixture->store, &point), STATUS_OK);
    assert_int_equal(store_post_point(fixture->store, &point), STATUS_OK);
    point.held_out = true;
    assert_int_equal(store_post_point(fixture->store, &point), STATUS_OK);
    fixture_drain(fixture->store);
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM points"), 2);
    assert_int_equal(fixture_number(fixture->conninfo,
                                    "SELECT count(*) FROM points WHERE loss = 2.7182818284590451"
                                    " AND loss_smoothed IS NULL AND accuracy IS NULL"),
                     2);
}

/* --- refused rows --- */

static void a_refused_row_is_dropped_and_the_others_are_kept(void **state)
{
    struct fixture *fixture = *state;
    struct store_point orphan = {.job = "job_unknown"};
    for (int i = 0; i < 50; i++) {
        post_event(fixture->store, "kept");
        assert_int_equal(store_post_point(fixture->store, &orphan), STATUS_OK);
    }
    assert_int_equal(store_post_job_state(fixture->store, "job_1", "running", "", 1), STATUS_OK);
    struct store_event event = {.type = "t", .severity = "fatal", .text = "not a severity"};
    assert_int_equal(store_post_event(fixture->store, &event), STATUS_OK);
    post_event(fixture->store, "last");
    fixture_drain(fixture->store);
    assert_int_equal(store_dropped(fixture->store), 51);
    assert_int_equal(fixture_number(fixture->conninfo, "SELECT count(*) FROM events"), 51);
    assert_true(store_is_ready(fixture->store));
}

static void text_that_is_not_utf8_is_an_error_with_a_sentence(void **state)
{
    struct fixture *fixture = *state;
    struct error err = {0};
    struct store_artifact artifact = make_artifact(1);
    struct store_key key = {.id = "key_1", .name = "\xc3\x28"};
    struct store_job job;
    strcpy(artifact.filename, "\xed\xa0\x80.txt"); /* a lone surrogate */
    assert_int_equal(store_artifact_create(fixture->store, &artifact, NULL, NULL, &err),
                     STATUS_INVALID);
    assert_non_null(strstr(err.text, "encoding"));
    assert_int_equal(store_key_create(fixture->store, &key, &err), STATUS_INVALID);
    assert_int_equal(store_job_get(fixture->store, "job_\xff", &job, &err), STATUS_INVALID);
    artifact = make_artifact(1);
    fixture_ok(store_artifact_create(fixture->store, &artifact, NULL, NULL, &err), &err);
}

static void ids_that_are_too_long_are_not_posted(void **state)
{
    struct fixture *fixture = *state;
    static const char long_id[] = "job_0000000000000000000000000000000000000";
    assert_int_equal(store_post_job_state(fixture->store, long_id, "running", "", 1),
                     STATUS_INVALID);
    assert_int_equal(store_post_session_closed(fixture->store, long_id, "", 1), STATUS_INVALID);
}

#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(keys_come_back_unless_expired),
        WITH_STORE(more_keys_than_one_load_step),
        WITH_STORE(a_repeated_create_replays_the_answer),
        WITH_STORE(a_failed_create_keeps_no_answer),
        WITH_STORE(an_answer_is_forgotten_after_a_day),
        WITH_STORE(of_concurrent_creates_one_has_the_effect),
        WITH_STORE(an_invite_enrols_as_often_as_it_says),
        WITH_STORE(unknown_and_expired_invites_are_refused),
        WITH_STORE(an_enrolment_that_is_no_text_is_refused_and_uses_nothing),
        WITH_STORE(a_lease_is_credited_once),
        WITH_STORE(a_lease_that_ended_otherwise_earns_nothing),
        WITH_STORE(sessions_show_in_the_volunteer),
        WITH_STORE(an_artifact_lives),
        WITH_STORE(unknown_states_and_kinds_are_refused),
        WITH_STORE(pages_go_from_new_to_old_without_gap),
        WITH_STORE(an_artifact_object_has_the_documented_members),
        WITH_STORE(a_job_keeps_its_bytes_and_its_final_state),
        WITH_STORE(jobs_are_listed_by_state_and_loaded_when_open),
        WITH_STORE(events_come_newest_first_or_after_a_number),
        WITH_STORE(points_are_kept_once_and_nan_as_null),
        WITH_STORE(a_refused_row_is_dropped_and_the_others_are_kept),
        WITH_STORE(text_that_is_not_utf8_is_an_error_with_a_sentence),
        WITH_STORE(ids_that_are_too_long_are_not_posted),
    };
    return cmocka_run_group_tests(tests, fixture_group_setup, fixture_group_teardown);
}
