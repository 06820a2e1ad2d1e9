/* The clip history: median, ring, and its bytes against every wrong length and hostile values. */
#include "fixture.h"

#include "coordinator/aggregate/aggregate_internal.h"

static void test_median_and_factor(void **state)
{
    (void)state;
    struct norms norms = {0};
    for (int i = 1; i <= 7; i++) {
        norms_add(&norms, 10 * i);
        assert_true(norms_clip_factor(&norms, 1e9) == 1.0f);
    }
    norms_add(&norms, 5); /* 5 10 20 30 40 50 60 70: median 35 */
    assert_true(norms_clip_factor(&norms, 70) == 0.5f);
    assert_true(norms_clip_factor(&norms, 35) == 1.0f);
    assert_true(norms_clip_factor(&norms, 3) == 1.0f);
    assert_true(norms_clip_factor(&norms, 0) == 1.0f);
    norms_add(&norms, 1000); /* nine: median 40 */
    assert_true(norms_clip_factor(&norms, 160) == 0.25f);
    assert_true(norms_clip_factor(&norms, 1e300) > 0.0f);
}

static void test_zero_norms_do_not_count(void **state)
{
    (void)state;
    struct norms norms = {0};
    for (int i = 0; i < 100; i++)
        norms_add(&norms, 0);
    assert_int_equal(norms.count, 0);
    assert_true(norms_clip_factor(&norms, 7) == 1.0f);
}

static void test_only_the_last_32_count(void **state)
{
    (void)state;
    struct norms norms = {0};
    for (int i = 0; i < 50; i++)
        norms_add(&norms, 1000);
    for (int i = 0; i < 32; i++)
        norms_add(&norms, 2);
    assert_true(norms_clip_factor(&norms, 4) == 0.5f);
    assert_int_equal(norms.count, 32);
}

static void fill(struct norms norms[2])
{
    memset(norms, 0, 2 * sizeof *norms);
    for (int i = 1; i <= 40; i++)
        norms_add(&norms[0], i);
    for (int i = 1; i <= 3; i++)
        norms_add(&norms[1], i * 0.5);
}

static void test_bytes_round_trip(void **state)
{
    (void)state;
    struct norms norms[2], read[2];
    struct buffer bytes;
    fill(norms);
    memset(read, 0xff, sizeof read);
    buffer_init(&bytes, 1 << 16);
    assert_int_equal(history_write(norms, 2, &bytes), STATUS_OK);
    assert_int_equal(bytes.bytes, 8 + 8 + 32 * 8 + 8 + 3 * 8);
    assert_int_equal(history_read(bytes.data, bytes.bytes, 2, read), STATUS_OK);
    assert_memory_equal(read, norms, sizeof norms);
    buffer_done(&bytes);
}

static void test_wrong_bytes_are_refused(void **state)
{
    (void)state;
    struct norms norms[2], read[2] = {{.count = 5}};
    struct buffer bytes;
    fill(norms);
    buffer_init(&bytes, 1 << 16);
    assert_int_equal(history_write(norms, 2, &bytes), STATUS_OK);
    for (size_t count = 0; count < bytes.bytes; count++) {
        uint8_t *copy = malloc(count + 1);
        assert_non_null(copy);
        memcpy(copy, bytes.data, count);
        assert_int_equal(history_read(copy, count, 2, read), STATUS_CORRUPT);
        free(copy);
    }
    assert_int_equal(history_read(bytes.data, bytes.bytes, 1, read), STATUS_CORRUPT);
    assert_int_equal(history_read(bytes.data, bytes.bytes, 3, read), STATUS_CORRUPT);
    static const struct {
        size_t at;
        uint32_t value;
    } edits[] = {
        {0, 2},           {8, 33},         {8, 0xffffffff}, {12, 32}, {8 + 8 + 32 * 8 + 4, 2},
        {20, 0x7ff00000}, {20, 0xbff00000}};
    for (size_t i = 0; i < COUNT_OF(edits); i++) {
        uint32_t good = load_u32(bytes.data + edits[i].at);
        store_u32(bytes.data + edits[i].at, edits[i].value);
        assert_int_equal(history_read(bytes.data, bytes.bytes, 2, read), STATUS_CORRUPT);
        store_u32(bytes.data + edits[i].at, good);
    }
    assert_int_equal(read[0].count, 5);
    buffer_done(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median_and_factor),
        cmocka_unit_test(test_zero_norms_do_not_count),
        cmocka_unit_test(test_only_the_last_32_count),
        cmocka_unit_test(test_bytes_round_trip),
        cmocka_unit_test(test_wrong_bytes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
