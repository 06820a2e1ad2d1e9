/* Settings from options.def. Main thread, before any other exists. Surprising decision: each option
 * remembers where its value came from, so sources may be read in any order and the stronger wins.
 */
#include "agent/config.h"

#include "agent/session/proxy.h"
#include "common/base/bytes.h"
#include "common/base/file.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_FILE_BYTES_MAX 65536
#define NAME_BYTES 32

enum kind { KIND_TEXT, KIND_U64 };

struct option {
    enum kind kind;
    const char *name, *value, *fallback, *help;
    size_t offset, origin_offset, bytes;
    uint64_t smallest, largest;
    bool in_file;
};

static const struct option options[] = {
#define OPTION_TEXT(name, value, fallback, bytes, in_file, help)                                   \
    {KIND_TEXT,                                                                                    \
     #name,                                                                                        \
     value,                                                                                        \
     fallback,                                                                                     \
     help,                                                                                         \
     offsetof(struct config, name),                                                                \
     offsetof(struct config, name##_origin),                                                       \
     bytes,                                                                                        \
     0,                                                                                            \
     0,                                                                                            \
     in_file},
#define OPTION_U64(name, value, fallback, smallest, largest, help)                                 \
    {KIND_U64,                                                                                     \
     #name,                                                                                        \
     value,                                                                                        \
     #fallback,                                                                                    \
     help,                                                                                         \
     offsetof(struct config, name),                                                                \
     offsetof(struct config, name##_origin),                                                       \
     0,                                                                                            \
     smallest,                                                                                     \
     largest,                                                                                      \
     true},
#include "agent/options.def"
#undef OPTION_TEXT
#undef OPTION_U64
};

/* "cpu_percent" → "cpu-percent" or "RAVEN_CPU_PERCENT" */
static void flag_name(const struct option *option, char ret[NAME_BYTES])
{
    snprintf(ret, NAME_BYTES, "%s", option->name);
    for (char *c = ret; *c; c++)
        *c = *c == '_' ? '-' : *c;
}

static void variable_name(const struct option *option, char ret[NAME_BYTES])
{
    snprintf(ret, NAME_BYTES, "RAVEN_%s", option->name);
    for (char *c = ret; *c; c++)
        *c = (char)toupper((unsigned char)*c);
}

static enum status parse_number(const struct option *option, const char *text, uint64_t *ret,
                                struct error *err)
{
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno || number < option->smallest ||
        number > option->largest)
        return error_set(err, STATUS_INVALID, "%s = %.40s: use a whole number from %llu to %llu",
                         option->name, text, (unsigned long long)option->smallest,
                         (unsigned long long)option->largest);
    *ret = number;
    return STATUS_OK;
}

static enum status check_text(const struct option *option, const char *text, struct error *err)
{
    if (strlen(text) >= option->bytes)
        return error_set(err, STATUS_INVALID, "%s: at most %zu characters", option->name,
                         option->bytes - 1);
    for (const char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            return error_set(err, STATUS_INVALID, "%s: control characters are not allowed",
                             option->name);
    if (strcmp(option->name, "log_level") == 0 && strcmp(text, "debug") && strcmp(text, "info") &&
        strcmp(text, "warn") && strcmp(text, "error"))
        return error_set(err, STATUS_INVALID, "log_level = %.40s: use debug, info, warn or error",
                         text);
    struct proxy proxy;
    struct error cause = {0};
    if (strcmp(option->name, "proxy") == 0 && text[0] && strcmp(text, PROXY_NONE) != 0 &&
        proxy_parse(text, &proxy, &cause))
        return error_set(err, STATUS_INVALID, "%s", cause.text); /* never the text: a password */
    return STATUS_OK;
}

static enum status set_option(struct config *config, const struct option *option, const char *value,
                              enum config_origin origin, struct error *err)
{
    char *field = (char *)config + option->offset;
    enum config_origin *known =
        (enum config_origin *)(void *)((char *)config + option->origin_offset);
    uint64_t number = 0;
    enum status status = option->kind == KIND_U64 ? parse_number(option, value, &number, err)
                                                  : check_text(option, value, err);
    if (status || *known > origin)
        return status;
    if (option->kind == KIND_U64)
        memcpy(field, &number, sizeof number);
    else
        text_copy(field, option->bytes, value);
    *known = origin;
    return STATUS_OK;
}

void config_init(struct config *config)
{
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        enum status status =
            set_option(config, &options[i], options[i].fallback, CONFIG_DEFAULT, NULL);
        (void)status; /* the table's own defaults are valid */
    }
}

enum status config_set(struct config *config, const char *name, const char *value,
                       enum config_origin origin, struct error *err)
{
    for (size_t i = 0; i < COUNT_OF(options); i++)
        if (strcmp(options[i].name, name) == 0 && (origin != CONFIG_FILE || options[i].in_file))
            return set_option(config, &options[i], value, origin, err);
    return error_set(err, STATUS_NOT_FOUND, "unknown setting %.40s", name);
}

enum status config_set_flag(struct config *config, const char *flag, const char *value,
                            struct error *err)
{
    char name[NAME_BYTES];
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        flag_name(&options[i], name);
        if (strcmp(name, flag) == 0)
            return set_option(config, &options[i], value, CONFIG_FLAG, err);
    }
    return error_set(err, STATUS_NOT_FOUND, "unknown option --%.40s", flag);
}

enum status config_read_environment(struct config *config, struct error *err)
{
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        char name[NAME_BYTES];
        variable_name(&options[i], name);
        const char *value = getenv(name);
        struct error cause = {0};
        if (value && value[0] && set_option(config, &options[i], value, CONFIG_ENVIRONMENT, &cause))
            return error_set(err, STATUS_INVALID, "environment variable %s: %s", name, cause.text);
    }
    return STATUS_OK;
}

