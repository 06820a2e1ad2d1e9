/* One job's parameters: what an update changes, what it must not change, and that a replica which
 * only decodes deltas has the same bits. The pain_ tests carry the names of reported faults of
 * other systems. */
#include "fixture.h"

static void test_create_checks_its_inputs(void **state)
{
    (void)state;
    float theta0[4] = {1, 2, 3, 4};
    struct aggregate *aggregate = NULL;
    assert_int_equal(aggregate_create(theta0, 4, (const uint64_t[]){3}, 1, &aggregate),
                     STATUS_INVALID);
    assert_int_equal(aggregate_create(theta0, 4, (const uint64_t[]){3, 2}, 2, &aggregate),
                     STATUS_INVALID);
    assert_int_equal(aggregate_create(theta0, 4, (const uint64_t[]){5, UINT64_MAX}, 2, &aggregate),
                     STATUS_INVALID);
    assert_int_equal(aggregate_create(theta0, 0, NULL, 0, &aggregate), STATUS_INVALID);
    theta0[2] = NAN;
    assert_int_equal(aggregate_create(theta0, 4, (const uint64_t[]){4}, 1, &aggregate),
                     STATUS_NOT_FINITE);
    assert_null(aggregate);
    aggregate_free(NULL);
}

static void test_apply_is_one_product_and_one_difference(void **state)
{
    (void)state;
    static const float factors[TENSORS] = {1.0f, 0.3f, 0.7f};
    struct aggregate *aggregate = make_aggregate();
    struct copy *before = copy_of(aggregate);
    struct buffer payload;
    struct error err = {0};
    float *delta = calloc(N, sizeof(float));
    assert_non_null(delta);
    make_payload(&payload, 1, 0.01, 64);
    assert_int_equal(codec_decode_add(payload.data, payload.bytes, 1.0f, delta, N, &err),
                     STATUS_OK);
    assert_int_equal(apply(aggregate, payload.data, payload.bytes, 0.9f, factors, &err), STATUS_OK);
    int moved = 0;
    for (int i = 0; i < N; i++) {
        int tensor = i < 5000 ? 0 : i < 8990 ? 1 : 2;
        volatile float scale = 0.9f * factors[tensor];
        volatile float product = scale * delta[i];
        volatile float expected = before->theta[i] - product;
        assert_true(aggregate_theta(aggregate)[i] == expected);
        moved += delta[i] != 0.0f;
    }
    assert_int_equal(moved, 3 * 64);
    assert_memory_equal(aggregate_w(aggregate), before->w, sizeof before->w);
    assert_int_equal(aggregate_version(aggregate), 0);
    assert_int_equal(aggregate_parameters(aggregate), N);
    free(delta);
    buffer_done(&payload);
    copy_free(before);
    aggregate_free(aggregate);
}

static void test_examine_changes_nothing(void **state)
{
    (void)state;
    struct aggregate *aggregate = make_aggregate();
    struct buffer payload;
    for (uint64_t i = 0; i < 10; i++) {
        make_payload(&payload, i, 0.01, 64);
        accept(aggregate, &payload, 1.0f, NULL);
        buffer_done(&payload);
    }
    struct copy *before = copy_of(aggregate);
    make_payload(&payload, 99, 0.5, 64);
    float first[TENSORS], second[TENSORS];
    struct error err = {0};
    assert_int_equal(examine(aggregate, payload.data, payload.bytes, first, &err), STATUS_OK);
    assert_same(before, aggregate);
    assert_int_equal(examine(aggregate, payload.data, payload.bytes, second, &err), STATUS_OK);
    assert_memory_equal(first, second, sizeof first);
    /* A dirty scratch would show in the next delta. */
    uint64_t hash;
    struct buffer delta, expected;
    struct aggregate *twin = make_aggregate();
    aggregate_restore(twin, before->theta, before->w, 0);
    buffer_init(&delta, PAYLOAD_BYTES_MAX);
    buffer_init(&expected, PAYLOAD_BYTES_MAX);
    assert_int_equal(commit(aggregate, 64, &delta, &hash), STATUS_OK);
    assert_int_equal(commit(twin, 64, &expected, NULL), STATUS_OK);
    assert_int_equal(delta.bytes, expected.bytes);
    assert_memory_equal(delta.data, expected.data, delta.bytes);
    assert_true(hash == aggregate_hash(twin));
    buffer_done(&delta);
    buffer_done(&expected);
    buffer_done(&payload);
    copy_free(before);
    aggregate_free(twin);
    aggregate_free(aggregate);
}

