/* The duty cycle: after `busy` of computing the agent rests so long that computing takes the chosen
 * share of the time. Pure arithmetic on microseconds; the caller measures and sleeps. */
#ifndef RAVEN_AGENT_CONTROL_DUTY_H
#define RAVEN_AGENT_CONTROL_DUTY_H

#include <stdint.h>

struct duty {
    unsigned percent; /* 1 … 100 */
    int64_t debt_us;  /* rest still owed, ≥ 0 */
};

void duty_init(struct duty *duty, unsigned percent);
void duty_computed(struct duty *duty, int64_t busy_us);
/* How long to rest now: the debt once it is worth a sleep (1 ms), else 0. */
int64_t duty_rest_us(const struct duty *duty);
void duty_rested(struct duty *duty, int64_t rested_us);

#endif
