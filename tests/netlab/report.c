/* What a lab says about itself. Runs on the emulator's thread. Its surprise: the JSON has every
 * number since the start of the lab; a bench subtracts two of them to get a rate. */
#include "tests/netlab/report.h"

#include "common/base/clock.h"

#include <jansson.h>
#include <stdlib.h>

#define NS_PER_S 1e9

/* Takes document; NULL stands for out of memory while it was built. */
static enum status append_json(json_t *document, struct buffer *answer)
{
    if (!document)
        return STATUS_NO_MEMORY;
    char *text = json_dumps(document, JSON_INDENT(1));
    json_decref(document);
    if (!text)
        return STATUS_NO_MEMORY;
    enum status status = buffer_printf(answer, "%s\n", text);
    free(text);
    return status;
}

static json_t *direction_json(const struct direction *direction)
{
    const struct counters *counters = &direction->counters;
    json_t *drops = json_object();
    for (int i = 0; i < DROP_COUNT; i++)
        if (json_object_set_new(drops, drop_name((enum drop)i),
                                json_integer((json_int_t)counters->drops[i])) != 0) {
            json_decref(drops);
            return NULL;
        }
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:I,s:I,s:I,s:I,s:f}", "packets_in",
                     (json_int_t)counters->packets_in, "bytes_in", (json_int_t)counters->bytes_in,
                     "packets_out", (json_int_t)counters->packets_out, "bytes_out",
                     (json_int_t)counters->bytes_out, "duplicates",
                     (json_int_t)counters->duplicates, "reordered", (json_int_t)counters->reordered,
                     "drops", drops, "queue_bytes", (json_int_t)direction->queue_bytes,
                     "queue_bytes_max", (json_int_t)direction->queue_bytes_max, "queue_bytes_peak",
                     (json_int_t)counters->queue_bytes_peak, "line_packets",
                     (json_int_t)direction->line_count, "rate_mbit", direction->shape.rate_mbit);
}

static json_t *link_json(const struct link *link, int64_t now_ns)
{
    char name[16];
    (void)snprintf(name, sizeof name, "c%u", link->plan.number);
    return json_pack(
        "{s:s,s:s,s:b,s:b,s:I,s:I,s:I,s:o,s:o}", "link", name, "profile", link->plan.profile,
        "gone", (int)link->is_gone, "resetting", (int)link->is_resetting, "phase",
        link->plan.script.phase_count ? (json_int_t)link->phase + 1 : (json_int_t)0, "outages",
        (json_int_t)link->outage_count, "outage_ms", (json_int_t)link_outage_ms(link, now_ns),
        "down", direction_json(&link->directions[WAY_DOWN]), "up",
        direction_json(&link->directions[WAY_UP]));
}

static enum status stats_json(const struct links *links, const bool *chosen, int64_t now_ns,
                              struct buffer *answer)
{
    char wall[CLOCK_RFC3339_BYTES];
    clock_format_rfc3339(clock_wall_ms(), wall);
    json_t *list = json_array();
    for (size_t i = 0; i < links->count; i++)
        if (chosen[i] && json_array_append_new(list, link_json(&links->links[i], now_ns)) != 0) {
            json_decref(list);
            return STATUS_NO_MEMORY;
        }
    return append_json(json_pack("{s:f,s:s,s:o}", "since_start_s", (double)now_ns / NS_PER_S,
                                 "time", wall, "links", list),
                       answer);
}

static enum status direction_text(const struct link *link, enum way way, int64_t now_ns,
                                  struct buffer *answer)
{
    const struct direction *direction = &link->directions[way];
    const struct counters *counters = &direction->counters;
    char name[16];
    (void)snprintf(name, sizeof name, "c%u", link->plan.number);
    enum status status =
        buffer_printf(answer, "%-5s %-12s %-5s %-5s %8g %10llu %10.1f %10.1f %9.1f", name,
                      link->plan.profile, way_name(way),
                      link->is_gone        ? "gone"
                      : link->is_resetting ? "reset"
                                           : "ok",
                      direction->shape.rate_mbit, (unsigned long long)counters->packets_out,
                      (double)counters->bytes_in / 1e6, (double)counters->bytes_out / 1e6,
                      (double)direction->queue_bytes / 1e3);
    for (int i = 0; status == STATUS_OK && i < DROP_COUNT; i++)
        if (counters->drops[i])
            status = buffer_printf(answer, " %s=%llu", drop_name((enum drop)i),
                                   (unsigned long long)counters->drops[i]);
    if (status == STATUS_OK && way == WAY_UP && link->outage_count)
        status = buffer_printf(answer, " (%llu outages, %lld ms)",
                               (unsigned long long)link->outage_count,
                               (long long)link_outage_ms(link, now_ns));
    return status == STATUS_OK ? buffer_append_text(answer, "\n") : status;
}

