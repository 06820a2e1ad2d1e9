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

static enum status go_on(struct deltas *deltas, uint64_t version, uint64_t bytes, uint64_t from)
{
    struct wire_delta delta = {.stream = 1, .version = version, .bytes = bytes, .from = from};
    return deltas_announce(deltas, &delta, 1000, NULL);
}

static void pain_E21_a_delta_goes_on_at_every_byte(void **state)
{
    (void)state;
    const char *text = "abcdefghij";
    for (size_t cut = 1; cut < 10; cut++) {
        struct deltas deltas;
        deltas_init(&deltas);
        char head[16] = {0};
        memcpy(head, text, cut);
        assert_int_equal(announce(&deltas, 3, 7, 10), STATUS_OK);
        assert_int_equal(announce(&deltas, 4, 8, 10), STATUS_OK);
        assert_int_equal(feed(&deltas, 3, 0, head), STATUS_OK);
        deltas_interrupted(&deltas);
        assert_int_equal(deltas_part_bytes(&deltas, "", 6), cut);
        assert_int_equal(deltas_part_bytes(&deltas, "", 5), 0);
        assert_int_equal(deltas_part_bytes(&deltas, "job_x", 6), 0);
        deltas_interrupted(&deltas); /* a session that brought nothing */
        assert_int_equal(deltas_part_bytes(&deltas, "", 6), cut);
        assert_int_equal(go_on(&deltas, 7, 10, cut), STATUS_OK);
        deltas_interrupted(&deltas); /* broke before the next byte */
        assert_int_equal(deltas_part_bytes(&deltas, "", 6), cut);
        assert_int_equal(go_on(&deltas, 7, 10, cut), STATUS_OK);
        assert_int_equal(feed(&deltas, 1, cut, text + cut), STATUS_OK);
        expect(&deltas, 7, text);
        deltas_done(&deltas);
    }
}

static void test_a_part_is_never_joined_to_another(void **state)
{
    (void)state;
    struct deltas deltas;
    deltas_init(&deltas);
    for (int way = 0; way < 4; way++) {
        assert_int_equal(announce(&deltas, 3, 7, 10), STATUS_OK);
        assert_int_equal(feed(&deltas, 3, 0, "abc"), STATUS_OK);
        deltas_interrupted(&deltas);
        if (way == 0)
            assert_int_equal(go_on(&deltas, 8, 10, 3), STATUS_INVALID);
        if (way == 1)
            assert_int_equal(go_on(&deltas, 7, 11, 3), STATUS_INVALID);
        if (way == 2)
            assert_int_equal(go_on(&deltas, 7, 10, 2), STATUS_INVALID);
        if (way == 3) { /* from the start: fine, the part is dropped */
            assert_int_equal(go_on(&deltas, 7, 10, 0), STATUS_OK);
            assert_int_equal(feed(&deltas, 1, 0, "0123456789"), STATUS_OK);
            expect(&deltas, 7, "0123456789");
        }
        assert_int_equal(deltas_part_bytes(&deltas, "", 6), 0);
    }
    assert_int_equal(go_on(&deltas, 7, 10, 4), STATUS_INVALID); /* nothing is here */
    deltas_done(&deltas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_announcement),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(pain_E21_a_delta_goes_on_at_every_byte),
        cmocka_unit_test(test_a_part_is_never_joined_to_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
