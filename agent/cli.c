/* Parses the command line and runs one command. Main thread. The table of commands also prints the
 * help. The invite has no option on purpose: what is in argv, everybody on the machine can read. */
#include "agent/cli.h"

#include "common/base/bytes.h"
#include "common/base/log.h"

#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name, *argument, *help;
    int (*run)(const struct cli *cli);
} commands[] = {
    {"join", "URL", "enrol with a coordinator; the invite comes from RAVEN_INVITE or a prompt",
     cli_join},
    {"run", NULL, "connect and work until SIGTERM", cli_run},
    {"status", NULL, "ask the running agent how it is (--json for scripts)", cli_status},
    {"devices", NULL, "find and test the graphics cards (--json for scripts)", cli_devices},
    /* No help: what run and devices start as children. */
    {"gpu-list", "INTERFACE", NULL, cli_gpu_list},
    {"gpu-check", "ID", NULL, cli_gpu_check},
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; name && i < COUNT_OF(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static void print_help(void)
{
    struct buffer text;
    buffer_init(&text, 16384);
    enum status status = buffer_append_text(&text, "raven-agent " RAVEN_VERSION
                                                   ": trains neural networks for a coordinator\n\n"
                                                   "usage: raven-agent COMMAND [OPTION...]\n\n");
    for (size_t i = 0; i < COUNT_OF(commands) && !status; i++)
        if (commands[i].help)
            status =
                buffer_printf(&text, "  %-7s %-4s %s\n", commands[i].name,
                              commands[i].argument ? commands[i].argument : "", commands[i].help);
    if (!status)
        status = buffer_append_text(&text, "\noptions (default; also as RAVEN_… variables and, "
                                           "but for --state-dir, in STATE/agent.conf):\n");
    if (!status)
        status = config_help(&text);
    if (!status)
        status =
            buffer_append_text(&text, "  --json             status or devices as one JSON object\n"
                                      "  --help, --version\n\nexit codes:\n");
#define CLI_EXIT(name, number, meaning)                                                            \
    if (!status)                                                                                   \
        status = buffer_printf(&text, "  %-3d %s\n", number, meaning);
#include "agent/cli_exits.def"
#undef CLI_EXIT
    if (!status)
        fwrite(text.data, 1, text.bytes, stdout);
    buffer_done(&text);
}

/* *index moves on when the option's value is the next word. */
static enum status parse_option(int argc, char **argv, int *index, struct cli *cli,
                                struct error *err)
{
    const char *flag = argv[*index] + 2;
    bool *switches[] = {&cli->json, &cli->help, &cli->version};
    const char *names[] = {"json", "help", "version"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(flag, names[i]) == 0) {
            *switches[i] = true;
            return STATUS_OK;
        }
    }
    char name[64];
    const char *equals = strchr(flag, '=');
    size_t name_bytes = equals ? (size_t)(equals - flag) : strlen(flag);
    if (name_bytes >= sizeof name)
        return error_set(err, STATUS_INVALID, "unknown option --%.40s", flag);
    memcpy(name, flag, name_bytes);
    name[name_bytes] = '\0';
    const char *value = equals ? equals + 1 : "";
    if (!equals && *index + 1 < argc)
        value = argv[++*index];
    else if (!equals)
        return error_set(err, STATUS_INVALID, "option --%s needs a value", name);
    if (config_set_flag(&cli->config, name, value, err))
        return STATUS_INVALID;
    return STATUS_OK;
}

enum status cli_parse(int argc, char **argv, struct cli *ret, struct error *err)
{
    memset(ret, 0, sizeof *ret);
    config_init(&ret->config);
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "-h") == 0) {
            ret->help = true;
        } else if (strncmp(word, "--", 2) == 0) {
            if (parse_option(argc, argv, &i, ret, err))
                return STATUS_INVALID;
        } else if (strncmp(word, "rvn_", 4) == 0) {
            return error_set(err, STATUS_INVALID,
                             "an invite does not belong on the command line, where others can read "
                             "it; use RAVEN_INVITE");
        } else if (!ret->command) {
            ret->command = word;
        } else if (!ret->argument) {
            ret->argument = word;
        } else {
            return error_set(err, STATUS_INVALID, "one word too many: %.60s", word);
        }
    }
    if (ret->help || ret->version)
        return STATUS_OK;
    const struct command *command = find_command(ret->command);
    if (!command)
        return error_set(err, STATUS_INVALID, "%s%.60s; try raven-agent --help",
                         ret->command ? "unknown command " : "a command is missing",
                         ret->command ? ret->command : "");
    if (!command->argument != !ret->argument)
        return error_set(err, STATUS_INVALID, "usage: raven-agent %s %s", command->name,
                         command->argument ? command->argument : "");
    return STATUS_OK;
}

static void apply_log_level(const char *level)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strcmp(level, names[i]) == 0)
            log_set_level((enum log_level)i);
}

int cli_main(int argc, char **argv)
{
    struct cli cli;
    struct error err = {0};
    if (cli_parse(argc, argv, &cli, &err)) {
        fprintf(stderr, "raven-agent: %s\n", err.text);
        return CLI_USAGE;
    }
    if (cli.version) {
        printf("raven-agent " RAVEN_VERSION "\n");
        return CLI_OK;
    }
    if (cli.help) {
        print_help();
        return CLI_OK;
    }
    const struct command *command = find_command(cli.command);
    if (!command->help) /* a child of ours: it needs no settings, and might find other ones */
        return command->run(&cli);
    if (config_read_environment(&cli.config, &err) || config_find_state_dir(&cli.config, &err) ||
        config_read_file(&cli.config, &err)) {
        fprintf(stderr, "raven-agent: %s\n", err.text);
        return CLI_CONFIG;
    }
    apply_log_level(cli.config.log_level);
    return command->run(&cli);
}
