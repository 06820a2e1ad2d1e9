/* Agents that come, go, stall, double and repeat themselves, against the whole core: rows of
 * reported faults, each test named after its row. */
#include "tests/unit/coordinator/core_fixture.h"

/* --- stalls ------------------------------------------------------------------------------------- */

#define APPLY_MS 5000
#define ANSWER_US 1000000

/* While an update takes 5 s to apply, a replica is served at once and whole, and it is of a version
 * that was published. */
static void pain_A3_a_replica_is_served_during_a_long_apply(void **state)
{
    struct world *world = *state;
    struct pc pc;
    struct error err = {0};
    static float w[JOB_PARAMETERS];
    world_start_job(world);
    pc_init(&pc, world);
    pc_connect(&pc);
    struct wire_lease lease = pc_lease(&pc);
    pc_update(&pc, &lease, 1);
    uint64_t hashes[2] = {0, world_progress(world).hash};
    lease = pc_lease(&pc);
    struct shared *payload = pc_payload(&lease, -2), *file = NULL;
    struct replica_header header;
    fixture_ok(core_job_replica(world->core, world->job, 0, &file), &err);
    hashes[0] = load_u64(shared_data(file) + 32); /* of the version that was offered before */
    shared_unref(file);
    pc_offer(&pc, &lease, payload);
    pc_expect(&pc, WIRE_want);
    atomic_store(&apply_takes_ms, APPLY_MS);
    pc_upload(&pc, payload);
    struct core_job_progress progress;
    while (core_job_read(world->core, world->job, &progress) != STATUS_UNAVAILABLE)
        clock_sleep_us(1000); /* until the apply holds the loop */
    for (int i = 0; i < 3; i++) {
        int64_t asked_us = clock_monotonic_us();
        fixture_ok(core_job_replica(world->core, world->job, 0, &file), &err);
        assert_true(clock_monotonic_us() - asked_us < ANSWER_US);
        fixture_ok(
            replica_read(shared_data(file), shared_bytes(file), JOB_PARAMETERS, &header, w, &err),
            &err);
        shared_unref(file);
        assert_true(header.version <= 1);
        assert_true(header.hash == hashes[0] || header.hash == hashes[1]);
        assert_int_equal(codec_hash(w, JOB_PARAMETERS), header.hash);
    }
    assert_true(atomic_load(&apply_takes_ms) > 0);
    atomic_store(&apply_takes_ms, 0);
    pc_expect(&pc, WIRE_result);
    assert_string_equal(pc.in.result.verdict, "applied");
    shared_unref(payload);
    ws_done(&pc.client);
}

#define FAST_UPDATES 60

/* One agent is so far behind that the deltas to its version are gone, once in its session and once
 * at its return: it is sent to a whole replica and then works. */
static void pain_A5_a_pruned_version_gets_a_whole_replica(void **state)
{
    struct world *world = *state;
    struct pc fast, slow;
    world_start_job(world);
    pc_init(&fast, world);
    pc_init(&slow, world);
    pc_connect(&slow);
    (void)pc_lease(&slow);
    uint64_t version = slow.have_version, hash = slow.have_hash;
    pc_connect(&fast);
    for (int i = 0; i < FAST_UPDATES; i++) {
        struct wire_lease lease = pc_lease(&fast);
        pc_update(&fast, &lease, (float)(i % 7 + 1));
    }
    struct wire_message have = {.type = WIRE_have, .have = {.version = version, .hash = hash}};
    text_copy(have.have.job, sizeof have.have.job, world->job);
    pc_send(&slow, &have);
    pc_expect(&slow, WIRE_snapshot);
    pc_fetch(&slow);
    assert_true(slow.have_version > version);
    assert_true(pc_ask(&slow));
    pc_cut(&slow);

    slow.have_version = version;
    slow.have_hash = hash;
    pc_connect(&slow);
    (void)pc_lease(&slow);
    assert_true(slow.have_version > version);
    ws_done(&slow.client);
    ws_done(&fast.client);
}

static void *start_job(void *world)
{
    world_start_job(world);
    return NULL;
}

