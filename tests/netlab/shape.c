/* Settings of a direction: one table of keys that parses, checks and explains them. Pure. Its
 * surprise: shares must be written with a percent sign, because nobody can tell what loss=0.5
 * means. */
#include "tests/netlab/shape.h"

#include "common/base/bytes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RATE_MBIT_MIN 0.01
#define RATE_MBIT_MAX 10000.0
#define TIME_MS_MAX 60000.0
#define QUEUE_KB_MAX 16384.0
#define QUEUE_BYTES_MIN 3000
#define KEY_BYTES 24

typedef bool parse_value(const char *value, size_t offset, const struct shape *base,
                         struct shape *shape);

struct key {
    const char *name;
    parse_value *parse;
    size_t offset; /* of the field, where one double is all */
    const char *help;
};

static double *field(struct shape *shape, size_t offset)
{
    return (double *)(void *)((char *)shape + offset);
}

/* A number from 0 to max, followed by one of the units; *ret_text is what follows. */
static bool parse_number(const char *text, const char *unit, double max, double *ret,
                         const char **ret_text)
{
    char *end;
    if (text[0] < '0' || text[0] > '9') /* strtod would also take "inf", signs and blanks */
        return false;
    double number = strtod(text, &end);
    size_t unit_bytes = strlen(unit);
    if (!isfinite(number) || number > max || strncmp(end, unit, unit_bytes) != 0)
        return false;
    *ret = number;
    *ret_text = end + unit_bytes;
    return true;
}

static bool parse_whole(const char *text, const char *unit, double max, double *ret)
{
    const char *rest;
    double number;
    if (!parse_number(text, unit, max, &number, &rest) || *rest)
        return false;
    *ret = number;
    return true;
}

static bool parse_rate(const char *value, size_t offset, const struct shape *base,
                       struct shape *shape)
{
    double rate, percent;
    if (parse_whole(value, "%", 1000, &percent))
        rate = base->rate_mbit * percent / 100; /* of no limit: refused below unless 0 */
    else if (!parse_whole(value, "", RATE_MBIT_MAX, &rate))
        return false;
    else if (rate == 0)
        percent = 0;
    else
        percent = 100;
    if ((rate < RATE_MBIT_MIN && !(rate == 0 && percent == 0)) || rate > RATE_MBIT_MAX)
        return false;
    *field(shape, offset) = rate;
    return true;
}

static bool parse_ms(const char *value, size_t offset, const struct shape *base,
                     struct shape *shape)
{
    (void)base;
    return parse_whole(value, "", TIME_MS_MAX, field(shape, offset)) ||
           parse_whole(value, "ms", TIME_MS_MAX, field(shape, offset));
}

static bool parse_rtt(const char *value, size_t offset, const struct shape *base,
                      struct shape *shape)
{
    if (!parse_ms(value, offset, base, shape))
        return false;
    *field(shape, offset) /= 2;
    return true;
}

static bool parse_percent(const char *value, size_t offset, const struct shape *base,
                          struct shape *shape)
{
    (void)base;
    double percent;
    if (!parse_whole(value, "%", 100, &percent))
        return false;
    *field(shape, offset) = percent / 100;
    return true;
}

static bool parse_burst(const char *value, size_t offset, const struct shape *base,
                        struct shape *shape)
{
    (void)offset;
    (void)base;
    double share, packets = 1, loss = 100;
    const char *rest;
    if (!parse_number(value, "%", 99, &share, &rest))
        return false;
    if (share > 0 && *rest++ != '/')
        return false;
    if (share > 0 && !parse_whole(rest, "", 10000, &packets) &&
        (!parse_number(rest, "/", 10000, &packets, &rest) || !parse_whole(rest, "%", 100, &loss)))
        return false;
    if (share == 0 && *rest)
        return false;
    /* A shorter bad state would have to be entered more often than there are packets. */
    if (packets < 1 || share / 100 > packets / (1 + packets))
        return false;
    shape->burst_share = share / 100;
    shape->burst_packets = packets;
    shape->burst_loss = loss / 100;
    return true;
}

static bool parse_queue(const char *value, size_t offset, const struct shape *base,
                        struct shape *shape)
{
    (void)offset;
    (void)base;
    double amount;
    if (parse_whole(value, "ms", TIME_MS_MAX, &amount) && amount > 0) {
        shape->queue_ms = amount;
        shape->queue_kb = 0;
        return true;
    }
    if (!parse_whole(value, "KB", QUEUE_KB_MAX, &amount) || amount <= 0)
        return false;
    shape->queue_kb = amount;
    return true;
}

