/* The update code: bytes per parameter against the entropy limit on made and on real residuals;
 * speed of the fused encoder and of decode-and-apply against the triad r = b·r + g over the same
 * arrays, memcpy and zstd level 1, with one and two threads; working memory. GB/s count the 4 bytes
 * of each parameter, whatever is read and written. Run it by ./run bench codec. */
#include "agent/gpu/gpu_update.h"
#include "common/base/large.h"
#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "tests/bench/demo_residuals.h"
#include "tests/bench/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zstd.h>

#define SIZE_CHUNKS 512u
#define SPEED_CHUNKS 4096u /* 64 MiB: no cache holds it */
#define ROUNDS 15u
#define DECAY 0.95f

/* --- sizes ----------------------------------------------------------------------------------- */

static double gaussian(struct rng *rng)
{
    return rng_normal(rng);
}

static double laplace(struct rng *rng)
{
    double u = (double)(rng_u64(rng) >> 11) * 0x1p-53 - 0.5;
    return u < 0 ? log1p(2 * u) : -log1p(-2 * u);
}

static double student_t3(struct rng *rng)
{
    double square = 0;
    double z = rng_normal(rng);
    for (int i = 0; i < 3; i++) {
        double x = rng_normal(rng);
        square += x * x;
    }
    return z / sqrt(square / 3);
}

static const struct {
    const char *name;
    double (*draw)(struct rng *rng);
} distributions[] = {{"Gaussian", gaussian}, {"Laplace", laplace}, {"Student t, 3", student_t3}};

static double limit_bytes_per_parameter(double k)
{
    double choose_bits =
        (lgamma(CODEC_CHUNK + 1.0) - lgamma(k + 1) - lgamma(CODEC_CHUNK - k + 1)) / log(2);
    return (choose_bits + k + 8) / 8 / CODEC_CHUNK;
}

static void report_size(const struct report *report, const char *what, const float *e, uint32_t k)
{
    const uint64_t n = (uint64_t)SIZE_CHUNKS * CODEC_CHUNK;
    struct codec_format format = {CODEC_SIGN, k};
    struct codec_source source = {.plus = e};
    struct codec_encoder *encoder;
    struct buffer payload;
    struct error err;
    char name[64];
    buffer_init(&payload, codec_bytes_max(n, format));
    if (codec_encoder_create(NULL, &encoder))
        abort();
    if (codec_encode(encoder, &source, n, format, &payload, &err)) {
        (void)fprintf(stderr, "%s: %s\n", what, err.text);
        exit(1);
    }
    (void)snprintf(name, sizeof name, "size, %s, k = %u", what, k);
    report_add(report, name, (double)payload.bytes / (double)n, "B/param", "entropy limit",
               limit_bytes_per_parameter(k));
    codec_encoder_free(encoder);
    buffer_done(&payload);
}

static const uint32_t size_ks[] = {16, 32, 64, 128, 256};

static void report_made_sizes(const struct report *report)
{
    float *e = large_alloc((size_t)SIZE_CHUNKS * CODEC_CHUNK * sizeof *e);
    if (!e)
        abort();
    for (size_t d = 0; d < sizeof distributions / sizeof *distributions; d++) {
        struct rng rng;
        rng_seed(&rng, d);
        for (uint64_t i = 0; i < (uint64_t)SIZE_CHUNKS * CODEC_CHUNK; i++)
            e[i] = (float)(distributions[d].draw(&rng) * 0x1p-8);
        for (size_t j = 0; j < sizeof size_ks / sizeof *size_ks; j++)
            report_size(report, distributions[d].name, e, size_ks[j]);
    }
    large_free(e, (size_t)SIZE_CHUNKS * CODEC_CHUNK * sizeof *e);
}

static void report_real_sizes(const struct report *report, const char *folder)
{
    static const uint32_t steps[DEMO_JOBS] = {[DEMO_KJV_GPT] = 30, [DEMO_FASHION_CNN] = 4};
    for (enum demo_job job = 0; job < DEMO_JOBS; job++) {
        for (size_t j = 0; j < sizeof size_ks / sizeof *size_ks; j++) {
            float *e;
            struct error err = {0};
            if (demo_residuals(job, folder, size_ks[j], steps[job], SIZE_CHUNKS, &e, &err)) {
                (void)fprintf(stderr, "%s: %s\n", demo_job_names[job], err.text);
                exit(1);
            }
            report_size(report, demo_job_names[job], e, size_ks[j]);
            free(e);
        }
    }
}

/* --- speed ----------------------------------------------------------------------------------- */

