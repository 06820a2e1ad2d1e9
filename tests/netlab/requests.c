/* Commands to a running lab. Runs on the emulator's thread. Its surprise: a command for several
 * links is checked on copies first and then done for all of them or none. */
#include "tests/netlab/requests.h"

#include "common/base/bytes.h"
#include "tests/netlab/report.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_MS INT64_C(1000000)
#define COMMAND_MS_MAX 86400000.0

/* One command being handled. */
struct request {
    struct links *links;
    char **words; /* behind the command and the link */
    size_t count;
    bool chosen[LINKS_MAX];
    int64_t now_ns;
    struct buffer *answer;
    int *ret_fd;
};

typedef enum status handle(struct request *request, struct error *err);

struct command {
    const char *name;
    handle *handle;
    bool needs_link;
    size_t words_min, words_max; /* behind the link, if one is needed */
    const char *usage, *help;
};

static enum status parse_duration(const char *text, int64_t *ret_ns, struct error *err)
{
    char *end;
    double ms = strtod(text, &end);
    if (end == text || *end || !(ms >= 1 && ms <= COMMAND_MS_MAX))
        return error_set(err, STATUS_INVALID,
                         "MS: '%.24s' does not do; write milliseconds from 1 "
                         "to %.0f such as 10000",
                         text, COMMAND_MS_MAX);
    *ret_ns = (int64_t)(ms * (double)NS_PER_MS);
    return STATUS_OK;
}

static void join_words(const struct request *request, char *ret, size_t bytes)
{
    size_t length = 0;
    ret[0] = 0;
    for (size_t i = 0; i < request->count && length < bytes; i++)
        length +=
            (size_t)snprintf(ret + length, bytes - length, "%s%s", i ? " " : "", request->words[i]);
}

/* Notes the command and lets every chosen link find its new state. */
static void finish(struct request *request, const char *kind, bool replan)
{
    char text[EVENT_TEXT_BYTES * 2];
    join_words(request, text, sizeof text);
    for (size_t i = 0; i < request->links->count; i++) {
        struct link *link = &request->links->links[i];
        if (!request->chosen[i])
            continue;
        (void)events_add(request->links->events, request->now_ns / NS_PER_MS, link->plan.number,
                         kind, text);
        link_refresh(link, request->now_ns, replan);
    }
}

static enum status handle_set(struct request *request, struct error *err)
{
    const char *way = request->words[0];
    unsigned ways = strcmp(way, "both") == 0   ? WAYS_BOTH
                    : strcmp(way, "up") == 0   ? WAYS_UP
                    : strcmp(way, "down") == 0 ? WAYS_DOWN
                                               : 0;
    if (!ways)
        return error_set(err, STATUS_INVALID,
                         "direction: '%.24s' does not do; write up, down or "
                         "both",
                         way);
    struct shape changed[LINKS_MAX][WAY_COUNT];
    for (size_t i = 0; i < request->links->count; i++) {
        const struct plan *plan = &request->links->links[i].plan;
        memcpy(changed[i], plan->base, sizeof changed[i]);
        for (size_t word = 1; request->chosen[i] && word < request->count; word++) {
            enum status status = shape_set(changed[i], plan->base, ways, request->words[word], err);
            if (status != STATUS_OK)
                return status;
        }
    }
    for (size_t i = 0; i < request->links->count; i++)
        memcpy(request->links->links[i].plan.base, changed[i], sizeof changed[i]);
    finish(request, "set", true);
    return STATUS_OK;
}

static enum status handle_profile(struct request *request, struct error *err)
{
    struct plan plan;
    enum status status = profile_find(request->words[0], &plan, err);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < request->links->count; i++) {
        struct link *link = &request->links->links[i];
        if (!request->chosen[i])
            continue;
        plan.number = link->plan.number;
        link->plan = plan;
        link->phase = SIZE_MAX - 1; /* no phase of the old script is one of the new */
    }
    finish(request, "profile", true);
    return STATUS_OK;
}

/* until: where in a link the end of it is kept. */
static enum status begin_for_some_time(struct request *request, const char *what, size_t until,
                                       struct error *err)
{
    int64_t duration_ns = 0;
    enum status status = parse_duration(request->words[0], &duration_ns, err);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < request->links->count; i++)
        if (request->chosen[i])
            *(int64_t *)(void *)((char *)&request->links->links[i] + until) =
                request->now_ns + duration_ns;
    finish(request, what, false);
    return STATUS_OK;
}

static enum status handle_outage(struct request *request, struct error *err)
{
    return begin_for_some_time(request, "outage", offsetof(struct link, outage_until_ns), err);
}

static enum status handle_reset(struct request *request, struct error *err)
{
    return begin_for_some_time(request, "reset", offsetof(struct link, reset_until_ns), err);
}

static enum status handle_down(struct request *request, struct error *err)
{
    (void)err;
    for (size_t i = 0; i < request->links->count; i++)
        request->links->links[i].is_down |= request->chosen[i];
    finish(request, "down", false);
    return STATUS_OK;
}

