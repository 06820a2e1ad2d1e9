#!/usr/bin/env bash
# A whole fleet loses its coordinator and comes back: 2,000 scripted agents (tests/support/fleet.h)
# with the real coordinator and PostgreSQL. Once the coordinator is killed, once it is stopped in
# order. All are back within 60 s, never more than 200 connections are accepted in any second,
# nobody is dropped again, and the API answers within a second all the while.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
FLEET_PROGRAM=$RAVEN_BUILD/fleet/raven-fleet
AGENTS=${AGENTS:-2000}
BACK_MS=60000       # until the last one is back, from the moment the coordinator is ready
ACCEPTS_PER_S=200   # in any second
ENROLS_PER_S=180
QUIET_S=15
ANSWER_S=1
SPARE_FILES=200     # of the coordinator, beside its agents

# --- a fleet that enrols ------------------------------------------------------------------------
ulimit -n "$(ulimit -Hn)" || true
if [ "$(ulimit -n)" != unlimited ] && [ "$(ulimit -n)" -lt $((AGENTS + SPARE_FILES)) ]; then
    AGENTS=$(($(ulimit -n) - SPARE_FILES))
    echo "NOTE: only $(ulimit -n) open files are allowed here: $AGENTS agents instead" >&2
fi
coordinator_start 0
INVITE=$(post /v1/invites "{\"max_uses\":$AGENTS}" | jq -r .token)
RAVEN_INVITE=$INVITE "$FLEET_PROGRAM" --port "$PORT" --count "$AGENTS" \
    --starts-per-s $ENROLS_PER_S >"$WORK/fleet.out" 2>"$WORK/fleet.log" &
FLEET=$!
AGENT_PIDS+=("$FLEET")

# fleet_is_whole SINCE_MS: all are connected in a line that is younger than that.
fleet_is_whole() {
    kill -0 "$FLEET" 2>/dev/null || fail "the fleet ended: $(cat "$WORK/fleet.log")"
    [ "$(tail -n 1 "$WORK/fleet.out" |
        jq ".phase != true and .time_ms > $1 and .connected == $AGENTS")" = true ]
}
phases() { grep -c '"phase":true' "$WORK/fleet.out" || true; }
has_phases() { [ "$(phases)" -ge "$1" ]; }

# end_phase: sets PHASE to what happened since the last call.
end_phase() {
    local next=$(($(phases) + 1))
    kill -USR1 "$FLEET"
    wait_for 10 "the fleet's report" has_phases $next
    PHASE=$(grep '"phase":true' "$WORK/fleet.out" | tail -n 1)
}
of_phase() { jq -cr "$1" <<<"$PHASE"; }

# --- the API meanwhile --------------------------------------------------------------------------
probe() {
    while :; do
        for path in /livez /v1/version; do
            curl -s -o /dev/null --max-time 5 -w '%{http_code} %{time_total}\n' "$URL$path" || true
        done
        sleep 1
    done
}
probe_start() {
    probe >"$WORK/probe.out" &
    PROBE=$!
    AGENT_PIDS+=("$PROBE")
}
# probe_stop: sets SLOWEST to the longest answer in seconds.
probe_stop() {
    kill "$PROBE"
    wait "$PROBE" 2>/dev/null || true
    SLOWEST=$(awk -v most=$ANSWER_S '
        $1 != 200 || $2 > most { bad++ }
        $2 > slowest { slowest = $2 }
        END { if (bad || !NR) print "bad"; else print slowest }' "$WORK/probe.out")
    [ "$SLOWEST" != bad ] || fail "the API was silent or slow: $(sort -u "$WORK/probe.out" | tail -n 5)"
}
cpu_seconds() { awk -v tick="$(getconf CLK_TCK)" '{ print ($14 + $15) / tick }' "/proc/$1/stat"; }
peak_kib() { awk '/^VmHWM/ { print $2 }' "/proc/$1/status"; }

# --- the storm ----------------------------------------------------------------------------------
# pain_E17_storm SIGNAL NAME
pain_E17_storm() {
    local signal=$1 name=$2 ready_ms back_ms
    end_phase
    kill -"$signal" "$COORDINATOR_PID"
    wait "$COORDINATOR_PID" 2>/dev/null || true
    coordinator_start "$PORT"
    ready_ms=$(date -r "$WORK/coordinator.out" +%s%3N) # its last line was written when it was ready
    probe_start
    wait_for 75 "all agents are back after $name" fleet_is_whole "$ready_ms"
    end_phase
    back_ms=$(($(of_phase .complete_time_ms) - ready_ms))
    echo "$name: $AGENTS agents back in $back_ms ms, at most $(of_phase .accepts_per_s_max) accepts" \
        "and $(of_phase .welcomes_per_s_max) welcomes in a second," \
        "$(of_phase '.attempts - .accepts') attempts refused; sessions ended by $(of_phase .session_ends)"
    [ "$(of_phase .complete_time_ms)" -gt 0 ] || fail "$name: agents were lost while others came"
    [ "$back_ms" -le $BACK_MS ] || fail "$name: the last one came after $back_ms ms"
    [ "$(of_phase .accepts_per_s_max)" -le $ACCEPTS_PER_S ] || fail "$name: they came too fast"
    [ "$(of_phase .losses)" = "$AGENTS" ] || fail "$name: $(of_phase .losses) sessions were lost"
    sleep $QUIET_S
    end_phase
    [ "$(of_phase .losses) $(of_phase .connected_min)" = "0 $AGENTS" ] ||
        fail "$name: agents were dropped again: $PHASE"
    probe_stop
    echo "$name: nobody dropped in $QUIET_S s; slowest answer $SLOWEST s; coordinator:" \
        "$(cpu_seconds "$COORDINATOR_PID") s of CPU, $(peak_kib "$COORDINATOR_PID") KiB at most"
}

wait_for 40 "all agents are enrolled and connected" fleet_is_whole 0
pain_E17_storm KILL "after kill -9"
pain_E17_storm TERM "after an orderly stop"
[ "$(of_phase .stopped)" = 0 ] || fail "$(of_phase .stopped) agents gave up for good"
stop_all
echo "storm test passed"
