/* The known-answer test. The device's thread. Surprising: the answers were computed by the
 * processor's encoder once and are stored; a unit test computes them again, so that they cannot
 * rot, and a processor that is wrong itself is noticed as well. */
#include "agent/gpu/selftest.h"

#include "agent/gpu/gpu_update.h"
#include "common/base/checksum.h"
#include "common/base/rng.h"

#include <stdlib.h>

const struct gpu_answer gpu_answers[GPU_ANSWERS] = {
    {"sign, k = 64",
     300 * 4096 + 1234,
     {CODEC_SIGN, 64},
     0x19d36f440b0173bf,
     0x746e51dc2bd72592,
     0x704af426cae3f5b5},
    {"sign, k = 512",
     20000,
     {CODEC_SIGN, 512},
     0x87244fed417d2aee,
     0x737f8c6777cc19ab,
     0x896936a5ebc48db5},
    {"two_bits, k = 128",
     70000,
     {CODEC_TWO_BITS, 128},
     0xe0fad6f1385116b6,
     0xb5aae8cf84e907b5,
     0x1f9d372e2a327e1b},
    {"four_bits, k = 32",
     70000,
     {CODEC_FOUR_BITS, 32},
     0xe51954e694b8acec,
     0x7cbac29ae86ed971,
     0x19f6baf14d405991},
    {"eight_bits, k = 256",
     70000,
     {CODEC_EIGHT_BITS, 256},
     0xcbf1cc57c4d9826c,
     0x2de86fa9d96508fa,
     0xd12399ffe0e80d25},
    {"one parameter",
     1,
     {CODEC_SIGN, 1},
     0xee021b074f274ec3,
     0x0289902c58284c48,
     0xcca830920a730ab5},
};

float *gpu_answer_inputs(const struct gpu_answer *answer)
{
    float *all = malloc((size_t)answer->n * 4 * sizeof *all);
    struct rng rng;
    rng_seed(&rng, answer->n + answer->format.k);
    for (uint64_t i = 0; all && i < answer->n * 4; i++) {
        /* Ties, zeros and denormals among ordinary numbers: a few bits of a random word each. */
        uint64_t word = rng_u64(&rng);
        float x = (float)((int64_t)(word >> 40) - (1 << 23)) * 0x1p-30f;
        all[i] = word % 11 == 0   ? 0.0f
                 : word % 13 == 0 ? 0x1p-128f
                 : word % 7 == 0  ? 0.0078125f
                                  : x;
    }
    return all;
}

struct trial {
    struct gpu *gpu;
    const struct gpu_answer *answer;
    float *inputs;
    struct gpu_memory memories[4]; /* residual, plus, minus, target */
    struct gpu_update *update;
    struct buffer payload;
};

static size_t vector_bytes(const struct trial *trial)
{
    return (size_t)trial->answer->n * sizeof(float);
}

static enum status put_inputs(struct trial *trial)
{
    const struct gpu_api *api = trial->gpu->api;
    enum status status = STATUS_OK;
    for (int i = 0; i < 4 && !status; i++) {
        status = api->allocate(trial->gpu, vector_bytes(trial), &trial->memories[i]);
        if (!status)
            status =
                api->upload(trial->gpu, GPU_COMPUTE, &trial->memories[i], 0,
                            trial->inputs + (uint64_t)i * trial->answer->n, vector_bytes(trial));
    }
    return status ? status : api->wait(trial->gpu, GPU_COMPUTE);
}

/* Downloads into the inputs' place, which nobody needs any more. */
static enum status hash_of(struct trial *trial, int which, uint64_t *ret)
{
    const struct gpu_api *api = trial->gpu->api;
    float *to = trial->inputs + (uint64_t)which * trial->answer->n;
    enum status status =
        api->download(trial->gpu, GPU_COMPUTE, &trial->memories[which], 0, to, vector_bytes(trial));
    if (!status)
        status = api->wait(trial->gpu, GPU_COMPUTE);
    if (!status)
        *ret = checksum_xxh3(to, vector_bytes(trial));
    return status;
}

static enum status compare(const struct trial *trial, const char *what, uint64_t got,
                           uint64_t expected, struct error *err)
{
    if (got == expected)
        return STATUS_OK;
    return error_set(err, STATUS_CORRUPT, "wrong answer in the test \"%s\": %s",
                     trial->answer->name, what);
}

static enum status check_encode(struct trial *trial, struct error *err)
{
    const struct gpu_answer *answer = trial->answer;
    struct gpu_source source = {.residual = &trial->memories[0],
                                .plus = &trial->memories[1],
                                .minus = &trial->memories[2],
                                .decay = GPU_ANSWER_DECAY};
    uint64_t residual = 0;
    enum status status =
        gpu_update_create(trial->gpu, answer->n, answer->format, &trial->update, err);
    if (!status)
        status = gpu_update_begin(trial->update, &source, err);
    if (!status)
        status = gpu_update_finish(trial->update, &trial->payload, NULL, err);
    if (!status)
        status = compare(trial, "payload", checksum_xxh3(trial->payload.data, trial->payload.bytes),
                         answer->payload, err);
    if (!status && hash_of(trial, 0, &residual))
        status = error_set(err, STATUS_IO, "%s", trial->gpu->failure);
    return status ? status : compare(trial, "residual", residual, answer->residual, err);
}

static enum status check_add(struct trial *trial, struct error *err)
{
    struct codec_payload payload;
    uint64_t target = 0;
    enum status status = codec_open(trial->payload.data, trial->payload.bytes, trial->answer->n,
                                    NULL, &payload, err);
    if (!status)
        status = gpu_update_add(trial->gpu, &payload, GPU_ANSWER_FACTOR, &trial->memories[3], err);
    if (!status && hash_of(trial, 3, &target))
        status = error_set(err, STATUS_IO, "%s", trial->gpu->failure);
    return status ? status : compare(trial, "adding it", target, trial->answer->target, err);
}

static enum status run(struct gpu *gpu, const struct gpu_answer *answer, struct error *err)
{
    struct trial trial = {.gpu = gpu, .answer = answer, .inputs = gpu_answer_inputs(answer)};
    if (!trial.inputs)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the device's test");
    buffer_init(&trial.payload, codec_bytes_max(answer->n, answer->format));
    enum status status = put_inputs(&trial);
    if (status)
        error_set(err, status, "%s", gpu->failure[0] ? gpu->failure : "no memory on the device");
    if (!status)
        status = check_encode(&trial, err);
    if (!status)
        status = check_add(&trial, err);
    gpu_update_free(trial.update);
    for (int i = 0; i < 4; i++)
        if (trial.memories[i].handle)
            gpu->api->release(gpu, &trial.memories[i]);
    buffer_done(&trial.payload);
    free(trial.inputs);
    return status;
}

enum status gpu_selftest(struct gpu *gpu, struct error *err)
{
    enum status status = STATUS_OK;
    for (size_t i = 0; i < GPU_ANSWERS && !status; i++)
        status = run(gpu, &gpu_answers[i], err);
    return status;
}
