/* Record bodies: golden bytes, round trips, and every wrong length or value refused. */
#include "fixture.h"

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "coordinator/ledger/records.h"

#include <math.h>

static const float factors[3] = {1.0f, 0.5f, 0.25f};
static const uint8_t payload[5] = {9, 8, 7, 6, 5};

static struct ledger_update example(void)
{
    return (struct ledger_update){
        .volunteer = "vol_0123456789ABCDEFGHJKMNPQRS",
        .lease = "lse_0123456789ABCDEFGHJKMNPQRS",
        .base_version = 0x1122334455667788,
        .samples = 240,
        .samples_position = 123456789,
        .weight = 0.75f,
        .loss = 2.5f,
        .staleness = 3,
        .downlink_k = 128,
        .downlink_values = 1,
        .factor_count = 3,
        .factors = factors,
        .payload = payload,
        .payload_bytes = sizeof payload,
    };
}

static void write_example(struct buffer *ret)
{
    struct ledger_update update = example();
    buffer_init(ret, 1 << 20);
    assert_int_equal(ledger_update_write(&update, ret), STATUS_OK);
}

static void test_update_golden(void **state)
{
    (void)state;
    struct buffer body;
    write_example(&body);
    char hex[2 * 145 + 1];
    assert_int_equal(body.bytes, 145);
    hex_encode(body.data, body.bytes, hex);
    assert_string_equal(hex, "0200000003000000"
                             "766f6c5f3031323334353637383941424344454647484a4b4d4e505152530000"
                             "6c73655f3031323334353637383941424344454647484a4b4d4e505152530000"
                             "8877665544332211f00000000000000015cd5b0700000000"
                             "0000403f00002040030000008000000005000000000000000100000000000000"
                             "0000803f0000003f0000803e0908070605");
    buffer_done(&body);
}

static void test_update_round_trip(void **state)
{
    (void)state;
    struct buffer body;
    float space[LEDGER_TENSORS_MAX];
    struct ledger_update read, update = example();
    write_example(&body);
    assert_int_equal(ledger_update_read(body.data, body.bytes, space, &read), STATUS_OK);
    assert_string_equal(read.volunteer, update.volunteer);
    assert_string_equal(read.lease, update.lease);
    assert_int_equal(read.base_version, update.base_version);
    assert_int_equal(read.samples, update.samples);
    assert_int_equal(read.samples_position, update.samples_position);
    assert_true(read.weight == update.weight && read.loss == update.loss);
    assert_int_equal(read.staleness, 3);
    assert_int_equal(read.downlink_k, 128);
    assert_int_equal(read.downlink_values, 1);
    assert_int_equal(read.factor_count, 3);
    assert_memory_equal(read.factors, factors, sizeof factors);
    assert_int_equal(read.payload_bytes, sizeof payload);
    assert_memory_equal(read.payload, payload, sizeof payload);
    buffer_done(&body);
}

static void test_update_wrong_lengths(void **state)
{
    (void)state;
    struct buffer body;
    float space[LEDGER_TENSORS_MAX];
    struct ledger_update read;
    write_example(&body);
    for (size_t bytes = 0; bytes < body.bytes; bytes++) {
        uint8_t *copy = malloc(bytes + 1); /* exactly so long, for the sanitizer */
        assert_non_null(copy);
        memcpy(copy, body.data, bytes);
        assert_int_equal(ledger_update_read(copy, bytes, space, &read), STATUS_CORRUPT);
        free(copy);
    }
    assert_int_equal(buffer_append(&body, "x", 1), STATUS_OK);
    assert_int_equal(ledger_update_read(body.data, body.bytes, space, &read), STATUS_CORRUPT);
    buffer_done(&body);
}

static enum status read_with(size_t at, const void *bytes, size_t count)
{
    struct buffer body;
    float space[LEDGER_TENSORS_MAX];
    struct ledger_update read;
    write_example(&body);
    memcpy(body.data + at, bytes, count);
    enum status status = ledger_update_read(body.data, body.bytes, space, &read);
    buffer_done(&body);
    return status;
}

