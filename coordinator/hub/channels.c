/* Channels and the viewers' places in them. A viewer costs a few numbers per channel: frames live
 * once, here, and who falls behind gets the newest snapshot instead of what it missed. */
#include "coordinator/hub/channels.h"

#include "common/base/bytes.h"

#include <stdlib.h>
#include <string.h>

bool channel_name_is_valid(const char *name)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_:.-";
    size_t length = strlen(name);
    return length > 0 && length < CHANNEL_NAME_BYTES && strspn(name, allowed) == length;
}

struct channel *channel_find(struct channel *first, const char *name)
{
    while (first && strcmp(first->name, name) != 0)
        first = first->next;
    return first;
}

static void clear_deltas(struct channel *channel)
{
    for (size_t i = 0; i < CHANNEL_DELTAS; i++) {
        shared_unref(channel->deltas[i]);
        channel->deltas[i] = NULL;
    }
    channel->delta_first = channel->sequence + 1;
}

static void add_delta(struct channel *channel, struct shared *delta)
{
    struct shared **slot = &channel->deltas[channel->sequence % CHANNEL_DELTAS];
    shared_unref(*slot);
    *slot = shared_ref(delta);
    if (channel->sequence - channel->delta_first >= CHANNEL_DELTAS)
        channel->delta_first = channel->sequence - CHANNEL_DELTAS + 1;
}

static struct channel *create(struct channel **first, const char *name, uint64_t sequence)
{
    struct channel *channel = calloc(1, sizeof *channel);
    if (!channel)
        return NULL;
    text_copy(channel->name, sizeof channel->name, name);
    channel->sequence = sequence - 1;
    channel->delta_first = sequence;
    channel->next = *first;
    *first = channel;
    return channel;
}

enum status channel_publish(struct channel **first, const char *name, uint64_t sequence,
                            struct shared *snapshot, struct shared *delta, struct channel **ret)
{
    struct channel *channel = channel_find(*first, name);
    bool is_new = !channel;
    if (is_new)
        channel = create(first, name, sequence);
    if (!channel)
        return STATUS_NO_MEMORY;
    bool follows = !is_new && sequence == channel->sequence + 1;
    channel->sequence = sequence;
    shared_unref(channel->snapshot);
    channel->snapshot = shared_ref(snapshot);
    if (follows && delta)
        add_delta(channel, delta);
    else
        clear_deltas(channel); /* no way from the old state to this one */
    *ret = channel;
    return STATUS_OK;
}

void channel_remove(struct channel **first, struct channel *channel)
{
    while (*first != channel)
        first = &(*first)->next;
    *first = channel->next;
    clear_deltas(channel);
    shared_unref(channel->snapshot);
    free(channel);
}

static bool has_delta(const struct channel *channel, uint64_t sequence)
{
    return sequence >= channel->delta_first && sequence <= channel->sequence;
}

void subscription_init(struct subscription *subscription, struct channel *channel, bool resumes,
                       uint64_t known)
{
    bool is_newest = resumes && known == channel->sequence;
    bool can_replay = resumes && known < channel->sequence && has_delta(channel, known + 1);
    *subscription = (struct subscription){
        .channel = channel,
        .next = is_newest || can_replay ? known + 1 : channel->sequence,
        .replay_until = channel->sequence,
        .snapshot_due = !is_newest && !can_replay,
    };
}

bool subscription_has_frame(const struct subscription *subscription)
{
    return subscription->snapshot_due || subscription->next != subscription->channel->sequence + 1;
}

struct shared *subscription_take_frame(struct subscription *subscription)
{
    const struct channel *channel = subscription->channel;
    if (!subscription_has_frame(subscription))
        return NULL;
    bool is_replay = subscription->next <= subscription->replay_until;
    bool is_near = channel->sequence - subscription->next < CHANNEL_BEHIND_MAX;
    if (!subscription->snapshot_due && has_delta(channel, subscription->next) &&
        (is_replay || is_near)) {
        struct shared *delta = channel->deltas[subscription->next % CHANNEL_DELTAS];
        subscription->next++;
        return shared_ref(delta);
    }
    subscription->snapshot_due = false;
    subscription->next = channel->sequence + 1;
    return shared_ref(channel->snapshot);
}
