/* JSON bodies from strangers: bounded depth, no duplicate keys, an object at the top; and small
 * readers that collect every complaint about its fields. */
#ifndef RAVEN_COORDINATOR_HTTP_JSON_BODY_H
#define RAVEN_COORDINATOR_HTTP_JSON_BODY_H

#include "common/graph/job_spec.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define JSON_DEPTH_MAX 32u

struct request;

/* STATUS_INVALID names line and column. */
enum status json_body_parse(const void *data, size_t bytes, json_t **ret,
                            struct error *err) MUST_CHECK;
/* The request's body; NULL: answered. The caller decrefs. */
json_t *request_json(struct request *request);

/* Complains about every field that is not in names (separated by spaces). */
void json_fields_known(const json_t *object, const char *names, struct spec_complaints *list);
/* The field's text, NULL when it is absent (a complaint if required) or wrong (a complaint). */
const char *json_field_text(const json_t *object, const char *name, size_t characters_max,
                            bool required, struct spec_complaints *list);
/* fallback when absent; a missing one is complained about when required. */
uint64_t json_field_number(const json_t *object, const char *name, uint64_t smallest,
                           uint64_t largest, bool required, uint64_t fallback,
                           struct spec_complaints *list);

/* NaN and infinity become null. */
json_t *json_number(double value);
json_t *json_time(int64_t wall_ms); /* RFC 3339; null for 0 */
json_t *json_text_or_null(const char *text);

#endif