static const struct key keys[] = {
    {"rate", parse_rate, offsetof(struct shape, rate_mbit),
     "Mbit/s such as 5 (0: no limit, at most 10000), or a share of the link's own rate such as "
     "10%"},
    {"delay", parse_ms, offsetof(struct shape, delay_ms), "milliseconds one way such as 10"},
    {"rtt", parse_rtt, offsetof(struct shape, delay_ms),
     "milliseconds there and back such as 20: half of it in each direction"},
    {"jitter", parse_ms, offsetof(struct shape, jitter_ms),
     "milliseconds more or less such as 2 (order is kept)"},
    {"loss", parse_percent, offsetof(struct shape, loss), "percent such as 0.5%"},
    {"burst", parse_burst, 0,
     "SHARE%/PACKETS[/LOSS%] such as 3%/8: 3 % of packets are in bad stretches of 8 on average, "
     "where all (or LOSS) are lost; 0% for none"},
    {"reorder", parse_percent, offsetof(struct shape, reorder), "percent such as 1%"},
    {"gap", parse_ms, offsetof(struct shape, gap_ms),
     "milliseconds such as 5: how much earlier a reordered packet arrives"},
    {"duplicate", parse_percent, offsetof(struct shape, duplicate), "percent such as 0.1%"},
    {"queue", parse_queue, 0,
     "the router's buffer as time at the link's own rate such as 200ms, or as size such as 256KB"},
};

const char *way_name(enum way way)
{
    return way == WAY_UP ? "up" : "down";
}

static const struct key *find_key(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

static enum status refuse_key(const char *name, struct error *err)
{
    char names[160] = "";
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        size_t length = strlen(names);
        (void)snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "", keys[i].name);
    }
    return error_set(err, STATUS_INVALID,
                     "there is no setting '%.24s'; the settings are %s (each "
                     "also with -up or -down)",
                     name, names);
}

/* Cuts -up or -down off the key; the ways it leaves. */
static unsigned cut_suffix(char *key)
{
    size_t length = strlen(key);
    for (int way = 0; way < WAY_COUNT; way++) {
        const char *name = way_name((enum way)way);
        size_t bytes = strlen(name);
        if (length > bytes + 1 && key[length - bytes - 1] == '-' &&
            strcmp(key + length - bytes, name) == 0) {
            key[length - bytes - 1] = 0;
            return 1u << way;
        }
    }
    return WAYS_BOTH;
}

enum status shape_set(struct shape shapes[WAY_COUNT], const struct shape base[WAY_COUNT],
                      unsigned ways, const char *setting, struct error *err)
{
    char name[KEY_BYTES];
    const char *equals = strchr(setting, '=');
    if (!equals || equals == setting)
        return error_set(err, STATUS_INVALID,
                         "'%.40s' is not a setting; write key=value such as "
                         "rate=5 or loss-up=1%%",
                         setting);
    (void)snprintf(name, sizeof name, "%.*s", (int)(equals - setting), setting);
    unsigned suffix_ways = cut_suffix(name);
    const struct key *key = find_key(name);
    if (!key)
        return refuse_key(name, err);
    if ((ways & suffix_ways) == 0 || (suffix_ways != WAYS_BOTH && ways != WAYS_BOTH))
        return error_set(err, STATUS_INVALID, "%.40s: the direction is named twice; write it once",
                         setting);
    struct shape changed[WAY_COUNT];
    memcpy(changed, shapes, sizeof changed);
    for (int way = 0; way < WAY_COUNT; way++)
        if ((ways & suffix_ways & 1u << way) != 0 &&
            !key->parse(equals + 1, key->offset, &base[way], &changed[way]))
            return error_set(err, STATUS_INVALID, "%s: '%.40s' does not do; write %s", name,
                             equals + 1, key->help);
    memcpy(shapes, changed, sizeof changed);
    return STATUS_OK;
}

uint64_t shape_queue_bytes(const struct shape *shape, double line_mbit)
{
    double bytes =
        shape->queue_kb > 0 ? shape->queue_kb * 1024 : shape->queue_ms * line_mbit * 1e3 / 8;
    if (bytes > QUEUE_KB_MAX * 1024)
        bytes = QUEUE_KB_MAX * 1024;
    return bytes < QUEUE_BYTES_MIN ? QUEUE_BYTES_MIN : (uint64_t)bytes;
}

void shape_burst_chain(const struct shape *shape, double *ret_enter, double *ret_leave)
{
    /* Stationary share = enter / (enter + leave), mean stay in the bad state = 1 / leave. */
    double leave = shape->burst_packets > 1 ? 1 / shape->burst_packets : 1;
    *ret_leave = leave;
    *ret_enter = shape->burst_share > 0 ? leave * shape->burst_share / (1 - shape->burst_share) : 0;
}

void shape_print_keys(FILE *out)
{
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        (void)fprintf(out, "  %-10s %s\n", keys[i].name, keys[i].help);
}
