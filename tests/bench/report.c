/* The frame of the benchmarks. One thread. Surprising: the shortest of several runs counts, because
 * noise on a shared machine only ever adds time. */
#include "tests/bench/report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

bool report_init(struct report *report, const char *bench, int argc, char **argv)
{
    *report = (struct report){.bench = bench};
    if (argc == 2 && strcmp(argv[1], "--json") == 0) {
        report->json = true;
    } else if (argc > 1) {
        (void)fprintf(stderr, "usage: %s [--json]\n", argv[0]);
        return false;
    }
    if (!report->json)
        (void)printf("%-28s %12s %-10s %12s %8s  %s\n", bench, "value", "unit", "reference",
                     "ratio", "reference is");
    return true;
}

void report_add(const struct report *report, const char *name, double value, const char *unit,
                const char *reference, double reference_value)
{
    double ratio = reference_value > 0 ? value / reference_value : 0;
    if (report->json)
        (void)printf("{\"bench\":\"%s\",\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\","
                     "\"reference\":\"%s\",\"reference_value\":%.6g,\"ratio\":%.6g}\n",
                     report->bench, name, value, unit, reference, reference_value, ratio);
    else
        (void)printf("%-28s %12.5g %-10s %12.5g %8.4f  %s\n", name, value, unit, reference_value,
                     ratio, reference);
    (void)fflush(stdout);
}

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double report_time(void (*prepare)(void *context), void (*act)(void *context), void *context,
                   int repeats)
{
    double best_s = 0;
    for (int i = 0; i < repeats; i++) {
        if (prepare)
            prepare(context);
        double start_s = now_s();
        act(context);
        double took_s = now_s() - start_s;
        if (i == 0 || took_s < best_s)
            best_s = took_s;
    }
    return best_s;
}
