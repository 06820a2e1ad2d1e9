/* `raven-agent run`. The main thread only waits for signals; the session thread runs the core.
 * Surprising decision: SIGTERM has two seconds whatever the other threads do (a name server that
 * does not answer, one long training step): everything on disk is written atomically, so leaving by
 * _exit then is safe. */
#include "agent/cli.h"
#include "agent/core.h"
#include "common/base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STOP_MS 1700
#define DONE_SIGNAL SIGUSR1

struct session_thread {
    struct core *core;
    struct core_outcome outcome;
    pthread_t main_thread;
};

static void *run_core(void *user)
{
    struct session_thread *session = user;
    core_run(session->core, &session->outcome);
    core_free(session->core);
    pthread_kill(session->main_thread, DONE_SIGNAL);
    return NULL;
}

static void block_signals(sigset_t *ret)
{
    sigemptyset(ret);
    sigaddset(ret, SIGTERM);
    sigaddset(ret, SIGINT);
    sigaddset(ret, DONE_SIGNAL);
    pthread_sigmask(SIG_BLOCK, ret, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* Returns when the session thread is done; leaves the process when it takes too long to stop. */
static void wait_for_end(struct session_thread *session, const sigset_t *signals)
{
    int got;
    while ((got = sigwaitinfo(signals, NULL)) < 0 && errno == EINTR)
        ;
    if (got == DONE_SIGNAL)
        return;
    log_info("agent", "stopping (%s)", got == SIGTERM ? "SIGTERM" : "SIGINT");
    core_stop(session->core);
    struct timespec patience = {.tv_sec = STOP_MS / 1000, .tv_nsec = STOP_MS % 1000 * 1000000l};
    do {
        got = sigtimedwait(signals, NULL, &patience);
    } while (got == SIGTERM || got == SIGINT || (got < 0 && errno == EINTR));
    if (got != DONE_SIGNAL)
        _exit(CLI_OK);
}

static int explain(const struct core_outcome *outcome)
{
    if (!outcome->refused)
        return CLI_OK;
    log_error("agent", "the coordinator refuses this agent: %s%s", outcome->text,
              outcome->reason == END_UNKNOWN_VOLUNTEER
                  ? "; ask for an invite and run RAVEN_INVITE=... raven-agent join URL"
                  : "");
    return CLI_REFUSED;
}

static int run_session(const struct cli *cli, const struct identity *identity)
{
    sigset_t signals;
    block_signals(&signals);
    struct session_thread session = {.main_thread = pthread_self()};
    struct core_settings settings = {.config = &cli->config, .identity = identity};
    struct error err = {0};
    enum status status = core_create(&settings, &session.core, &err);
    if (status) {
        fprintf(stderr, "raven-agent: %s\n", err.text);
        return status == STATUS_INVALID ? CLI_CONFIG : CLI_INTERNAL;
    }
    log_info("agent", "raven-agent " RAVEN_VERSION " works for %s", cli->config.coordinator);
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, run_core, &session);
    if (failed) {
        core_free(session.core);
        fprintf(stderr, "raven-agent: cannot start a thread: %s\n", strerror(failed));
        return CLI_INTERNAL;
    }
    wait_for_end(&session, &signals);
    pthread_join(thread, NULL);
    return explain(&session.outcome);
}

int cli_run(const struct cli *cli)
{
    struct error err = {0};
    struct identity identity;
    if (!cli->config.coordinator[0]) {
        fprintf(stderr, "raven-agent: not joined yet; run RAVEN_INVITE=... raven-agent join URL\n");
        return CLI_CONFIG;
    }
    struct state_lock lock;
    if (state_lock_take(cli->config.state_dir, &lock, &err)) {
        fprintf(stderr, "raven-agent: %s\n", err.text);
        return CLI_STATE_DIR;
    }
    int code = CLI_CONFIG;
    enum status status = identity_load(cli->config.state_dir, &identity, &err);
    if (status == STATUS_NOT_FOUND)
        fprintf(stderr,
                "raven-agent: there is no key in %s; run RAVEN_INVITE=... raven-agent join "
                "%s\n",
                cli->config.state_dir, cli->config.coordinator);
    else if (status)
        fprintf(stderr, "raven-agent: %s\n", err.text);
    else
        code = run_session(cli, &identity);
    identity_wipe(&identity);
    state_lock_release(&lock);
    return code;
}
