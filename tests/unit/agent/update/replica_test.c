/* The replica's promises: w is bit for bit what an independent decoder makes of the same deltas,
 * and e = w - x - sum of unanswered payloads holds through any order of merges, updates and
 * answers. */
#include "agent/update/replica.h"

#include "common/base/buffer.h"
#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "tests/support/encode.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 10000u /* three chunks, the last one short */
#define K 64u

struct scene {
    struct rng rng;
    struct replica *replica;
    float *w;      /* an independent replica */
    float *theta;  /* what the coordinator would like w to be */
    float *unsent; /* the test's own idea of w - x */
    uint64_t version;
    unsigned leases;
    struct {
        char lease[16];
        struct shared *payload;
        bool answered;
        uint64_t version;
    } open[REPLICA_IN_FLIGHT_MAX];
    size_t open_count;
};

static void scene_begin(struct scene *scene, uint64_t seed, bool keep_unsent, double decay)
{
    memset(scene, 0, sizeof *scene);
    rng_seed(&scene->rng, seed);
    struct replica_settings settings = {N, keep_unsent, decay, CODEC_SIGN, NULL};
    assert_int_equal(replica_create(&settings, &scene->replica, NULL), STATUS_OK);
    scene->w = calloc(N, sizeof(float));
    scene->theta = calloc(N, sizeof(float));
    scene->unsent = calloc(N, sizeof(float));
    float *target = replica_load_target(scene->replica);
    for (uint64_t i = 0; i < N; i++)
        target[i] = scene->w[i] = scene->theta[i] = (float)rng_normal(&scene->rng);
    scene->version = 7;
    replica_loaded(scene->replica, 7, codec_hash(scene->w, N));
}

static void scene_end(struct scene *scene)
{
    for (size_t i = 0; i < scene->open_count; i++)
        shared_unref(scene->open[i].payload);
    replica_free(scene->replica);
    free(scene->w);
    free(scene->theta);
    free(scene->unsent);
}

static void train(struct scene *scene)
{
    float *x = replica_x(scene->replica);
    for (uint64_t i = 0; i < N; i++) {
        float step = 0.01f * (float)rng_normal(&scene->rng);
        x[i] -= step;
        scene->unsent[i] += step;
    }
}

static void make_delta(struct scene *scene, struct buffer *ret)
{
    float residual[N];
    for (uint64_t i = 0; i < N; i++) {
        scene->theta[i] += 0.02f * (float)rng_normal(&scene->rng);
        residual[i] = scene->theta[i] - scene->w[i];
    }
    assert_int_equal(simple_encode(residual, N, 2 * K, ret), STATUS_OK);
}

static void settle(struct scene *scene)
{
    size_t kept = 0;
    for (size_t i = 0; i < scene->open_count; i++) {
        if (scene->open[i].answered && scene->open[i].version <= scene->version) {
            const struct shared *payload = scene->open[i].payload;
            assert_int_equal(codec_decode_add(shared_data(payload), shared_bytes(payload), -1.0f,
                                              scene->unsent, N, NULL),
                             STATUS_OK);
            shared_unref(scene->open[i].payload);
        } else {
            scene->open[kept++] = scene->open[i];
        }
    }
    scene->open_count = kept;
}

static void merge(struct scene *scene)
{
    struct buffer delta;
    buffer_init(&delta, codec_bytes_max(N, (struct codec_format){CODEC_SIGN, 2 * K}));
    make_delta(scene, &delta);
    assert_int_equal(codec_decode_add(delta.data, delta.bytes, 1.0f, scene->w, N, NULL), STATUS_OK);
    scene->version++;
    assert_int_equal(replica_merge(scene->replica, delta.data, delta.bytes, scene->version,
                                   codec_hash(scene->w, N), NULL),
                     STATUS_OK);
    assert_true(replica_settle(scene->replica));
    buffer_done(&delta);
    settle(scene);
}

static void send_update(struct scene *scene)
{
    if (scene->open_count == REPLICA_IN_FLIGHT_MAX)
        return;
    char lease[16];
    snprintf(lease, sizeof lease, "lea_%u", scene->leases++);
    struct shared *payload;
    assert_int_equal(replica_end_lease(scene->replica, lease, K, &payload, NULL), STATUS_OK);
    strcpy(scene->open[scene->open_count].lease, lease);
    scene->open[scene->open_count].answered = false;
    scene->open[scene->open_count++].payload = payload;
    replica_begin_lease(scene->replica);
}

static void answer(struct scene *scene)
{
    if (scene->open_count == 0)
        return;
    size_t i = (size_t)rng_below(&scene->rng, scene->open_count);
    if (scene->open[i].answered)
        return;
    bool applied = rng_below(&scene->rng, 3) > 0;
    uint64_t version = scene->version + rng_below(&scene->rng, 3);
    scene->open[i].answered = true;
    scene->open[i].version = applied ? version : 0;
    replica_answer(scene->replica, scene->open[i].lease,
                   applied ? REPLICA_APPLIED : REPLICA_DROPPED, version);
    assert_true(replica_settle(scene->replica));
    settle(scene);
}

