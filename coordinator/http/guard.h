/* What makes a request ambiguous or sly, found before anything acts on it. libmicrohttpd 0.9.75
 * accepts two Content-Length headers, Content-Length beside Transfer-Encoding, two Hosts, and
 * header names with a space; a proxy in front may frame such bytes otherwise (request smuggling).
 */
#ifndef RAVEN_COORDINATOR_HTTP_GUARD_H
#define RAVEN_COORDINATOR_HTTP_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GUARD_URI_BYTES_MAX 2048u
#define GUARD_HEADERS_BYTES_MAX 16384u

struct guard {
    uint32_t hosts, content_lengths;
    bool has_transfer_encoding, has_bad_name, has_bad_value;
    size_t header_bytes;
    uint64_t content_length; /* 0 without the header */
};

/* The request target as it was sent: starts with one '/', no "//" or ".." in the path, no escaped
 * NUL, slash, backslash or dot, no broken escape, only printable ASCII. */
bool guard_uri_is_clean(const char *uri);

/* Called once for each header. */
void guard_see_header(struct guard *guard, const char *name, size_t name_bytes, const char *value,
                      size_t value_bytes);

/* NULL: fine. Else a sentence for the client, who must then be disconnected. */
const char *guard_complaint(const struct guard *guard, const char *version);

#endif
