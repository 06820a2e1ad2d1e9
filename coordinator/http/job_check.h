/* What of a submitted job cannot be seen from its JSON alone: whether its data exist, are ready and
 * fit the model. */
#ifndef RAVEN_COORDINATOR_HTTP_JOB_CHECK_H
#define RAVEN_COORDINATOR_HTTP_JOB_CHECK_H

#include "common/graph/data_plan.h"
#include "coordinator/http/request.h"

#include <jansson.h>

struct job_facts {
    struct job_spec spec;
    struct data_plan plan;
    uint64_t parameters;
    json_t *artifacts; /* as in the wire message `job`; owned */
};

/* STATUS_INVALID with every complaint; other failures are the store's. Free ret->artifacts by
 * json_decref in any case. */
enum status job_check(struct http *http, const json_t *json, struct job_facts *ret,
                      struct spec_complaints *complaints, struct error *err) MUST_CHECK;

#endif