static double norm_of(const struct buffer *payload, uint64_t from, uint64_t count)
{
    float *delta = calloc(N, sizeof(float));
    assert_non_null(delta);
    assert_int_equal(codec_decode_add(payload->data, payload->bytes, 1.0f, delta, N, NULL),
                     STATUS_OK);
    double sum = 0;
    for (uint64_t i = from; i < from + count; i++)
        sum += (double)delta[i] * (double)delta[i];
    free(delta);
    return sqrt(sum);
}

static void test_clips_an_attacker(void **state)
{
    (void)state;
    struct aggregate *aggregate = make_aggregate();
    struct buffer payload;
    float factors[TENSORS];
    double low = INFINITY, high = 0;
    for (uint64_t i = 0; i < 8; i++) {
        make_payload(&payload, i, 0.01, 64);
        double norm = norm_of(&payload, 0, 5000);
        low = fmin(low, norm);
        high = fmax(high, norm);
        accept(aggregate, &payload, 1.0f, factors);
        buffer_done(&payload);
        for (int t = 0; t < TENSORS; t++)
            assert_true(factors[t] == 1.0f); /* not before eight were accepted */
    }
    make_payload(&payload, 100, -0.05, 64);
    double norm = norm_of(&payload, 0, 5000);
    struct error err = {0};
    assert_int_equal(examine(aggregate, payload.data, payload.bytes, factors, &err), STATUS_OK);
    double clipped = norm * (double)factors[0];
    assert_true(clipped >= low * 0.999 && clipped <= high * 1.001);
    assert_true(factors[0] > 0.15f && factors[0] < 0.25f);
    buffer_done(&payload);
    /* Tensor 2 has 10 parameters: its few norms must not close it. */
    assert_true(factors[2] > 0.0f && factors[2] <= 1.0f);
    make_payload(&payload, 200, 0.0001, 64); /* a small one is not blown up */
    assert_int_equal(examine(aggregate, payload.data, payload.bytes, factors, &err), STATUS_OK);
    assert_true(factors[0] == 1.0f && factors[1] == 1.0f);
    buffer_done(&payload);
    aggregate_free(aggregate);
}

/* One of eight sends −5×, for a long time: the model stays where the honest ones would move it. */
static void test_attacker_does_not_blow_up_the_model(void **state)
{
    (void)state;
    struct aggregate *aggregate = make_aggregate();
    for (uint64_t i = 0; i < 400; i++) {
        struct buffer payload;
        make_payload(&payload, i, i % 8 == 7 ? -0.05 : 0.01, 64);
        accept(aggregate, &payload, 0.5f, NULL);
        buffer_done(&payload);
    }
    double largest = 0;
    for (int i = 0; i < N; i++)
        largest = fmax(largest, fabs((double)aggregate_theta(aggregate)[i]));
    assert_true(largest < 1.0);
    aggregate_free(aggregate);
}

