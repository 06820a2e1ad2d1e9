/* Statistics and events as a table for people or as one JSON document for a bench. */
#ifndef RAVEN_NETLAB_REPORT_H
#define RAVEN_NETLAB_REPORT_H

#include "tests/netlab/requests.h"

/* chosen: per index of links, which to tell about. */
enum status report_stats(const struct links *links, const bool *chosen, int64_t now_ns, bool json,
                         struct buffer *answer) MUST_CHECK;
enum status report_events(const struct links *links, const bool *chosen, bool json,
                          struct buffer *answer) MUST_CHECK;

#endif