static void check(struct scene *scene)
{
    assert_int_equal(replica_version(scene->replica), scene->version);
    assert_int_equal(replica_x_version(scene->replica), scene->version);
    assert_memory_equal(replica_hold_w(scene->replica), scene->w, N * sizeof(float));
    replica_release_w(scene->replica);
    assert_int_equal(replica_hash(scene->replica), codec_hash(scene->w, N));
    assert_int_equal(replica_in_flight(scene->replica), scene->open_count);
    const float *x = replica_x(scene->replica);
    for (uint64_t i = 0; i < N; i++) {
        float unsent = scene->w[i] - x[i];
        if (fabsf(unsent - scene->unsent[i]) > 1e-4f)
            fail_msg("parameter %u: w - x is %g, should be %g", (unsigned)i, (double)unsent,
                     (double)scene->unsent[i]);
    }
}

static void test_random_sequences(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct scene scene;
        scene_begin(&scene, seed, true, 1.0);
        for (int i = 0; i < 150; i++) {
            switch (rng_below(&scene.rng, 5)) {
            case 0:
            case 1:
                train(&scene);
                break;
            case 2:
                merge(&scene);
                break;
            case 3:
                send_update(&scene);
                break;
            default:
                answer(&scene);
            }
            if (i % 10 == 9)
                check(&scene);
        }
        scene_end(&scene);
    }
}

/* The payload carries the largest part of w - x, and the same part is not sent twice. */
static void test_payload_is_residual(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, 42, true, 1.0);
    replica_x(scene.replica)[5000] -= 3.0f;
    scene.unsent[5000] += 3.0f;
    struct shared *first, *second;
    assert_int_equal(replica_end_lease(scene.replica, "a", 1, &first, NULL), STATUS_OK);
    float *sent = calloc(N, sizeof *sent);
    assert_int_equal(codec_decode_add(shared_data(first), shared_bytes(first), 1.0f, sent, N, NULL),
                     STATUS_OK);
    assert_true(fabsf(sent[5000] - 3.0f) < 0.5f);
    assert_int_equal(replica_end_lease(scene.replica, "b", 1, &second, NULL), STATUS_OK);
    memset(sent, 0, N * sizeof *sent);
    assert_int_equal(
        codec_decode_add(shared_data(second), shared_bytes(second), 1.0f, sent, N, NULL),
        STATUS_OK);
    assert_true(fabsf(sent[5000]) < 0.5f); /* only what the code's rounding left over */
    shared_unref(first);
    shared_unref(second);
    free(sent);
    scene_end(&scene);
}

/* Without keep_unsent a lease starts at w, deltas merged meanwhile are not taken for progress, and
 * what was not sent comes back decayed. */
static void test_residual_mode(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, 3, false, 0.5);
    replica_begin_lease(scene.replica);
    merge(&scene);
    const float *x = replica_x(scene.replica);
    for (uint64_t i = 0; i < N; i++)
        assert_true(fabsf(x[i] - scene.w[i]) < 1e-5f);
    struct shared *payload;
    replica_begin_lease(scene.replica);
    replica_x(scene.replica)[10] -= 2.0f;
    replica_x(scene.replica)[20] -= 1.0f; /* the chunk's one coordinate is 10: this waits */
    assert_int_equal(replica_end_lease(scene.replica, "a", 1, &payload, NULL), STATUS_OK);
    shared_unref(payload);
    replica_begin_lease(scene.replica);
    assert_memory_equal(replica_x(scene.replica), scene.w, N * sizeof(float));
    assert_int_equal(replica_end_lease(scene.replica, "b", 1, &payload, NULL), STATUS_OK);
    float *sent = calloc(N, sizeof *sent);
    assert_int_equal(
        codec_decode_add(shared_data(payload), shared_bytes(payload), 1.0f, sent, N, NULL),
        STATUS_OK);
    assert_true(fabsf(sent[20] - 0.5f) < 0.1f);
    shared_unref(payload);
    free(sent);
    scene_end(&scene);
}

