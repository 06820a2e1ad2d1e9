#!/usr/bin/env bash
# The agent as its owner meets it: joining with good and bad invites, status, a coordinator that is
# away, an orderly end. Every refusal is a sentence and an exit code; no secret reaches log or argv.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
coordinator_start

# run_agent ARGUMENTS…: output in $WORK/out, exit code in $CODE.
run_agent() {
    CODE=0
    timeout 40 "$AGENT" "$@" >"$WORK/out" 2>&1 </dev/null || CODE=$?
}
expect() { # code, what, word that the output must have
    [ "$CODE" = "$1" ] || fail "$2: exit code $CODE instead of $1: $(cat "$WORK/out")"
    grep -qi -- "$3" "$WORK/out" || fail "$2: '$3' is not in: $(cat "$WORK/out")"
}

INVITE=$(post /v1/invites '{"max_uses":1}' | jq -r .token)
TAMPERED=${INVITE%?}$([ "${INVITE: -1}" = 0 ] && echo 1 || echo 0)
export RAVEN_INVITE=$TAMPERED
run_agent join "$URL" --state-dir "$WORK/a" --label first
expect 77 "a mistyped invite" "mistyped"
export RAVEN_INVITE=$INVITE
run_agent join "$URL" --state-dir "$WORK/a" --label first
expect 0 "a good invite" "Enrolled as vol_"
run_agent join "$URL" --state-dir "$WORK/b" --label second
expect 77 "a used-up invite" "used"
unset RAVEN_INVITE
run_agent join "$URL" --state-dir "$WORK/c" --label third
[ "$CODE" != 0 ] || fail "joining without an invite succeeded"
run_agent join not-a-url --state-dir "$WORK/d"
[ "$CODE" = 2 ] || [ "$CODE" = 78 ] || fail "a wrong URL: exit code $CODE: $(cat "$WORK/out")"
run_agent run --state-dir "$WORK/nobody"
expect 78 "run before join" "join"
run_agent status --state-dir "$WORK/a"
expect 3 "status of an agent that does not run" "run"
[ "$(api GET /v1/volunteers | jq '.data | length')" = 1 ] || fail "a refused agent became a volunteer"
[ "$(stat -c %a "$WORK"/a/*key* | sort -u)" = 600 ] || fail "the key file is readable by others"

# A stolen name is worth nothing without the key: another key pair is unknown.
agent_run a 50
LIVE=$AGENT_PID
connected() { [ "$(api GET /v1/volunteers | jq '[.data[] | select(.connected)] | length')" = 1 ]; }
wait_for 20 "the agent is connected" connected
run_agent status --state-dir "$WORK/a" --json
jq -e '.state and .volunteer' "$WORK/out" >/dev/null || fail "status --json: $(cat "$WORK/out")"
run_agent run --state-dir "$WORK/a"
expect 73 "a second agent on the same state directory" "another"

# The coordinator is away: the agent says so, waits and comes back by itself.
kill -TERM "$COORDINATOR_PID"
wait "$COORDINATOR_PID" 2>/dev/null || true
sleep 3
kill -0 "$LIVE" || fail "the agent ended with its coordinator"
run_agent status --state-dir "$WORK/a"
expect 0 "status while the coordinator is away" "$URL"
coordinator_start "$PORT"
wait_for 60 "the agent came back" connected

kill -TERM "$LIVE"
CODE=0
wait "$LIVE" || CODE=$?
[ "$CODE" = 0 ] || fail "SIGTERM: exit code $CODE"
stopped() { [ "$(api GET /v1/volunteers | jq -r '.data[0].last_end_reason')" = agent_stopped ]; }
wait_for 10 "the reason of the end is kept" stopped
if grep -rqF "$INVITE" "$WORK"/*.log "$WORK/coordinator.out"; then fail "the invite is in a log"; fi
if grep -rqF "$INVITE" "$WORK/a"; then fail "the invite was kept by the agent"; fi
echo "agent test passed"
