/* Reassembly of streams that come interleaved, in pieces, or wrong. */
#include "agent/session/deltas.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static enum status announce(struct deltas *deltas, uint64_t stream, uint64_t version,
                            uint64_t bytes)
{
    struct wire_delta delta = {.stream = stream, .version = version, .bytes = bytes};
    return deltas_announce(deltas, &delta, 1000, NULL);
}

static enum status feed(struct deltas *deltas, uint32_t stream, uint64_t offset, const char *text)
{
    struct frame frame = {FRAME_DELTA, stream, offset, (const uint8_t *)text, strlen(text)};
    return deltas_frame(deltas, &frame, NULL);
}

static void expect(struct deltas *deltas, uint64_t version, const char *text)
{
    struct delta_in *delta = deltas_take(deltas);
    assert_non_null(delta);
    assert_int_equal(delta->announced.version, version);
    assert_int_equal(delta->data.bytes, strlen(text));
    assert_memory_equal(delta->data.data, text, strlen(text));
    delta_in_free(delta);
}

static void test_order_of_announcement(void **state)
{
    (void)state;
    struct deltas deltas;
    deltas_init(&deltas);
    assert_int_equal(announce(&deltas, 5, 1, 6), STATUS_OK);
    assert_int_equal(announce(&deltas, 9, 2, 3), STATUS_OK);
    assert_int_equal(feed(&deltas, 5, 0, "abc"), STATUS_OK);
    assert_int_equal(feed(&deltas, 9, 0, "xyz"), STATUS_OK);
    assert_null(deltas_take(&deltas)); /* version 2 waits for version 1 */
    assert_int_equal(feed(&deltas, 5, 3, "def"), STATUS_OK);
    expect(&deltas, 1, "abcdef");
    expect(&deltas, 2, "xyz");
    assert_null(deltas_take(&deltas));
    assert_int_equal(announce(&deltas, 5, 3, 1), STATUS_OK); /* the number is free again */
    deltas_done(&deltas);
    assert_int_equal(deltas.count, 0);
}

static void test_hostile(void **state)
{
    (void)state;
    struct deltas deltas;
    deltas_init(&deltas);
    assert_int_equal(announce(&deltas, 1, 1, 0), STATUS_INVALID);
    assert_int_equal(announce(&deltas, 1, 1, 1001), STATUS_TOO_LARGE);
    assert_int_equal(announce(&deltas, UINT32_MAX + 1ull, 1, 5), STATUS_INVALID);
    assert_int_equal(feed(&deltas, 1, 0, "a"), STATUS_INVALID); /* not announced */
    assert_int_equal(announce(&deltas, 1, 1, 5), STATUS_OK);
    assert_int_equal(announce(&deltas, 1, 2, 5), STATUS_INVALID); /* in use */
    assert_int_equal(feed(&deltas, 1, 1, "a"), STATUS_INVALID);   /* a gap */
    assert_int_equal(feed(&deltas, 1, 0, "abc"), STATUS_OK);
    assert_int_equal(feed(&deltas, 1, 0, "abc"), STATUS_INVALID); /* again */
    assert_int_not_equal(feed(&deltas, 1, 3, "def"), STATUS_OK);  /* too much */
    struct frame update = {FRAME_UPDATE, 1, 3, (const uint8_t *)"de", 2};
    assert_int_equal(deltas_frame(&deltas, &update, NULL), STATUS_INVALID);
    assert_int_equal(feed(&deltas, 1, 3, "de"), STATUS_OK);
    expect(&deltas, 1, "abcde");
    for (uint64_t i = 0; i < DELTAS_OPEN_MAX; i++)
        assert_int_equal(announce(&deltas, i, i, 1), STATUS_OK);
    assert_int_equal(announce(&deltas, DELTAS_OPEN_MAX, 1, 1), STATUS_BUSY);
    deltas_done(&deltas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_announcement),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
