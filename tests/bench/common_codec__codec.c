/* The update code: speed against memcpy and zstd level 1 on the same data in the same run, size
 * against the entropy limit. One thread. GB/s count the 4 bytes of each parameter, whatever is
 * written. */
#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "tests/bench/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define CHUNKS 512u
#define N ((uint64_t)CHUNKS * CODEC_CHUNK)
#define REPEATS 5

struct bench {
    float *original, *work;
    struct buffer payload;
    uint8_t *packed;
    size_t packed_bytes, packed_bytes_max;
    uint32_t k;
    bool failed;
};

static void restore(void *context)
{
    struct bench *bench = context;
    memcpy(bench->work, bench->original, N * sizeof(float));
    buffer_clear(&bench->payload);
}

static void run_memcpy(void *context)
{
    struct bench *bench = context;
    memcpy(bench->work, bench->original, N * sizeof(float));
    __asm__ volatile("" : : "r"(bench->work) : "memory");
}

static void run_encode(void *context)
{
    struct bench *bench = context;
    bench->failed |= codec_encode(bench->work, N, bench->k, &bench->payload) != STATUS_OK;
}

static void run_decode(void *context)
{
    struct bench *bench = context;
    bench->failed |= codec_decode_add(bench->payload.data, bench->payload.bytes, 1, bench->work, N,
                                      NULL) != STATUS_OK;
}

static void run_zstd(void *context)
{
    struct bench *bench = context;
    bench->packed_bytes = ZSTD_compress(bench->packed, bench->packed_bytes_max, bench->original,
                                        N * sizeof(float), 1);
    bench->failed |= ZSTD_isError(bench->packed_bytes);
}

static void run_unzstd(void *context)
{
    struct bench *bench = context;
    size_t bytes =
        ZSTD_decompress(bench->work, N * sizeof(float), bench->packed, bench->packed_bytes);
    bench->failed |= bytes != N * sizeof(float);
}

static double gb_per_s(struct bench *bench, void (*act)(void *context))
{
    void (*prepare)(void *context) = act == run_encode ? restore : NULL;
    return (double)N * sizeof(float) / 1e9 / report_time(prepare, act, bench, REPEATS);
}

static double limit_bytes_per_parameter(double k)
{
    double choose_bits =
        (lgamma(CODEC_CHUNK + 1.0) - lgamma(k + 1) - lgamma(CODEC_CHUNK - k + 1)) / log(2);
    return (choose_bits + k + 8) / 8 / CODEC_CHUNK;
}

static void measure_k(struct bench *bench, const struct report *report, double memcpy_gb_per_s,
                      double zstd_gb_per_s, double unzstd_gb_per_s)
{
    char name[64];
    double encode = gb_per_s(bench, run_encode);
    (void)snprintf(name, sizeof name, "size, k = %u", bench->k);
    report_add(report, name, (double)bench->payload.bytes / (double)N, "B/param", "entropy limit",
               limit_bytes_per_parameter(bench->k));
    (void)snprintf(name, sizeof name, "encode, k = %u", bench->k);
    report_add(report, name, encode, "GB/s", "zstd -1 compress", zstd_gb_per_s);
    report_add(report, name, encode, "GB/s", "memcpy", memcpy_gb_per_s);
    double decode = gb_per_s(bench, run_decode);
    (void)snprintf(name, sizeof name, "decode, k = %u", bench->k);
    report_add(report, name, decode, "GB/s", "zstd -1 decompress", unzstd_gb_per_s);
    report_add(report, name, decode, "GB/s", "memcpy", memcpy_gb_per_s);
}

static bool set_up(struct bench *bench)
{
    bench->packed_bytes_max = ZSTD_compressBound(N * sizeof(float));
    bench->original = malloc(N * sizeof(float));
    bench->work = malloc(N * sizeof(float));
    bench->packed = malloc(bench->packed_bytes_max);
    buffer_init(&bench->payload, codec_bytes_max(N, CODEC_K_MAX));
    if (!bench->original || !bench->work || !bench->packed)
        return false;
    struct rng rng;
    rng_seed(&rng, 1);
    for (uint64_t i = 0; i < N; i++)
        bench->original[i] = (float)(rng_normal(&rng) * 0x1p-8);
    return true;
}

int main(int argc, char **argv)
{
    static const uint32_t ks[] = {16, 64, 128, 256};
    struct report report;
    struct bench bench = {0};
    if (!report_init(&report, "codec", argc, argv))
        return 2;
    if (set_up(&bench)) {
        double copy = gb_per_s(&bench, run_memcpy);
        double zstd = gb_per_s(&bench, run_zstd);
        double unzstd = gb_per_s(&bench, run_unzstd);
        report_add(&report, "size, zstd -1", (double)bench.packed_bytes / (double)N, "B/param",
                   "fp32", sizeof(float));
        for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
            bench.k = ks[i];
            measure_k(&bench, &report, copy, zstd, unzstd);
        }
    } else {
        bench.failed = true;
    }
    buffer_done(&bench.payload);
    free(bench.packed);
    free(bench.work);
    free(bench.original);
    return bench.failed ? 1 : 0;
}
