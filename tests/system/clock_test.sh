#!/usr/bin/env bash
# Agents whose clock is wrong, with the real programs (faketime moves the agent's wall time only):
# an hour fast and an hour slow train like everybody else, and the API says by how much they are off;
# a clock that leaps a month ahead and back delays nothing.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
BACKOFF_S=60 # agent/session/backoff.h: the longest wait for the next attempt
HOUR_MS=3600000
SLACK_MS=60000 # of the offset: half a round trip, generously

coordinator_start 0 --ping-ms 2000
JOB=$(post /v1/jobs '{"name":"clocks","model":{"preset":"synthetic","parameters":100000,"step_ms":5},
    "data":{"kind":"synthetic"},"training":{"batch_size":8,"steps_per_lease":40,"total_samples":1000000000},
    "update":{"adaptive":false},"evaluation":{"every_versions":100000,"samples":8}}' | jq -r .id)
case $JOB in job_*) ;; *) fail "the job was not accepted" ;; esac

echo +0 >"$WORK/leaps.time"
set_clock() { echo "$1" >"$WORK/leaps.time"; }
start() { # NAME OFFSET
    agent_join "$1"
    AGENT_UNDER=$(clock_off "$2") agent_run "$1" 20
}
start right +0s
start fast +3600s
start slow -3600s
start leaps "@$WORK/leaps.time"

volunteer() { api GET /v1/volunteers | jq ".data[] | select(.label == \"$1\") | .$2"; }
applied() { volunteer "$1" updates_applied; }
has_applied() { [ "$(applied "$1")" -ge "$2" ]; }
sessions() { grep -c ': connected to' "$WORK/$1.log" || true; }
has_sessions() { [ "$(sessions "$1")" -ge "$2" ]; }

# --- F3 -----------------------------------------------------------------------------------------
# expect_offset NAME MS
expect_offset() {
    local offset
    offset=$(volunteer "$1" clock_offset_ms)
    echo "pain_F3: the clock of '$1' is off by $offset ms"
    if [ "$offset" = null ] || [ "$offset" -lt $(($2 - SLACK_MS)) ] || [ "$offset" -gt $(($2 + SLACK_MS)) ]; then
        fail "the clock of '$1' is off by $2 ms, but clock_offset_ms says $offset"
    fi
}
pain_F3_a_clock_that_is_an_hour_off_trains_normally() {
    local name
    for name in right fast slow; do
        wait_for 40 "the agent '$name' trains" has_applied $name 3
        [ "$(sessions $name)" = 1 ] || fail "the agent '$name' lost its session"
    done
    expect_offset right 0
    expect_offset fast $HOUR_MS
    expect_offset slow -$HOUR_MS
}

# --- F1 -----------------------------------------------------------------------------------------
# still_trains WHEN: three more updates, in the same session.
still_trains() {
    local before
    before=$(applied leaps)
    wait_for 30 "it trains $1" has_applied leaps $((before + 3))
    [ "$(sessions leaps)" = "$2" ] || fail "$1: the session was lost"
}
longest_wait() { sed -n 's/.*next attempt in \([0-9.]*\) s.*/\1/p' "$WORK/leaps.log" | sort -n | tail -n 1; }
is_away() { grep -q 'next attempt in' "$WORK/leaps.log"; }

# The wait for the next attempt begins a month ahead and goes on in the present.
pain_F1_a_clock_that_leaps_a_month_and_back_delays_nothing() {
    local wait_s since=$SECONDS
    wait_for 40 "the agent 'leaps' trains" has_applied leaps 3
    set_clock +31d
    still_trains "a month ahead" 1
    grep -q "^$(date -u -d '+31 days' +%Y-%m-)" "$WORK/leaps.log" || fail "the agent's clock did not leap"
    kill -TERM "$COORDINATOR_PID"
    wait "$COORDINATOR_PID" 2>/dev/null || true
    wait_for 20 "it has lost its session" is_away
    set_clock +0
    since=$SECONDS
    coordinator_start "$PORT" --ping-ms 2000
    wait_for $((BACKOFF_S + 5)) "it comes back" has_sessions leaps 2
    wait_s=$(longest_wait)
    echo "pain_F1: back $((SECONDS - since)) s after the coordinator's restart; longest wait $wait_s s"
    [ "${wait_s%.*}" -le $BACKOFF_S ] || fail "it waited for $wait_s s"
    still_trains "in the present again" 2
    set_clock -31d
    still_trains "a month behind" 2
}

pain_F3_a_clock_that_is_an_hour_off_trains_normally
pain_F1_a_clock_that_leaps_a_month_and_back_delays_nothing
echo "clock test passed"
