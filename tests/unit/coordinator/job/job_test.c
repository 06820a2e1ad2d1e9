/* A real job on a real ledger in a temporary directory: leases, updates, refusals, restarts, proof.
 * The ledger's thread reports through a small queue, as the core's mailbox does. */
#include "coordinator/job/job.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "tests/support/encode.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define QUEUE_MAX 4096

static atomic_bool disk_is_full;

int posix_fallocate(int fd, off_t offset, off_t length)
{
    if (disk_is_full)
        return ENOSPC;
    return syscall(SYS_fallocate, fd, 0, offset, length) == 0 ? 0 : errno;
}

struct rig {
    char dir[PATH_BYTES];
    struct job *job;
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    uint64_t sequences[QUEUE_MAX];
    enum status statuses[QUEUE_MAX];
    uint32_t head, tail;
    int64_t now_us;
    uint64_t nonce;
    uint64_t segment_bytes;
};

static const char spec_text[] =
    "{\"name\":\"unit\",\"model\":{\"preset\":\"mlp\",\"inputs\":20,\"hidden\":[16],\"classes\":4},"
    "\"data\":{\"kind\":\"images\",\"images\":\"art_01JD0000000000000000000001\","
    "\"labels\":\"art_01JD0000000000000000000002\","
    "\"held_out_images\":\"art_01JD0000000000000000000003\","
    "\"held_out_labels\":\"art_01JD0000000000000000000004\"},"
    "\"training\":{\"batch_size\":8,\"steps_per_lease\":10,\"total_samples\":800},"
    "\"evaluation\":{\"every_versions\":1000,\"samples\":64},\"lease\":{\"deadline_seconds\":30}}";

static const char volunteer_a[] = "vol_01JD000000000000000000000A";
static const char volunteer_b[] = "vol_01JD000000000000000000000B";

static void on_durable(void *context, uint64_t sequence, enum status status)
{
    struct rig *rig = context;
    pthread_mutex_lock(&rig->lock);
    rig->sequences[rig->tail % QUEUE_MAX] = sequence;
    rig->statuses[rig->tail++ % QUEUE_MAX] = status;
    pthread_cond_signal(&rig->arrived);
    pthread_mutex_unlock(&rig->lock);
}

/* Feeds durable records to the job until one gives an answer. */
static struct job_outcome wait_outcome(struct rig *rig)
{
    struct job_outcome outcome;
    for (;;) {
        pthread_mutex_lock(&rig->lock);
        while (rig->head == rig->tail)
            pthread_cond_wait(&rig->arrived, &rig->lock);
        uint64_t sequence = rig->sequences[rig->head % QUEUE_MAX];
        enum status status = rig->statuses[rig->head++ % QUEUE_MAX];
        pthread_mutex_unlock(&rig->lock);
        if (job_durable(rig->job, sequence, status, 1000, &outcome))
            return outcome;
    }
}

static void open_job(struct rig *rig)
{
    struct job_recovery recovery;
    struct error err = {0};
    rig->head = rig->tail = 0;
    struct job_open_options options = {.durable = on_durable,
                                       .context = rig,
                                       .now_us = rig->now_us,
                                       .ledger_segment_bytes = rig->segment_bytes};
    if (job_open(rig->dir, &options, &rig->job, &recovery, &err))
        fail_msg("%s", err.text);
}

static void reopen(struct rig *rig)
{
    job_close(rig->job);
    open_job(rig);
}