struct arena {
    struct pool *pool;
    uint64_t n;
    float *residual, *plus, *target;
    uint8_t *packed;
    size_t packed_bytes_max, packed_bytes;
    struct codec_encoder *encoder;
};

struct run {
    struct arena *arena;
    struct codec_format format;
    struct buffer payload;
};

#define PIECES 64u

static uint64_t piece_length(const struct arena *arena)
{
    return arena->n / PIECES;
}

static void copy_piece(void *context, size_t piece, uint32_t worker)
{
    struct arena *arena = context;
    uint64_t length = piece_length(arena);
    (void)worker;
    memcpy(arena->target + piece * length, arena->plus + piece * length, length * sizeof(float));
}

#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default"), optimize("O3")))
#endif
static void
triad(float *restrict residual, const float *restrict plus, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++)
        residual[i] = DECAY * residual[i] + plus[i];
}

static void triad_piece(void *context, size_t piece, uint32_t worker)
{
    struct arena *arena = context;
    uint64_t length = piece_length(arena);
    (void)worker;
    triad(arena->residual + piece * length, arena->plus + piece * length, length);
}

static void zstd_piece(void *context, size_t piece, uint32_t worker)
{
    struct arena *arena = context;
    uint64_t length = piece_length(arena);
    size_t room = arena->packed_bytes_max / PIECES;
    (void)worker;
    size_t bytes = ZSTD_compress(arena->packed + piece * room, room, arena->plus + piece * length,
                                 length * sizeof(float), 1);
    if (ZSTD_isError(bytes))
        abort();
    if (piece == 0)
        arena->packed_bytes = bytes * PIECES;
}

static void run_copy(void *context)
{
    struct run *run = context;
    pool_run(run->arena->pool, PIECES, copy_piece, run->arena);
}

static void run_triad(void *context)
{
    struct run *run = context;
    pool_run(run->arena->pool, PIECES, triad_piece, run->arena);
}

static void run_zstd(void *context)
{
    struct run *run = context;
    pool_run(run->arena->pool, PIECES, zstd_piece, run->arena);
}

static void run_encode(void *context)
{
    struct run *run = context;
    struct arena *arena = run->arena;
    struct codec_source source = {.residual = arena->residual, .decay = DECAY, .plus = arena->plus};
    buffer_clear(&run->payload);
    if (codec_encode(arena->encoder, &source, arena->n, run->format, &run->payload, NULL))
        abort();
}

static void run_decode(void *context)
{
    struct run *run = context;
    struct arena *arena = run->arena;
    struct codec_payload payload;
    if (codec_open(run->payload.data, run->payload.bytes, arena->n, arena->pool, &payload, NULL))
        abort();
    codec_add(&payload, 1.0f, arena->target, arena->pool);
}

static const struct {
    const char *name;
    struct codec_format format;
} speed_formats[] = {
    {"sign, k = 16", {CODEC_SIGN, 16}},
    {"sign, k = 64", {CODEC_SIGN, 64}},
    {"sign, k = 128", {CODEC_SIGN, 128}},
    {"sign, k = 256", {CODEC_SIGN, 256}},
    {"two_bits, k = 64", {CODEC_TWO_BITS, 64}},
    {"four_bits, k = 64", {CODEC_FOUR_BITS, 64}},
    {"eight_bits, k = 64", {CODEC_EIGHT_BITS, 64}},
    {"fp32", {CODEC_FP32, 0}},
};
#define FORMATS (sizeof speed_formats / sizeof *speed_formats)

enum race {
    RACE_COPY,
    RACE_TRIAD,
    RACE_ZSTD,
    RACE_FORMATS,
    RACE_ACTIONS = RACE_FORMATS + 2 * FORMATS
};

static void report_speeds(const struct report *report, struct arena *arena,
                          struct run runs[FORMATS])
{
    struct action actions[RACE_ACTIONS] = {
        [RACE_COPY] = {.act = run_copy, .context = runs},
        [RACE_TRIAD] = {.act = run_triad, .context = runs},
        [RACE_ZSTD] = {.act = run_zstd, .context = runs},
    };
    for (size_t i = 0; i < FORMATS; i++) {
        actions[RACE_FORMATS + 2 * i] = (struct action){.act = run_encode, .context = &runs[i]};
        actions[RACE_FORMATS + 2 * i + 1] = (struct action){.act = run_decode, .context = &runs[i]};
    }
    report_race(actions, RACE_ACTIONS, ROUNDS);