/* A job whose first snapshot takes its time: who asks meanwhile is told to wait, and then works. */
static void pain_A13_who_asks_before_the_job_is_ready_waits(void **state)
{
    struct world *world = *state;
    struct pc pc;
    pthread_t thread;
    pc_init(&pc, world);
    atomic_store(&create_takes_ms, 60000);
    assert_int_equal(pthread_create(&thread, NULL, start_job, world), 0);
    world_expect(world, "SELECT count(*) FROM jobs", 1);
    pc_connect(&pc);
    for (int i = 0; i < 3; i++) {
        pc.nonce++;
        assert_false(pc_ask(&pc));
        assert_true(pc.in.wait.retry_after_ms > 0);
        assert_true(pc.in.wait.reason[0] != '\0');
    }
    atomic_store(&create_takes_ms, 0);
    pthread_join(thread, NULL);
    (void)pc_lease(&pc);
    assert_int_equal(world_count(world, "SELECT count(*) FROM sessions"), 1);
    ws_done(&pc.client);
}

/* --- identity ----------------------------------------------------------------------------------- */

static void pain_B5_a_repeated_request_gets_the_same_lease(void **state)
{
    struct world *world = *state;
    struct pc pc;
    world_start_job(world);
    pc_init(&pc, world);
    pc_connect(&pc);
    struct wire_lease first = pc_lease(&pc);
    assert_true(pc_ask(&pc));
    assert_string_equal(pc.in.lease.lease, first.lease);
    pc_cut(&pc); /* the answer may have been lost with the line */
    pc_connect(&pc);
    assert_true(pc_ask(&pc));
    assert_string_equal(pc.in.lease.lease, first.lease);
    world_core_stop(world); /* or with the coordinator */
    ws_done(&pc.client);
    world_core_start(world);
    pc_connect(&pc);
    assert_true(pc_ask(&pc));
    assert_string_equal(pc.in.lease.lease, first.lease);
    assert_int_equal(world_count(world, "SELECT count(*) FROM leases WHERE kind = 'train'"), 1);
    assert_string_not_equal(pc_lease(&pc).lease, first.lease);
    ws_done(&pc.client);
}

static void pain_B7_of_one_key_twice_the_newest_wins_and_both_are_told(void **state)
{
    struct world *world = *state;
    struct pc first, second;
    world_start_job(world);
    pc_init(&first, world);
    pc_connect(&first);
    (void)pc_lease(&first);
    second = first;
    second.address = "127.0.0.2";
    pc_connect(&second);
    pc_expect(&first, WIRE_bye);
    assert_int_equal(first.in.bye.code, END_REPLACED);
    (void)pc_lease(&second);
    ws_done(&first.client);
    world_expect(world,
                 "SELECT count(*) FROM sessions WHERE end_reason = 'replaced'"
                 " AND address = '127.0.0.1'",
                 1);
    assert_int_equal(world_count(world, "SELECT count(*) FROM sessions WHERE closed_ms = 0"
                                        " AND address = '127.0.0.2'"),
                     1);
    static const char *const events[] = {
        "SELECT count(*) FROM events WHERE type = 'volunteer.replaced' AND severity = 'warn'"
        " AND text LIKE '%another address%'",
        "SELECT count(*) FROM events WHERE type = 'volunteer.disconnected'"
        " AND text LIKE '%newest connection wins'",
        "SELECT count(*) - 1 FROM events WHERE type = 'volunteer.connected'",
    };
    for (size_t i = 0; i < COUNT_OF(events); i++)
        world_expect(world, events[i], 1);
    ws_done(&second.client);
}

