#!/usr/bin/env bash
# The whole chain with the real programs: three agents of unequal speed train a small job; then the
# coordinator and an agent are killed with SIGKILL in the middle. Nothing acknowledged is lost or
# applied twice, agents come back by themselves, a dead agent's lease is given to somebody else.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

bible -f Gen1:1-Gen50:26 >"$WORK/genesis.txt"
coordinator_start 0 --ping-ms 1000
TEXT=$(upload dataset_text "$WORK/genesis.txt")

# --- an idle agent is light ------------------------------------------------------------------
agent_join pc-fast
agent_run pc-fast 100
FAST=$AGENT_PID
connected() { [ "$(api GET /v1/volunteers | jq '[.data[] | select(.connected)] | length')" -ge "$1" ]; }
wait_for 20 "the first agent is connected" connected 1
RSS_KIB=$(awk '/^VmRSS/ { print $2 }' "/proc/$FAST/status")
[ "$RSS_KIB" -lt 25600 ] || fail "an idle agent takes $RSS_KIB KiB, at most 25600"
cp "$AGENT" "$WORK/agent.stripped" && strip "$WORK/agent.stripped"
BYTES=$(stat -c %s "$WORK/agent.stripped")
[ "$BYTES" -lt 1572864 ] || fail "the stripped agent has $BYTES bytes, at most 1572864"
echo "idle agent: $RSS_KIB KiB resident; stripped program: $BYTES bytes"

# --- three agents of unequal speed move the version ------------------------------------------------
JOB=$(post /v1/jobs '{"name":"chain test",
    "model":{"preset":"gpt","layers":1,"width":32,"heads":2,"context":32,"vocabulary":256},
    "data":{"kind":"text","train":"'"$TEXT"'"},
    "training":{"batch_size":4,"steps_per_lease":20,"learning_rate":0.003,"total_samples":100000000},
    "evaluation":{"every_versions":50,"samples":64},"lease":{"deadline_seconds":5}}' | jq -r .id)
case $JOB in job_*) ;; *) fail "the job was not accepted" ;; esac
for percent in 60 35; do
    agent_join "pc-$percent"
    agent_run "pc-$percent" "$percent"
done
SLOW=$AGENT_PID
version_is_at_least() { [ "$(job_field '.progress.version // 0')" -ge "$1" ]; }
working() { [ "$(api GET /v1/volunteers | jq '[.data[] | select(.updates_applied > 0)] | length')" -ge "$1" ]; }
wait_for 60 "version 20" version_is_at_least 20
wait_for 60 "all three agents contribute" working 3
evaluated() { [ "$(job_field '.progress.held_out_loss_first != null')" = true ]; }
wait_for 30 "version 0 was evaluated" evaluated

# --- the coordinator dies without warning ----------------------------------------------------------
BEFORE=$(job_field .progress.version)
kill -9 "$COORDINATOR_PID"
wait "$COORDINATOR_PID" 2>/dev/null || true
"$COORDINATOR" verify --data "$WORK/data" || fail "the ledger of the killed coordinator is not whole"
coordinator_start "$PORT" --ping-ms 1000
VERSION=$(job_field .progress.version)
[ "$VERSION" -ge "$BEFORE" ] || fail "version $BEFORE was shown, $VERSION came back"
wait_for 90 "the agents came back and the version goes on" version_is_at_least $((VERSION + 10))
wait_for 90 "all agents are connected again" connected 3
kill -0 "$FAST" "$SLOW" || fail "an agent ended when the coordinator did"
"$COORDINATOR" verify --data "$WORK/data" --json >"$WORK/verify.json" || fail "verify beside the live coordinator"
jq -e '.ledger_verified and ([.jobs[].duplicates] | add) == 0' "$WORK/verify.json" >/dev/null ||
    fail "the ledger holds a duplicate: $(cat "$WORK/verify.json")"
echo "coordinator killed at version $BEFORE, back at $VERSION, goes on"

# --- an agent dies without warning --------------------------------------------------------------------
kill -9 "$SLOW"
expired() { api GET '/v1/events?limit=200' | jq -e '[.data[] | select(.type == "lease.expired")] | length > 0' >/dev/null; }
wait_for 30 "the dead agent's lease passed its deadline" expired
HERE=$(job_field .progress.version)
wait_for 30 "the others go on" version_is_at_least $((HERE + 10))
SAMPLES=$(job_field .progress.samples)
echo "agent killed: its lease expired and was given away; $SAMPLES samples so far"

# --- the agent comes back and works again -------------------------------------------------------------------
CREDIT=$(api GET /v1/volunteers | jq '.data[] | select(.label == "pc-35") | .updates_applied')
agent_run pc-35 35
credited_again() { [ "$(api GET /v1/volunteers | jq '.data[] | select(.label == "pc-35") | .updates_applied')" -gt "$CREDIT" ]; }
wait_for 60 "the restarted agent is credited again" credited_again

# --- an orderly end ------------------------------------------------------------------------------------------
api POST "/v1/jobs/$JOB/cancel" -H 'Content-Type: application/json' -d '{"reason":"test is over"}' >/dev/null
[ "$(job_field .state)" = cancelled ] || fail "the job is $(job_field .state) after cancel"
stop_all
"$COORDINATOR" verify --data "$WORK/data" --json | tee "$WORK/verify.json" | jq -e .ledger_verified >/dev/null ||
    fail "the final ledger does not verify: $(cat "$WORK/verify.json")"
if pgrep -u "$(id -u)" -f "$WORK" >/dev/null; then fail "something still runs below $WORK"; fi
echo "chain test passed"
