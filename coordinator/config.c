/* Parses options.def. Runs once, in main, before any thread; its surprise is that flags are looked
 * up in the environment first and then overwritten, so that the order of flags never matters. */
#include "coordinator/config.h"

#include "common/base/bytes.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_TEXT, KIND_U64, KIND_FLAG };

struct option {
    enum kind kind;
    const char *flag, *value, *fallback, *help;
    size_t offset;
    uint64_t smallest, largest;
};

static const struct option options[] = {
#define OPTION_TEXT(name, flag, value, fallback, help)                                             \
    {KIND_TEXT, flag, value, fallback, help, offsetof(struct config, name), 0, 0},
#define OPTION_U64(name, flag, value, fallback, min, max, help)                                    \
    {KIND_U64, flag, value, #fallback, help, offsetof(struct config, name), min, max},
#define OPTION_FLAG(name, flag, help)                                                              \
    {KIND_FLAG, flag, "", "", help, offsetof(struct config, name), 0, 0},
#include "coordinator/options.def"
#undef OPTION_TEXT
#undef OPTION_U64
#undef OPTION_FLAG
};

static enum status set_number(const struct option *option, const char *text, uint64_t *ret,
                              struct error *err)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno || number < option->smallest ||
        number > option->largest)
        return error_set(err, STATUS_INVALID, "--%s %s: use a whole number from %llu to %llu",
                         option->flag, text, (unsigned long long)option->smallest,
                         (unsigned long long)option->largest);
    *ret = number;
    return STATUS_OK;
}

static enum status set_option(const struct option *option, const char *text, struct config *config,
                              struct error *err)
{
    char *field = (char *)config + option->offset;
    switch (option->kind) {
    case KIND_TEXT:
        memcpy(field, &text, sizeof text);
        break;
    case KIND_FLAG:
        *(bool *)field = strcmp(text, "0") != 0 && text[0] != 0;
        break;
    case KIND_U64:
        return set_number(option, text, (uint64_t *)field, err);
    }
    return STATUS_OK;
}

static const char *from_environment(const struct option *option)
{
    char name[64];
    snprintf(name, sizeof name, "RAVEN_%s", option->flag);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    return getenv(name);
}

static const struct option *find_option(const char *flag, size_t length)
{
    for (size_t i = 0; i < COUNT_OF(options); i++)
        if (strlen(options[i].flag) == length && strncmp(options[i].flag, flag, length) == 0)
            return &options[i];
    return NULL;
}

/* --flag value, --flag=value, or --flag alone for KIND_FLAG. *index moves past what was used. */
static enum status parse_flag(int argc, char **argv, int *index, struct config *config,
                              struct error *err)
{
    const char *flag = argv[*index] + 2;
    const char *equals = strchr(flag, '=');
    const struct option *option =
        find_option(flag, equals ? (size_t)(equals - flag) : strlen(flag));
    if (!option)
        return error_set(err, STATUS_INVALID, "unknown option %s; see --help", argv[*index]);
    const char *value = equals ? equals + 1 : NULL;
    if (!value && option->kind == KIND_FLAG)
        value = "1";
    if (!value && *index + 1 < argc)
        value = argv[++*index];
    if (!value)
        return error_set(err, STATUS_INVALID, "--%s needs a value: --%s %s", option->flag,
                         option->flag, option->value);
    return set_option(option, value, config, err);
}

static enum status parse_word(const char *word, struct config *config, struct error *err)
{
    if (strcmp(word, "serve") == 0)
        config->command = COMMAND_SERVE;
    else if (strcmp(word, "verify") == 0)
        config->command = COMMAND_VERIFY;
    else
        return error_set(err, STATUS_INVALID, "unknown command %s; use serve or verify", word);
    return STATUS_OK;
}

enum status config_parse(int argc, char **argv, struct config *ret, struct error *err)
{
    struct config config = {.command = COMMAND_SERVE};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < COUNT_OF(options) && status == STATUS_OK; i++) {
        const char *value = from_environment(&options[i]);
        status = set_option(&options[i], value ? value : options[i].fallback, &config, err);
    }
    for (int i = 1; i < argc && status == STATUS_OK; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            config.command = COMMAND_HELP;
        else if (strcmp(argv[i], "--version") == 0)
            config.command = COMMAND_VERSION;
        else if (strncmp(argv[i], "--", 2) == 0)
            status = parse_flag(argc, argv, &i, &config, err);
        else
            status = parse_word(argv[i], &config, err);
        if (config.command == COMMAND_HELP || config.command == COMMAND_VERSION)
            break;
    }
    if (status)
        return status;
    bool needs_data = config.command == COMMAND_SERVE || config.command == COMMAND_VERIFY;
    if (needs_data && config.data[0] == 0)
        return error_set(err, STATUS_INVALID,
                         "--data DIR is missing: where shall everything be "
                         "kept? For example --data /var/lib/raven");
    *ret = config;
    return STATUS_OK;
}

void config_print_help(void)
{
    printf("usage: raven-coordinator [serve] --data DIR [options]\n"
           "       raven-coordinator verify --data DIR [--json]\n\n"
           "serve runs the coordinator; verify replays every job's ledger and compares each\n"
           "version's hash, also beside a running coordinator.\n\n");
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        char left[48];
        snprintf(left, sizeof left, "--%s %s", options[i].flag, options[i].value);
        printf("  %-26s %s", left, options[i].help);
        if (options[i].fallback[0])
            printf(" (default %s)", options[i].fallback);
        printf("\n");
    }
    printf("\nEach option is also read from the environment: --log-level is RAVEN_LOG_LEVEL.\n"
           "Exit status: 0 stopped as asked, 1 failed, 2 wrong usage, 65 verify found damage.\n");
}