static int setup(void **state)
{
    struct rig *rig = calloc(1, sizeof *rig);
    struct job_spec spec;
    struct error err = {0};
    snprintf(rig->dir, sizeof rig->dir, "/tmp/raven-job-XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    pthread_mutex_init(&rig->lock, NULL);
    pthread_cond_init(&rig->arrived, NULL);
    rig->now_us = 1000000;
    rig->segment_bytes = 1u << 20;
    if (job_spec_parse_text(spec_text, sizeof spec_text - 1, &spec, &err))
        fail_msg("%s", err.text);
    struct job_create_options options = {
        .id = "job_01JD0000000000000000000000", .dir = rig->dir, .spec = &spec, .blocks = 7};
    if (job_create(&options, &err))
        fail_msg("%s", err.text);
    open_job(rig);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;
    job_close(rig->job);
    assert_int_equal(file_remove_tree(rig->dir, NULL), STATUS_OK);
    free(rig);
    return 0;
}

static struct job_lease grant(struct rig *rig, const char *volunteer)
{
    struct job_lease lease;
    const char *reason = "";
    if (job_grant(rig->job, volunteer, &(struct job_wish){.nonce = ++rig->nonce}, rig->now_us,
                  &lease, &reason))
        fail_msg("no lease: %s", reason);
    return lease;
}

/* The first lease of a job is an evaluation of version 0. */
static void evaluate_first(struct rig *rig)
{
    struct job_lease lease = grant(rig, volunteer_a);
    assert_true(lease.evaluates);
    assert_true(job_evaluated(rig->job, volunteer_a, lease.id, 0, 1.386, 0.25, 5));
}

static struct shared *make_payload(const struct rig *rig, uint64_t seed)
{
    uint64_t n = job_parameters(rig->job);
    float *values = malloc(n * sizeof *values);
    struct rng rng;
    struct buffer bytes;
    rng_seed(&rng, seed);
    for (uint64_t i = 0; i < n; i++)
        values[i] = 0.01f * (float)rng_normal(&rng);
    buffer_init(&bytes, 1u << 20);
    assert_int_equal(simple_encode(values, n, 64, &bytes), STATUS_OK);
    struct shared *payload = shared_create(bytes.data, bytes.bytes);
    buffer_done(&bytes);
    free(values);
    return payload;
}

static struct job_outcome submit(struct rig *rig, const struct job_lease *lease, uint64_t base,
                                 uint64_t seed)
{
    struct error err = {0};
    struct shared *payload = make_payload(rig, seed);
    if (job_submit(rig->job, lease->volunteer, lease->id, base, lease->samples, 1.25, payload,
                   &err))
        fail_msg("%s", err.text);
    shared_unref(payload);
    return wait_outcome(rig);
}

static void test_update_makes_a_version(void **state)
{
    struct rig *rig = *state;
    evaluate_first(rig);
    uint64_t before = job_hash(rig->job);
    struct job_lease lease = grant(rig, volunteer_a);
    assert_false(lease.evaluates);
    assert_int_equal(lease.steps, 10);
    assert_int_equal(lease.samples, 80);
    struct job_outcome outcome = submit(rig, &lease, 0, 1);
    assert_int_equal(outcome.verdict, VERDICT_APPLIED);
    assert_int_equal(outcome.version, 1);
    assert_int_equal(job_version(rig->job), 1);
    assert_int_not_equal(job_hash(rig->job), before);
    struct job_figures figures;
    job_read_figures(rig->job, &figures);
    assert_int_equal(figures.samples, 80);
    assert_int_equal(figures.staleness[0], 1);
    assert_float_equal(figures.loss_smoothed, 1.25, 1e-6);
}

static void test_same_nonce_same_lease(void **state)
{
    struct rig *rig = *state;
    evaluate_first(rig);
    struct job_lease first, again, other;
    const char *reason;
    assert_int_equal(
        job_grant(rig->job, volunteer_a, &(struct job_wish){.nonce = 77}, 0, &first, &reason),
        STATUS_OK);
    assert_int_equal(
        job_grant(rig->job, volunteer_a, &(struct job_wish){.nonce = 77}, 0, &again, &reason),
        STATUS_OK);
    assert_int_equal(
        job_grant(rig->job, volunteer_b, &(struct job_wish){.nonce = 77}, 0, &other, &reason),
        STATUS_OK);
    assert_string_equal(first.id, again.id);
    assert_string_not_equal(first.id, other.id);
    assert_int_equal(other.block_first, first.block_first + first.block_count);
}

static struct job_lease wish(struct rig *rig, uint64_t steps, uint64_t k, int64_t patience_us)
{
    struct job_lease lease;
    const char *reason = "";
    struct job_wish wish = {
        .nonce = ++rig->nonce, .steps = steps, .k = k, .patience_us = patience_us};
    if (job_grant(rig->job, volunteer_a, &wish, rig->now_us, &lease, &reason))
        fail_msg("no lease: %s", reason);
    return lease;
}

/* What an agent's controller asks for is granted within the job's bounds, and an update must have
 * the density of its lease. */
static void test_wishes_are_granted_within_bounds(void **state)
{
    struct rig *rig = *state;
    evaluate_first(rig);
    struct job_lease usual = wish(rig, 0, 0, 0);
    assert_int_equal(usual.steps, 10);
    assert_int_equal(usual.k, 64);
    struct job_lease longer = wish(rig, 20, 128, 90 * 1000000ll);
    assert_int_equal(longer.steps, 20);
    assert_int_equal(longer.samples, 160);
    assert_int_equal(longer.k, 128);
    assert_int_equal(longer.deadline_us, rig->now_us + 90 * 1000000ll);
    struct job_lease least = wish(rig, 1, 1, 0), most = wish(rig, 1000000, 1000000, 0);
    assert_int_equal(least.steps, job_spec_of(rig->job)->training.steps_min);
    assert_int_equal(least.k, 16);
    assert_int_equal(most.k, 256);
    assert_true(most.steps <= job_spec_of(rig->job)->training.steps_max);
    struct job_outcome outcome = submit(rig, &longer, 0, 3); /* made with k = 64 */
    assert_int_equal(outcome.verdict, VERDICT_REFUSED);
    assert_int_equal(outcome.reason, REASON_DAMAGED);
    outcome = submit(rig, &usual, 0, 3);
    assert_int_equal(outcome.verdict, VERDICT_APPLIED);
}

/* Leases in store wait for the one in work: its progress is good for all. */
static void test_progress_keeps_the_stored_leases(void **state)
{
    struct rig *rig = *state;
    evaluate_first(rig);
    struct job_lease current = wish(rig, 0, 0, 30 * 1000000ll);
    struct job_lease stored = wish(rig, 0, 0, 30 * 1000000ll), late;
    rig->now_us += 29 * 1000000ll;
    job_progress(rig->job, current.id, volunteer_a, 3, rig->now_us);
    rig->now_us += 29 * 1000000ll;
    assert_false(job_expire_next(rig->job, rig->now_us, &late));
    job_progress(rig->job, current.id, volunteer_a, 3, rig->now_us); /* no progress */
    rig->now_us += 2 * 1000000ll;
    assert_true(job_expire_next(rig->job, rig->now_us, &late));
    assert_true(job_expire_next(rig->job, rig->now_us, &late));
    assert_true(strcmp(late.id, stored.id) == 0 || strcmp(late.id, current.id) == 0);
    assert_false(job_expire_next(rig->job, rig->now_us, &late));
}

/* pain B1: the same update three times, the last after a restart: applied once, same answer. */
static void test_pain_B1_duplicate_gets_same_answer(void **state)
{
    struct rig *rig = *state;
    evaluate_first(rig);
    struct job_lease lease = grant(rig, volunteer_a);
    submit(rig, &lease, 0, 1);
    uint64_t hash = job_hash(rig->job);
    for (int round = 0; round < 3; round++) {
        struct job_answer answer = job_examine_offer(rig->job, volunteer_a, lease.id, 500);
        assert_int_equal(answer.verdict, VERDICT_APPLIED);
        assert_int_equal(answer.version, 1);
        assert_int_equal(job_hash(rig->job), hash);
        reopen(rig);
    }
    assert_int_equal(job_version(rig->job), 1);
}

static void test_restart_without_snapshot_gives_same_bits(void **state)
{
    struct rig *rig = *state;
    evaluate_first(rig);
    for (uint64_t i = 0; i < 5; i++) {
        struct job_lease lease = grant(rig, i % 2 ? volunteer_a : volunteer_b);
        submit(rig, &lease, job_version(rig->job), i);
    }
    struct job_lease open_lease = grant(rig, volunteer_a);
    uint64_t hash = job_hash(rig->job);
    reopen(rig);
    assert_int_equal(job_version(rig->job), 5);
    assert_int_equal(job_hash(rig->job), hash);
    assert_int_equal(job_leases_of(rig->job, volunteer_a), 1);
    struct job_outcome outcome = submit(rig, &open_lease, 5, 9);
    assert_int_equal(outcome.verdict, VERDICT_APPLIED);
    assert_int_equal(outcome.version, 6);
    struct job_figures figures;
    job_read_figures(rig->job, &figures);
    assert_float_equal(figures.held_out_loss_first, 1.386, 1e-9);
}

static void test_restart_from_snapshot_and_tail(void **state)
{
    struct rig *rig = *state;
    evaluate_first(rig);
    struct job_lease lease = grant(rig, volunteer_a);
    submit(rig, &lease, 0, 1);
    struct error err = {0};
    enum status status = STATUS_BUSY;
    for (int i = 0; i < 1000 && status == STATUS_BUSY; i++) {
        struct job_outcome unused;
        pthread_mutex_lock(&rig->lock);
        bool waiting = rig->head != rig->tail;
        uint64_t sequence = rig->sequences[rig->head % QUEUE_MAX];
        rig->head += waiting;
        pthread_mutex_unlock(&rig->lock);
        if (waiting)
            job_durable(rig->job, sequence, STATUS_OK, 0, &unused);
        else
            clock_sleep_us(1000);
        status = job_snapshot(rig->job, &err);
    }
    assert_int_equal(status, STATUS_OK);
    lease = grant(rig, volunteer_b);
    submit(rig, &lease, 1, 2);
    uint64_t hash = job_hash(rig->job);
    struct job_answer answer;
    reopen(rig);
    assert_int_equal(job_version(rig->job), 2);
    assert_int_equal(job_hash(rig->job), hash);
    answer = job_examine_offer(rig->job, volunteer_b, lease.id, 500);
    assert_int_equal(answer.verdict, VERDICT_APPLIED);
    assert_int_equal(answer.version, 2);
}

static void test_late_lease_is_reissued_then_refused(void **state)
{
    struct rig *rig = *state;
    evaluate_first(rig);
    struct job_lease late = grant(rig, volunteer_a), expired;
    assert_false(job_expire_next(rig->job, rig->now_us + 29000000, &expired));
    rig->now_us += 31000000;
    assert_true(job_expire_next(rig->job, rig->now_us, &expired));
    assert_string_equal(expired.id, late.id);
    assert_false(job_expire_next(rig->job, rig->now_us, &expired));
    struct job_lease reissued = grant(rig, volunteer_b);
    assert_int_equal(reissued.block_first, late.block_first);
    assert_int_equal(reissued.seed, late.seed);
    for (int round = 0; round < 2; round++) {
        struct job_answer answer = job_examine_offer(rig->job, volunteer_a, late.id, 500);
        assert_int_equal(answer.verdict, VERDICT_REFUSED);
        assert_int_equal(answer.reason, REASON_REISSUED);
        reopen(rig);
    }
}

/* pain H5: a heartbeat without progress does not keep a lease. */
static void test_pain_H5_only_new_steps_move_the_deadline(void **state)
{
    struct rig *rig = *state;
    evaluate_first(rig);
    struct job_lease lease = grant(rig, volunteer_a), expired;
    job_progress(rig->job, lease.id, volunteer_a, 3, rig->now_us + 20000000);
    assert_false(job_expire_next(rig->job, rig->now_us + 40000000, &expired));
    job_progress(rig->job, lease.id, volunteer_a, 3, rig->now_us + 45000000);
    job_progress(rig->job, lease.id, volunteer_b, 9, rig->now_us + 45000000);
    assert_true(job_expire_next(rig->job, rig->now_us + 51000000, &expired));
}

static void test_too_old_an_update_is_stale_for_ever(void **state)
{
    struct rig *rig = *state;
    evaluate_first(rig);
    struct job_lease old = grant(rig, volunteer_a);
    for (uint64_t i = 0; i < 9; i++) {
        struct job_lease lease = grant(rig, volunteer_b);
        submit(rig, &lease, job_version(rig->job), i);
    }
    uint64_t hash = job_hash(rig->job);
    struct job_outcome outcome = submit(rig, &old, 0, 99);
    assert_int_equal(outcome.verdict, VERDICT_STALE);
    assert_int_equal(job_hash(rig->job), hash);
    reopen(rig);
    struct job_answer answer = job_examine_offer(rig->job, volunteer_a, old.id, 500);
    assert_int_equal(answer.verdict, VERDICT_STALE);
    assert_int_equal(answer.reason, REASON_TOO_OLD);
}

static void test_hostile_offers_change_nothing(void **state)
{
    struct rig *rig = *state;
    evaluate_first(rig);
    struct job_lease lease = grant(rig, volunteer_a);
    uint64_t hash = job_hash(rig->job);
    assert_int_equal(job_examine_offer(rig->job, volunteer_b, lease.id, 500).reason,
                     REASON_OTHER_VOLUNTEER);
    assert_int_equal(
        job_examine_offer(rig->job, volunteer_a, "lea_01JD0000000000000000000000", 500).reason,
        REASON_UNKNOWN_LEASE);
    assert_int_equal(job_examine_offer(rig->job, volunteer_a, lease.id, 1u << 30).reason,
                     REASON_TOO_LARGE);
    assert_int_equal(job_examine_offer(rig->job, volunteer_a, lease.id, 60).verdict, VERDICT_NONE);

    struct shared *payload = shared_create("garbage", 7);
    struct error err = {0};
    assert_int_equal(job_submit(rig->job, volunteer_a, lease.id, 0, 80, 1.0, payload, &err),
                     STATUS_OK);
    shared_unref(payload);
    struct job_outcome outcome = wait_outcome(rig);
    assert_int_equal(outcome.verdict, VERDICT_REFUSED);
    assert_int_equal(outcome.reason, REASON_DAMAGED);
    assert_int_equal(job_hash(rig->job), hash);

    lease = grant(rig, volunteer_a);
    outcome = submit(rig, &lease, 1000, 5);
    assert_int_equal(outcome.reason, REASON_BASE_UNKNOWN);
    assert_int_equal(job_hash(rig->job), hash);
}

/* Two updates in one disk batch: their records come before both commits. */
static void test_updates_durable_together_replay_and_verify(void **state)
{
    struct rig *rig = *state;
    struct error err = {0};
    struct job_verify_report report;
    evaluate_first(rig);
    struct job_lease leases[3];
    for (int i = 0; i < 3; i++)
        leases[i] = grant(rig, i % 2 ? volunteer_a : volunteer_b);
    for (uint64_t i = 0; i < 3; i++) {
        struct shared *payload = make_payload(rig, i);
        assert_int_equal(
            job_submit(rig->job, leases[i].volunteer, leases[i].id, 0, 80, 1.0, payload, &err),
            STATUS_OK);
        shared_unref(payload);
    }
    for (uint64_t version = 1; version <= 3; version++)
        assert_int_equal(wait_outcome(rig).version, version);
    uint64_t hash = job_hash(rig->job);
    reopen(rig);
    assert_int_equal(job_hash(rig->job), hash);
    if (job_verify(rig->dir, &report, &err))
        fail_msg("%s", err.text);
    assert_int_equal(report.commits, 3);
    assert_int_equal(report.hash, hash);
}

static void test_deltas_lead_a_replica_to_the_same_bits(void **state)
{
    struct rig *rig = *state;
    uint64_t n = job_parameters(rig->job), hash = job_hash(rig->job), known;
    float *replica = malloc(n * sizeof *replica);
    memcpy(replica, job_replica(rig->job), n * sizeof *replica);
    evaluate_first(rig);
    assert_true(job_can_replay(rig->job, 0, hash));
    assert_false(job_can_replay(rig->job, 0, hash + 1));
    for (uint64_t version = 1; version <= 5; version++) {
        struct job_lease lease = grant(rig, volunteer_a);
        submit(rig, &lease, version - 1, version);
        struct shared *delta = job_delta(rig->job, version, &known);
        assert_non_null(delta);
        assert_int_equal(
            codec_decode_add(shared_data(delta), shared_bytes(delta), 1.0f, replica, n, NULL),
            STATUS_OK);
        assert_int_equal(codec_hash(replica, n), known);
        assert_int_equal(known, job_hash(rig->job));
    }
    assert_true(job_can_replay(rig->job, 5, job_hash(rig->job)));
    assert_null(job_delta(rig->job, 6, &known));
    free(replica);
}

static void test_job_completes_after_its_last_evaluation(void **state)
{
    struct rig *rig = *state;
    evaluate_first(rig);
    for (uint64_t i = 0; i < 10; i++) {
        struct job_lease lease = grant(rig, volunteer_a);
        assert_false(lease.evaluates);
        submit(rig, &lease, job_version(rig->job), i);
        assert_false(job_is_complete(rig->job));
    }
    struct job_lease lease = grant(rig, volunteer_a), none;
    const char *reason = "";
    assert_true(lease.evaluates);
    assert_int_equal(
        job_grant(rig->job, volunteer_b, &(struct job_wish){.nonce = 9999}, 0, &none, &reason),
        STATUS_UNAVAILABLE);
    assert_true(strlen(reason) > 0);
    assert_false(job_evaluated(rig->job, volunteer_a, lease.id, 10, (double)NAN, 0.5, 6));
    assert_true(job_evaluated(rig->job, volunteer_a, lease.id, 10, 0.7, 0.5, 6));
    assert_true(job_is_complete(rig->job));
}

static void flip_byte_of_ledger(const char *dir, uint64_t offset)
{
    char path[PATH_BYTES] = "";
    uint8_t byte;
    DIR *entries = opendir(dir);
    struct dirent *entry;
    while ((entry = readdir(entries)))
        if (strstr(entry->d_name, ".rvl"))
            assert_int_equal(path_format(path, "%s/%s", dir, entry->d_name), STATUS_OK);
    closedir(entries);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0x40;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
}

static void test_verify_accepts_the_truth_and_finds_damage(void **state)
{
    struct rig *rig = *state;
    struct job_verify_report report;
    struct error err = {0};
    evaluate_first(rig);
    for (uint64_t i = 0; i < 3; i++) {
        struct job_lease lease = grant(rig, volunteer_a);
        submit(rig, &lease, job_version(rig->job), i);
    }
    uint64_t hash = job_hash(rig->job);
    job_close(rig->job);
    rig->job = NULL;
    if (job_verify(rig->dir, &report, &err))
        fail_msg("%s", err.text);
    assert_int_equal(report.version, 3);
    assert_int_equal(report.updates, 3);
    assert_int_equal(report.duplicates, 0);
    assert_int_equal(report.hash, hash);
    flip_byte_of_ledger(rig->dir, 900); /* inside the first update's payload; good records follow */
    assert_int_not_equal(job_verify(rig->dir, &report, &err), STATUS_OK);
    assert_true(strlen(err.text) > 0);
}

#define HELD 7

/* Closes and opens the ledger, so that the grants are on the disk, with small segments from now. */
static void hold_leases(struct rig *rig, struct job_lease ret[HELD])
{
    char path[PATH_BYTES];
    job_close(rig->job);
    assert_int_equal(path_format(path, "%s/ledger-00000001.rvl", rig->dir), STATUS_OK);
    assert_int_equal(unlink(path), 0); /* it is empty, and large */
    rig->segment_bytes = 3072;
    open_job(rig);
    evaluate_first(rig);
    for (int i = 0; i < HELD; i++)
        ret[i] = grant(rig, volunteer_a);
    reopen(rig);
}

/* How many updates were taken to be written; the others were refused at once. */
static int submit_all(struct rig *rig, const struct job_lease leases[HELD])
{
    int taken = 0;
    for (int i = 0; i < HELD; i++) {
        struct shared *payload = make_payload(rig, (uint64_t)i);
        enum status status = job_submit(rig->job, volunteer_a, leases[i].id, job_version(rig->job),
                                        leases[i].samples, 1.25, payload, NULL);
        shared_unref(payload);
        assert_true(status == STATUS_OK || status == STATUS_NO_SPACE);
        assert_true(status == STATUS_NO_SPACE || taken == i); /* once refused, all are */
        taken += status == STATUS_OK;
    }
    return taken;
}

/* Nothing that was answered is lost, nothing else was answered, and the lease keeps its right
 * to an update, which is taken when there is space. */
static void test_full_disk_refuses_and_goes_on(void **state)
{
    struct rig *rig = *state;
    struct job_lease leases[HELD], none;
    hold_leases(rig, leases);
    disk_is_full = true;
    int taken = submit_all(rig, leases), applied = 0;
    struct job_outcome outcome = {.verdict = VERDICT_APPLIED};
    for (int i = 0; i < taken; i++) {
        outcome = wait_outcome(rig);
        assert_string_equal(outcome.lease, leases[i].id);
        assert_true(outcome.verdict == VERDICT_NONE ||
                    (outcome.verdict == VERDICT_APPLIED && applied == i));
        applied += outcome.verdict == VERDICT_APPLIED;
    }
    assert_true(applied > 0);
    assert_int_equal(outcome.verdict, VERDICT_NONE);
    assert_int_equal(job_version(rig->job), applied);
    assert_true(job_is_full(rig->job));
    assert_false(job_is_failed(rig->job));
    const char *reason = "";
    assert_int_equal(job_grant(rig->job, volunteer_b, &(struct job_wish){.nonce = ++rig->nonce},
                               rig->now_us, &none, &reason),
                     STATUS_UNAVAILABLE);
    assert_non_null(strstr(reason, "disk is full"));
    disk_is_full = false;
    while (job_is_full(rig->job))
        clock_sleep_us(10000);
    const struct job_lease *lease = &leases[applied];
    struct job_answer answer = job_examine_offer(rig->job, volunteer_a, lease->id, 100);
    assert_string_equal(verdict_reason_text(answer.reason), "");
    assert_int_equal(answer.verdict, VERDICT_NONE);
    assert_false(answer.pending);
    outcome = submit(rig, lease, job_version(rig->job), (uint64_t)applied);
    assert_int_equal(outcome.verdict, VERDICT_APPLIED);
    uint64_t hash = job_hash(rig->job);
    reopen(rig);
    assert_int_equal(job_version(rig->job), applied + 1);
    assert_int_equal(job_hash(rig->job), hash);
}

static void test_series_keeps_the_shape_of_a_long_run(void **state)
{
    (void)state;
    struct series series;
    series_init(&series);
    for (uint64_t i = 0; i < 100000; i++)
        series_add(&series, &(struct series_entry){.version = i});
    assert_true(series.count <= SERIES_COUNT_MAX && series.count > SERIES_COUNT_MAX / 4);
    assert_int_equal(series.entries[0].version, 0);
    assert_true(series.entries[series.count - 1].version > 99000);
    for (uint32_t i = 1; i < series.count; i++)
        assert_int_equal(series.entries[i].version - series.entries[i - 1].version, series.stride);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_update_makes_a_version, setup, teardown),
        cmocka_unit_test_setup_teardown(test_same_nonce_same_lease, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pain_B1_duplicate_gets_same_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_restart_without_snapshot_gives_same_bits, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_restart_from_snapshot_and_tail, setup, teardown),
        cmocka_unit_test_setup_teardown(test_late_lease_is_reissued_then_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pain_H5_only_new_steps_move_the_deadline, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_too_old_an_update_is_stale_for_ever, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile_offers_change_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wishes_are_granted_within_bounds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_progress_keeps_the_stored_leases, setup, teardown),
        cmocka_unit_test_setup_teardown(test_updates_durable_together_replay_and_verify, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_deltas_lead_a_replica_to_the_same_bits, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_job_completes_after_its_last_evaluation, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_verify_accepts_the_truth_and_finds_damage, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_full_disk_refuses_and_goes_on, setup, teardown),
        cmocka_unit_test(test_series_keeps_the_shape_of_a_long_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
