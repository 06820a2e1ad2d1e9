/* Real error feedback: one agent trains a demo job in this process, and what its encoder meets at
 * the end of each lease is collected. Training thread; the caller frees *ret. */
#ifndef RAVEN_TESTS_BENCH_DEMO_RESIDUALS_H
#define RAVEN_TESTS_BENCH_DEMO_RESIDUALS_H

#include "common/base/status.h"

#include <stdint.h>

enum demo_job { DEMO_KJV_GPT, DEMO_FASHION_CNN, DEMO_JOBS };

extern const char *const demo_job_names[DEMO_JOBS];

/* chunks whole chunks of residuals, lease after lease (the short last chunk of each is left out),
 * every lease of `steps` steps and sent with k by the sign coder. folder: has kjv.txt and the four
 * IDX files of Fashion-MNIST (tests/bench/codec.sh makes it). */
enum status demo_residuals(enum demo_job job, const char *folder, uint32_t k, uint32_t steps,
                           uint64_t chunks, float **ret, struct error *err) MUST_CHECK;

#endif
