/* What every benchmark prints: a table for people, or with --json one JSON object a line with the
 * keys bench, name, value, unit, reference, reference_value, ratio (value / reference_value). A
 * number without something to compare it with, measured in the same run, is not reported. One
 * thread. */
#ifndef RAVEN_TESTS_BENCH_REPORT_H
#define RAVEN_TESTS_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>

struct report {
    const char *bench;
    bool json;
};

/* Understands --json; anything else prints the usage and returns false. */
bool report_init(struct report *report, const char *bench, int argc, char **argv);

/* Names and units are plain words without quotes. reference says what reference_value is. */
void report_add(const struct report *report, const char *name, double value, const char *unit,
                const char *reference, double reference_value);

/* Runs act(context) repeats times and returns the shortest time in seconds. prepare, not timed,
 * runs before each and may be NULL. */
double report_time(void (*prepare)(void *context), void (*act)(void *context), void *context,
                   int repeats);

#endif
