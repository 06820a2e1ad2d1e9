/* Profiles, scripts and the --links argument. Pure text handling. Its surprise: a phase keeps its
 * settings as text and applies them anew to the link's own shape, so that a later `set` lasts
 * through all phases. */
#include "tests/netlab/profile.h"

#include "common/base/bytes.h"

#include <stdlib.h>
#include <string.h>

#define LINKS_TEXT_BYTES 8192
#define PHASE_S_MAX 86400.0

struct profile {
    const char *name;
    double down_mbit, up_mbit, rtt_ms, jitter_ms, loss_percent;
    const char *burst, *queue, *script, *text;
};

static const struct profile profiles[] = {
#define PROFILE(name, down, up, rtt, jitter, loss, burst, queue, script, text)                     \
    {name, down, up, rtt, jitter, loss, burst, queue, script, text},
#include "tests/netlab/profiles.def"
#undef PROFILE
};

static enum status refuse_profile(const char *name, struct error *err)
{
    char names[200] = "";
    for (size_t i = 0; i < COUNT_OF(profiles); i++) {
        size_t length = strlen(names);
        (void)snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "",
                       profiles[i].name);
    }
    return error_set(err, STATUS_NOT_FOUND, "there is no profile '%.24s'; the profiles are %s",
                     name, names);
}

static enum status apply_pair(struct shape base[WAY_COUNT], const char *key, const char *value,
                              struct error *err)
{
    char setting[64];
    (void)snprintf(setting, sizeof setting, "%s=%s", key, value);
    return shape_set(base, base, WAYS_BOTH, setting, err);
}

enum status profile_find(const char *name, struct plan *ret, struct error *err)
{
    const struct profile *profile = NULL;
    for (size_t i = 0; i < COUNT_OF(profiles); i++)
        if (strcmp(profiles[i].name, name) == 0)
            profile = &profiles[i];
    if (!profile)
        return refuse_profile(name, err);
    struct plan plan = {.number = ret->number};
    (void)snprintf(plan.profile, sizeof plan.profile, "%s", profile->name);
    for (int way = 0; way < WAY_COUNT; way++)
        plan.base[way] = (struct shape){
            .rate_mbit = way == WAY_UP ? profile->up_mbit : profile->down_mbit,
            .delay_ms = profile->rtt_ms / 2,
            .jitter_ms = profile->jitter_ms,
            .loss = profile->loss_percent / 100,
            .gap_ms = 5,
        };
    enum status status = apply_pair(plan.base, "burst", profile->burst, err);
    if (status == STATUS_OK)
        status = apply_pair(plan.base, "queue", profile->queue, err);
    if (status == STATUS_OK)
        status = script_parse(profile->script, plan.base, &plan.script, err);
    if (status == STATUS_OK)
        *ret = plan;
    return status;
}

void profile_print_all(FILE *out)
{
    (void)fprintf(out, "%-12s %6s %6s %5s %6s %6s %-7s %-6s %s\n", "PROFILE", "DOWN", "UP", "RTT",
                  "JITTER", "LOSS%", "BURST", "QUEUE", "WHAT (AND ITS SCRIPT)");
    for (size_t i = 0; i < COUNT_OF(profiles); i++) {
        const struct profile *p = &profiles[i];
        (void)fprintf(out, "%-12s %6g %6g %5g %6g %6g %-7s %-6s %s%s%s%s\n", p->name, p->down_mbit,
                      p->up_mbit, p->rtt_ms, p->jitter_ms, p->loss_percent, p->burst, p->queue,
                      p->text, p->script[0] ? " (" : "", p->script, p->script[0] ? ")" : "");
    }
}

static enum status phase_parse(char *text, const struct shape base[WAY_COUNT], struct phase *ret,
                               struct error *err)
{
    struct phase phase = {0};
    char *save, *end;
    char *word = strtok_r(text, " ", &save);
    double seconds = word ? strtod(word, &end) : 0;
    if (!word || strcmp(end, "s") != 0 || !(seconds >= 0.1 && seconds <= PHASE_S_MAX))
        return error_set(err, STATUS_INVALID,
                         "script: a phase begins with '%.24s'; begin it with "
                         "its length in seconds such as 20s",
                         word ? word : "");
    phase.duration_ms = (int64_t)(seconds * 1000);
    while ((word = strtok_r(NULL, " ", &save))) {
        size_t length = strlen(phase.settings);
        if (strcmp(word, "down") == 0)
            phase.down = true;
        else if (strcmp(word, "reset") == 0)
            phase.reset = true;
        else if (length + strlen(word) + 2 > sizeof phase.settings)
            return error_set(err, STATUS_TOO_LARGE,
                             "script: the settings of one phase are longer "
                             "than %d characters; split them",
                             PHASE_SETTINGS_BYTES - 1);
        else
            (void)snprintf(phase.settings + length, sizeof phase.settings - length, "%s%s",
                           length ? " " : "", word);
    }
    struct shape unused[WAY_COUNT];
    enum status status = phase_apply(&phase, base, unused, err);
    if (status == STATUS_OK)
        *ret = phase;
    return status;
}

