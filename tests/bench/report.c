/* The frame of the benchmarks. One thread. Surprising: what is compared runs in turn, round after
 * round, and medians count: a machine that is shared changes its speed from second to second. */
#include "tests/bench/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool report_init(struct report *report, const char *bench, int argc, char **argv)
{
    *report = (struct report){.bench = bench};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            report->json = true;
        } else if (strcmp(argv[i], "--devices") == 0) {
            report->devices_only = true;
        } else {
            (void)fprintf(stderr, "usage: %s [--json] [--devices]\n", argv[0]);
            return false;
        }
    }
    if (!report->json)
        (void)printf("%-44s %12s %-10s %12s %8s  %s\n", bench, "value", "unit", "reference",
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
        (void)printf("%-44s %12.5g %-10s %12.5g %8.4f  %s\n", name, value, unit, reference_value,
                     ratio, reference);
    (void)fflush(stdout);
}

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double time_s(const struct action *action)
{
    if (action->prepare)
        action->prepare(action->context);
    double start_s = now_s();
    action->act(action->context);
    return now_s() - start_s;
}

void report_race(struct action *actions, size_t count, unsigned rounds)
{
    double *times_s = calloc(count * rounds, sizeof *times_s);
    if (!times_s)
        abort();
    for (unsigned round = 0; round <= rounds; round++) {
        for (size_t i = 0; i < count; i++) {
            double took_s = time_s(&actions[i]);
            if (round > 0)
                times_s[i * rounds + round - 1] = took_s;
        }
    }
    for (size_t i = 0; i < count; i++) {
        qsort(times_s + i * rounds, rounds, sizeof *times_s, by_size);
        actions[i].median_s = times_s[i * rounds + rounds / 2];
    }
    free(times_s);
}