static enum status stats_text(const struct links *links, const bool *chosen, int64_t now_ns,
                              struct buffer *answer)
{
    enum status status = buffer_printf(
        answer, "%.1f s since the start\n%-5s %-12s %-5s %-5s %8s %10s %10s %10s %9s %s\n",
        (double)now_ns / NS_PER_S, "LINK", "PROFILE", "WAY", "STATE", "MBIT/S", "PACKETS", "MB IN",
        "MB OUT", "KB QUEUED", "DROPPED");
    for (size_t i = 0; i < links->count; i++)
        for (int way = 0; chosen[i] && status == STATUS_OK && way < WAY_COUNT; way++)
            status = direction_text(&links->links[i], (enum way)way, now_ns, answer);
    return status;
}

enum status report_stats(const struct links *links, const bool *chosen, int64_t now_ns, bool json,
                         struct buffer *answer)
{
    return json ? stats_json(links, chosen, now_ns, answer)
                : stats_text(links, chosen, now_ns, answer);
}

static json_t *event_json(const struct event *event)
{
    char name[16], wall[CLOCK_RFC3339_BYTES];
    (void)snprintf(name, sizeof name, "c%u", event->link);
    clock_format_rfc3339(event->wall_ms, wall);
    json_t *object =
        json_pack("{s:f,s:s,s:s,s:s,s:s}", "t", (double)event->at_ms / 1e3, "time", wall, "link",
                  event->link ? name : "lab", "event", event->kind, "text", event->text);
    if (object && event->duration_ms >= 0 &&
        (json_object_set_new(object, "duration_ms", json_integer(event->duration_ms)) != 0 ||
         json_object_set_new(object, "packets_dropped",
                             json_integer((json_int_t)event->packets_dropped)) != 0)) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static enum status event_text(const struct event *event, struct buffer *answer)
{
    char name[16];
    (void)snprintf(name, sizeof name, "c%u", event->link);
    enum status status =
        buffer_printf(answer, "%10.3f s  %-5s %-13s %s", (double)event->at_ms / 1e3,
                      event->link ? name : "lab", event->kind, event->text);
    if (status == STATUS_OK && event->duration_ms >= 0)
        status = buffer_printf(answer, "after %lld ms, %llu packets dropped",
                               (long long)event->duration_ms,
                               (unsigned long long)event->packets_dropped);
    return status == STATUS_OK ? buffer_append_text(answer, "\n") : status;
}

static bool is_chosen(const struct links *links, const bool *chosen, const struct event *event)
{
    for (size_t i = 0; i < links->count; i++)
        if (links->links[i].plan.number == event->link)
            return chosen[i];
    return true;
}

enum status report_events(const struct links *links, const bool *chosen, bool json,
                          struct buffer *answer)
{
    const struct events *events = links->events;
    json_t *list = json ? json_array() : NULL;
    if (json && !list)
        return STATUS_NO_MEMORY;
    enum status status = STATUS_OK;
    for (uint64_t i = events_first(events); status == STATUS_OK && i < events->count; i++) {
        const struct event *event = events_at(events, i);
        if (!is_chosen(links, chosen, event))
            continue;
        if (!json)
            status = event_text(event, answer);
        else if (json_array_append_new(list, event_json(event)) != 0)
            status = STATUS_NO_MEMORY;
    }
    if (!json)
        return status;
    if (status != STATUS_OK) {
        json_decref(list);
        return status;
    }
    return append_json(
        json_pack("{s:o,s:I}", "events", list, "lost", (json_int_t)events_first(events)), answer);
}