/* Two leases whose updates have the same bytes, both on their way at once; and one of them again. */
static void pain_B9_equal_bytes_of_two_leases_count_twice(void **state)
{
    struct world *world = *state;
    struct pc pc;
    world_start_job(world);
    pc_init(&pc, world);
    pc_connect(&pc);
    struct wire_lease leases[2] = {pc_lease(&pc)};
    leases[1] = pc_lease(&pc);
    struct shared *zeros = pc_payload(&leases[0], 0), *same = pc_payload(&leases[1], 0);
    assert_int_equal(shared_bytes(zeros), shared_bytes(same));
    assert_memory_equal(shared_data(zeros), shared_data(same), shared_bytes(same));
    pc_offer(&pc, &leases[0], zeros);
    pc_offer(&pc, &leases[1], same);
    for (int i = 0; i < 2; i++) {
        pc_expect(&pc, WIRE_want);
        pc_upload(&pc, zeros);
    }
    for (uint64_t i = 0; i < 2; i++) {
        pc_expect(&pc, WIRE_result);
        assert_string_equal(pc.in.result.verdict, "applied");
        assert_int_equal(pc.in.result.version, i + 1);
    }
    pc_offer(&pc, &leases[0], zeros);
    pc_expect(&pc, WIRE_result);
    assert_string_equal(pc.in.result.lease, leases[0].lease);
    assert_string_equal(pc.in.result.verdict, "applied");
    assert_int_equal(world_progress(world).updates_applied, 2);
    assert_int_equal(world_count(world, "SELECT updates_applied FROM volunteers"), 2);
    shared_unref(zeros);
    shared_unref(same);
    ws_done(&pc.client);
}

/* A stopped agent is a new one at its return: it knows no nonce of before. */
static void pain_B13_who_comes_back_gets_work(void **state)
{
    static const int64_t pauses_s[] = {1, 60, 30 * 60};
    struct world *world = *state;
    struct pc pc;
    world_start_job(world);
    pc_init(&pc, world);
    pc_connect(&pc);
    (void)pc_lease(&pc);
    for (size_t i = 0; i < COUNT_OF(pauses_s); i++) {
        struct wire_message bye = {.type = WIRE_bye, .bye = {.code = END_AGENT_STOPPED}};
        pc_send(&pc, &bye);
        ws_done(&pc.client);
        world_expect(world, "SELECT count(*) FROM sessions WHERE closed_ms = 0", 0);
        clock_advance_s(pauses_s[i]);
        random_bytes(&pc.nonce, sizeof pc.nonce);
        pc.nonce >>= 16;
        pc.have_job[0] = '\0';
        pc_connect(&pc);
        struct wire_lease lease = pc_lease(&pc);
        pc_update(&pc, &lease, 1);
    }
    assert_int_equal(world_progress(world).updates_applied, 3);
    ws_done(&pc.client);
}

/* --- ends --------------------------------------------------------------------------------------- */

static void say_bye(struct pc *pc, enum end_reason reason)
{
    struct wire_message bye = {.type = WIRE_bye, .bye = {.code = (uint64_t)reason}};
    pc_send(pc, &bye);
    ws_send(&pc->client, WS_CLOSE, "\x03\xe8", 2);
}

static void die_closing(struct pc *pc)
{
    ws_send(&pc->client, WS_CLOSE, "\x03\xe8", 2);
}

static void die_stopped(struct pc *pc)
{
    say_bye(pc, END_AGENT_STOPPED);
}

static void die_stalled(struct pc *pc)
{
    say_bye(pc, END_STALLED);
}

static void die_with_another_model(struct pc *pc)
{
    say_bye(pc, END_HASH_MISMATCH);
}

static void die_talking_nonsense(struct pc *pc)
{
    ws_send_text(&pc->client, "nonsense");
}

static void die_talking_too_much(struct pc *pc)
{
    size_t bytes = FRAME_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX + 1;
    uint8_t *data = calloc(1, bytes);
    assert_non_null(data);
    ws_send(&pc->client, WS_BINARY, data, bytes);
    free(data);
}

static void die_silent(struct pc *pc)
{
    (void)pc;
    for (int i = 0; i < 4; i++) { /* in steps that the hub does not take for its own sleep */
        clock_advance_s(15);
        clock_sleep_us(1200000);
    }
}