static void test_replica_has_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t ks[] = {16, 64, 128, 512};
    struct aggregate *aggregate = make_aggregate();
    float *replica = malloc(N * sizeof(float));
    assert_non_null(replica);
    memcpy(replica, aggregate_w(aggregate), N * sizeof(float));
    for (uint64_t i = 0; i < 60; i++) {
        struct buffer payload, delta;
        uint64_t hash = 0;
        make_payload(&payload, i, 0.01, ks[i % COUNT_OF(ks)]);
        accept(aggregate, &payload, 0.8f, NULL);
        buffer_init(&delta, PAYLOAD_BYTES_MAX);
        assert_int_equal(buffer_append(&delta, "head", 4), STATUS_OK); /* commit appends */
        assert_int_equal(commit(aggregate, ks[(i / 3) % COUNT_OF(ks)], &delta, &hash), STATUS_OK);
        assert_int_equal(aggregate_version(aggregate), i + 1);
        assert_memory_equal(delta.data, "head", 4);
        assert_int_equal(codec_decode_add(delta.data + 4, delta.bytes - 4, 1.0f, replica, N, NULL),
                         STATUS_OK);
        assert_true(codec_hash(replica, N) == hash);
        assert_true(aggregate_hash(aggregate) == hash);
        buffer_done(&payload);
        buffer_done(&delta);
    }
    free(replica);
    aggregate_free(aggregate);
}

static double gap(const struct aggregate *aggregate)
{
    double sum = 0;
    for (int i = 0; i < N; i++) {
        double d = (double)aggregate_theta(aggregate)[i] - (double)aggregate_w(aggregate)[i];
        sum += d * d;
    }
    return sqrt(sum);
}

/* What a commit could not send is sent by later ones: θ − w is the error feedback. */
static void test_nothing_is_lost_between_theta_and_w(void **state)
{
    (void)state;
    struct aggregate *aggregate = make_aggregate();
    struct buffer payload, delta;
    make_payload(&payload, 5, 0.01, 512);
    accept(aggregate, &payload, 1.0f, NULL);
    double first = gap(aggregate);
    assert_true(first > 0);
    buffer_init(&delta, PAYLOAD_BYTES_MAX);
    for (int i = 0; i < 60; i++) {
        buffer_clear(&delta);
        assert_int_equal(commit(aggregate, 64, &delta, NULL), STATUS_OK);
    }
    assert_true(gap(aggregate) < first / 1000);
    buffer_done(&payload);
    buffer_done(&delta);
    aggregate_free(aggregate);
}

static void run_updates(struct aggregate *aggregate, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        struct buffer payload, delta;
        make_payload(&payload, i, i % 5 == 4 ? 0.08 : 0.01, 64);
        accept(aggregate, &payload, 0.7f, NULL);
        buffer_init(&delta, PAYLOAD_BYTES_MAX);
        assert_int_equal(commit(aggregate, 128, &delta, NULL), STATUS_OK);
        buffer_done(&payload);
        buffer_done(&delta);
    }
}

static void test_replay_and_snapshot_give_the_same_bits(void **state)
{
    (void)state;
    struct aggregate *live = make_aggregate(), *again = make_aggregate(),
                     *recovered = make_aggregate();
    run_updates(live, 0, 30);
    struct copy *snapshot = copy_of(live);
    run_updates(live, 30, 50);
    struct copy *end = copy_of(live);
    run_updates(again, 0, 50);
    assert_same(end, again);
    aggregate_restore(recovered, snapshot->theta, snapshot->w, snapshot->version);
    assert_int_equal(
        aggregate_history_read(recovered, snapshot->history.data, snapshot->history.bytes),
        STATUS_OK);
    assert_same(snapshot, recovered);
    run_updates(recovered, 30, 50);
    assert_same(end, recovered);
    copy_free(snapshot);
    copy_free(end);
    aggregate_free(live);
    aggregate_free(again);
    aggregate_free(recovered);
}