enum status script_parse(const char *text, const struct shape base[WAY_COUNT], struct script *ret,
                         struct error *err)
{
    struct script script = {0};
    char copy[1024];
    if (!text_copy(copy, sizeof copy, text))
        return error_set(err, STATUS_TOO_LARGE, "script: longer than %zu characters; shorten it",
                         sizeof copy - 1);
    char *save;
    char *part = strcmp(copy, "none") == 0 ? NULL : strtok_r(copy, ";", &save);
    for (; part; part = strtok_r(NULL, ";", &save)) {
        if (script.phase_count == PHASES_MAX)
            return error_set(err, STATUS_TOO_LARGE, "script: more than %d phases; merge some",
                             PHASES_MAX);
        enum status status = phase_parse(part, base, &script.phases[script.phase_count], err);
        if (status != STATUS_OK)
            return status;
        script.cycle_ms += script.phases[script.phase_count++].duration_ms;
    }
    *ret = script;
    return STATUS_OK;
}

size_t script_phase_at(const struct script *script, int64_t since_start_ms, int64_t *ret_end_ms)
{
    int64_t end_ms = since_start_ms - since_start_ms % script->cycle_ms;
    size_t i = 0;
    for (; i < script->phase_count; i++) {
        end_ms += script->phases[i].duration_ms;
        if (since_start_ms < end_ms)
            break;
    }
    *ret_end_ms = end_ms;
    return i;
}

enum status phase_apply(const struct phase *phase, const struct shape base[WAY_COUNT],
                        struct shape shapes[WAY_COUNT], struct error *err)
{
    char copy[PHASE_SETTINGS_BYTES];
    (void)text_copy(copy, sizeof copy, phase->settings); /* same size */
    memcpy(shapes, base, sizeof(struct shape[WAY_COUNT]));
    char *save;
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        enum status status = shape_set(shapes, base, WAYS_BOTH, word, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* "c3" -> 3; 0 when it is no such name. */
static unsigned parse_link_name(const char *name)
{
    char *end;
    if (name[0] != 'c' || name[1] < '1' || name[1] > '9')
        return 0;
    unsigned long number = strtoul(name + 1, &end, 10);
    return *end || number > LINK_NUMBER_MAX ? 0 : (unsigned)number;
}

/* "c3:dsl" */
static enum status start_plan(char *item, const struct plan *plans, size_t count, struct plan *ret,
                              struct error *err)
{
    char *colon = strchr(item, ':');
    if (!colon)
        return error_set(err, STATUS_INVALID,
                         "--links: '%.40s' is neither LINK:PROFILE such as "
                         "c1:cable nor key=value",
                         item);
    *colon = 0;
    unsigned number = parse_link_name(item);
    if (number == 0)
        return error_set(err, STATUS_INVALID,
                         "--links: '%.24s' cannot be the name of a link; "
                         "links are c1 to c%d",
                         item, LINK_NUMBER_MAX);
    for (size_t i = 0; i < count; i++)
        if (plans[i].number == number)
            return error_set(err, STATUS_EXISTS,
                             "--links: %s is named twice; give each link its "
                             "own number",
                             item);
    if (count == LINKS_MAX)
        return error_set(err, STATUS_TOO_LARGE, "--links: more than %d links; use fewer",
                         LINKS_MAX);
    struct plan plan = {.number = number};
    enum status status = profile_find(colon + 1, &plan, err);
    if (status == STATUS_OK)
        *ret = plan;
    return status;
}

static enum status override_plan(const char *setting, struct plan *plan, struct error *err)
{
    if (strncmp(setting, "script=", 7) == 0)
        return script_parse(setting + 7, plan->base, &plan->script, err);
    struct shape base[WAY_COUNT];
    memcpy(base, plan->base, sizeof base);
    return shape_set(plan->base, base, WAYS_BOTH, setting, err);
}

enum status plans_parse(const char *links, struct plan ret[LINKS_MAX], size_t *ret_count,
                        struct error *err)
{
    char copy[LINKS_TEXT_BYTES];
    size_t count = 0;
    if (!text_copy(copy, sizeof copy, links))
        return error_set(err, STATUS_TOO_LARGE, "--links is longer than %d characters; shorten it",
                         LINKS_TEXT_BYTES - 1);
    char *save;
    for (char *item = strtok_r(copy, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
        enum status status;
        char *colon = strchr(item, ':'), *equals = strchr(item, '=');
        if (equals && !(colon && colon < equals)) {
            status = count ? override_plan(item, &ret[count - 1], err)
                           : error_set(err, STATUS_INVALID,
                                       "--links: '%.40s' stands before any "
                                       "link; begin with LINK:PROFILE such as c1:cable",
                                       item);
        } else {
            status = start_plan(item, ret, count, &ret[count < LINKS_MAX ? count : 0], err);
            count += status == STATUS_OK;
        }
        if (status != STATUS_OK)
            return status;
    }
    if (count == 0)
        return error_set(err, STATUS_INVALID,
                         "--links is empty; write for example c1:cable,c2:dsl");
    *ret_count = count;
    return STATUS_OK;
}