    double gb = (double)arena->n * sizeof(float) / 1e9;
    double triad = gb / actions[RACE_TRIAD].median_s, copy = gb / actions[RACE_COPY].median_s;
    double zstd = gb / actions[RACE_ZSTD].median_s;
    uint32_t threads = pool_threads(arena->pool);
    char name[80];
    (void)snprintf(name, sizeof name, "triad, %u thread%s", threads, threads > 1 ? "s" : "");
    report_add(report, name, triad, "GB/s", "memcpy", copy);
    for (size_t i = 0; i < FORMATS; i++) {
        const char *what = speed_formats[i].name;
        double encode = gb / actions[RACE_FORMATS + 2 * i].median_s;
        double decode = gb / actions[RACE_FORMATS + 2 * i + 1].median_s;
        (void)snprintf(name, sizeof name, "encode, %s, %u thr.", what, threads);
        report_add(report, name, encode, "GB/s", "triad", triad);
        report_add(report, name, encode, "GB/s", "memcpy", copy);
        report_add(report, name, encode, "GB/s", "zstd -1", zstd);
        (void)snprintf(name, sizeof name, "decode and apply, %s, %u thr.", what, threads);
        report_add(report, name, decode, "GB/s", "triad", triad);
        report_add(report, name, decode, "GB/s", "memcpy", copy);
    }
}

static double peak_memory_mb(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss * 1024 / 1e6;
}

static void race_threads(const struct report *report, struct arena *arena, uint32_t threads)
{
    struct run runs[FORMATS];
    double before_mb = peak_memory_mb(), payloads_mb = 0;
    if (pool_create(threads, &arena->pool, NULL) ||
        codec_encoder_create(arena->pool, &arena->encoder))
        abort();
    for (size_t i = 0; i < FORMATS; i++) {
        runs[i] = (struct run){.arena = arena, .format = speed_formats[i].format};
        buffer_init(&runs[i].payload, codec_bytes_max(arena->n, runs[i].format));
    }
    report_speeds(report, arena, runs);
    for (size_t i = 0; i < FORMATS; i++) {
        payloads_mb += (double)runs[i].payload.capacity_bytes / 1e6;
        buffer_done(&runs[i].payload);
    }
    char name[64];
    (void)snprintf(name, sizeof name, "working memory, %u thr.", threads);
    if (threads == 1)
        report_add(report, name, peak_memory_mb() - before_mb - payloads_mb, "MB", "one vector",
                   (double)arena->n * sizeof(float) / 1e6);
    codec_encoder_free(arena->encoder);
    pool_free(arena->pool);
}

static void report_all_speeds(const struct report *report)
{
    struct arena arena = {.n = (uint64_t)SPEED_CHUNKS * CODEC_CHUNK};
    size_t bytes = arena.n * sizeof(float);
    arena.packed_bytes_max = PIECES * ZSTD_compressBound(bytes / PIECES);
    arena.residual = large_alloc(bytes);
    arena.plus = large_alloc(bytes);
    arena.target = large_alloc(bytes);
    arena.packed = malloc(arena.packed_bytes_max);
    if (!arena.residual || !arena.plus || !arena.target || !arena.packed)
        abort();
    memset(arena.packed, 1, arena.packed_bytes_max);
    struct rng rng;
    rng_seed(&rng, 1);
    for (uint64_t i = 0; i < arena.n; i++) {
        arena.plus[i] = (float)(rng_normal(&rng) * 0x1p-8);
        arena.residual[i] = arena.target[i] = 0.0f;
    }
    race_threads(report, &arena, 1);
    if (sysconf(_SC_NPROCESSORS_ONLN) >= 2)
        race_threads(report, &arena, 2);
    report_add(report, "size, zstd -1", (double)arena.packed_bytes / (double)arena.n, "B/param",
               "fp32", sizeof(float));
    large_free(arena.residual, bytes);
    large_free(arena.plus, bytes);
    large_free(arena.target, bytes);
    free(arena.packed);
}

/* --- devices --------------------------------------------------------------------------------- */

#define DEVICE_PARAMETERS ((uint64_t)16 << 20)
#define PROCESSOR_PARAMETERS ((uint64_t)1 << 20) /* PoCL: tests only, and slow */

struct device_run {
    struct gpu *gpu;
    uint64_t n;
    struct gpu_memory residual, plus;
    struct gpu_update *update;
    struct buffer payload;
};

static void check_device(const struct device_run *run, enum status status)
{
    if (status == STATUS_OK)
        return;
    (void)fprintf(stderr, "%s: %s\n", run->gpu->api->name, run->gpu->failure);
    exit(1);
}

static void run_device_copy(void *context)
{
    struct device_run *run = context;
    size_t bytes = run->n * sizeof(float);
    check_device(run, run->gpu->api->copy(run->gpu, &run->plus, &run->residual, bytes));
    check_device(run, run->gpu->api->wait(run->gpu, GPU_COMPUTE));
}

