/* What dashboards may say on raven.v1: hello, sub, resync. Service thread. Everything that is not
 * exactly that ends the connection: the only honest sender is our own page of the same release. */
#include "coordinator/hub/hub_internal.h"

#include <jansson.h>

static struct subscription *find_subscription(struct viewer *viewer, const char *channel)
{
    for (size_t i = 0; i < viewer->subscription_count; i++)
        if (strcmp(viewer->subscriptions[i].channel->name, channel) == 0)
            return &viewer->subscriptions[i];
    return NULL;
}

/* known: the viewer's newest sequence of each channel (an object), or NULL. */
static bool subscribe(struct viewer *viewer, const char *name, json_t *known,
                      const char **ret_detail)
{
    if (!channel_name_is_valid(name)) {
        *ret_detail = "a channel name is not valid";
        return false;
    }
    if (find_subscription(viewer, name))
        return true;
    struct channel *channel = channel_find(viewer->peer.hub->channels, name);
    if (!channel) {
        viewer_note_gone(viewer, name);
        return true;
    }
    if (viewer->subscription_count == VIEWER_SUBSCRIPTIONS_MAX) {
        *ret_detail = "more channels than one connection may have";
        return false;
    }
    json_t *sequence = known ? json_object_get(known, name) : NULL;
    bool resumes = sequence && json_integer_value(sequence) >= 0;
    subscription_init(&viewer->subscriptions[viewer->subscription_count++], channel, resumes,
                      resumes ? (uint64_t)json_integer_value(sequence) : 0);
    return true;
}

static void unsubscribe(struct viewer *viewer, const char *name)
{
    struct subscription *subscription = find_subscription(viewer, name);
    if (subscription)
        *subscription = viewer->subscriptions[--viewer->subscription_count];
}

static bool is_names(json_t *names)
{
    size_t i;
    json_t *name;
    if (!json_is_array(names) || json_array_size(names) > VIEWER_SUBSCRIPTIONS_MAX)
        return false;
    json_array_foreach(names, i, name) if (!json_is_string(name)) return false;
    return true;
}

static bool is_sequences(json_t *sequences)
{
    const char *name;
    json_t *sequence;
    if (!json_is_object(sequences))
        return false;
    json_object_foreach(sequences, name, sequence) if (!json_is_integer(sequence)) return false;
    return true;
}

static bool subscribe_all(struct viewer *viewer, json_t *names, json_t *known,
                          const char **ret_detail)
{
    for (size_t i = 0; i < json_array_size(names); i++)
        if (!subscribe(viewer, json_string_value(json_array_get(names, i)), known, ret_detail))
            return false;
    return true;
}

static bool apply_hello(struct viewer *viewer, json_t *hello, const char **ret_detail)
{
    json_t *epoch = json_object_get(hello, "epoch");
    json_t *known = json_object_get(hello, "seq");
    json_t *names = json_object_get(hello, "sub");
    *ret_detail = "hello is not well-formed";
    if (viewer->peer.is_ready || !is_names(names) || (epoch && !json_is_string(epoch)) ||
        (known && !is_sequences(known)))
        return false;
    bool is_same_run = epoch && strcmp(json_string_value(epoch), viewer->peer.hub->epoch) == 0;
    viewer->peer.is_ready = true;
    viewer->welcome_due = true;
    return subscribe_all(viewer, names, is_same_run ? known : NULL, ret_detail);
}

static bool apply_sub(struct viewer *viewer, json_t *sub, const char **ret_detail)
{
    json_t *add = json_object_get(sub, "add");
    json_t *del = json_object_get(sub, "del");
    *ret_detail = "sub is not well-formed";
    if (!viewer->peer.is_ready || (add && !is_names(add)) || (del && !is_names(del)))
        return false;
    for (size_t i = 0; i < json_array_size(del); i++)
        unsubscribe(viewer, json_string_value(json_array_get(del, i)));
    return subscribe_all(viewer, add, NULL, ret_detail);
}

static bool apply_resync(struct viewer *viewer, json_t *resync, const char **ret_detail)
{
    const char *name = json_string_value(json_object_get(resync, "ch"));
    *ret_detail = "resync is not well-formed";
    if (!viewer->peer.is_ready || !name)
        return false;
    struct subscription *subscription = find_subscription(viewer, name);
    if (subscription) /* else it has gone meanwhile, and the viewer was told */
        subscription->snapshot_due = true;
    return true;
}

bool viewer_apply_message(struct viewer *viewer, const char *text, size_t bytes,
                          const char **ret_detail)
{
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(root, "t"));
    bool is_good = false;
    *ret_detail = "not a message of raven.v1";
    if (type && strcmp(type, "hello") == 0)
        is_good = apply_hello(viewer, root, ret_detail);
    else if (type && strcmp(type, "sub") == 0)
        is_good = apply_sub(viewer, root, ret_detail);
    else if (type && strcmp(type, "resync") == 0)
        is_good = apply_resync(viewer, root, ret_detail);
    json_decref(root);
    return is_good;
}
