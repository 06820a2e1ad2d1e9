/* The controller: how many local steps (H) and how many coordinates per chunk (k) the next leases
 * should have, so that this PC computes nearly all the time whatever its link does. Pure arithmetic
 * on measurements; called on the session thread before each request for a lease.
 *
 *   transfer = 2 · (round trip + update(k) / goodput up + R · delta / goodput down)
 *   H = H_job · fastest step of the fleet / own step    (DyLU: leases of equal duration everywhere)
 *   raised until H · step ≥ 4 · transfer, and ≥ 40 · what a lease's end holds training up
 *   k = the largest of 16, 32, 64, 128, 256 whose update and deltas take ≤ 20 % of the computing
 *
 * The factor 2: home links were measured 1.08 … 1.92 times slower than bytes / bandwidth. R, the
 * active agents, is how many deltas arrive during one lease. What gets worse is followed at once,
 * what gets better after two decisions in a row. */
#ifndef RAVEN_AGENT_CONTROL_ADAPT_H
#define RAVEN_AGENT_CONTROL_ADAPT_H

#include "common/graph/job_spec.h"

#include <stdbool.h>
#include <stdint.h>

#define ADAPT_AHEAD_MAX 8

struct adapt_inputs {
    uint64_t parameters;
    double step_ms;                          /* one step here, 0: not measured */
    double fleet_step_ms;                    /* of the fastest agent, 0: not known */
    double up_bytes_per_s, down_bytes_per_s; /* 0: not measured */
    double rtt_ms;                           /* 0: not measured */
    double overhead_ms;                      /* by which a lease's end holds training up */
    uint64_t active;                         /* agents on this job, ≥ 1 */
    uint64_t delta_bytes;                    /* a recent delta, 0: not known */
    double longest_stall_ms;                 /* of the link in the last ten minutes */
};

struct adapt_choice {
    uint64_t steps, k;
    uint64_t ahead; /* leases to hold, the current one included */
    double transfer_ms, compute_ms;
    char reason[161];
};

/* What is kept between decisions; all zero at a job's start. */
struct adapt {
    bool decided;
    uint64_t steps, k;               /* in force */
    uint64_t better_steps, better_k; /* proposed once, waiting for a second time; 0: none */
};

void adapt_choose(struct adapt *adapt, const struct job_spec *spec,
                  const struct adapt_inputs *inputs, struct adapt_choice *ret);
/* Expected bytes of an update: the code's limit, log2 C(4096, k) + value bits + scale per chunk,
 * and 2 % (docs/FORMATS.md). values: enum codec_values. */
double adapt_update_bytes(uint64_t parameters, uint64_t k, uint32_t values);

#endif