/* flower#1060: an optimiser's adaptive state turned tiny updates into NaN. */
static void pain_C3_zero_then_tiny_updates_stay_finite(void **state)
{
    (void)state;
    struct aggregate *aggregate = make_aggregate();
    struct buffer payload, delta;
    buffer_init(&delta, PAYLOAD_BYTES_MAX);
    for (int i = 0; i < 12; i++) {
        make_payload(&payload, 1, i % 4 < 3 ? 0.0 : 1e-8, 64);
        accept(aggregate, &payload, 1.0f, NULL);
        buffer_done(&payload);
        buffer_clear(&delta);
        assert_int_equal(commit(aggregate, 64, &delta, NULL), STATUS_OK);
    }
    for (int i = 0; i < N; i++) {
        assert_true(isfinite(aggregate_theta(aggregate)[i]));
        assert_true(isfinite(aggregate_w(aggregate)[i]));
    }
    buffer_done(&delta);
    aggregate_free(aggregate);
}

/* PCCL 1e01c29: an aborted reduction left half of its result behind. */
static void pain_C5_broken_update_changes_nothing(void **state)
{
    (void)state;
    struct aggregate *aggregate = make_aggregate();
    run_updates(aggregate, 0, 9);
    struct copy *before = copy_of(aggregate);
    struct buffer payload;
    float factors[TENSORS] = {1, 1, 1}, untouched[TENSORS] = {9, 9, 9};
    struct error err = {0};
    make_payload(&payload, 1, 0.01, 64);
    for (size_t bytes = 0; bytes < payload.bytes; bytes++) {
        uint8_t *copy = malloc(bytes + 1);
        assert_non_null(copy);
        memcpy(copy, payload.data, bytes);
        assert_int_equal(examine(aggregate, copy, bytes, untouched, &err), STATUS_CORRUPT);
        assert_int_equal(apply(aggregate, copy, bytes, 1.0f, factors, &err), STATUS_CORRUPT);
        free(copy);
    }
    for (size_t at = 0; at < payload.bytes; at++) {
        payload.data[at] ^= 0x10;
        assert_int_equal(apply(aggregate, payload.data, payload.bytes, 1.0f, factors, &err),
                         STATUS_CORRUPT);
        payload.data[at] ^= 0x10;
    }
    assert_same(before, aggregate);
    assert_true(untouched[0] == 9 && untouched[2] == 9);
    buffer_done(&payload);
    copy_free(before);
    aggregate_free(aggregate);
}

/* torchft PR#286: a result was rescaled where it must not be. ±1 codes exactly in fp32. */
static void pain_C7_weights_are_used_once(void **state)
{
    (void)state;
    static const float theta0[4] = {10, 20, 30, 40};
    static const float weights[3] = {1.0f, 0.5f, 0.25f};
    static const float ones[1] = {1.0f};
    struct aggregate *aggregate = NULL;
    struct error err = {0};
    assert_int_equal(aggregate_create(theta0, 4, (const uint64_t[]){4}, 1, &aggregate), STATUS_OK);
    for (int i = 0; i < 3; i++) {
        float update[4] = {1, -1, 1, -1};
        struct buffer payload;
        buffer_init(&payload, PAYLOAD_BYTES_MAX);
        assert_int_equal(simple_encode(update, 4, 4, &payload), STATUS_OK);
        assert_true(update[0] == 0.0f); /* sent exactly */
        assert_int_equal(apply(aggregate, payload.data, payload.bytes, weights[i], ones, &err),
                         STATUS_OK);
        buffer_done(&payload);
    }
    static const float expected[4] = {8.25f, 21.75f, 28.25f, 41.75f};
    assert_memory_equal(aggregate_theta(aggregate), expected, sizeof expected);
    aggregate_free(aggregate);
}

/* The sign coder cannot say so large numbers. */
static void make_payload_of_bytes(struct buffer *ret, uint64_t seed, double factor)
{
    float *values = malloc(N * sizeof(float));
    assert_non_null(values);
    fill_normal(values, seed, factor);
    buffer_init(ret, PAYLOAD_BYTES_MAX);
    assert_int_equal(simple_encode_as(values, N, (struct codec_format){CODEC_EIGHT_BITS, 64}, ret),
                     STATUS_OK);
    free(values);
}

