/* A link's state and its packets. One function, link_refresh, decides from the clock, the script
 * and the commands whether the line is there and what it is like. Its surprise: while a link is
 * gone its devices stay up, as at home, where the PC sees its router and not the line. */
#include "tests/netlab/link.h"

#include "tests/netlab/reset.h"

#include <string.h>
#include <unistd.h>

#define BATCH_PACKETS 64
#define NS_PER_MS INT64_C(1000000)

enum status link_init(struct link *link, const struct plan *plan, uint64_t seed,
                      struct events *events)
{
    *link = (struct link){
        .plan = *plan, .fds = {-1, -1}, .namespace_fd = -1, .events = events, .phase = SIZE_MAX};
    for (int way = 0; way < WAY_COUNT; way++) {
        uint64_t stream = plan->number * 2 + (unsigned)way;
        enum status status = direction_init(&link->directions[way], seed << 16 ^ stream);
        if (status != STATUS_OK) {
            link_done(link);
            return status;
        }
    }
    return STATUS_OK;
}

void link_done(struct link *link)
{
    for (int way = 0; way < WAY_COUNT; way++) {
        direction_done(&link->directions[way]);
        if (link->fds[way] >= 0)
            (void)close(link->fds[way]);
    }
    if (link->namespace_fd >= 0)
        (void)close(link->namespace_fd);
}

static uint64_t drops_of(const struct link *link, enum drop drop)
{
    return link->directions[WAY_DOWN].counters.drops[drop] +
           link->directions[WAY_UP].counters.drops[drop];
}

/* The script's phase now, or NULL; sets change_ns to its end. */
static const struct phase *find_phase(struct link *link, int64_t now_ns, size_t *ret_index)
{
    const struct script *script = &link->plan.script;
    link->change_ns = NEVER_NS;
    *ret_index = SIZE_MAX;
    if (!script->phase_count)
        return NULL;
    int64_t end_ms;
    *ret_index = script_phase_at(script, now_ns / NS_PER_MS, &end_ms);
    link->change_ns = end_ms * NS_PER_MS;
    return &script->phases[*ret_index];
}

static void note_phase(struct link *link, const struct phase *phase, int64_t now_ns)
{
    char text[EVENT_TEXT_BYTES + PHASE_SETTINGS_BYTES];
    (void)snprintf(text, sizeof text, "phase %zu of %zu:%s%s %s", link->phase + 1,
                   link->plan.script.phase_count, phase->down ? " down" : "",
                   phase->reset ? " reset" : "",
                   phase->settings[0]            ? phase->settings
                   : phase->down || phase->reset ? ""
                                                 : "as the profile says");
    (void)events_add(link->events, now_ns / NS_PER_MS, link->plan.number, "phase", text);
}

static void apply_shapes(struct link *link, const struct phase *phase, int64_t now_ns)
{
    struct shape shapes[WAY_COUNT];
    /* The settings were checked when the script was read; a later base cannot make them wrong but
     * for a rate beyond its limits, and then the base's own stays. */
    if (!phase || phase_apply(phase, link->plan.base, shapes, NULL) != STATUS_OK)
        memcpy(shapes, link->plan.base, sizeof shapes);
    for (int way = 0; way < WAY_COUNT; way++)
        direction_reshape(&link->directions[way], &shapes[way], link->plan.base[way].rate_mbit,
                          now_ns);
}

/* A state begins or ends: keeps its start, and makes the event of its end tell length and cost. */
static void switch_state(struct link *link, bool on, int64_t now_ns, const char *kind,
                         enum drop drop, int64_t *since_ns, uint64_t *drops)
{
    struct event *event = events_add(link->events, now_ns / NS_PER_MS, link->plan.number, kind, "");
    if (on) {
        *since_ns = now_ns;
        *drops = drops_of(link, drop);
        return;
    }
    event->duration_ms = (now_ns - *since_ns) / NS_PER_MS;
    event->packets_dropped = drops_of(link, drop) - *drops;
}

static void wake_at(struct link *link, int64_t now_ns, int64_t at_ns)
{
    if (at_ns > now_ns && at_ns < link->change_ns)
        link->change_ns = at_ns;
}

