/* Tests of direction.c with a clock of their own: exact times of departure, the drop-tail queue,
 * changes * of rate with a full queue, order, chance within its bounds, and the limit of memory.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/netlab/direction.h"

#include <math.h>

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)

static void set_up(struct direction *d, struct shape shape)
{
    assert_int_equal(direction_init(d, 42), STATUS_OK);
    direction_reshape(d, &shape, shape.rate_mbit, 0);
}

static void offer(struct direction *d, uint32_t bytes, uint8_t mark, int64_t now_ns)
{
    struct packet *packet = direction_packet(d);
    assert_non_null(packet);
    packet->bytes = bytes;
    packet->data[0] = mark;
    direction_offer(d, packet, now_ns);
}

/* The mark of the packet that arrives by now, or -1. */
static int take(struct direction *d, int64_t now_ns)
{
    struct packet *packet = direction_take(d, now_ns);
    if (!packet)
        return -1;
    int mark = packet->data[0];
    direction_delivered(d, packet, true);
    direction_recycle(d, packet);
    return mark;
}

static size_t take_all(struct direction *d, int64_t now_ns)
{
    size_t count = 0;
    while (take(d, now_ns) >= 0)
        count++;
    return count;
}

static void a_packet_takes_its_sending_time_and_the_delay(void **state)
{
    (void)state;
    struct direction d;
    set_up(&d, (struct shape){.rate_mbit = 8, .delay_ms = 10, .queue_ms = 100});
    assert_true(direction_next_ns(&d) == NEVER_NS);
    offer(&d, 1000, 1, 0); /* 1 ms at 8 Mbit/s */
    offer(&d, 1000, 2, 0);
    assert_true(direction_next_ns(&d) == 1 * MS);
    assert_int_equal(take(&d, 11 * MS - 1), -1);
    assert_true(direction_next_ns(&d) == 11 * MS);
    assert_int_equal(take(&d, 11 * MS), 1);
    assert_int_equal(take(&d, 12 * MS - 1), -1);
    assert_int_equal(take(&d, 12 * MS), 2);
    assert_true(direction_next_ns(&d) == NEVER_NS);
    direction_done(&d);
}

static void a_caller_that_is_late_changes_no_time(void **state)
{
    (void)state;
    struct direction d;
    set_up(&d, (struct shape){.rate_mbit = 8, .delay_ms = 1, .queue_ms = 1000});
    for (uint8_t i = 0; i < 100; i++)
        offer(&d, 1000, i, 0);
    assert_int_equal(take_all(&d, 51 * MS), 50);
    offer(&d, 1000, 200, 150 * MS); /* the queue has been empty since 100 ms */
    assert_int_equal(take_all(&d, 152 * MS - 1), 50);
    assert_int_equal(take(&d, 152 * MS), 200);
    direction_done(&d);
}

static void a_full_queue_drops_the_tail(void **state)
{
    (void)state;
    struct direction d;
    set_up(&d, (struct shape){.rate_mbit = 8, .queue_kb = 10});
    for (uint8_t i = 0; i < 20; i++)
        offer(&d, 1000, i, 0);
    assert_int_equal(d.counters.drops[DROP_QUEUE], 10);
    assert_int_equal(d.queue_bytes, 10000);
    assert_int_equal(d.counters.queue_bytes_peak, 10000);
    offer(&d, 240, 99, 0); /* a small one still fits */
    assert_int_equal(d.counters.drops[DROP_QUEUE], 10);
    assert_int_equal(take_all(&d, SECOND), 11);
    assert_int_equal(d.counters.packets_in, 21);
    assert_int_equal(d.counters.packets_out, 11);
    assert_int_equal(d.queue_bytes, 0);
    direction_done(&d);
}

static void a_full_queue_goes_on_at_a_new_rate(void **state)
{
    (void)state;
    struct direction d;
    set_up(&d, (struct shape){.rate_mbit = 8, .queue_ms = 100});
    for (uint8_t i = 0; i < 10; i++)
        offer(&d, 1000, i, 0);
    /* Half of the first is out; the other half, and the rest, take ten times as long. */
    direction_reshape(&d, &(struct shape){.rate_mbit = 0.8, .queue_ms = 100}, 8, MS / 2);
    assert_true(direction_next_ns(&d) == MS / 2 + 5 * MS);
    assert_int_equal(take_all(&d, MS / 2 + 5 * MS + 10 * MS), 2);
    direction_reshape(&d, &(struct shape){.rate_mbit = 0}, 0, 16 * MS);
    assert_int_equal(take_all(&d, 16 * MS), 8);
    direction_done(&d);
}

static void the_rate_is_the_rate(void **state)
{
    (void)state;
    struct direction d;
    set_up(&d, (struct shape){.rate_mbit = 50, .delay_ms = 10, .queue_ms = 100});
    for (int64_t now_ns = 0; now_ns < SECOND; now_ns += 100000) { /* 120 Mbit/s offered */
        offer(&d, 1500, 0, now_ns);
        (void)take_all(&d, now_ns);
    }
    double mbit = (double)d.counters.bytes_out * 8 / 1e6 / 0.99; /* 10 ms of delay */
    assert_true(fabs(mbit - 50) < 0.1);
    /* The queue stands at its 100 ms. */
    assert_true(d.queue_bytes > 620000 && d.queue_bytes <= 625000);
    direction_done(&d);
}

