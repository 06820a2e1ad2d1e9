/* The download thread: fetches a job's artifacts into the cache and replicas into a file, again and
 * again until it has them or is told that nobody wants them any more. */
#ifndef RAVEN_AGENT_CORE_FETCH_H
#define RAVEN_AGENT_CORE_FETCH_H

#include "agent/core_mail.h"
#include "agent/session/route.h"

struct fetcher;

/* core must outlive the fetcher. */
enum status fetcher_start(struct mailbox *core, struct fetcher **ret, struct error *err) MUST_CHECK;
void fetcher_stop(struct fetcher *fetcher); /* NULL is fine */

/* Before the first order; without it there is no cap and the route is the environment's.
 * bytes_per_s_max: 0 for no cap. */
void fetcher_configure(struct fetcher *fetcher, const struct route *route,
                       uint64_t bytes_per_s_max);

/* Takes the mail on STATUS_OK and stamps it with the current generation. */
enum status fetcher_post(struct fetcher *fetcher, struct fetch_mail *mail) MUST_CHECK;
/* Everything posted so far is given up; its reports carry an older generation. */
void fetcher_cancel(struct fetcher *fetcher);
unsigned fetcher_generation(const struct fetcher *fetcher);

#endif