static void die_not_reading(struct pc *pc)
{
    struct shared *large = shared_create_take(calloc(1, QUEUE_BYTES_MAX), QUEUE_BYTES_MAX);
    struct hub *hub = core_hub(pc->world->core);
    uint64_t peer = atomic_load(&pc->world->peers);
    while (hub_send_stream(hub, peer, FRAME_DELTA, 1, large, 0) == STATUS_OK)
        continue;
    shared_unref(large);
}

static void die_replaced(struct pc *pc)
{
    struct pc newer = *pc;
    pc_connect(&newer);
    pc_cut(&newer);
}

static void die_on_a_full_disk(struct pc *pc)
{
    char path[PATH_BYTES], volunteer[ID_BYTES];
    struct error err = {0};
    struct wire_lease lease = pc_lease(pc);
    struct shared *payload = pc_payload(&lease, 1);
    PGconn *connection = fixture_connect(pc->world->database.conninfo);
    PGresult *result = PQexec(connection, "SELECT id FROM volunteers");
    text_copy(volunteer, sizeof volunteer, PQgetvalue(result, 0, 0));
    PQclear(result);
    PQfinish(connection);
    fixture_ok(path_format(path, "%s/uploads/%s", pc->world->database.dir, volunteer), &err);
    (void)rmdir(path);
    fixture_ok(file_write_atomic(path, "", 0, 0600, &err), &err); /* nothing can be made in it */
    pc_offer(pc, &lease, payload);
    shared_unref(payload);
    pc_expect(pc, WIRE_bye);
    assert_int_equal(unlink(path), 0);
}

static void die_with_the_coordinator(struct pc *pc)
{
    world_core_stop(pc->world);
}

/* Twelve ways in which a session ends, and what the database says of each. */
static void pain_A17_every_way_of_dying_has_its_own_code(void **state)
{
    static const struct {
        void (*die)(struct pc *pc);
        const char *reason;
    } ways[] = {
        {die_closing, "peer_closed"},
        {pc_cut, "connection_lost"},
        {die_stopped, "agent_stopped"},
        {die_stalled, "stalled"},
        {die_with_another_model, "hash_mismatch"},
        {die_talking_nonsense, "protocol_error"},
        {die_talking_too_much, "too_large"},
        {die_silent, "silence"},
        {die_not_reading, "slow_reader"},
        {die_replaced, "replaced"},
        {die_on_a_full_disk, "storage"},
        {die_with_the_coordinator, "draining"},
    };
    struct world *world = *state;
    struct pc pc;
    char sql[256];
    world_start_job(world);
    pc_init(&pc, world);
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        pc_connect(&pc);
        print_message("# %s\n", ways[i].reason);
        ways[i].die(&pc);
        (void)snprintf(sql, sizeof sql,
                       "SELECT count(*) FROM sessions WHERE id = '%s' AND closed_ms = 0",
                       pc.session);
        world_expect(world, sql, 0);
        (void)snprintf(sql, sizeof sql,
                       "SELECT count(*) FROM sessions WHERE id = '%s' AND end_reason = '%s'",
                       pc.session, ways[i].reason);
        assert_int_equal(world_count(world, sql), 1);
        ws_done(&pc.client);
    }
    assert_int_equal(world_count(world, "SELECT count(DISTINCT end_reason) FROM sessions"), 12);
    assert_int_equal(world_count(world, "SELECT count(*) FROM sessions WHERE end_reason = ''"), 0);
}

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(pain_A3_a_replica_is_served_during_a_long_apply),
        WITH_WORLD(pain_A5_a_pruned_version_gets_a_whole_replica),
        WITH_WORLD(pain_A13_who_asks_before_the_job_is_ready_waits),
        WITH_WORLD(pain_B5_a_repeated_request_gets_the_same_lease),
        WITH_WORLD(pain_B7_of_one_key_twice_the_newest_wins_and_both_are_told),
        WITH_WORLD(pain_B9_equal_bytes_of_two_leases_count_twice),
        WITH_WORLD(pain_B13_who_comes_back_gets_work),
        WITH_WORLD(pain_A17_every_way_of_dying_has_its_own_code),
    };
    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, world_group_setup, world_group_teardown);
}