void link_refresh(struct link *link, int64_t now_ns, bool replan)
{
    size_t index;
    const struct phase *phase = find_phase(link, now_ns, &index);
    bool is_new_phase = index != link->phase;
    link->phase = index;
    if (is_new_phase && phase)
        note_phase(link, phase, now_ns);
    if (is_new_phase || replan)
        apply_shapes(link, phase, now_ns);

    bool gone = link->is_down || now_ns < link->outage_until_ns || (phase && phase->down);
    if (gone != link->is_gone) {
        link->is_gone = gone;
        link->outage_count += gone;
        link->outage_ns += gone ? 0 : now_ns - link->gone_since_ns;
        switch_state(link, gone, now_ns, gone ? "outage_begin" : "outage_end", DROP_OUTAGE,
                     &link->gone_since_ns, &link->gone_drops);
        for (int way = 0; gone && way < WAY_COUNT; way++)
            direction_flush(&link->directions[way]);
    }
    bool resetting = now_ns < link->reset_until_ns || (phase && phase->reset);
    if (resetting != link->is_resetting) {
        link->is_resetting = resetting;
        switch_state(link, resetting, now_ns, resetting ? "reset_begin" : "reset_end", DROP_RESET,
                     &link->reset_since_ns, &link->reset_drops);
    }
    wake_at(link, now_ns, link->outage_until_ns);
    wake_at(link, now_ns, link->reset_until_ns);
}

/* A RST that the device refuses is one lost RST: the next segment makes another. */
static void cut_connection(const struct link *link, enum way way, const struct reset_pair *pair)
{
    ssize_t written = write(link->fds[way], pair->to_sender, RESET_BYTES);
    written += write(link->fds[!way], pair->to_receiver, RESET_BYTES);
    (void)written;
}

static void take_in(struct link *link, enum way way, struct packet *packet, int64_t now_ns)
{
    struct direction *direction = &link->directions[way];
    struct reset_pair pair;
    if (link->is_gone) {
        direction_refuse(direction, packet, DROP_OUTAGE);
    } else if (link->is_resetting && reset_build(packet->data, packet->bytes, &pair)) {
        direction_refuse(direction, packet, DROP_RESET);
        cut_connection(link, way, &pair);
    } else {
        direction_offer(direction, packet, now_ns);
    }
}

/* No packet is free: the device's own queue must not be left to fill up with old packets. */
static bool discard_one(struct link *link, enum way way)
{
    uint8_t data[PACKET_BYTES_MAX];
    ssize_t bytes = read(link->fds[way], data, sizeof data);
    if (bytes <= 0)
        return false;
    struct counters *counters = &link->directions[way].counters;
    counters->packets_in++;
    counters->bytes_in += (uint64_t)bytes;
    counters->drops[DROP_MEMORY]++;
    return true;
}

void link_read(struct link *link, enum way way, int64_t now_ns)
{
    struct direction *direction = &link->directions[way];
    for (int i = 0; i < BATCH_PACKETS; i++) {
        struct packet *packet = direction_packet(direction);
        if (!packet) {
            if (!discard_one(link, way))
                return;
            continue;
        }
        ssize_t bytes = read(link->fds[way], packet->data, sizeof packet->data);
        if (bytes <= 0) {
            direction_recycle(direction, packet);
            return;
        }
        packet->bytes = (uint32_t)bytes;
        take_in(link, way, packet, now_ns);
    }
}

void link_write(struct link *link, int64_t now_ns)
{
    for (int way = 0; way < WAY_COUNT; way++) {
        struct direction *direction = &link->directions[way];
        for (int i = 0; i < BATCH_PACKETS; i++) {
            struct packet *packet = direction_take(direction, now_ns);
            if (!packet)
                break;
            ssize_t written = write(link->fds[!way], packet->data, packet->bytes);
            direction_delivered(direction, packet, written == (ssize_t)packet->bytes);
            direction_recycle(direction, packet);
        }
    }
}

int64_t link_next_ns(const struct link *link)
{
    int64_t next_ns = link->change_ns;
    for (int way = 0; way < WAY_COUNT; way++) {
        int64_t way_ns = direction_next_ns(&link->directions[way]);
        next_ns = way_ns < next_ns ? way_ns : next_ns;
    }
    return next_ns;
}

int64_t link_outage_ms(const struct link *link, int64_t now_ns)
{
    return (link->outage_ns + (link->is_gone ? now_ns - link->gone_since_ns : 0)) / NS_PER_MS;
}
