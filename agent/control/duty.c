/* The duty cycle as a debt of rest. Training thread. A debt, not a sleep per step: steps shorter
 * than the timer's resolution would otherwise get too much or no rest at all. */
#include "agent/control/duty.h"

#define REST_WORTH_US 1000

void duty_init(struct duty *duty, unsigned percent)
{
    *duty = (struct duty){.percent = percent < 1 ? 1 : percent > 100 ? 100 : percent};
}

void duty_computed(struct duty *duty, int64_t busy_us)
{
    if (busy_us > 0)
        duty->debt_us += busy_us * (int64_t)(100 - duty->percent) / (int64_t)duty->percent;
}

int64_t duty_rest_us(const struct duty *duty)
{
    return duty->debt_us >= REST_WORTH_US ? duty->debt_us : 0;
}

void duty_rested(struct duty *duty, int64_t rested_us)
{
    duty->debt_us = rested_us >= duty->debt_us ? 0 : duty->debt_us - rested_us;
}