static void test_update_hostile_values(void **state)
{
    (void)state;
    static const uint8_t ones[32] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
                                     255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
                                     255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    static const uint8_t version_1[4] = {1}, version_3[4] = {3};
    static const float nan_value = NAN, too_large = 1.5f, zero = 0.0f, negative = -1.0f;
    assert_int_equal(read_with(0, version_1, 4), STATUS_UNSUPPORTED);
    assert_int_equal(read_with(0, version_3, 4), STATUS_UNSUPPORTED);
    assert_int_equal(read_with(4, ones, 4), STATUS_CORRUPT);   /* factors */
    assert_int_equal(read_with(8, ones, 32), STATUS_CORRUPT);  /* volunteer without a NUL */
    assert_int_equal(read_with(71, ones, 1), STATUS_CORRUPT);  /* bytes after the lease's NUL */
    assert_int_equal(read_with(112, ones, 8), STATUS_CORRUPT); /* payload length */
    assert_int_equal(read_with(124, ones, 1), STATUS_CORRUPT); /* reserved */
    assert_int_equal(read_with(96, &nan_value, 4), STATUS_CORRUPT);
    assert_int_equal(read_with(96, &negative, 4), STATUS_CORRUPT);
    assert_int_equal(read_with(128, &nan_value, 4), STATUS_CORRUPT);
    assert_int_equal(read_with(128, &too_large, 4), STATUS_CORRUPT);
    assert_int_equal(read_with(132, &zero, 4), STATUS_CORRUPT);
}

static void test_update_refuses_to_write_nonsense(void **state)
{
    (void)state;
    struct buffer body;
    buffer_init(&body, 1 << 20);
    struct ledger_update update = example();
    update.weight = INFINITY;
    assert_int_equal(ledger_update_write(&update, &body), STATUS_INVALID);
    update = example();
    update.factors = (const float[3]){1.0f, 0.0f, 1.0f};
    assert_int_equal(ledger_update_write(&update, &body), STATUS_INVALID);
    update = example();
    memset(update.lease, 'a', sizeof update.lease);
    assert_int_equal(ledger_update_write(&update, &body), STATUS_INVALID);
    update = example();
    update.factor_count = LEDGER_TENSORS_MAX + 1;
    assert_int_equal(ledger_update_write(&update, &body), STATUS_TOO_LARGE);
    update = example();
    update.payload_bytes = LEDGER_BODY_BYTES_MAX;
    assert_int_equal(ledger_update_write(&update, &body), STATUS_TOO_LARGE);
    assert_int_equal(body.bytes, 0);
    buffer_done(&body);
    buffer_init(&body, 100);
    update = example();
    assert_int_equal(ledger_update_write(&update, &body), STATUS_TOO_LARGE);
    assert_int_equal(body.bytes, 0);
    buffer_done(&body);
}

static void test_commit(void **state)
{
    (void)state;
    struct ledger_commit read, commit = {.version = 7, .update_sequence = 13, .hash = 0xfedc};
    struct buffer body;
    buffer_init(&body, 1 << 10);
    assert_int_equal(ledger_commit_write(&commit, &body), STATUS_OK);
    char hex[65];
    assert_int_equal(body.bytes, 32);
    hex_encode(body.data, body.bytes, hex);
    assert_string_equal(hex, "010000000000000007000000000000000d00000000000000dcfe000000000000");
    assert_int_equal(ledger_commit_read(body.data, body.bytes, &read), STATUS_OK);
    assert_memory_equal(&read, &commit, sizeof read);
    for (size_t bytes = 0; bytes < body.bytes; bytes++)
        assert_int_equal(ledger_commit_read(body.data, bytes, &read), STATUS_CORRUPT);
    body.data[5] = 1;
    assert_int_equal(ledger_commit_read(body.data, body.bytes, &read), STATUS_CORRUPT);
    buffer_done(&body);
}

static void test_verdict(void **state)
{
    (void)state;
    struct ledger_verdict read, verdict = {.volunteer = "vol_A",
                                           .lease = "lse_B",
                                           .verdict = "refused",
                                           .reason = "the update contains NaN"};
    struct buffer body;
    buffer_init(&body, 1 << 10);
    assert_int_equal(ledger_verdict_write(&verdict, &body), STATUS_OK);
    assert_int_equal(body.bytes, 260);
    assert_int_equal(ledger_verdict_read(body.data, body.bytes, &read), STATUS_OK);
    assert_memory_equal(&read, &verdict, sizeof read);
    for (size_t bytes = 0; bytes < body.bytes; bytes++)
        assert_int_equal(ledger_verdict_read(body.data, bytes, &read), STATUS_CORRUPT);
    memset(body.data + 84, 'x', 161);
    assert_int_equal(ledger_verdict_read(body.data, body.bytes, &read), STATUS_CORRUPT);
    memset(verdict.reason, 'x', sizeof verdict.reason);
    assert_int_equal(ledger_verdict_write(&verdict, &body), STATUS_INVALID);
    buffer_done(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_update_golden),
        cmocka_unit_test(test_update_round_trip),
        cmocka_unit_test(test_update_wrong_lengths),
        cmocka_unit_test(test_update_hostile_values),
        cmocka_unit_test(test_update_refuses_to_write_nonsense),
        cmocka_unit_test(test_commit),
        cmocka_unit_test(test_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
