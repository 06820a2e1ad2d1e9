/* crash_states [--states N] [--seed S]: the real ledger and snapshots on a simulated disk. Each
 * state is one death (power cut, kill) or one failing disk at a chosen operation of a scripted
 * life, followed by recovery, which may die as well. What was shown to anybody before the death
 * must be there after it, nothing else may be, and recovery may never call an honest crash damage.
 *
 * "Shown" is what was acknowledged, and also what a recovered ledger replayed: from then on the
 * coordinator answers from it. Prints the seed; a state is repeated with --seed and --states 1. */
#include "tests/support/sim_disk.h"

#include "common/base/bytes.h"
#include "common/base/rng.h"
#include "coordinator/ledger/ledger_internal.h"
#include "coordinator/ledger/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIR "sim"
#define SEGMENT_BYTES 8192
#define BODY_BYTES_MAX 3000
#define RECORDS_MAX 512
#define LIVES 4

struct body {
    uint64_t nonce;
    size_t bytes;
};

/* Body of the record `sequence` as it was appended last. */
struct history {
    struct body bodies[RECORDS_MAX + 1];
    uint64_t shown;          /* everything up to this sequence was shown */
    uint64_t snapshot_shown; /* of the newest snapshot that was reported as written */
};

struct world {
    uint64_t seed;
    struct rng rng;
    struct history history;
    uint64_t replayed;
    char reason[512]; /* why the last opening failed */
    uint64_t acked;
    uint64_t states, acks, torn, deaths_in_recovery, failures[SIM_NO_SPACE + 1];
};

static struct world world;

static _Noreturn void wrong(const char *what, uint64_t sequence)
{
    (void)fprintf(stderr, "crash_states: %s (record %llu); repeat with --seed %llu --states 1\n",
                  what, (unsigned long long)sequence, (unsigned long long)world.seed);
    exit(1);
}

static void fill(const struct body *body, uint8_t ret[BODY_BYTES_MAX])
{
    for (size_t i = 0; i < body->bytes; i++)
        ret[i] = (uint8_t)(body->nonce + i * 167 + 1);
}

static enum status on_replay(void *context, const struct ledger_record *record, struct error *err)
{
    (void)context;
    (void)err;
    static uint8_t expected[BODY_BYTES_MAX];
    if (record->sequence != world.replayed + 1 || record->sequence > RECORDS_MAX)
        wrong("the replay is not dense", record->sequence);
    const struct body *body = &world.history.bodies[record->sequence];
    fill(body, expected);
    bool same = record->body_bytes == body->bytes &&
                (body->bytes == 0 || memcmp(record->body, expected, body->bytes) == 0);
    if (!same)
        wrong("a record came back with another body", record->sequence);
    world.replayed = record->sequence;
    return STATUS_OK;
}

static void on_done(void *context, uint64_t sequence, enum status status)
{
    (void)context;
    if (status != STATUS_OK)
        return;
    if (sequence != world.history.shown + 1)
        wrong("acknowledged out of order", sequence);
    world.history.shown = sequence;
    world.acks++;
}

/* NULL when the disk died or failed in the middle of it. */
static struct ledger *open_ledger(void)
{
    const struct ledger_options options = {.segment_bytes = SEGMENT_BYTES, .threadless = true};
    struct ledger *ledger = NULL;
    struct ledger_open_report report;
    struct error err = {0};
    world.replayed = 0;
    enum status status =
        ledger_open_with(DIR, &options, 0, on_replay, NULL, &ledger, &report, &err);
    if (status == STATUS_CORRUPT || status == STATUS_FENCED) {
        (void)fprintf(stderr, "crash_states: %s\n", err.text);
        wrong("recovery calls a crash damage", world.replayed);
    }
    if (status != STATUS_OK) {
        (void)snprintf(world.reason, sizeof world.reason, "%s", err.text);
        return NULL;
    }
    if (report.end.sequence != world.replayed)
        wrong("the report does not match the replay", report.end.sequence);
    if (world.replayed < world.history.shown)
        wrong("a record that had been shown is lost", world.replayed + 1);
    world.history.shown = world.replayed;
    world.torn += report.torn_bytes > 0;
    return ledger;
}

static void check_snapshot(void)
{
    struct snapshot snapshot;
    struct error err = {0};
    uint32_t damaged = 0;
    enum status status = snapshot_read_newest(DIR, UINT64_MAX, &snapshot, &damaged, &err);
    if (sim_disk_is_dead())
        return;
    if (damaged > 0)
        wrong("a crash left a damaged snapshot under its final name", 0);
    if (status == STATUS_NOT_FOUND && world.history.snapshot_shown == 0)
        return;
    if (status != STATUS_OK)
        wrong("no snapshot can be read", world.history.snapshot_shown);
    if (snapshot.position.sequence < world.history.snapshot_shown)
        wrong("a written snapshot is lost", world.history.snapshot_shown);
    if (snapshot.position.sequence > world.replayed)
        wrong("the ledger ends before the snapshot", snapshot.position.sequence);
    if (load_u64(snapshot.state) != snapshot.position.sequence)
        wrong("the snapshot has another's state", snapshot.position.sequence);
    world.history.snapshot_shown = snapshot.position.sequence;
    snapshot_done(&snapshot);
}

