#!/usr/bin/env bash
# An upload that is cut at its first byte, in the middle, just before its end and after its last byte,
# by a broken line, by a killed agent and by a killed coordinator: each ends as exactly one applied
# update, and no byte is sent again that had arrived (at most 1.05 × the payload plus one chunk).
set -euo pipefail
. "$(dirname "$0")/lib.sh"

CHUNK=65536
# A slow uplink, so that what is under way when the line breaks is as little as at home.
UP_BYTES_PER_S=800000

coordinator_start 0 --ping-ms 2000
TARGET_PORT=$PORT
mkfifo "$WORK/relay.in"
python3 "$(dirname "$0")/../support/relay.py" 0 "$TARGET_PORT" $UP_BYTES_PER_S <"$WORK/relay.in" \
    >"$WORK/relay.out" 2>"$WORK/relay.err" &
AGENT_PIDS+=($!)
exec 9>"$WORK/relay.in"
wait_for 10 "the relay listens" grep -q ready "$WORK/relay.out"
RELAY_PORT=$(head -n 1 "$WORK/relay.out" | jq .port)

URL=http://127.0.0.1:$RELAY_PORT
agent_join pc
URL=http://127.0.0.1:$TARGET_PORT
JOB=$(post /v1/jobs '{"name":"cut uploads","model":{"preset":"synthetic","parameters":12000000,"step_ms":5},
    "data":{"kind":"synthetic"},
    "training":{"batch_size":8,"steps_per_lease":60,"total_samples":1000000000},
    "update":{"adaptive":false,"k_per_chunk":64},
    "evaluation":{"every_versions":100000,"samples":8}}' | jq -r .id)
case $JOB in job_*) ;; *) fail "the job was not accepted" ;; esac
agent_run pc 100
PC=$AGENT_PID
applied() { grep -q "update of lease $1 applied" "$WORK/pc.log"; }
sprung() { [ "$(grep -c sprung "$WORK/relay.out" || true)" -gt "$1" ]; }
wait_for 60 "a first update is applied" grep -q "applied in version" "$WORK/pc.log"

CASES=0
# pain_E21_one_cut FRACTION line|agent|coordinator
pain_E21_one_cut() {
    local fraction=$1 who=$2 before event lease bytes sent limit action=hold
    before=$(grep -c sprung "$WORK/relay.out" || true)
    [ "$who" != line ] || action=cut
    echo "trap $fraction $action" >&9
    wait_for 60 "an upload is cut at $fraction by the $who" sprung "$before"
    event=$(grep sprung "$WORK/relay.out" | tail -n 1)
    lease=$(jq -r .lease <<<"$event")
    bytes=$(jq .bytes <<<"$event")
    case $who in
    agent)
        kill -9 "$PC"
        wait "$PC" 2>/dev/null || true
        agent_run pc 100
        PC=$AGENT_PID
        ;;
    coordinator)
        kill -9 "$COORDINATOR_PID"
        wait "$COORDINATOR_PID" 2>/dev/null || true
        coordinator_start "$TARGET_PORT" --ping-ms 2000
        ;;
    esac
    wait_for 90 "the update of lease $lease, cut at $fraction by the $who, is applied" applied "$lease"
    sent=$(grep '"sent"' "$WORK/relay.out" | grep "$lease" | tail -n 1 | jq .sent)
    limit=$((bytes * 105 / 100 + CHUNK))
    echo "cut at $fraction by the $who: payload $bytes bytes, sent $sent, at most $limit"
    [ "$sent" -le "$limit" ] || fail "$sent bytes were sent for a payload of $bytes"
    [ "$(grep -c "update of lease $lease applied" "$WORK/pc.log")" = 1 ] || fail "$lease was answered twice"
    CASES=$((CASES + 1))
}

for fraction in 0 0.5 0.999 after; do
    for who in line coordinator agent; do pain_E21_one_cut $fraction $who; done
done
[ $CASES = 12 ] || fail "$CASES of 12 cuts were made"
if grep -q "update.refused" "$WORK/coordinator.log"; then fail "an update was refused"; fi
"$COORDINATOR" verify --data "$WORK/data" --json >"$WORK/verify.json" || fail "verify"
jq -e '.ledger_verified and ([.jobs[].duplicates] | add) == 0' "$WORK/verify.json" >/dev/null ||
    fail "an update was applied twice: $(cat "$WORK/verify.json")"
[ -z "$(ls "$WORK/pc/outbox")" ] || [ "$(ls "$WORK/pc/outbox" | wc -l)" -le 3 ] ||
    fail "the outbox keeps what was answered: $(ls "$WORK/pc/outbox")"
echo "resume test passed"
