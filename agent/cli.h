/* The command line: one table of commands, shared options (options.def), exit codes. */
#ifndef RAVEN_AGENT_CLI_H
#define RAVEN_AGENT_CLI_H

#include "agent/config.h"

/* Exit codes, also printed by --help. */
enum cli_exit {
#define CLI_EXIT(name, number, text) CLI_##name = number,
#include "agent/cli_exits.def"
#undef CLI_EXIT
};

struct cli {
    struct config config;
    const char *command;  /* NULL: none given */
    const char *argument; /* join: the URL */
    bool json, help, version;
};

/* STATUS_INVALID: err says what is wrong with which word. */
enum status cli_parse(int argc, char **argv, struct cli *ret, struct error *err) MUST_CHECK;
/* Parses, runs the command, returns the process's exit code. */
int cli_main(int argc, char **argv);

/* cli_run.c, cli_join.c, cli_status.c, cli_devices.c */
int cli_run(const struct cli *cli);
int cli_join(const struct cli *cli);
int cli_status(const struct cli *cli);
int cli_devices(const struct cli *cli);
int cli_gpu_list(const struct cli *cli);
int cli_gpu_check(const struct cli *cli);

/* cli_state.c: the state directory, made and locked against a second agent. */
struct state_lock {
    int fd;
};
enum status state_lock_take(const char *state_dir, struct state_lock *ret,
                            struct error *err) MUST_CHECK;
void state_lock_release(struct state_lock *lock);

#endif
