/* How a connection leaves this machine – by which proxy, trusting which authorities – and in which
 * words it fails: set up on a libcurl handle, for downloads and for the connection under the
 * WebSocket alike. Any thread. */
#ifndef RAVEN_AGENT_SESSION_ROUTE_H
#define RAVEN_AGENT_SESSION_ROUTE_H

#include "agent/session/proxy.h"
#include "common/base/file.h"

#include <curl/curl.h>

struct route {
    char proxy[PROXY_OPTION_BYTES]; /* the setting; "" leaves it to the environment */
    char ca_file[PATH_BYTES];       /* PEM, trusted beside the system's store; "" for none */
};

/* Proxy, authorities and verification for url; route may be NULL. *ret_proxy is for
 * route_explain. */
enum status route_apply(const struct route *route, const struct url *url, CURL *curl,
                        struct proxy *ret_proxy, struct error *err) MUST_CHECK;

/* STATUS_OK when the file can be used, or none is set. */
enum status route_check_ca_file(const struct route *route, struct error *err) MUST_CHECK;

/* The sentence for a transfer that failed with code, and its status: STATUS_TIMEOUT,
 * STATUS_UNAVAILABLE or STATUS_NO_MEMORY. details: the handle's CURLOPT_ERRORBUFFER. */
enum status route_explain(CURL *curl, CURLcode code, const char *details, const struct url *url,
                          const struct proxy *proxy, struct error *err);

/* The sentence for a proxy that answered http_code instead of doing its work. */
enum status route_explain_refusal(long http_code, const struct proxy *proxy, struct error *err);

#endif
