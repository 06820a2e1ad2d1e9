#!/usr/bin/env bash
# Nobody waits for the slowest: four fast agents keep at least 95 % of their accepted samples per
# second while a fifth is 100 times slower, is frozen in the middle of a lease, and is killed. Each
# window is compared with the windows without the fifth just before and just after it, so that a
# slower machine cancels out. The fifth's updates are judged by their staleness, its leases expire
# and are given away, and when it wakes it drops the old lease and earns credit again.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
WINDOW_S=12
LOSS_PERCENT=5  # at most
NOISE_PERCENT=3 # between the two windows without the fifth: only beyond it a second try counts

coordinator_start 0 --ping-ms 1000
JOB=$(post /v1/jobs '{"name":"stragglers","model":{"preset":"synthetic","parameters":1000000,"step_ms":5},
    "data":{"kind":"synthetic"},
    "training":{"batch_size":8,"steps_per_lease":40,"steps_min":1,"steps_max":40,"total_samples":1000000000},
    "evaluation":{"every_versions":100000,"samples":8},"lease":{"deadline_seconds":5}}' | jq -r .id)
case $JOB in job_*) ;; *) fail "the job was not accepted" ;; esac
for name in fast-1 fast-2 fast-3 fast-4; do
    agent_join $name
    agent_run $name 100
done
agent_join fifth
: >"$WORK/fifth.log"

# --- figures ------------------------------------------------------------------------------------
fast_samples() { api GET /v1/volunteers | jq '[.data[] | select(.label != "fifth") | .samples] | add'; }
credit() { api GET /v1/volunteers | jq '.data[] | select(.label == "fifth") | .updates_applied'; }
earns() { [ "$(credit)" -gt "$1" ]; }
all_fast_earn() {
    api GET /v1/volunteers | jq -e '[.data[] | select(.updates_applied >= 10)] | length >= 4' >/dev/null
}
verdicts() { grep -cE 'update of lease [^ ]* (applied|stale|refused)' "$WORK/fifth.log" || true; }
judged() { [ "$(verdicts)" -gt "$1" ]; }
fifth_log() { grep -qE "$1" "$WORK/fifth.log"; }
event() { api GET '/v1/events?limit=100' | jq -e ".data[] | select(.type == \"$1\" and (.text | test(\"$2\")))" >/dev/null; }
newest_lease() { sed -n 's/.*: lease \(lea_[A-Z0-9a-z]*\): train.*/\1/p' "$WORK/fifth.log" | tail -n 1; }

# measure: sets RATE, accepted samples per second of the four.
measure() {
    local samples from_ns to_ns
    samples=$(fast_samples)
    from_ns=$(date +%s%N)
    sleep $WINDOW_S
    samples=$(($(fast_samples) - samples))
    to_ns=$(date +%s%N)
    RATE=$((samples * 1000000000 / (to_ns - from_ns)))
}

# pain_A1_costs_the_others_nothing NAME BEGIN END: BEGIN makes the fifth what NAME says, END checks it and takes it away.
pain_A1_costs_the_others_nothing() {
    local name=$1 during usual spread attempt
    for attempt in 1 2; do
        $2
        measure
        during=$RATE
        $3
        measure
        usual=$(((ALONE + RATE) / 2))
        spread=$(((ALONE - RATE) * 1000 / usual))
        spread=${spread#-}
        echo "fifth $name: $during samples/s; without it $ALONE before, $RATE after:" \
            "$((during * 1000 / usual)) per mille of their mean"
        ALONE=$RATE
        [ $((during * 100)) -lt $((usual * (100 - LOSS_PERCENT))) ] || return 0
        if [ $attempt = 2 ] || [ "$spread" -le $((NOISE_PERCENT * 10)) ]; then break; fi
        echo "the machine was not steady ($spread per mille between the two): once more"
    done
    fail "a fifth agent that is $name costs the others more than $LOSS_PERCENT %"
}

fifth_run() {
    agent_run fifth "$1"
    FIFTH=$AGENT_PID
}
fifth_stop() {
    kill -TERM "$FIFTH"
    wait "$FIFTH" 2>/dev/null || true
}

# --- a fifth of a hundredth of their speed ------------------------------------------------------
begin_slow() {
    local before
    before=$(verdicts)
    fifth_run 1
    wait_for 20 "an update of the slow agent is judged" judged "$before"
}
end_slow() { fifth_stop; }

# --- one that freezes in the middle of a lease --------------------------------------------------
begin_frozen() {
    local before
    before=$(credit)
    fifth_run 100
    wait_for 20 "the fifth agent works" earns "$before"
    kill -STOP "$FIFTH"
    HELD=$(newest_lease)
    if fifth_log "update of lease $HELD applied"; then fail "$HELD was over before the agent froze"; fi
}
end_frozen() {
    local before
    event lease.expired "$HELD" || fail "the frozen agent's lease $HELD did not expire"
    event volunteer.disconnected "fifth left: nothing was heard" || fail "the frozen agent is not missed"
    before=$(credit)
    kill -CONT "$FIFTH"
    wait_for 20 "the woken agent's old lease is over" \
        fifth_log "update of lease $HELD (refused|stale)|lease $HELD cancelled"
    fifth_log 'refused: the lease passed its deadline and was given to another' ||
        fail "no lease of the frozen agent was given away"
    wait_for 20 "the woken agent is credited again" earns "$before"
    fifth_stop
}

# --- one that is gone ---------------------------------------------------------------------------
begin_gone() {
    local before
    before=$(credit)
    fifth_run 100
    wait_for 20 "the fifth agent works" earns "$before"
    kill -9 "$FIFTH"
    wait "$FIFTH" 2>/dev/null || true
    HELD=$(newest_lease)
}
end_gone() { event lease.expired "$HELD" || fail "the killed agent's lease $HELD did not expire"; }

wait_for 30 "the four fast agents work" all_fast_earn
measure
ALONE=$RATE
pain_A1_costs_the_others_nothing "100 times slower" begin_slow end_slow
echo "the slow agent's updates: $(grep -oE 'update of lease [^ ]* (applied|stale|refused)' "$WORK/fifth.log" |
    awk '{ count[$NF]++ } END { for (verdict in count) printf "%d %s ", count[verdict], verdict }')"
pain_A1_costs_the_others_nothing frozen begin_frozen end_frozen
pain_A1_costs_the_others_nothing gone begin_gone end_gone

api POST "/v1/jobs/$JOB/cancel" -H 'Content-Type: application/json' -d '{}' >/dev/null
stop_all
"$COORDINATOR" verify --data "$WORK/data" --json >"$WORK/verify.json" || fail "the ledger is not whole"
jq -e '.ledger_verified and ([.jobs[].duplicates] | add) == 0' "$WORK/verify.json" >/dev/null ||
    fail "the ledger holds a duplicate: $(cat "$WORK/verify.json")"
echo "straggler test passed"
