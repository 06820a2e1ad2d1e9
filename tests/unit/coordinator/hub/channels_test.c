/* Which frames a viewer gets: contiguous deltas, replay after a reconnect, snapshots when the way
 * is lost or too long. */
#include "coordinator/hub/channels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct channel *publish(struct channel **first, uint64_t sequence, bool with_delta)
{
    char text[32];
    struct channel *channel = NULL;
    snprintf(text, sizeof text, "snap %d", (int)sequence);
    struct shared *snapshot = shared_create(text, strlen(text) + 1);
    snprintf(text, sizeof text, "d %d", (int)sequence);
    struct shared *delta = with_delta ? shared_create(text, strlen(text) + 1) : NULL;
    assert_int_equal(channel_publish(first, "overview", sequence, snapshot, delta, &channel),
                     STATUS_OK);
    shared_unref(snapshot);
    shared_unref(delta);
    return channel;
}

static struct channel *publish_range(struct channel **first, uint64_t from, uint64_t to)
{
    struct channel *channel = NULL;
    for (uint64_t sequence = from; sequence <= to; sequence++)
        channel = publish(first, sequence, true);
    return channel;
}

static void expect(struct subscription *subscription, const char *text)
{
    assert_true(subscription_has_frame(subscription) == (text != NULL));
    struct shared *frame = subscription_take_frame(subscription);
    if (text) {
        assert_non_null(frame);
        assert_string_equal((const char *)shared_data(frame), text);
    } else {
        assert_null(frame);
    }
    shared_unref(frame);
}

static void test_names(void **state)
{
    (void)state;
    char longest[CHANNEL_NAME_BYTES + 1];
    memset(longest, 'a', sizeof longest);
    longest[CHANNEL_NAME_BYTES] = '\0';
    assert_true(channel_name_is_valid("job:job_01JD0000000000000000000000"));
    assert_false(channel_name_is_valid(longest));
    longest[CHANNEL_NAME_BYTES - 1] = '\0';
    assert_true(channel_name_is_valid(longest));
    assert_false(channel_name_is_valid(""));
    assert_false(channel_name_is_valid("a\"b"));
    assert_false(channel_name_is_valid("a\\b"));
    assert_false(channel_name_is_valid("\xc3\xa4"));
}

static void test_snapshot_then_deltas(void **state)
{
    (void)state;
    struct channel *first = NULL;
    struct subscription subscription;
    struct channel *channel = publish(&first, 1, false);
    subscription_init(&subscription, channel, false, 0);
    expect(&subscription, "snap 1");
    expect(&subscription, NULL);
    publish_range(&first, 2, 3);
    expect(&subscription, "d 2");
    expect(&subscription, "d 3");
    expect(&subscription, NULL);
    publish(&first, 4, false);
    expect(&subscription, "snap 4");
    publish(&first, 5, true);
    expect(&subscription, "d 5");
    publish(&first, 7, true); /* a gap: nobody can get there by deltas */
    expect(&subscription, "snap 7");
    publish(&first, 2, true); /* started again */
    expect(&subscription, "snap 2");
    expect(&subscription, NULL);
    channel_remove(&first, channel);
}

static void test_too_far_behind_is_conflated(void **state)
{
    (void)state;
    struct channel *first = NULL;
    struct subscription subscription;
    struct channel *channel = publish(&first, 1, false);
    subscription_init(&subscription, channel, false, 0);
    expect(&subscription, "snap 1");
    publish_range(&first, 2, 9); /* 8 behind: the longest queue */
    expect(&subscription, "d 2");
    publish_range(&first, 10, 11); /* 9 behind */
    expect(&subscription, "snap 11");
    expect(&subscription, NULL);
    channel_remove(&first, channel);
}

static void test_resumption(void **state)
{
    (void)state;
    char text[32];
    struct channel *first = NULL;
    struct subscription subscription;
    struct channel *channel = publish_range(&first, 1, 100);
    subscription_init(&subscription, channel, true, 40); /* exactly the last 60 */
    for (int sequence = 41; sequence <= 100; sequence++) {
        snprintf(text, sizeof text, "d %d", sequence);
        expect(&subscription, text);
    }
    expect(&subscription, NULL);
    subscription_init(&subscription, channel, true, 39); /* one too old */
    expect(&subscription, "snap 100");
    expect(&subscription, NULL);
    subscription_init(&subscription, channel, true, 100);
    expect(&subscription, NULL);
    subscription_init(&subscription, channel, true, 101); /* from the future */
    expect(&subscription, "snap 100");
    subscription_init(&subscription, channel, true, UINT64_MAX);
    expect(&subscription, "snap 100");
    subscription_init(&subscription, channel, true, 90);
    expect(&subscription, "d 91");
    publish_range(&first, 101, 160); /* the rest of the replay fell out of the ring */
    expect(&subscription, "snap 160");
    channel_remove(&first, channel);
    assert_null(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_snapshot_then_deltas),
        cmocka_unit_test(test_too_far_behind_is_conflated),
        cmocka_unit_test(test_resumption),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
