/* The way from `raven-agent status` to the running agent: a Unix socket in the state directory that
 * gives one JSON status to whoever connects, and closes. */
#ifndef RAVEN_AGENT_STATUS_SOCKET_H
#define RAVEN_AGENT_STATUS_SOCKET_H

#include "agent/status/status.h"

/* Starts a thread of its own, so that the agent answers even while its loop waits for a name
 * server. The caller holds the state directory's lock: an old socket file is removed. */
struct status_server;
enum status status_server_start(const char *state_dir, struct status_board *board,
                                struct status_server **ret, struct error *err) MUST_CHECK;
void status_server_stop(struct status_server *server); /* NULL is fine */

/* Appends the running agent's JSON. STATUS_NOT_FOUND when no agent runs on this directory,
 * STATUS_TIMEOUT when it does not answer within two seconds. */
enum status status_ask(const char *state_dir, struct buffer *ret, struct error *err) MUST_CHECK;

#endif
