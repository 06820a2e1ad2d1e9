/* One HTTP download into a file that appears only when it is whole and right: bytes go to a .part
 * file (resumed by Range), the final name comes by rename after size and SHA-256 agree. Blocking;
 * called on the download thread. */
#ifndef RAVEN_AGENT_SESSION_DOWNLOAD_H
#define RAVEN_AGENT_SESSION_DOWNLOAD_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define DOWNLOAD_ETAG_BYTES 96

struct download {
    const char *url;
    const char *token;     /* bearer credential, NULL: none */
    const char *path;      /* final name */
    const char *part_path; /* same file system */
    uint64_t bytes;        /* exact size */
    const uint8_t *sha256; /* NULL: the caller checks the content, which may change on the server */
    /* Only without sha256: in and out, the ETag of what the .part file holds; a transfer resumes
     * only while the server still has that. Empty at first. */
    char (*etag)[DOWNLOAD_ETAG_BYTES];

    /* Called a few times a second while bytes flow; may be NULL. */
    void (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    bool (*is_cancelled)(void *user); /* may be NULL */
    void *user;
};

/* Whether path holds exactly these bytes with this SHA-256 already. */
bool download_is_complete(const char *path, uint64_t bytes, const uint8_t sha256[32]);

/* One attempt. STATUS_UNAVAILABLE, STATUS_TIMEOUT, STATUS_TRUNCATED, STATUS_CORRUPT: try again
 * later (the .part file holds what is usable); STATUS_DENIED: the token is not valid (any more);
 * STATUS_CLOSED: cancelled; STATUS_NOT_FOUND, STATUS_NO_SPACE, STATUS_IO, … as they say. */
enum status download_run(const struct download *download, struct error *err) MUST_CHECK;

#endif
