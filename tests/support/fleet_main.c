/* raven-fleet: runs scripted agents against a coordinator until SIGTERM. Prints one JSON line per
 * second, and one of the whole phase at each SIGUSR1 (which begins the next one) and at the end.
 * One thread. Surprise: signals stay blocked and are fetched between turns, so there is no handler.
 */
#include "common/base/clock.h"
#include "tests/support/fleet.h"

#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define TURN_MS 10
#define SPARE_FILES 32

static int usage(void)
{
    fputs("raven-fleet --host 127.0.0.1 --port N --count N [--starts-per-s N] [--seed N]\n"
          "The environment variable RAVEN_INVITE holds the invite of members that enrol now.\n"
          "SIGUSR1: print the phase and begin the next one. SIGTERM: print the phase and stop.\n",
          stderr);
    return 2;
}

static bool parse_number(const char *text, uint64_t largest, uint64_t *ret)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || number > largest)
        return false;
    *ret = number;
    return true;
}

static bool parse(int argc, char **argv, struct fleet_options *ret)
{
    uint64_t number = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *flag = argv[i], *value = argv[i + 1];
        if (strcmp(flag, "--host") == 0)
            ret->host = value;
        else if (strcmp(flag, "--port") == 0 && parse_number(value, 65535, &number))
            ret->port = (uint16_t)number;
        else if (strcmp(flag, "--count") == 0 && parse_number(value, FLEET_MEMBERS_MAX, &number))
            ret->count = (uint32_t)number;
        else if (strcmp(flag, "--starts-per-s") == 0 && parse_number(value, UINT32_MAX, &number))
            ret->starts_per_s = (uint32_t)number;
        else if (strcmp(flag, "--seed") == 0 && parse_number(value, UINT64_MAX, &number))
            ret->seed = number;
        else
            return false;
    }
    return argc % 2 == 1 && ret->port && ret->count;
}

static bool raise_file_limit(uint32_t count)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return false;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= count + SPARE_FILES;
}

static void print_reasons(const char *name, const uint64_t counts[FLEET_REASONS])
{
    const char *comma = "";
    printf(",\"%s\":{", name);
    for (int i = 0; i < FLEET_REASONS; i++) {
        if (counts[i] == 0)
            continue;
        printf("%s\"%s\":%" PRIu64, comma, end_reason_name((enum end_reason)i), counts[i]);
        comma = ",";
    }
    putchar('}');
}

static void print_second(const struct fleet_phase *phase, struct fleet_counts *before)
{
    const struct fleet_counts *now = &phase->counts;
    printf("{\"time_ms\":%" PRId64 ",\"connected\":%u,\"attempts\":%" PRIu64 ",\"accepts\":%" PRIu64
           ",\"welcomes\":%" PRIu64 ",\"losses\":%" PRIu64 "}\n",
           clock_wall_ms(), phase->connected, now->attempts - before->attempts,
           now->accepts - before->accepts, now->welcomes - before->welcomes,
           now->losses - before->losses);
    fflush(stdout);
    *before = *now;
}

static void print_phase(const struct fleet_phase *phase)
{
    printf("{\"phase\":true,\"begun_time_ms\":%" PRId64 ",\"complete_time_ms\":%" PRId64
           ",\"connected\":%u,\"connected_min\":%u,\"stopped\":%u,\"attempts\":%" PRIu64
           ",\"accepts\":%" PRIu64 ",\"welcomes\":%" PRIu64 ",\"losses\":%" PRIu64
           ",\"accepts_per_s_max\":%u,\"welcomes_per_s_max\":%u",
           phase->begun_time_ms, phase->complete_time_ms, phase->connected, phase->connected_min,
           phase->stopped, phase->counts.attempts, phase->counts.accepts, phase->counts.welcomes,
           phase->counts.losses, phase->accepts_per_s_max, phase->welcomes_per_s_max);
    print_reasons("session_ends", phase->session_ends);
    print_reasons("attempt_fails", phase->attempt_fails);
    puts("}");
    fflush(stdout);
}

static enum status drive(struct fleet *fleet, const sigset_t *signals, struct error *err)
{
    static const struct timespec at_once = {0};
    struct fleet_counts before = {0};
    int64_t print_us = clock_monotonic_us() + 1000000;
    for (;;) {
        enum status status = fleet_turn(fleet, TURN_MS, err);
        if (status)
            return status;
        if (clock_monotonic_us() >= print_us) {
            print_us += 1000000;
            print_second(fleet_read_phase(fleet), &before);
        }
        int caught = sigtimedwait(signals, NULL, &at_once);
        if (caught <= 0)
            continue;
        print_phase(fleet_read_phase(fleet));
        if (caught != SIGUSR1)
            return STATUS_OK;
        fleet_begin_phase(fleet);
        before = (struct fleet_counts){0};
    }
}

int main(int argc, char **argv)
{
    const char *invite = getenv("RAVEN_INVITE");
    struct fleet_options options = {.host = "127.0.0.1", .invite = invite ? invite : ""};
    struct fleet *fleet = NULL;
    struct error err = {0};
    sigset_t signals;
    if (!parse(argc, argv, &options))
        return usage();
    if (!raise_file_limit(options.count)) {
        fprintf(stderr, "raven-fleet: the limit of open files is too low for %u connections\n",
                options.count);
        return 1;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    enum status status = fleet_create(&options, &fleet, &err);
    if (status == STATUS_OK)
        status = drive(fleet, &signals, &err);
    fleet_free(fleet);
    if (status)
        fprintf(stderr, "raven-fleet: %s\n", err.text);
    return status ? 1 : 0;
}
