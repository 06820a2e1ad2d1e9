#!/usr/bin/env bash
# The controller follows the link: from 50 to 5 Mbit/s within two leases, and back, each time with a
# reason; nothing is lost meanwhile. After an outage it holds leases for the next one, also when
# nothing was under way as the line went. On an emulated line (tests/netlab).
set -euo pipefail
. "$(dirname "$0")/../netlab/netlab.sh"
netlab_inside c1:home50 "$@"
. "$(dirname "$0")/lib.sh"

coordinator_start 0 --bind 0.0.0.0 --allow-plain-http --allow-hosts 10.77.0.1
INVITE=$(post /v1/invites '{}' | jq -r .token)
RAVEN_INVITE=$INVITE netlab_in c1 "$AGENT" join "http://10.77.0.1:$PORT" --state-dir "$WORK/pc" \
    >>"$WORK/pc.log" 2>&1 || fail "the agent could not join: $(tail -n 3 "$WORK/pc.log")"
JOB=$(post /v1/jobs '{"name":"rate change",
    "model":{"preset":"synthetic","parameters":8000000,"step_ms":10},"data":{"kind":"synthetic"},
    "training":{"batch_size":8,"total_samples":1000000000},
    "evaluation":{"every_versions":100000,"samples":8}}' | jq -r .id)
case $JOB in job_*) ;; *) fail "the job was not accepted" ;; esac
netlab_in c1 "$AGENT" run --state-dir "$WORK/pc" >>"$WORK/pc.log" 2>&1 &
AGENT_PIDS+=($!)

status_of() { "$AGENT" status --state-dir "$WORK/pc" --json | jq -r "$1"; }
leases() { grep -c "train, " "$WORK/pc.log" || true; }
has_leases() { [ "$(leases)" -ge "$1" ]; }
steps_at_least() { [ "$(status_of .lease_steps)" -ge "$1" ]; }
steps_at_most() { [ "$(status_of .lease_steps)" -le "$1" ]; }
choice() { status_of '"\(.lease_steps) steps, k \(.lease_k): \(.choice_reason)"'; }

wait_for 60 "the first leases" has_leases 12
STEPS=$(status_of .lease_steps)
K=$(status_of .lease_k)
echo "at 50 Mbit/s: $(choice)"

BEFORE=$(leases)
netlab_set c1 both rate=5
wait_for 60 "leases get longer after the rate fell to 5 Mbit/s" steps_at_least $((2 * STEPS))
TAKEN=$(sed -n 's/.*: train, \([0-9]*\) steps.*/\1/p' "$WORK/pc.log" | tail -n +$((BEFORE + 1)) |
    awk -v longer=$((2 * STEPS)) '$1 < longer' | wc -l)
echo "at 5 Mbit/s, after $TAKEN leases of less than $((2 * STEPS)) steps: $(choice)"
[ "$TAKEN" -le 3 ] || fail "the choice followed after $TAKEN leases: the one under way and two more are allowed"
[ "$(status_of .lease_k)" -le "$K" ] || fail "updates became denser on a slower line"

netlab_set c1 both rate=50
wait_for 150 "leases get short again at 50 Mbit/s" steps_at_most $((STEPS * 3 / 2))
echo "at 50 Mbit/s again: $(choice)"
# The line goes when no update waits for its answer.
OUTAGE_MS=5000 STEP_MS=10
ahead() { sed -n 's/.*next leases: .*, \([0-9]*\) ahead: .*/\1/p' "$WORK/pc.log" | tail -n 1; }
holds() { [ "$(ahead)" -ge "$1" ]; }
nothing_waits() { [ "$(status_of .updates_waiting)" = 0 ]; }
AHEAD=$(ahead)
wait_for 30 "no update waits" nothing_waits
netlab_outage c1 $OUTAGE_MS
wait_for 60 "leases for such an outage are held" holds $((OUTAGE_MS / $(status_of "(.lease_steps * $STEP_MS)")))
echo "after an outage of $OUTAGE_MS ms $(ahead) leases are held instead of $AHEAD"
[ "$(status_of .updates_refused)" = 0 ] || fail "an update was refused"
netlab_in c1 "$AGENT" status --state-dir "$WORK/pc" | grep -q "chosen because" || fail "status does not say why"
echo "rate change test passed"