/* The share that is lost out of 200,000, one every 20 µs. */
static double lost_share(struct shape shape, double *ret_run_length)
{
    struct direction d;
    set_up(&d, shape);
    uint64_t lost_before = 0, runs = 0;
    bool was_lost = false;
    for (int i = 0; i < 200000; i++) {
        offer(&d, 100, 0, i * INT64_C(20000));
        uint64_t lost = d.counters.drops[DROP_LOSS] + d.counters.drops[DROP_BURST];
        runs += lost != lost_before && !was_lost;
        was_lost = lost != lost_before;
        lost_before = lost;
        (void)take_all(&d, i * INT64_C(20000));
    }
    double share = (double)lost_before / 200000;
    *ret_run_length = runs ? (double)lost_before / (double)runs : 0;
    direction_done(&d);
    return share;
}

static void loss_and_bursts_have_their_share_and_length(void **state)
{
    (void)state;
    double length;
    assert_true(fabs(lost_share((struct shape){.loss = 0.01}, &length) - 0.01) < 0.001);
    assert_true(length < 1.1);
    struct shape bursts = {.burst_share = 0.03, .burst_packets = 8, .burst_loss = 1};
    assert_true(fabs(lost_share(bursts, &length) - 0.03) < 0.003);
    assert_true(fabs(length - 8) < 0.8);
    bursts.burst_loss = 0.5;
    assert_true(fabs(lost_share(bursts, &length) - 0.015) < 0.002);
}

static void jitter_keeps_order_and_reordering_does_not(void **state)
{
    (void)state;
    struct direction d;
    set_up(&d, (struct shape){.delay_ms = 20, .jitter_ms = 10});
    int last = -1;
    for (int i = 0; i < 100; i++)
        offer(&d, 100, (uint8_t)i, i * MS);
    for (int64_t now_ns = 0; now_ns < SECOND; now_ns += MS / 4)
        for (int mark; (mark = take(&d, now_ns)) >= 0; last = mark) {
            assert_int_equal(mark, last + 1);
            /* Between delay - jitter and delay + jitter after it was sent. */
            assert_true(now_ns >= mark * MS + 10 * MS && now_ns <= mark * MS + 31 * MS);
        }
    assert_int_equal(last, 99);
    direction_reshape(&d, &(struct shape){.delay_ms = 20, .reorder = 1, .gap_ms = 5}, 0, SECOND);
    offer(&d, 100, 1, SECOND);
    assert_int_equal(take(&d, SECOND + 15 * MS), 1);
    assert_int_equal(d.counters.reordered, 1);
    direction_done(&d);
}

static void duplicates_arrive_twice(void **state)
{
    (void)state;
    struct direction d;
    set_up(&d, (struct shape){.delay_ms = 1, .duplicate = 1});
    offer(&d, 100, 5, 0);
    assert_int_equal(take(&d, MS), 5);
    assert_int_equal(take(&d, MS), 5);
    assert_int_equal(take(&d, MS), -1);
    assert_int_equal(d.counters.duplicates, 1);
    direction_done(&d);
}

static void a_flush_drops_queue_and_line(void **state)
{
    (void)state;
    struct direction d;
    set_up(&d, (struct shape){.rate_mbit = 8, .delay_ms = 100, .queue_ms = 1000});
    for (uint8_t i = 0; i < 20; i++)
        offer(&d, 1000, i, 0);
    assert_int_equal(take(&d, 10 * MS), -1); /* ten are in the line */
    direction_flush(&d);
    assert_int_equal(d.counters.drops[DROP_OUTAGE], 20);
    assert_true(direction_next_ns(&d) == NEVER_NS && d.queue_bytes == 0);
    offer(&d, 1000, 77, 20 * MS);
    assert_int_equal(take(&d, 121 * MS), 77);
    direction_done(&d);
}

static void memory_is_bounded(void **state)
{
    (void)state;
    struct direction d;
    set_up(&d, (struct shape){.delay_ms = 1000, .duplicate = 0.5});
    size_t count = 0;
    struct packet *packet;
    while ((packet = direction_packet(&d))) {
        packet->bytes = 40;
        direction_offer(&d, packet, 0);
        assert_true(++count <= DIRECTION_PACKETS_MAX);
    }
    assert_int_equal(d.packets_held, DIRECTION_PACKETS_MAX);
    assert_int_equal(d.line_count, DIRECTION_PACKETS_MAX);
    assert_int_equal(take_all(&d, 2 * SECOND), DIRECTION_PACKETS_MAX);
    packet = direction_packet(&d);
    assert_non_null(packet);
    packet->bytes = 40;
    direction_refuse(&d, packet, DROP_RESET);
    assert_int_equal(d.counters.drops[DROP_RESET], 1);
    direction_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packet_takes_its_sending_time_and_the_delay),
        cmocka_unit_test(a_caller_that_is_late_changes_no_time),
        cmocka_unit_test(a_full_queue_drops_the_tail),
        cmocka_unit_test(a_full_queue_goes_on_at_a_new_rate),
        cmocka_unit_test(the_rate_is_the_rate),
        cmocka_unit_test(loss_and_bursts_have_their_share_and_length),
        cmocka_unit_test(jitter_keeps_order_and_reordering_does_not),
        cmocka_unit_test(duplicates_arrive_twice),
        cmocka_unit_test(a_flush_drops_queue_and_line),
        cmocka_unit_test(memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
