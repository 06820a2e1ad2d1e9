#!/usr/bin/env bash
# A line that drops every packet and resets nothing (tests/netlab), in the middle of training: agent and
# coordinator both notice within two ping intervals, whatever --ping-ms is, and go on when it is back.
set -euo pipefail
. "$(dirname "$0")/../netlab/netlab.sh"
netlab_inside c1:lan "$@"
. "$(dirname "$0")/lib.sh"
BUSY_MS=500 # for a machine that has more to do
SILENCE='nothing was heard for too long'

start() { coordinator_start "$1" --bind 0.0.0.0 --allow-plain-http --allow-hosts 10.77.0.1 --ping-ms "$2"; }
start 0 4000
INVITE=$(post /v1/invites '{}' | jq -r .token)
RAVEN_INVITE=$INVITE netlab_in c1 "$AGENT" join "http://10.77.0.1:$PORT" --state-dir "$WORK/pc" --label pc \
    >>"$WORK/pc.log" 2>&1 || fail "the agent could not join: $(tail -n 3 "$WORK/pc.log")"
JOB=$(post /v1/jobs '{"name":"half open","model":{"preset":"synthetic","parameters":100000,"step_ms":5},
    "data":{"kind":"synthetic"},"training":{"batch_size":8,"steps_per_lease":20,"total_samples":1000000000},
    "update":{"adaptive":false},"evaluation":{"every_versions":100000,"samples":8}}' | jq -r .id)
case $JOB in job_*) ;; *) fail "the job was not accepted" ;; esac
netlab_in c1 "$AGENT" run --state-dir "$WORK/pc" --threads 1 --cpu-percent 20 >>"$WORK/pc.log" 2>&1 &
AGENT_PIDS+=($!)

applied() { api GET /v1/volunteers | jq '.data[0].updates_applied'; }
has_applied() { [ "$(applied)" -ge "$1" ]; }
# When each side has noticed, the last time: RFC 3339, empty before.
agent_noticed() { sed -n "s/^\([^ ]*\) .*$SILENCE.*/\1/p" "$WORK/pc.log" | sed -n "$1p"; }
coordinator_noticed() {
    api GET '/v1/events?limit=100' | jq -r --arg text "pc left: $SILENCE" \
        '[.data[] | select(.type == "volunteer.disconnected" and .text == $text) | .at] | sort | .['$(($1 - 1))'] // ""'
}
both_noticed() { [ -n "$(agent_noticed "$1")" ] && [ -n "$(coordinator_noticed "$1")" ]; }

# pain_E23_both_ends_notice COUNT PING_MS
pain_E23_both_ends_notice() {
    local count=$1 ping_ms=$2 limit_ms=$((2 * $2 + BUSY_MS)) from_ms agent_ms coordinator_ms
    wait_for 30 "the agent trains" has_applied $(($(applied) + 3))
    from_ms=$(date +%s%3N)
    netlab_down c1
    wait_for 60 "both ends notice that the line is gone" both_noticed "$count"
    netlab_up c1
    agent_ms=$(($(date -d "$(agent_noticed "$count")" +%s%3N) - from_ms))
    coordinator_ms=$(($(date -d "$(coordinator_noticed "$count")" +%s%3N) - from_ms))
    echo "pain_E23: a ping each $ping_ms ms: the agent noticed after $agent_ms ms, the coordinator after $coordinator_ms ms"
    [ $agent_ms -le $limit_ms ] || fail "the agent took longer than two pings"
    [ $coordinator_ms -le $limit_ms ] || fail "the coordinator took longer than two pings"
    [ $agent_ms -gt "$ping_ms" ] && [ $coordinator_ms -gt "$ping_ms" ] ||
        fail "a line that was silent for one ping was given up"
    wait_for 70 "the agent is back and trains" has_applied $(($(applied) + 3))
}

pain_E23_both_ends_notice 1 4000
kill -TERM "$COORDINATOR_PID"
wait "$COORDINATOR_PID" 2>/dev/null || true
start "$PORT" 1000
pain_E23_both_ends_notice 2 1000
echo "half open test passed"
