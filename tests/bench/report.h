/* What every benchmark prints: a table for people, or with --json one JSON object a line with the
 * keys bench, name, value, unit, reference, reference_value, ratio (value / reference_value). A
 * number without something to compare it with, measured in the same run, is not reported. One
 * thread. */
#ifndef RAVEN_TESTS_BENCH_REPORT_H
#define RAVEN_TESTS_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct report {
    const char *bench;
    bool json;
    bool devices_only; /* --devices: leave out what needs no GPU */
};

/* Understands --json and --devices; anything else prints the usage and returns false. */
bool report_init(struct report *report, const char *bench, int argc, char **argv);

/* Names and units are plain words without quotes. reference says what reference_value is. */
void report_add(const struct report *report, const char *name, double value, const char *unit,
                const char *reference, double reference_value);

/* Something to time. prepare is not timed and may be NULL. */
struct action {
    void (*prepare)(void *context);
    void (*act)(void *context);
    void *context;
    double median_s; /* result */
};

/* Runs all actions in turn, `rounds` times (one more that does not count comes first), so that a
 * slow moment of the machine meets all of them; then sets median_s. */
void report_race(struct action *actions, size_t count, unsigned rounds);

#endif