/* The kernels, the way home, and the header. */
static void run_device_encode(void *context)
{
    struct device_run *run = context;
    struct gpu_source source = {.residual = &run->residual, .plus = &run->plus, .decay = DECAY};
    buffer_clear(&run->payload);
    check_device(run, gpu_update_begin(run->update, &source, NULL));
    check_device(run, gpu_update_finish(run->update, &run->payload, NULL, NULL));
}

static void run_device_decode(void *context)
{
    struct device_run *run = context;
    struct codec_payload payload;
    if (codec_open(run->payload.data, run->payload.bytes, run->n, NULL, &payload, NULL))
        abort();
    check_device(run, gpu_update_add(run->gpu, &payload, 0.0f, &run->residual, NULL));
}

/* A copy moves 8 bytes a parameter, the fused encoder 12: bytes per second are compared. */
static void report_device_speeds(const struct report *report, const struct gpu_info *info,
                                 struct device_run *run)
{
    struct action actions[] = {{.act = run_device_copy, .context = run},
                               {.act = run_device_encode, .context = run},
                               {.act = run_device_decode, .context = run}};
    char name[160];
    report_race(actions, 3, 9);
    double gb = (double)run->n * sizeof(float) / 1e9;
    double copy = 2 * gb / actions[0].median_s, encode = 3 * gb / actions[1].median_s;
    (void)snprintf(name, sizeof name, "encode, sign, k = 64, %.60s", info->id);
    report_add(report, name, encode, "GB/s moved", "copy on the device", copy);
    (void)snprintf(name, sizeof name, "decode and apply, k = 64, %.60s", info->id);
    report_add(report, name, gb / actions[2].median_s, "GB/s of fp32", "copy on the device", copy);
}

static void measure_device(const struct report *report, const struct gpu_info *info)
{
    struct device_run run = {.n = info->processor ? PROCESSOR_PARAMETERS : DEVICE_PARAMETERS};
    struct codec_format format = {CODEC_SIGN, 64};
    struct error err = {0};
    struct rng rng;
    size_t bytes = run.n * sizeof(float);
    float *values = large_alloc(bytes);
    if (!values || gpu_open(info->id, &run.gpu, &err)) {
        (void)fprintf(stderr, "%s: %s\n", info->id, err.text);
        large_free(values, bytes);
        return;
    }
    rng_seed(&rng, 1);
    for (uint64_t i = 0; i < run.n; i++)
        values[i] = (float)(rng_normal(&rng) * 0x1p-8);
    buffer_init(&run.payload, codec_bytes_max(run.n, format));
    check_device(&run, run.gpu->api->allocate(run.gpu, bytes, &run.residual));
    check_device(&run, run.gpu->api->allocate(run.gpu, bytes, &run.plus));
    check_device(&run, run.gpu->api->upload(run.gpu, GPU_COMPUTE, &run.plus, 0, values, bytes));
    check_device(&run, gpu_update_create(run.gpu, run.n, format, &run.update, NULL));
    report_device_speeds(report, info, &run);
    gpu_update_free(run.update);
    run.gpu->api->release(run.gpu, &run.residual);
    run.gpu->api->release(run.gpu, &run.plus);
    gpu_close(run.gpu);
    buffer_done(&run.payload);
    large_free(values, bytes);
}

static void report_devices_of(const struct report *report, const char *interface)
{
    struct gpu_info infos[GPU_DEVICES_MAX];
    struct error why = {0};
    size_t count = gpu_list(interface, infos, &why);
    if (count == 0)
        (void)fprintf(stderr, "no device: %s\n", why.text);
    for (size_t i = 0; i < count; i++) {
        (void)fprintf(stderr, "%s: %s, driver %s\n", infos[i].id, infos[i].name, infos[i].driver);
        measure_device(report, &infos[i]);
    }
}

static void report_devices(const struct report *report)
{
    for (size_t i = 0; i < GPU_INTERFACES; i++)
        report_devices_of(report, gpu_interface_names[i]);
}

int main(int argc, char **argv)
{
    struct report report;
    const char *folder = getenv("RAVEN_BENCH_DATA");
    if (!report_init(&report, "codec", argc, argv))
        return 2;
    if (!report.devices_only)
        report_all_speeds(&report);
    report_devices(&report);
    if (report.devices_only)
        return 0;
    report_made_sizes(&report);
    if (folder)
        report_real_sizes(&report, folder);
    else
        (void)fprintf(stderr,
                      "no RAVEN_BENCH_DATA: real residuals are left out; use ./run bench codec\n");
    return 0;
}