/* --- the file --------------------------------------------------------------------------------- */

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return text;
}

static enum status read_line(struct config *config, const char *path, unsigned line, char *text,
                             struct error *err)
{
    text = trim(text);
    if (text[0] == '\0' || text[0] == '#')
        return STATUS_OK;
    char *equals = strchr(text, '=');
    if (!equals)
        return error_set(err, STATUS_INVALID, "%s line %u: not \"key = value\": %.40s", path, line,
                         text);
    *equals = '\0';
    const char *key = trim(text);
    struct error cause = {0};
    enum status status = config_set(config, key, trim(equals + 1), CONFIG_FILE, &cause);
    if (status == STATUS_NOT_FOUND)
        return error_set(err, STATUS_INVALID, "%s line %u: unknown key \"%.40s\"", path, line, key);
    if (status)
        return error_set(err, STATUS_INVALID, "%s line %u: %s", path, line, cause.text);
    return STATUS_OK;
}

enum status config_read_text(struct config *config, const char *path, const char *text,
                             size_t bytes, struct error *err)
{
    if (memchr(text, '\0', bytes))
        return error_set(err, STATUS_INVALID, "%s is not a text file", path);
    char *copy = strndup(text, bytes);
    if (!copy)
        return error_set(err, STATUS_NO_MEMORY, "no memory to read %s", path);
    enum status status = STATUS_OK;
    unsigned line = 1;
    for (char *rest = copy; rest && !status; line++) {
        char *start = strsep(&rest, "\n");
        status = read_line(config, path, line, start, err);
    }
    free(copy);
    return status;
}

static enum status config_path(const struct config *config, char ret[PATH_BYTES], struct error *err)
{
    if (path_format(ret, "%s/agent.conf", config->state_dir))
        return error_set(err, STATUS_TOO_LARGE, "the state directory's path is too long");
    return STATUS_OK;
}

enum status config_read_file(struct config *config, struct error *err)
{
    char path[PATH_BYTES];
    enum status status = config_path(config, path, err);
    if (status || access(path, F_OK) < 0)
        return status;
    struct buffer text;
    buffer_init(&text, CONFIG_FILE_BYTES_MAX);
    status = file_read(path, &text, err);
    if (!status && text.bytes > 0)
        status = config_read_text(config, path, (const char *)text.data, text.bytes, err);
    buffer_done(&text);
    return status;
}

enum status config_find_state_dir(struct config *config, struct error *err)
{
    if (config->state_dir[0])
        return STATUS_OK;
    const char *state_home = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    char path[PATH_BYTES];
    enum status status;
    if (geteuid() == 0)
        status = path_format(path, "/var/lib/raven-agent");
    else if (state_home && state_home[0] == '/')
        status = path_format(path, "%s/raven-agent", state_home);
    else if (home && home[0] == '/')
        status = path_format(path, "%s/.local/state/raven-agent", home);
    else
        return error_set(err, STATUS_NOT_FOUND,
                         "HOME is not set; say where to keep the state with --state-dir");
    if (status || !text_copy(config->state_dir, sizeof config->state_dir, path))
        return error_set(err, STATUS_TOO_LARGE,
                         "the home directory's path is too long; use --state-dir");
    return STATUS_OK;
}

static enum status render_option(const struct config *config, const struct option *option,
                                 struct buffer *ret)
{
    const char *field = (const char *)config + option->offset;
    enum config_origin origin;
    memcpy(&origin, (const char *)config + option->origin_offset, sizeof origin);
    char value[512];
    uint64_t number;
    memcpy(&number, field, sizeof number);
    if (option->kind == KIND_U64)
        snprintf(value, sizeof value, "%llu", (unsigned long long)number);
    else
        snprintf(value, sizeof value, "%s", field);
    bool set = origin == CONFIG_FILE || origin == CONFIG_FLAG;
    return buffer_printf(ret, "# %s\n%s%s = %s\n\n", option->help, set ? "" : "# ", option->name,
                         set ? value : option->fallback);
}

static enum status render(const struct config *config, struct buffer *ret)
{
    enum status status = buffer_append_text(
        ret, "# raven-agent. Flags and RAVEN_ variables win over this file.\n\n");
    for (size_t i = 0; i < COUNT_OF(options) && !status; i++)
        if (options[i].in_file)
            status = render_option(config, &options[i], ret);
    return status;
}

enum status config_save(const struct config *config, struct error *err)
{
    char path[PATH_BYTES];
    enum status status = config_path(config, path, err);
    if (status)
        return status;
    struct buffer text;
    buffer_init(&text, CONFIG_FILE_BYTES_MAX);
    status = render(config, &text);
    if (status)
        error_set(err, status, "cannot write %s: %s", path, status_text(status));
    else
        status = file_write_atomic(path, text.data, text.bytes, 0600, err);
    buffer_done(&text);
    return status;
}

enum status config_help(struct buffer *ret)
{
    enum status status = STATUS_OK;
    for (size_t i = 0; i < COUNT_OF(options) && !status; i++) {
        char name[NAME_BYTES], left[2 * NAME_BYTES];
        flag_name(&options[i], name);
        snprintf(left, sizeof left, "--%s %s", name, options[i].value);
        status = buffer_printf(ret, "  %-18s %s", left, options[i].help);
        if (!status && options[i].fallback[0])
            status = buffer_printf(ret, " (%s)", options[i].fallback);
        if (!status)
            status = buffer_append_text(ret, "\n");
    }
    return status;
}
