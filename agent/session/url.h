/* The coordinator's address as people type it: http://host[:port] or https://host[:port], nothing
 * after it but one '/'; and the host of any other address. Pure functions on hostile text. */
#ifndef RAVEN_AGENT_SESSION_URL_H
#define RAVEN_AGENT_SESSION_URL_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define URL_HOST_BYTES 256
#define URL_BASE_BYTES 288

struct url {
    bool tls;
    char host[URL_HOST_BYTES]; /* without the brackets of an IPv6 address */
    uint16_t port;
    char authority[URL_BASE_BYTES]; /* host[:port] for the Host header */
    char base[URL_BASE_BYTES];      /* "http://host:port", no slash at the end */
};

enum status url_parse(const char *text, struct url *ret, struct error *err) MUST_CHECK;
/* The same for the address of a file: anything may follow the host and port; user names are still
 * refused. */
enum status url_parse_file(const char *text, struct url *ret, struct error *err) MUST_CHECK;

#endif
