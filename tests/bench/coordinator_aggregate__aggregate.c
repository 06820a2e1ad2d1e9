/* The coordinator's arithmetic for a model of 10 million parameters at 1/64, on one thread: how
 * many updates it examines and applies in a second, and what a commit costs against reading θ and
 * w once. Run it by ./run bench aggregate. */
#include "common/base/large.h"
#include "common/base/rng.h"
#include "coordinator/aggregate/aggregate.h"
#include "tests/bench/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N ((uint64_t)10000000)
#define TENSORS 100u
#define UPDATES 8u
#define ROUNDS 15u
#define GOAL_PER_S 100.0

static const struct codec_format uplink = {CODEC_SIGN, 64}, downlink = {CODEC_SIGN, 128};

struct bench {
    struct aggregate *aggregate;
    struct buffer payloads[UPDATES], delta;
    float *theta, *w;
    uint32_t next;
    double sum;
};

static void apply(struct bench *bench)
{
    const struct buffer *bytes = &bench->payloads[bench->next++ % UPDATES];
    struct codec_payload payload;
    float factors[TENSORS];
    if (codec_open(bytes->data, bytes->bytes, N, NULL, &payload, NULL) ||
        aggregate_examine(bench->aggregate, &payload, factors, NULL) ||
        aggregate_apply(bench->aggregate, &payload, 0.01f, factors, NULL))
        abort();
}

static void run_apply(void *context)
{
    apply(context);
}

static void commit(struct bench *bench)
{
    buffer_clear(&bench->delta);
    if (aggregate_commit(bench->aggregate, downlink, &bench->delta, NULL))
        abort();
}

static void run_commit(void *context)
{
    commit(context);
}

static void run_both(void *context)
{
    apply(context);
    commit(context);
}

/* What no commit can do without: both vectors come from memory once. */
static void run_read(void *context)
{
    struct bench *bench = context;
    float sums[16] = {0};
    for (uint64_t i = 0; i + 16 <= N; i += 16)
        for (uint64_t j = 0; j < 16; j++)
            sums[j] += bench->theta[i + j] - bench->w[i + j];
    for (int j = 0; j < 16; j++)
        bench->sum += (double)sums[j];
}

static void make_payloads(struct bench *bench, float *e)
{
    struct codec_encoder *encoder;
    if (codec_encoder_create(NULL, &encoder))
        abort();
    for (uint32_t u = 0; u < UPDATES; u++) {
        struct rng rng;
        rng_seed(&rng, u);
        for (uint64_t i = 0; i < N; i++)
            e[i] = (float)(rng_normal(&rng) * 0x1p-10);
        struct codec_source source = {.plus = e};
        buffer_init(&bench->payloads[u], codec_bytes_max(N, uplink));
        if (codec_encode(encoder, &source, N, uplink, &bench->payloads[u], NULL))
            abort();
    }
    codec_encoder_free(encoder);
}

static void set_up(struct bench *bench)
{
    uint64_t counts[TENSORS];
    for (uint32_t t = 0; t < TENSORS; t++)
        counts[t] = N / TENSORS;
    bench->theta = large_alloc(N * sizeof(float));
    bench->w = large_alloc(N * sizeof(float));
    if (!bench->theta || !bench->w)
        abort();
    memset(bench->w, 0, N * sizeof(float));
    make_payloads(bench, bench->theta);
    if (aggregate_create(bench->theta, N, counts, TENSORS, &bench->aggregate))
        abort();
    buffer_init(&bench->delta, codec_bytes_max(N, downlink));
}

int main(int argc, char **argv)
{
    struct report report;
    struct bench bench = {0};
    if (!report_init(&report, "aggregate", argc, argv))
        return 2;
    set_up(&bench);
    struct action actions[] = {{.act = run_apply, .context = &bench},
                               {.act = run_commit, .context = &bench},
                               {.act = run_both, .context = &bench},
                               {.act = run_read, .context = &bench}};
    report_race(actions, sizeof actions / sizeof *actions, ROUNDS);
    double read = 1 / actions[3].median_s;
    report_add(&report, "examine and apply, 10M parameters, k = 64", 1 / actions[0].median_s,
               "updates/s", "goal", GOAL_PER_S);
    report_add(&report, "the same with a commit each, k = 128", 1 / actions[2].median_s,
               "updates/s", "goal", GOAL_PER_S);
    report_add(&report, "commit", 1 / actions[1].median_s, "per s", "one pass over theta and w",
               read);
    aggregate_free(bench.aggregate);
    for (uint32_t u = 0; u < UPDATES; u++)
        buffer_done(&bench.payloads[u]);
    buffer_done(&bench.delta);
    large_free(bench.theta, N * sizeof(float));
    large_free(bench.w, N * sizeof(float));
    return 0;
}
