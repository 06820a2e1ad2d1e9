/* The client side: commands to the lab around this process. */
#ifndef RAVEN_NETLAB_CLIENT_H
#define RAVEN_NETLAB_CLIENT_H

#include "common/base/status.h"

/* Sends words (NULL-terminated) to the lab at path and prints its answer. */
enum status client_ask(const char *path, char **words, struct error *err) MUST_CHECK;
/* Moves this process into the network namespace `where` of that lab. */
enum status client_enter(const char *path, const char *where, struct error *err) MUST_CHECK;

#endif