static void test_refuses_what_is_not_finite(void **state)
{
    (void)state;
    static const float factors[TENSORS] = {1, 1, 1};
    static const float bad_factors[][TENSORS] = {{1, 0, 1}, {1, 1, 1.5f}, {NAN, 1, 1}};
    static const float bad_weights[] = {NAN, INFINITY, -0.5f};
    struct aggregate *aggregate = make_aggregate();
    struct copy *before = copy_of(aggregate);
    struct buffer payload;
    struct error err = {0};
    float ret_factors[TENSORS];
    make_payload_of_bytes(&payload, 1, 1e25);
    assert_int_equal(examine(aggregate, payload.data, payload.bytes, ret_factors, &err),
                     STATUS_NOT_FINITE);
    assert_int_equal(apply(aggregate, payload.data, payload.bytes, 1.0f, factors, &err),
                     STATUS_NOT_FINITE);
    buffer_done(&payload);
    make_payload_of_bytes(&payload, 1, 1e18); /* finite, but not with this weight */
    assert_int_equal(apply(aggregate, payload.data, payload.bytes, 1e30f, factors, &err),
                     STATUS_NOT_FINITE);
    for (size_t i = 0; i < COUNT_OF(bad_weights); i++)
        assert_int_equal(
            apply(aggregate, payload.data, payload.bytes, bad_weights[i], factors, &err),
            STATUS_INVALID);
    for (size_t i = 0; i < COUNT_OF(bad_factors); i++)
        assert_int_equal(apply(aggregate, payload.data, payload.bytes, 1.0f, bad_factors[i], &err),
                         STATUS_INVALID);
    assert_same(before, aggregate);
    buffer_done(&payload);
    copy_free(before);
    aggregate_free(aggregate);
}

static void test_failed_commit_changes_nothing(void **state)
{
    (void)state;
    struct aggregate *aggregate = make_aggregate();
    struct buffer payload, delta, small;
    make_payload(&payload, 3, 0.01, 64);
    accept(aggregate, &payload, 1.0f, NULL);
    struct copy *before = copy_of(aggregate);
    uint64_t hash = 42;
    buffer_init(&delta, PAYLOAD_BYTES_MAX);
    buffer_init(&small, 20);
    assert_int_equal(commit(aggregate, 0, &delta, &hash), STATUS_INVALID);
    assert_int_equal(commit(aggregate, CODEC_K_MAX + 1, &delta, &hash), STATUS_INVALID);
    assert_int_equal(commit(aggregate, 64, &small, &hash), STATUS_TOO_LARGE);
    assert_int_equal(delta.bytes, 0);
    assert_int_equal(small.bytes, 0);
    assert_int_equal(hash, 42);
    assert_same(before, aggregate);
    buffer_done(&payload);
    buffer_done(&delta);
    buffer_done(&small);
    copy_free(before);
    aggregate_free(aggregate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_checks_its_inputs),
        cmocka_unit_test(test_apply_is_one_product_and_one_difference),
        cmocka_unit_test(test_examine_changes_nothing),
        cmocka_unit_test(test_clips_an_attacker),
        cmocka_unit_test(test_attacker_does_not_blow_up_the_model),
        cmocka_unit_test(test_replica_has_the_same_bits),
        cmocka_unit_test(test_nothing_is_lost_between_theta_and_w),
        cmocka_unit_test(test_replay_and_snapshot_give_the_same_bits),
        cmocka_unit_test(pain_C3_zero_then_tiny_updates_stay_finite),
        cmocka_unit_test(pain_C5_broken_update_changes_nothing),
        cmocka_unit_test(pain_C7_weights_are_used_once),
        cmocka_unit_test(test_refuses_what_is_not_finite),
        cmocka_unit_test(test_failed_commit_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
