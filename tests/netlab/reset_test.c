/* Tests of reset.c: RST segments with right addresses, numbers and checksums; no read beyond the
 * packet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/netlab/reset.h"

#include <stdlib.h>
#include <string.h>

/* 10.77.1.2:5000 to 10.77.0.1:443, sequence 0x01020304, acknowledges 0x0A0B0C0D. */
static void make_segment(uint8_t packet[60], uint8_t flags)
{
    static const uint8_t segment[40] = {
        0x45, 0,    0,    60,   1, 2, 0x40, 0, 64, 6,  0,  0,  10,   77, 1, 2, 10, 77, 0, 1,
        0x13, 0x88, 0x01, 0xBB, 1, 2, 3,    4, 10, 11, 12, 13, 0x50, 0,  1, 1, 0,  0,  0, 0};
    memset(packet, 0, 60);
    memcpy(packet, segment, sizeof segment);
    packet[33] = flags;
}

static uint32_t sum_words(const uint8_t *p, size_t bytes, uint32_t sum)
{
    for (size_t i = 0; i < bytes; i += 2)
        sum += (uint32_t)(p[i] << 8 | p[i + 1]);
    while (sum >> 16)
        sum = (sum & 0xFFFF) + (sum >> 16);
    return sum;
}

/* The receiver's check: header and segment with pseudo header sum up to all ones. */
static void assert_sums(const uint8_t *packet)
{
    assert_int_equal(sum_words(packet, 20, 0), 0xFFFF);
    assert_int_equal(sum_words(packet + 20, 20, sum_words(packet + 12, 8, 6 + 20)), 0xFFFF);
}

static void both_ends_get_a_reset(void **state)
{
    (void)state;
    uint8_t packet[60];
    struct reset_pair pair;
    make_segment(packet, 0x18);
    assert_true(reset_build(packet, sizeof packet, &pair));
    assert_sums(pair.to_sender);
    assert_sums(pair.to_receiver);
    static const uint8_t to_sender[] = {10, 77,   0,    1,    10, 77, 1,  2,
                                        1,  0xBB, 0x13, 0x88, 10, 11, 12, 13};
    static const uint8_t to_receiver[] = {10,   77,   1, 2,    10, 77, 0, 1,
                                          0x13, 0x88, 1, 0xBB, 1,  2,  3, 4};
    assert_memory_equal(pair.to_sender + 12, to_sender, sizeof to_sender);
    assert_memory_equal(pair.to_receiver + 12, to_receiver, sizeof to_receiver);
    assert_int_equal(pair.to_sender[33], 4);
    assert_int_equal(pair.to_receiver[33], 4);
}

static void a_first_syn_is_refused(void **state)
{
    (void)state;
    uint8_t packet[60];
    struct reset_pair pair;
    make_segment(packet, 0x02);
    assert_true(reset_build(packet, 40, &pair));
    assert_sums(pair.to_sender);
    static const uint8_t numbers[] = {0, 0, 0, 0, 1, 2, 3, 5};
    assert_memory_equal(pair.to_sender + 24, numbers, sizeof numbers);
    assert_int_equal(pair.to_sender[33], 0x14);
}

static void other_packets_pass(void **state)
{
    (void)state;
    uint8_t packet[60];
    struct reset_pair pair;
    make_segment(packet, 0x14);
    assert_false(reset_build(packet, sizeof packet, &pair));
    make_segment(packet, 0x10);
    packet[9] = 17;
    assert_false(reset_build(packet, sizeof packet, &pair));
    make_segment(packet, 0x10);
    packet[0] = 0x60;
    assert_false(reset_build(packet, sizeof packet, &pair));
    make_segment(packet, 0x10);
    packet[7] = 100; /* a later fragment has no header */
    assert_false(reset_build(packet, sizeof packet, &pair));
    make_segment(packet, 0x10);
    packet[0] = 0x44;
    assert_false(reset_build(packet, sizeof packet, &pair));
}

static void no_length_is_believed(void **state)
{
    (void)state;
    uint8_t packet[60];
    struct reset_pair pair;
    make_segment(packet, 0x02);
    packet[32] = 0xF0;
    packet[0] = 0x4F;
    for (size_t bytes = 0; bytes <= sizeof packet; bytes++) {
        uint8_t *exact = malloc(bytes ? bytes : 1); /* for the address sanitizer to watch */
        assert_non_null(exact);
        memcpy(exact, packet, bytes);
        assert_false(reset_build(exact, bytes, &pair)); /* 60 of IP header leave none for TCP */
        free(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_get_a_reset),
        cmocka_unit_test(a_first_syn_is_refused),
        cmocka_unit_test(other_packets_pass),
        cmocka_unit_test(no_length_is_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
