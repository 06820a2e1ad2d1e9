#!/usr/bin/env bash
# The disk of the ledgers fills up under a running job, on a small tmpfs: nothing is acknowledged any
# more, the job and the events say why, agents keep their updates, a restart in that state is fine,
# and when there is space everything goes on by itself. At the end each update that an agent saw
# applied is in the ledger, once.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
JOBS=$WORK/data/jobs
mkdir -p "$JOBS"
mount -t tmpfs -o size=24m,mode=0700 raven-full "$JOBS" || fail "a tmpfs cannot be mounted: run as root"
trap 'stop_all; umount -l "$JOBS"; cleanup' EXIT

coordinator_start 0 --ping-ms 1000 --ledger-segment-mib 1
JOB=$(post /v1/jobs '{"name":"full","model":{"preset":"synthetic","parameters":100000,"step_ms":20},
    "data":{"kind":"synthetic"},
    "training":{"batch_size":8,"steps_per_lease":10,"steps_min":1,"steps_max":10,"total_samples":1000000000},
    "evaluation":{"every_versions":100000,"samples":8}}' | jq -r .id)
case $JOB in job_*) ;; *) fail "the job was not accepted" ;; esac
for name in one two; do
    agent_join $name
    agent_run $name 100
done

version() { job_field '.progress.version // 0'; }
at_version() { [ "$(version)" -ge "$1" ]; }
says_full() { job_field .reason | grep -q 'disk is full'; }
says_nothing() { [ "$(job_field .reason)" = null ] || [ -z "$(job_field .reason)" ]; }
has_event() { api GET '/v1/events?limit=100' | jq -e "any(.data[]; .type == \"$1\")" >/dev/null; }

fill() {
    dd if=/dev/zero of="$JOBS/ballast" bs=64k 2>/dev/null || true
    truncate -s -128K "$JOBS/ballast"
}

# --- it fills up ----------------------------------------------------------------------------------
wait_for 60 "20 versions" at_version 20
fill
wait_for 60 "the job says that the disk is full" says_full
wait_for 10 "an event says that the disk is full" has_event storage.full
[ "$(job_field .state)" = running ] || fail "the job is $(job_field .state), not running"
FULL_AT=$(version)
APPLIED_AT_FULL=$(cat "$WORK"/one.log "$WORK"/two.log | grep -cE 'update of lease [^ ]* applied' || true)
sleep 5
[ "$(version)" = "$FULL_AT" ] || fail "a version was made on a full disk"
APPLIED_NOW=$(cat "$WORK"/one.log "$WORK"/two.log | grep -cE 'update of lease [^ ]* applied' || true)
[ "$APPLIED_NOW" = "$APPLIED_AT_FULL" ] || fail "an update was acknowledged on a full disk"
echo "full at version $FULL_AT: no acknowledgement in 5 s"

# --- a restart changes nothing -------------------------------------------------------------------
kill -9 "$COORDINATOR_PID"
wait "$COORDINATOR_PID" 2>/dev/null || true
coordinator_start "$PORT" --ping-ms 1000 --ledger-segment-mib 1
[ "$(version)" -ge "$FULL_AT" ] || fail "the restart lost versions"

# --- there is space -------------------------------------------------------------------------------
rm "$JOBS/ballast"
wait_for 60 "the job goes on by itself" at_version $((FULL_AT + 100))
wait_for 10 "the job says nothing any more" says_nothing
echo "went on to version $(version)"

stop_all
"$COORDINATOR" verify --data "$WORK/data" --json >"$WORK/verify.json" || fail "$(cat "$WORK/verify.json")"
SEEN=$(cat "$WORK"/one.log "$WORK"/two.log | sed -nE 's/.*update of lease ([^ ]*) applied.*/\1/p' |
    sort -u | wc -l)
IN_LEDGER=$(jq '[.. | .updates? // empty] | add' "$WORK/verify.json")
TWICE=$(jq '[.. | .duplicates? // empty] | add' "$WORK/verify.json")
[ "$TWICE" = 0 ] || fail "$TWICE updates were applied twice"
[ "$SEEN" -le "$IN_LEDGER" ] || fail "agents saw $SEEN updates applied, the ledger has $IN_LEDGER"
[ "$SEEN" -gt 100 ] || fail "agents saw only $SEEN updates applied"
echo "agents saw $SEEN updates applied, the ledger has $IN_LEDGER, none twice"
