/* The controller's arithmetic; see the header. Surprising decision: k is chosen for the number of
 * steps that the smallest k needs, so that a wish for more density alone never makes leases long.
 */
#include "agent/control/adapt.h"

#include "common/codec/codec.h"

#include <math.h>
#include <stdio.h>

#define HOME_LINK_FACTOR 2.0
#define COMPUTE_PER_TRANSFER 4.0
#define COMPUTE_PER_OVERHEAD 40.0
#define TRANSFER_SHARE_MAX 0.20
#define SAME_STEPS 0.10 /* a smaller change is no change */
#define CODE_MARGIN 1.02
#define AHEAD_SPARE_MS 4000.0 /* to find out, to connect again, to get the next lease */
#define LONG_LEASE_MS 2000.0  /* the link is slow: one lease more is held, whatever was seen */

static const uint64_t densities[] = {256, 128, 64, 32, 16};

double adapt_update_bytes(uint64_t parameters, uint64_t k, uint32_t values)
{
    static const double value_bits[] = {[CODEC_SIGN] = 1,
                                        [CODEC_TWO_BITS] = 2,
                                        [CODEC_FOUR_BITS] = 4,
                                        [CODEC_EIGHT_BITS] = 8,
                                        [CODEC_FP32] = 32};
    if (values == CODEC_FP32)
        return 4.0 * (double)parameters;
    double kept = (double)k, chunk = CODEC_CHUNK;
    double index_bits =
        (lgamma(chunk + 1) - lgamma(kept + 1) - lgamma(chunk - kept + 1)) / log(2.0);
    double bits = index_bits + kept * value_bits[values] + 8;
    return CODE_MARGIN * bits / 8 * (double)parameters / chunk;
}

/* Milliseconds that the update of one lease and the deltas of its time take, without the factor. */
static double wire_ms(const struct job_spec *spec, const struct adapt_inputs *in, uint64_t k)
{
    double ms = in->rtt_ms;
    if (in->up_bytes_per_s > 0)
        ms += 1e3 * adapt_update_bytes(in->parameters, k, spec->update.values) / in->up_bytes_per_s;
    if (in->down_bytes_per_s > 0)
        ms += 1e3 * (double)in->active * (double)in->delta_bytes / in->down_bytes_per_s;
    return ms;
}

static uint64_t bounded(double steps, const struct job_spec *spec)
{
    if (steps <= spec->training.steps_min)
        return spec->training.steps_min;
    return steps >= spec->training.steps_max ? spec->training.steps_max : (uint64_t)ceil(steps);
}

/* What the fleet's pace asks for: less than the job's steps on a slower PC. */
static double paced_steps(const struct job_spec *spec, const struct adapt_inputs *in)
{
    double steps = spec->training.steps_per_lease;
    if (in->fleet_step_ms > 0 && in->fleet_step_ms < in->step_ms)
        steps *= in->fleet_step_ms / in->step_ms;
    return steps;
}

static uint64_t steps_for(const struct job_spec *spec, const struct adapt_inputs *in, uint64_t k)
{
    double steps = paced_steps(spec, in);
    double transfer_ms = HOME_LINK_FACTOR * wire_ms(spec, in, k);
    return bounded(fmax(steps, fmax(COMPUTE_PER_TRANSFER * transfer_ms,
                                    COMPUTE_PER_OVERHEAD * in->overhead_ms) /
                                   in->step_ms),
                   spec);
}

static uint64_t density_for(const struct job_spec *spec, const struct adapt_inputs *in)
{
    if (in->up_bytes_per_s <= 0 || spec->update.values == CODEC_FP32)
        return spec->update.k_per_chunk; /* nothing measured: the job's start value */
    double compute_ms = (double)steps_for(spec, in, spec->update.k_min) * in->step_ms;
    for (size_t i = 0; i < sizeof densities / sizeof densities[0]; i++) {
        uint64_t k = densities[i];
        if (k < spec->update.k_min)
            break;
        if (k <= spec->update.k_max && wire_ms(spec, in, k) <= TRANSFER_SHARE_MAX * compute_ms)
            return k;
    }
    return spec->update.k_min;
}