static void test_merge_refuses(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, 9, true, 1.0);
    struct buffer delta;
    buffer_init(&delta, codec_bytes_max(N, (struct codec_format){CODEC_SIGN, 2 * K}));
    make_delta(&scene, &delta);
    struct error err = {0};
    assert_int_equal(replica_merge(scene.replica, delta.data, delta.bytes, 7, 1, &err),
                     STATUS_STALE);
    assert_int_equal(replica_merge(scene.replica, delta.data, delta.bytes, 9, 1, &err),
                     STATUS_STATE);
    check(&scene); /* neither changed anything */
    assert_true(replica_is_loaded(scene.replica));
    assert_int_equal(replica_merge(scene.replica, delta.data, delta.bytes, 8, 1, &err),
                     STATUS_CORRUPT);
    assert_false(replica_is_loaded(scene.replica));
    assert_int_equal(replica_merge(scene.replica, delta.data, delta.bytes, 8, 1, &err),
                     STATUS_STATE);

    memcpy(replica_load_target(scene.replica), scene.w, N * sizeof(float));
    replica_loaded(scene.replica, 7, codec_hash(scene.w, N));
    delta.data[delta.bytes / 2] ^= 1;
    assert_int_equal(replica_merge(scene.replica, delta.data, delta.bytes, 8, 1, &err),
                     STATUS_CORRUPT);
    assert_false(replica_is_loaded(scene.replica));
    buffer_done(&delta);
    scene_end(&scene);
}

static void test_snapshot_forgets(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, 5, true, 1.0);
    train(&scene);
    send_update(&scene);
    memcpy(replica_load_target(scene.replica), scene.w, N * sizeof(float));
    replica_loaded(scene.replica, 30, codec_hash(scene.w, N));
    assert_int_equal(replica_in_flight(scene.replica), 0);
    replica_answer(scene.replica, "lea_0", REPLICA_APPLIED, 8); /* made before: ignored */
    assert_memory_equal(replica_x(scene.replica), scene.w, N * sizeof(float));
    scene_end(&scene);
}

static void test_broken_parameters(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, 5, true, 1.0);
    replica_x(scene.replica)[1] = NAN;
    struct shared *payload;
    struct error err = {0};
    assert_int_equal(replica_end_lease(scene.replica, "a", K, &payload, &err), STATUS_NOT_FINITE);
    assert_int_equal(replica_in_flight(scene.replica), 0);
    scene_end(&scene);
}

/* A training thread that steps and settles, against this thread, which merges and packs: whatever
 * the order, nothing is counted twice and nothing is lost. Worth most under ThreadSanitizer. */
struct trainer {
    struct scene *scene;
    atomic_bool stop;
    atomic_uint steps;
};

static void *train_thread(void *user)
{
    struct trainer *trainer = user;
    struct replica *replica = trainer->scene->replica;
    while (!atomic_load(&trainer->stop)) {
        replica_x_begin_write(replica);
        for (uint64_t i = 0; i < N; i++)
            replica_x(replica)[i] -= 0.001f;
        replica_x_end_write(replica);
        atomic_fetch_add(&trainer->steps, 1);
        replica_settle(replica);
    }
    while (!replica_settle(replica))
        ;
    return NULL;
}

static void test_two_threads(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, 11, true, 1.0);
    struct trainer trainer = {.scene = &scene};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, train_thread, &trainer), 0);
    float *sent = calloc(N, sizeof *sent);
    for (unsigned round = 0; round < 60; round++) {
        struct buffer delta;
        buffer_init(&delta, codec_bytes_max(N, (struct codec_format){CODEC_SIGN, 2 * K}));
        make_delta(&scene, &delta);
        assert_int_equal(codec_decode_add(delta.data, delta.bytes, 1.0f, scene.w, N, NULL),
                         STATUS_OK);
        scene.version++;
        assert_int_equal(replica_merge(scene.replica, delta.data, delta.bytes, scene.version,
                                       codec_hash(scene.w, N), NULL),
                         STATUS_OK);
        buffer_done(&delta);
        if (round % 3 != 0)
            continue;
        char lease[16];
        snprintf(lease, sizeof lease, "lea_%u", round);
        struct shared *payload;
        assert_int_equal(replica_end_lease(scene.replica, lease, K, &payload, NULL), STATUS_OK);
        assert_int_equal(
            codec_decode_add(shared_data(payload), shared_bytes(payload), 1.0f, sent, N, NULL),
            STATUS_OK);
        shared_unref(payload);
        replica_answer(scene.replica, lease, REPLICA_APPLIED, scene.version);
    }
    atomic_store(&trainer.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(replica_in_flight(scene.replica), 0);
    assert_int_equal(replica_x_version(scene.replica), scene.version);
    double trained = 0.001 * atomic_load(&trainer.steps);
    for (uint64_t i = 0; i < N; i++) {
        /* All that was trained is either sent (and, answered, left x) or still in w - x. */
        double kept = (double)scene.w[i] - (double)replica_x(scene.replica)[i];
        if (fabs(kept + (double)sent[i] - trained) > 1e-3 * (1 + trained))
            fail_msg("parameter %u: trained %g, sent %g, kept %g", (unsigned)i, trained,
                     (double)sent[i], kept);
    }
    free(sent);
    scene_end(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_sequences), cmocka_unit_test(test_payload_is_residual),
        cmocka_unit_test(test_residual_mode),    cmocka_unit_test(test_merge_refuses),
        cmocka_unit_test(test_snapshot_forgets), cmocka_unit_test(test_broken_parameters),
        cmocka_unit_test(test_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
