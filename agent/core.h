/* The agent at work: one loop that owns session, uploads and job state, a training thread and a
 * download thread beside it. */
#ifndef RAVEN_AGENT_CORE_H
#define RAVEN_AGENT_CORE_H

#include "agent/config.h"
#include "agent/session/identity.h"
#include "common/base/status.h"
#include "common/wire/wire.h"

#include <stdbool.h>

#define CORE_INVITE_BYTES 129

struct core_settings {
    const struct config *config;
    const struct identity *identity;
    const char *invite;      /* join: the invite; run: NULL */
    int64_t join_timeout_ms; /* join: how long to try to reach the coordinator */
};

struct core_outcome {
    bool enrolled;      /* join: the coordinator said welcome */
    char volunteer[32]; /* join */
    bool refused;       /* the coordinator will not have us: reason and text say why */
    enum end_reason reason;
    char text[200]; /* of the refusal, or of the last failure to connect */
};

struct core;

/* config, identity must outlive the core. Starts the threads (not for join). */
enum status core_create(const struct core_settings *settings, struct core **ret,
                        struct error *err) MUST_CHECK;
/* Runs the loop on the calling thread until core_stop, a refusal or, for join, the welcome. */
void core_run(struct core *core, struct core_outcome *ret);
void core_stop(struct core *core); /* any thread; says bye first */
void core_free(struct core *core); /* after core_run; waits for the threads */

#endif