static void write_snapshot(void)
{
    float values[200];
    uint8_t state[1000] = {0};
    uint64_t sequence = world.history.shown;
    if (sequence == world.history.snapshot_shown)
        return;
    for (size_t i = 0; i < COUNT_OF(values); i++)
        values[i] = (float)(sequence + i);
    store_u64(state, sequence);
    struct snapshot snapshot = {
        .position = {sequence, 0},
        .n = COUNT_OF(values),
        .theta = values,
        .w = values,
        .state = state,
        .state_bytes = sizeof state,
    };
    if (snapshot_write(DIR, &snapshot, NULL) == STATUS_OK)
        world.history.snapshot_shown = sequence;
    if (snapshot_prune(DIR, 2, NULL) != STATUS_OK && !sim_disk_is_dead())
        wrong("a healthy disk does not delete a snapshot", sequence);
}

static void append_some(struct ledger *ledger)
{
    static uint8_t bytes[BODY_BYTES_MAX];
    uint64_t count = 1 + rng_below(&world.rng, 8);
    for (uint64_t i = 0; i < count && ledger->next_sequence <= RECORDS_MAX; i++) {
        struct body *body = &world.history.bodies[ledger->next_sequence];
        struct body before = *body;
        *body = (struct body){rng_u64(&world.rng), rng_below(&world.rng, 20) == 0
                                                       ? rng_below(&world.rng, BODY_BYTES_MAX)
                                                       : rng_below(&world.rng, 700)};
        fill(body, bytes);
        if (ledger_append(ledger, LEDGER_UPDATE, bytes, body->bytes, on_done, NULL, NULL) !=
            STATUS_OK)
            *body = before;
    }
    if (ledger->first)
        (void)writer_turn(ledger, 0);
}

/* Everything that one process does until it ends or its disk is dead. */
static void live(void)
{
    struct ledger *ledger = open_ledger();
    if (!ledger) {
        world.deaths_in_recovery += sim_disk_is_dead();
        return;
    }
    check_snapshot();
    uint64_t steps = rng_below(&world.rng, 8);
    for (uint64_t i = 0; i < steps && !sim_disk_is_dead(); i++) {
        uint64_t what = rng_below(&world.rng, 10);
        if (what < 5 && ledger->full) {
            sim_disk_free();
            (void)writer_turn(ledger, 0); /* a second later */
        } else if (what == 0)
            write_snapshot();
        else if (what == 1 && ledger->witnessed < ledger->end.sequence)
            (void)writer_turn(ledger, 0); /* a second without work: the mark */
        else
            append_some(ledger);
    }
    ledger_close(ledger);
}

static enum sim_fault draw_fault(void)
{
    static const enum sim_fault faults[] = {SIM_POWER_CUT,   SIM_POWER_CUT,   SIM_POWER_CUT,
                                            SIM_KILL,        SIM_KILL,        SIM_SYNC_FAILS,
                                            SIM_WRITE_FAILS, SIM_WRITE_SHORT, SIM_NO_SPACE};
    return faults[rng_below(&world.rng, COUNT_OF(faults))];
}

/* Several lives on one disk, each with one fault; a last one without. */
static void run_state(uint64_t seed)
{
    world.seed = seed;
    rng_seed(&world.rng, seed);
    memset(&world.history, 0, sizeof world.history);
    sim_disk_format(seed);
    for (int i = 0; i < LIVES; i++) {
        enum sim_fault fault = draw_fault();
        sim_disk_plan(fault, 1 + rng_below(&world.rng, 24));
        live();
        world.failures[fault] += sim_disk_has_struck();
        world.states += sim_disk_has_struck();
        sim_disk_start();
    }
    struct ledger *ledger = open_ledger();
    if (!ledger)
        wrong(world.reason, 0);
    check_snapshot();
    ledger_close(ledger);
    ledger_close(open_ledger());
}

static uint64_t number_of(const char *text)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text == '\0' || *end != '\0') {
        (void)fprintf(stderr, "crash_states: not a number: %s\n", text);
        exit(2);
    }
    return number;
}

int main(int argc, char **argv)
{
    uint64_t states = 10000, seed = 0;
    random_bytes(&seed, 4);
    for (int i = 1; i < argc; i += 2) {
        bool has_value = i + 1 < argc;
        if (has_value && strcmp(argv[i], "--states") == 0)
            states = number_of(argv[i + 1]);
        else if (has_value && strcmp(argv[i], "--seed") == 0)
            seed = number_of(argv[i + 1]);
        else {
            (void)fprintf(stderr, "usage: crash_states [--states N] [--seed S]\n");
            return 2;
        }
    }
    printf("seed %llu\n", (unsigned long long)seed);
    (void)fflush(stdout);
    while (world.states < states)
        run_state(seed++);
    if (world.acks < world.states || world.torn * 50 < world.states) {
        (void)fprintf(stderr, "crash_states: the run is vacuous: %llu acks, %llu torn ends\n",
                      (unsigned long long)world.acks, (unsigned long long)world.torn);
        return 1;
    }
    printf(
        "%llu crash states, %llu acknowledged records, 0 lost; %llu torn ends cut, %llu deaths in "
        "recovery; %llu power cuts, %llu kills, %llu failed syncs, %llu failed writes, "
        "%llu lives with short writes, %llu without space\n",
        (unsigned long long)world.states, (unsigned long long)world.acks,
        (unsigned long long)world.torn, (unsigned long long)world.deaths_in_recovery,
        (unsigned long long)world.failures[SIM_POWER_CUT],
        (unsigned long long)world.failures[SIM_KILL],
        (unsigned long long)world.failures[SIM_SYNC_FAILS],
        (unsigned long long)world.failures[SIM_WRITE_FAILS],
        (unsigned long long)world.failures[SIM_WRITE_SHORT],
        (unsigned long long)world.failures[SIM_NO_SPACE]);
    return 0;
}