/* Also ends an outage before its time; a script's own outage goes on. */
static enum status handle_up(struct request *request, struct error *err)
{
    (void)err;
    for (size_t i = 0; i < request->links->count; i++)
        if (request->chosen[i]) {
            request->links->links[i].is_down = false;
            request->links->links[i].outage_until_ns = 0;
        }
    finish(request, "up", false);
    return STATUS_OK;
}

static enum status choose_links(struct request *request, const char *where, struct error *err)
{
    bool found = false;
    char name[16];
    for (size_t i = 0; i < request->links->count; i++) {
        (void)snprintf(name, sizeof name, "c%u", request->links->links[i].plan.number);
        request->chosen[i] = strcmp(where, "all") == 0 || strcmp(where, name) == 0;
        found |= request->chosen[i];
    }
    if (found)
        return STATUS_OK;
    char names[200] = "";
    for (size_t i = 0, length = 0; i < request->links->count && length < sizeof names; i++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%sc%u", i ? ", " : "",
                                   request->links->links[i].plan.number);
    return error_set(err, STATUS_NOT_FOUND, "there is no link '%.24s'; the links are %s, and all",
                     where, names);
}

/* stats and events take [--json] [LINK] in any order. */
static enum status read_options(struct request *request, bool *ret_json, struct error *err)
{
    const char *where = "all";
    *ret_json = false;
    for (size_t i = 0; i < request->count; i++)
        if (strcmp(request->words[i], "--json") == 0)
            *ret_json = true;
        else
            where = request->words[i];
    return choose_links(request, where, err);
}

static enum status handle_stats(struct request *request, struct error *err)
{
    bool json;
    enum status status = read_options(request, &json, err);
    if (status == STATUS_OK)
        status =
            report_stats(request->links, request->chosen, request->now_ns, json, request->answer);
    return status;
}

static enum status handle_events(struct request *request, struct error *err)
{
    bool json;
    enum status status = read_options(request, &json, err);
    if (status == STATUS_OK)
        status = report_events(request->links, request->chosen, json, request->answer);
    return status;
}

static enum status handle_enter(struct request *request, struct error *err)
{
    const char *where = request->words[0];
    if (strcmp(where, "hub") == 0) {
        *request->ret_fd = request->links->hub_fd;
        return STATUS_OK;
    }
    if (strcmp(where, "all") == 0)
        return error_set(err, STATUS_INVALID, "a command runs in one place; write hub or a link");
    enum status status = choose_links(request, where, err);
    for (size_t i = 0; status == STATUS_OK && i < request->links->count; i++)
        if (request->chosen[i])
            *request->ret_fd = request->links->links[i].namespace_fd;
    return status;
}

static const struct command commands[] = {
    {"set", handle_set, true, 2, REQUEST_WORDS_MAX, "set LINK|all up|down|both KEY=VALUE…",
     "changes the line from now on (the script's phases apply on top)"},
    {"profile", handle_profile, true, 1, 1, "profile LINK|all NAME",
     "makes it another kind of line, with that profile's script"},
    {"outage", handle_outage, true, 1, 1, "outage LINK|all MS",
     "the line is gone for so long; what is under way is lost"},
    {"down", handle_down, true, 0, 0, "down LINK|all", "the line is gone until `up`"},
    {"up", handle_up, true, 0, 0, "up LINK|all", "ends `down` and `outage`"},
    {"reset", handle_reset, true, 1, 1, "reset LINK|all MS",
     "for so long every TCP segment seen is answered with RST to both ends"},
    {"stats", handle_stats, false, 0, 2, "stats [--json] [LINK]",
     "what went through, what was dropped and why"},
    {"events", handle_events, false, 0, 2, "events [--json] [LINK]",
     "what happened to the links and when"},
    {"enter", handle_enter, false, 1, 1, NULL, NULL}, /* what exec uses */
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

bool requests_knows(const char *command)
{
    const struct command *found = find_command(command);
    return found && found->usage;
}

void requests_print_help(FILE *out)
{
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        if (commands[i].usage)
            (void)fprintf(out, "  raven-netlab %s\n      %s\n", commands[i].usage,
                          commands[i].help);
}

enum status requests_handle(struct links *links, char **words, size_t count, int64_t now_ns,
                            struct buffer *answer, int *ret_fd, struct error *err)
{
    const struct command *command = count ? find_command(words[0]) : NULL;
    if (!command)
        return error_set(err, STATUS_INVALID, "there is no command '%.24s'; see raven-netlab help",
                         count ? words[0] : "");
    size_t skipped = command->needs_link ? 2 : 1;
    if (count < skipped + command->words_min || count > skipped + command->words_max)
        return error_set(err, STATUS_INVALID,
                         "%s has the wrong number of words; write "
                         "raven-netlab %s",
                         command->name,
                         command->usage ? command->usage : "exec hub|LINK -- COMMAND…");
    struct request request = {
        .links = links,
        .words = words + skipped,
        .count = count - skipped,
        .now_ns = now_ns,
        .answer = answer,
        .ret_fd = ret_fd,
    };
    enum status status = command->needs_link ? choose_links(&request, words[1], err) : STATUS_OK;
    if (status == STATUS_OK)
        status = command->handle(&request, err);
    return status;
}
