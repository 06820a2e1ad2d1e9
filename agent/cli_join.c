/* `raven-agent join URL`: key pair, one session to enrol, config file. Main thread. Surprising
 * decision: a key that exists is used again, so joining twice is harmless and an unused invite of
 * a known volunteer stays unused. */
#include "agent/cli.h"
#include "agent/core.h"
#include "agent/session/url.h"
#include "common/base/bytes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define JOIN_TIMEOUT_MS 20000

/* Reads one line from the terminal without showing it. */
static bool prompt_invite(char ret[CORE_INVITE_BYTES])
{
    FILE *terminal = fopen("/dev/tty", "r+");
    if (!terminal)
        return false;
    struct termios before, silent;
    bool ok = tcgetattr(fileno(terminal), &before) == 0;
    if (ok) {
        silent = before;
        silent.c_lflag &= ~(tcflag_t)ECHO;
        tcsetattr(fileno(terminal), TCSAFLUSH, &silent);
        fprintf(terminal, "Invite (rvn_inv_..., not shown): ");
        fflush(terminal);
        ok = fgets(ret, CORE_INVITE_BYTES, terminal) != NULL;
        tcsetattr(fileno(terminal), TCSAFLUSH, &before);
        fprintf(terminal, "\n");
    }
    fclose(terminal);
    if (ok)
        ret[strcspn(ret, "\r\n")] = '\0';
    return ok && ret[0];
}

/* From RAVEN_INVITE, which is then wiped from the environment, or from the terminal. */
static enum status find_invite(char ret[CORE_INVITE_BYTES], struct error *err)
{
    char *variable = getenv("RAVEN_INVITE");
    if (variable && variable[0]) {
        bool fits = text_copy(ret, CORE_INVITE_BYTES, variable);
        explicit_bzero(variable, strlen(variable));
        unsetenv("RAVEN_INVITE");
        return fits ? STATUS_OK : error_set(err, STATUS_INVALID, "RAVEN_INVITE is too long");
    }
    if (prompt_invite(ret))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "no invite; put it into the environment: RAVEN_INVITE=rvn_inv_... raven-agent "
                     "join URL");
}

static enum status find_identity(const char *state_dir, struct identity *ret, struct error *err)
{
    enum status status = identity_load(state_dir, ret, err);
    if (status == STATUS_OK)
        printf("Using the key in %s.\n", state_dir);
    if (status != STATUS_NOT_FOUND)
        return status;
    status = identity_create(state_dir, ret, err);
    if (status == STATUS_OK)
        printf("Made a key pair in %s (the secret half never leaves it).\n", state_dir);
    return status;
}

static int conclude(const struct cli *cli, const struct core_outcome *outcome)
{
    struct error err = {0};
    if (outcome->enrolled && config_save(&cli->config, &err)) {
        fprintf(stderr, "raven-agent: enrolled as %s, but: %s\n", outcome->volunteer, err.text);
        return CLI_STATE_DIR;
    }
    if (outcome->enrolled) {
        printf("Enrolled as %s with %s.\nWrote %s/agent.conf. Start working with: raven-agent run"
               " --state-dir %s\n",
               outcome->volunteer, cli->config.coordinator, cli->config.state_dir,
               cli->config.state_dir);
        return CLI_OK;
    }
    fprintf(stderr, "raven-agent: %s %s: %s\n", outcome->refused ? "refused by" : "cannot reach",
            cli->config.coordinator, outcome->text[0] ? outcome->text : "no answer");
    return outcome->refused ? CLI_REFUSED : CLI_UNREACHABLE;
}

static int enrol(const struct cli *cli, const char *invite, const struct identity *identity)
{
    struct core_settings settings = {
        .config = &cli->config,
        .identity = identity,
        .invite = invite,
        .join_timeout_ms = JOIN_TIMEOUT_MS,
    };
    struct error err = {0};
    struct core *core;
    if (core_create(&settings, &core, &err)) {
        fprintf(stderr, "raven-agent: %s\n", err.text);
        return CLI_INTERNAL;
    }
    printf("Connecting to %s ...\n", cli->config.coordinator);
    fflush(stdout);
    struct core_outcome outcome;
    core_run(core, &outcome);
    core_free(core);
    return conclude(cli, &outcome);
}

static int join_locked(struct cli *cli)
{
    char invite[CORE_INVITE_BYTES] = "";
    struct identity identity;
    struct error err = {0};
    int code = CLI_CONFIG;
    if (find_invite(invite, &err) || find_identity(cli->config.state_dir, &identity, &err)) {
        fprintf(stderr, "raven-agent: %s\n", err.text);
    } else {
        code = enrol(cli, invite, &identity);
        identity_wipe(&identity);
    }
    explicit_bzero(invite, sizeof invite);
    return code;
}

int cli_join(const struct cli *cli)
{
    struct cli joined = *cli;
    struct error err = {0};
    struct url url;
    if (url_parse(cli->argument, &url, &err) ||
        config_set(&joined.config, "coordinator", url.base, CONFIG_FLAG, &err)) {
        fprintf(stderr, "raven-agent: %s\n", err.text);
        return CLI_USAGE;
    }
    signal(SIGPIPE, SIG_IGN);
    struct state_lock lock;
    if (state_lock_take(cli->config.state_dir, &lock, &err)) {
        fprintf(stderr, "raven-agent: %s\n", err.text);
        return CLI_STATE_DIR;
    }
    int code = join_locked(&joined);
    state_lock_release(&lock);
    return code;
}
