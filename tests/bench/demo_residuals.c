/* Real error feedback from the demo jobs. One thread. Surprising: there is no coordinator; with one
 * agent, α = 1 and an exact downlink, w simply moves by what was sent. */
#include "tests/bench/demo_residuals.h"

#include "agent/engine/trainer.h"
#include "common/base/file.h"
#include "common/codec/codec.h"

#include <stdlib.h>
#include <string.h>

const char *const demo_job_names[DEMO_JOBS] = {"KJV GPT", "Fashion CNN"};

#define ARTIFACT(digit) "\"art_01JD000000000000000000000" digit "\""

static const char *const specs[DEMO_JOBS] = {
    "{\"name\":\"KJV byte GPT\","
    "\"model\":{\"preset\":\"gpt\",\"layers\":2,\"width\":64,\"heads\":4,\"context\":64,"
    "\"vocabulary\":256},"
    "\"data\":{\"kind\":\"text\",\"train\":" ARTIFACT(
        "1") "},"
             "\"training\":{\"batch_size\":8,\"total_samples\":72000}}",
    "{\"name\":\"Fashion-MNIST CNN\","
    "\"model\":{\"preset\":\"cnn\",\"height\":28,\"width\":28,\"channels\":[16,32],"
    "\"classes\":10},"
    "\"data\":{\"kind\":\"images\",\"images\":" ARTIFACT(
        "1") ","
             "\"labels\":" ARTIFACT(
                 "2") ","
                      "\"held_out_images\":" ARTIFACT(
                          "3") ","
                               "\"held_out_labels\":" ARTIFACT(
                                   "4") "},"
                                        "\"training\":{\"batch_size\":64,\"learning_rate\":0.002,"
                                        "\"warmup_samples\":6400,"
                                        "\"total_samples\":200000}}",
};
static const char *const files[DEMO_JOBS][4] = {
    {"kjv.txt"},
    {"train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"},
};

struct bench_agent {
    struct job_spec spec;
    struct graph *graph;
    struct backend *backend;
    struct trainer *trainer;
    struct codec_encoder *encoder;
    struct buffer payload;
    uint64_t n, samples;
    float *w, *x, *e;
};

static enum status open_agent(enum demo_job job, const char *folder, struct bench_agent *agent,
                              struct error *err)
{
    char paths[4][PATH_BYTES];
    struct trainer_data_paths data = {0};
    for (int i = 0; i < 4 && files[job][i]; i++) {
        if (path_format(paths[i], "%s/%s", folder, files[job][i]))
            return error_set(err, STATUS_TOO_LARGE, "the folder's name is too long");
        data.paths[i] = paths[i];
    }
    enum status status = job_spec_parse_text(specs[job], strlen(specs[job]), &agent->spec, err);
    if (!status)
        status = graph_build(&agent->spec.model, &agent->graph, err);
    if (!status)
        status = backend_create_cpu(1, &agent->backend, err);
    if (!status)
        status =
            trainer_create(&agent->spec, agent->graph, &data, agent->backend, &agent->trainer, err);
    if (!status)
        status = codec_encoder_create(NULL, &agent->encoder);
    if (status)
        return status;
    agent->n = agent->graph->parameter_count;
    agent->w = calloc(agent->n, sizeof(float));
    agent->x = calloc(agent->n, sizeof(float));
    agent->e = calloc(agent->n, sizeof(float));
    if (!agent->w || !agent->x || !agent->e)
        return STATUS_NO_MEMORY;
    graph_initialise(agent->graph, agent->spec.training.seed, agent->w);
    memcpy(agent->x, agent->w, agent->n * sizeof(float));
    buffer_init(&agent->payload,
                codec_bytes_max(agent->n, (struct codec_format){CODEC_SIGN, CODEC_K_MAX}));
    return STATUS_OK;
}

static void close_agent(struct bench_agent *agent)
{
    trainer_free(agent->trainer);
    backend_free(agent->backend);
    graph_free(agent->graph);
    codec_encoder_free(agent->encoder);
    buffer_done(&agent->payload);
    free(agent->w);
    free(agent->x);
    free(agent->e);
}

static enum status train_lease(struct bench_agent *agent, uint64_t block, uint32_t steps,
                               struct error *err)
{
    trainer_begin_lease(agent->trainer, block, 1, block);
    for (uint32_t i = 0; i < steps; i++) {
        double loss, rate = job_spec_learning_rate(&agent->spec, agent->samples);
        enum status status = trainer_step(agent->trainer, agent->x, rate, &loss, err);
        if (status)
            return status;
        agent->samples += agent->spec.training.batch_size;
    }
    return STATUS_OK;
}

/* e = w - x; w moves by what is sent of it, which is what the agent's next residual sees. */
static enum status send(struct bench_agent *agent, uint32_t k, struct error *err)
{
    for (uint64_t i = 0; i < agent->n; i++)
        agent->e[i] = agent->w[i] - agent->x[i];
    struct codec_source source = {.plus = agent->e};
    struct codec_format format = {CODEC_SIGN, k};
    buffer_clear(&agent->payload);
    enum status status =
        codec_encode(agent->encoder, &source, agent->n, format, &agent->payload, err);
    if (status)
        return status;
    return codec_decode_add(agent->payload.data, agent->payload.bytes, -1.0f, agent->w, agent->n,
                            err);
}

enum status demo_residuals(enum demo_job job, const char *folder, uint32_t k, uint32_t steps,
                           uint64_t chunks, float **ret, struct error *err)
{
    struct bench_agent agent = {0};
    float *all = malloc(chunks * CODEC_CHUNK * sizeof *all);
    enum status status = all ? open_agent(job, folder, &agent, err) : STATUS_NO_MEMORY;
    for (uint64_t done = 0, block = 0; !status && done < chunks; block++) {
        status = train_lease(&agent, block, steps, err);
        if (!status)
            status = send(&agent, k, err);
        uint64_t whole = agent.n / CODEC_CHUNK;
        whole = whole < chunks - done ? whole : chunks - done;
        memcpy(all + done * CODEC_CHUNK, agent.e, whole * CODEC_CHUNK * sizeof *all);
        done += whole;
    }
    close_agent(&agent);
    if (status)
        free(all);
    else
        *ret = all;
    return status;
}
