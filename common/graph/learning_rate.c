/* The learning-rate curve over the job's global sample position. Plain functions, any thread.
 * Surprising: the warm-up starts at 1 %, not at 0, so that the very first step already learns. */
#include "common/graph/job_spec.h"

#include <math.h>

#define WARMUP_START_RATIO 0.01

/* Cosine from 1 to final_learning_rate_ratio at total_samples, flat after. */
static double anneal(const struct job_spec *spec, uint64_t samples_position)
{
    double done = 1.0;
    if (samples_position < spec->training.total_samples)
        done = (double)samples_position / (double)spec->training.total_samples;
    double last = spec->training.final_learning_rate_ratio;
    return last + (1.0 - last) * 0.5 * (1.0 + cos(M_PI * done));
}

double job_spec_learning_rate(const struct job_spec *spec, uint64_t samples_position)
{
    double warm = 1.0;
    if (samples_position < spec->training.warmup_samples)
        warm = fmin(1.0, (double)samples_position / (double)spec->training.warmup_samples +
                             WARMUP_START_RATIO);
    return spec->training.learning_rate * warm * anneal(spec, samples_position);
}