static bool about_equal(uint64_t a, uint64_t b)
{
    return fabs((double)a - (double)b) <= SAME_STEPS * (double)b;
}

/* Worse (more steps, less density) at once; better only when proposed twice in a row. */
static void settle(struct adapt *adapt, uint64_t steps, uint64_t k)
{
    bool first = !adapt->decided;
    bool same = adapt->k == k && about_equal(steps, adapt->steps);
    bool worse = k < adapt->k || (k == adapt->k && steps > adapt->steps);
    bool again = adapt->better_k == k && about_equal(steps, adapt->better_steps);
    adapt->decided = true;
    if (first || worse || again) {
        if (!same || first) {
            adapt->steps = steps;
            adapt->k = k;
        }
        adapt->better_steps = adapt->better_k = 0;
    } else if (same) {
        adapt->better_steps = adapt->better_k = 0;
    } else {
        adapt->better_steps = steps;
        adapt->better_k = k;
    }
}

static uint64_t ahead_for(const struct adapt_inputs *in, double compute_ms)
{
    uint64_t usual = compute_ms >= LONG_LEASE_MS ? 2 : 1;
    if (in->longest_stall_ms <= 0 || compute_ms <= 0)
        return usual;
    double leases = ceil((in->longest_stall_ms * 1.25 + AHEAD_SPARE_MS) / compute_ms);
    return leases >= ADAPT_AHEAD_MAX - 1 ? ADAPT_AHEAD_MAX : 1 + (uint64_t)leases;
}

static void explain(const struct job_spec *spec, const struct adapt_inputs *in,
                    struct adapt_choice *choice)
{
    double paced = paced_steps(spec, in);
    double link_ms = COMPUTE_PER_TRANSFER * choice->transfer_ms;
    char *text = choice->reason;
    size_t room = sizeof choice->reason;
    if (choice->compute_ms < link_ms * 0.9 && choice->steps == spec->training.steps_max)
        snprintf(text, room,
                 "the link is the limit: at the job's most steps, %llu, transfers take %.1f s and "
                 "computing %.1f s",
                 (unsigned long long)choice->steps, choice->transfer_ms / 1e3,
                 choice->compute_ms / 1e3);
    else if ((double)choice->steps > paced + 1 && link_ms >= COMPUTE_PER_OVERHEAD * in->overhead_ms)
        snprintf(text, room,
                 "more steps, so that computing (%.1f s) lasts 4 times the predicted transfer "
                 "(%.1f s)",
                 choice->compute_ms / 1e3, choice->transfer_ms / 1e3);
    else if ((double)choice->steps > paced + 1)
        snprintf(text, room,
                 "more steps, so that ending a lease (%.3g ms) takes at most 1/40 of computing",
                 in->overhead_ms);
    else if (paced < spec->training.steps_per_lease)
        snprintf(text, room, "fewer steps: the fastest PC takes %.3g ms for one, this one %.3g ms",
                 in->fleet_step_ms, in->step_ms);
    else
        snprintf(text, room, "as the job says: the link keeps up");
}

void adapt_choose(struct adapt *adapt, const struct job_spec *spec, const struct adapt_inputs *in,
                  struct adapt_choice *ret)
{
    *ret = (struct adapt_choice){
        .steps = spec->training.steps_per_lease, .k = spec->update.k_per_chunk, .ahead = 1};
    if (!spec->update.adaptive || in->step_ms <= 0) {
        snprintf(ret->reason, sizeof ret->reason,
                 spec->update.adaptive ? "as the job says: nothing is measured yet"
                                       : "as the job says: it does not adapt");
    } else {
        uint64_t k = density_for(spec, in);
        settle(adapt, steps_for(spec, in, k), k);
        ret->steps = adapt->steps;
        ret->k = adapt->k;
    }
    ret->compute_ms = (double)ret->steps * in->step_ms;
    ret->transfer_ms = HOME_LINK_FACTOR * wire_ms(spec, in, ret->k);
    ret->ahead = ahead_for(in, ret->compute_ms);
    if (ret->reason[0] == '\0')
        explain(spec, in, ret);
}
