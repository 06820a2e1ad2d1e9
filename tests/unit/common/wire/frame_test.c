/* Tests of frame.c: round trip, every flipped bit and every wrong length refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/bytes.h"
#include "common/base/checksum.h"
#include "common/wire/frame.h"

#include <stdlib.h>

static size_t make_frame(uint8_t *ret, size_t payload_bytes)
{
    uint8_t *payload = malloc(payload_bytes + 1);
    for (size_t i = 0; i < payload_bytes; i++)
        payload[i] = (uint8_t)(i * 7);
    struct frame frame = {FRAME_DELTA, 0xAABBCCDD, UINT64_C(0x1122334455667788), payload,
                          payload_bytes};
    size_t bytes = frame_write(&frame, ret);
    free(payload);
    return bytes;
}

static void reseal(uint8_t *data, size_t bytes)
{
    store_u64(data + 16, checksum_xxh3_seeded(data + 24, bytes - 24, checksum_xxh3(data, 16)));
}

static void layout_is_as_documented(void **state)
{
    (void)state;
    uint8_t data[64];
    assert_int_equal(make_frame(data, 3), 27);
    const uint8_t expected[16] = {0xDD, 0xCC, 0xBB, 0xAA, 3,    0,    0,    2,
                                  0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
    assert_memory_equal(data, expected, sizeof expected);
    struct frame got;
    assert_int_equal(frame_read(data, 27, &got), STATUS_OK);
    assert_int_equal(got.kind, FRAME_DELTA);
    assert_int_equal(got.stream, 0xAABBCCDD);
    assert_true(got.offset == UINT64_C(0x1122334455667788));
    assert_int_equal(got.payload_bytes, 3);
    assert_ptr_equal(got.payload, data + 24);
}

static void size_limits_hold(void **state)
{
    (void)state;
    uint8_t *data = malloc(FRAME_HEADER_BYTES + FRAME_PAYLOAD_BYTES_MAX + 1);
    struct frame got;
    assert_int_equal(make_frame(data, 0), 0);
    assert_int_equal(make_frame(data, FRAME_PAYLOAD_BYTES_MAX + 1), 0);
    size_t bytes = make_frame(data, FRAME_PAYLOAD_BYTES_MAX);
    assert_int_equal(frame_read(data, bytes, &got), STATUS_OK);
    assert_int_equal(frame_read(data, bytes + 1, &got), STATUS_CORRUPT);
    for (size_t i = 0; i < 60; i++)
        assert_int_equal(frame_read(data, i, &got), STATUS_CORRUPT);
    free(data);
}

static void every_flipped_bit_is_refused(void **state)
{
    (void)state;
    uint8_t data[64];
    struct frame got = {.stream = 99};
    size_t bytes = make_frame(data, 30);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(frame_read(data, bytes, &got), STATUS_CORRUPT);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(got.stream, 99);
    assert_int_equal(frame_read(data, bytes, &got), STATUS_OK);
}

static void lies_under_a_right_checksum_are_refused(void **state)
{
    (void)state;
    uint8_t data[64];
    struct frame got;
    size_t bytes = make_frame(data, 30);
    data[4] = 29; /* shorter than the message */
    reseal(data, bytes);
    assert_int_equal(frame_read(data, bytes, &got), STATUS_CORRUPT);
    data[4] = 30;
    data[7] = 3; /* unknown kind */
    reseal(data, bytes);
    assert_int_equal(frame_read(data, bytes, &got), STATUS_CORRUPT);
    data[7] = FRAME_UPDATE;
    store_u64(data + 8, UINT64_MAX - 29); /* the end does not fit 64 bits */
    reseal(data, bytes);
    assert_int_equal(frame_read(data, bytes, &got), STATUS_CORRUPT);
    store_u64(data + 8, UINT64_MAX - 30);
    reseal(data, bytes);
    assert_int_equal(frame_read(data, bytes, &got), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_is_as_documented),
        cmocka_unit_test(size_limits_hold),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(lies_under_a_right_checksum_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
