/* One HTTP download into a file that appears only when it is whole and right: bytes go to a .part
 * file (resumed by Range), the final name comes by rename after size and SHA-256 agree. Several
 * sources may have the file: mirrors in turn, the coordinator last. Blocking; called on the
 * download thread. */
#ifndef RAVEN_AGENT_SESSION_DOWNLOAD_H
#define RAVEN_AGENT_SESSION_DOWNLOAD_H

#include "agent/session/route.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOWNLOAD_SOURCES_MAX 8
#define DOWNLOAD_SPARE_BYTES (64ull << 20) /* stay free on the disk beside the file */

struct download_source {
    const char *url;
    const char *token; /* bearer credential, sent to this source alone; NULL: none */
};

/* What the attempts at one file have taught. All zero at first. */
struct download_history {
    unsigned mirror_failures; /* once there are enough, the coordinator is asked instead */
    size_t next_mirror;
    uint32_t unfit; /* bit i: mirror i does not have this file */
    uint64_t reported_bytes;
};

struct download {
    const struct download_source *sources;
    size_t source_count;              /* the last one is the coordinator */
    struct download_history *history; /* kept by the caller from attempt to attempt; or NULL */
    const char *path;                 /* final name */
    const char *part_path;            /* same file system */
    uint64_t bytes;                   /* exact size */
    const uint8_t *sha256; /* NULL: the caller checks the content, which may change on the server;
                            * then there must be one source only */
    /* Only without sha256: a file beside the .part file that keeps the ETag of what that holds, so
     * that a later attempt, perhaps of another process, goes on only while the server has that. */
    const char *etag_path;

    const struct route *route; /* NULL: the environment's proxy, the system's authorities */
    uint64_t bytes_per_s_max;  /* 0: no cap */
    unsigned stall_s;          /* without a byte; 0: 30 s */

    /* Called a few times a second while bytes flow; never goes back within one history, whatever
     * the sources do; total_bytes is reported once the file is there. May be NULL. */
    void (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    /* A mirror failed and another source is asked; may be NULL. */
    void (*mirror_failed)(void *user, const char *text);
    bool (*is_cancelled)(void *user); /* may be NULL */
    void *user;
};

/* Whether path holds exactly these bytes with this SHA-256 already. */
bool download_is_complete(const char *path, uint64_t bytes, const uint8_t sha256[32]);

/* One attempt: mirrors, as long as there are any of use, then the coordinator. err tells of the
 * last source asked. STATUS_UNAVAILABLE, STATUS_TIMEOUT, STATUS_TRUNCATED, STATUS_CORRUPT: try
 * again later (the .part file holds what is usable); STATUS_DENIED: the token is not valid (any
 * more); STATUS_CLOSED: cancelled; STATUS_NO_SPACE: nothing was asked for; STATUS_NOT_FOUND,
 * STATUS_IO, … as they say. */
enum status download_run(const struct download *download, struct error *err) MUST_CHECK;

#endif
