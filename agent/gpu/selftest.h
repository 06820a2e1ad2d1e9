/* Is a device to be trusted? Fixed inputs through the kernels, compared with stored answers. */
#ifndef RAVEN_AGENT_GPU_SELFTEST_H
#define RAVEN_AGENT_GPU_SELFTEST_H

#include "agent/gpu/gpu.h"
#include "common/codec/codec.h"

/* Takes about a second on a GPU (and as long as its compiler needs). STATUS_CORRUPT: a wrong
 * answer, err names the test. Other failures are the device's own words. */
enum status gpu_selftest(struct gpu *gpu, struct error *err) MUST_CHECK;

/* One stored answer: XXH3-64 of payload, residual and add_to of an encoding, and of a target that
 * the payload was added to. */
struct gpu_answer {
    const char *name;
    uint64_t n;
    struct codec_format format;
    uint64_t payload, residual, target;
};

#define GPU_ANSWERS 6u
extern const struct gpu_answer gpu_answers[GPU_ANSWERS];
/* The inputs of an answer: residual, plus, minus, target, each [n]; freed together by free(). */
float *gpu_answer_inputs(const struct gpu_answer *answer);
#define GPU_ANSWER_DECAY 0.9375f
#define GPU_ANSWER_FACTOR (-0.75f)

#endif
