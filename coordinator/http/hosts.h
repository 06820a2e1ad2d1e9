/* Which Host names are ours, and whether an Origin belongs to one. Against DNS rebinding and
 * requests forged by other sites. */
#ifndef RAVEN_COORDINATOR_HTTP_HOSTS_H
#define RAVEN_COORDINATOR_HTTP_HOSTS_H

#include <stdbool.h>

/* host: value of the Host header, hostile. extra: NULL-ended list of "name" (any port) or
 * "name:port"; NULL is fine. */
bool host_is_allowed(const char *host, const char *const *extra);

/* origin: "http://" or "https://" followed by exactly this Host. */
bool origin_is_of_host(const char *origin, const char *host);

#endif
