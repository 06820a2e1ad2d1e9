/* One request on its way through the server, and the server itself. Private to coordinator/http. */
#ifndef RAVEN_COORDINATOR_HTTP_REQUEST_H
#define RAVEN_COORDINATOR_HTTP_REQUEST_H

#include "common/base/buffer.h"
#include "common/base/file.h"
#include "coordinator/http/http.h"
#include "coordinator/http/peers.h"
#include "coordinator/http/rate.h"
#include "coordinator/http/route.h"
#include "coordinator/http/workers.h"

#include <microhttpd.h>
#include <stdatomic.h>

#define JSON_BODY_BYTES_MAX (1024u * 1024)
#define REQUEST_ID_BYTES 65
#define INVITE_ANSWERS_KEPT 64u

struct upload;
struct static_files;

struct http {
    struct core *core;
    struct store *store;
    struct auth *auth;
    char artifacts_dir[PATH_BYTES];
    uint64_t artifact_bytes_max;
    const char **allowed_hosts; /* owned copies, NULL-ended */
    _Atomic uint16_t port;
    atomic_bool draining;
    struct MHD_Daemon *daemon;
    struct workers *workers;
    struct peers *peers;
    struct static_files *files;
    struct rate rate;
    pthread_mutex_t lock;   /* of what follows */
    struct upload *uploads; /* in progress, at most one for each artifact */
    char *invite_answers[INVITE_ANSWERS_KEPT];
    uint32_t invite_next; /* ring */
};

enum request_phase {
    PHASE_HEADERS,  /* nothing decided yet */
    PHASE_OPENING,  /* suspended: a stream's handler runs on a worker */
    PHASE_BODY,     /* takes the body, then runs the handler */
    PHASE_HANDLING, /* suspended: the handler runs on a worker */
    PHASE_ANSWERED, /* refused without a body to skip: the next call queues the answer */
};

/* Where a streamed body goes; set by the handler of a STREAM route. */
struct sink {
    void *context;
    void (*data)(void *context, const void *data, size_t bytes); /* libmicrohttpd's thread */
    void (*finish)(struct request *request); /* on a worker, after the last byte: answers */
    void (*release)(void *context);          /* when the request ends, however it ends */
};

struct request {
    struct work work; /* first */
    struct http *http;
    struct MHD_Connection *connection;
    struct peer *peer;
    enum request_phase phase;
    bool uri_is_clean;
    char id[REQUEST_ID_BYTES]; /* X-Request-Id */
    const char *method, *path; /* libmicrohttpd's, until the request ends */
    const struct route *route; /* NULL before it was found */
    char parameter[ROUTE_PARAMETER_BYTES];
    uint64_t content_length;
    struct auth_principal principal; /* of a route that is SIGNED */
    struct buffer body;              /* JSON bodies */
    struct sink sink;                /* streamed bodies */
    int status;                      /* with response */
    struct MHD_Response *response;   /* owned until queued */
    bool is_download;                /* of any size: may take as long as bytes flow */
};

/* Value of a header or of a query parameter; NULL: absent. Valid until the request ends. */
const char *request_header(const struct request *request, const char *name);
const char *request_query(const struct request *request, const char *name);

/* limit (default 50, 1 … 200) and cursor (an id with this prefix; "" without). False: answered. */
bool request_page(struct request *request, const char *prefix, uint32_t *ret_limit,
                  const char **ret_cursor);
/* A whole number from a query parameter; fallback without. False: answered. */
bool request_number(struct request *request, const char *name, uint64_t smallest, uint64_t largest,
                    uint64_t fallback, uint64_t *ret);

/* Signs the request in by its Authorization header or cookie, checks Origin and scope. False:
 * answered. */
bool request_authorise(struct request *request);
/* Counts a wrong credential and answers 401, or 429 when this address had too many. */
void request_refuse_credential(struct request *request, const char *sentence);
/* The session cookie's value; false when there is none. */
bool request_session(const struct request *request, char ret[64]);

#endif
