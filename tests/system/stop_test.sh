#!/usr/bin/env bash
# Agents that are stopped at the worst moment, and agents that sleep. A finished lease is either sent
# or done again, never both, wherever SIGTERM hits; one that slept longer than its lease drops it and
# is back within seconds.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
STOPS_MAX=200
STOPS_MIN=10
STOP_SECONDS=30 # as many stops as fit
BACK_MS=5000    # after a sleep

pain() { echo "--- $1: $2"; }

coordinator_start 0 --ping-ms 1000
SOCKET=$(dirname "$(find "$WORK/data/postgres" -name '.s.PGSQL.5432')")
sql() { psql -qtA "host=$SOCKET user=raven dbname=raven" -c "$1"; }
# start_job STEP_MS STEPS: sets JOB; its leases take STEP_MS * STEPS.
start_job() {
    JOB=$(post /v1/jobs '{"name":"stops","model":{"preset":"synthetic","parameters":100000,"step_ms":'"$1"'},
        "data":{"kind":"synthetic"},"update":{"adaptive":false},
        "training":{"batch_size":8,"steps_per_lease":'"$2"',"total_samples":1000000000},
        "evaluation":{"every_versions":100000,"samples":8},"lease":{"deadline_seconds":5}}' | jq -r .id)
    case $JOB in job_*) ;; *) fail "the job was not accepted" ;; esac
}
end_job() { api POST "/v1/jobs/$JOB/cancel" -H 'Content-Type: application/json' -d '{}' >/dev/null; }
updates() { grep -cE 'update of lease [^ ]*: ' "$WORK/$1.log" || true; }
has_updates() { [ "$(updates "$1")" -gt "$2" ]; }

# --- SIGTERM as the last step of a lease ends ---------------------------------------------------
pain pain_B11 "an agent is stopped as its lease ends"
start_job 10 8
agent_join pc
agent_run pc 100
wait_for 30 "the agent works" has_updates pc 0
kill -TERM "$AGENT_PID"
wait "$AGENT_PID" || fail "the agent did not stop well"
STOPS=0
UNTIL=$((SECONDS + STOP_SECONDS))
while [ $STOPS -lt $STOPS_MAX ] && { [ $SECONDS -lt $UNTIL ] || [ $STOPS -lt $STOPS_MIN ]; }; do
    BEFORE=$(updates pc)
    agent_run pc 100
    # From the end of a lease on: the next ends 80 ms later, so that some stops hit each moment.
    timeout 20 tail -n 0 -F "$WORK/pc.log" 2>/dev/null |
        grep -qm 1 'update of lease [^ ]*: ' || has_updates pc "$BEFORE" || fail "the agent does not work"
    sleep "0.0$((STOPS * 7 % 100 / 10))$((STOPS * 7 % 10))"
    kill -TERM "$AGENT_PID"
    wait "$AGENT_PID" || fail "the agent did not stop well: $(tail -n 3 "$WORK/pc.log")"
    STOPS=$((STOPS + 1))
done
agent_run pc 100
LAST=$(sql "SELECT coalesce(max(id), '') FROM leases")
is_settled() { [ "$(sql "SELECT count(*) FROM leases WHERE state = 'granted' AND id <= '$LAST'")" = 0 ]; }
wait_for 60 "every lease of the stopped agents is over" is_settled
kill -TERM "$AGENT_PID"
wait "$AGENT_PID" || fail "the agent did not stop well"
SENT=0 STALE=0 AGAIN=0
while read -r lease; do
    case $(sql "SELECT state FROM leases WHERE id = '$lease'") in
    applied) SENT=$((SENT + 1)) ;;
    stale) STALE=$((STALE + 1)) ;; # sent, and judged by its age
    expired | refused) AGAIN=$((AGAIN + 1)) ;;
    granted) [ "$lease" \> "$LAST" ] || fail "the finished lease $lease is neither sent nor done again" ;;
    *) fail "the finished lease $lease is unknown" ;;
    esac
done < <(sed -n 's/.*update of lease \(lea_[A-Za-z0-9]*\): .*/\1/p' "$WORK/pc.log" | sort -u)
end_job
"$COORDINATOR" verify --data "$WORK/data" --json >"$WORK/verify.json" || fail "the ledger is not whole"
jq -e '.ledger_verified and ([.jobs[].duplicates] | add) == 0' "$WORK/verify.json" >/dev/null ||
    fail "an update was applied twice: $(cat "$WORK/verify.json")"
APPLIED=$(job_field .progress.updates_applied)
applied_are() { [ "$(sql "SELECT count(*) FROM leases WHERE state = 'applied'")" = "$1" ]; }
wait_for 10 "the database says what the ledger says" applied_are "$APPLIED"
[ $SENT -gt 0 ] || fail "no finished lease was sent"
echo "$STOPS stops: $SENT finished leases sent, $STALE sent and stale, $AGAIN done again, $APPLIED updates applied, none twice"

# --- a sleep longer than the lease --------------------------------------------------------------
pain pain_F7 "an agent sleeps longer than its lease and wakes"
start_job 50 40
agent_join other
agent_join sleeper
agent_run other 100
agent_run sleeper 100
SLEEPER=$AGENT_PID
wait_for 60 "the agent works" has_updates sleeper 0
leases() { sed -n 's/.*: lease \(lea_[A-Za-z0-9]*\): train.*/\1/p' "$WORK/sleeper.log"; }
BEFORE=$(leases | wc -l)
has_next_lease() { [ "$(leases | wc -l)" -gt "$BEFORE" ]; }
wait_for 30 "it has a lease" has_next_lease
kill -STOP "$SLEEPER"
HELD=$(leases | tail -n 1)
given_away() { [ "$(sql "SELECT state FROM leases WHERE id = '$HELD'")" = expired ]; }
gone() {
    [ "$(sql "SELECT count(*) FROM sessions s JOIN volunteers v ON v.id = s.volunteer
        WHERE v.label = 'sleeper' AND s.end_reason = 'silence'")" = 1 ]
}
wait_for 60 "the sleeper's lease has passed its deadline" given_away
wait_for 60 "the sleeper is missed" gone
connections() { grep -c 'connected to ' "$WORK/sleeper.log" || true; }
CONNECTIONS=$(connections)
back() { [ "$(connections)" -gt "$CONNECTIONS" ]; }
UPDATES=$(updates sleeper)
WOKEN_MS=$(date +%s%3N)
kill -CONT "$SLEEPER"
wait_for 30 "the woken agent is connected" back
TOOK_MS=$(($(date +%s%3N) - WOKEN_MS))
[ $TOOK_MS -lt $BACK_MS ] || fail "the woken agent needed $TOOK_MS ms to come back"
applied_after_sleep() { grep -E 'update of lease [^ ]* applied' "$WORK/sleeper.log" | grep -qv "$HELD" && has_updates sleeper "$UPDATES"; }
wait_for 60 "the woken agent works" applied_after_sleep
[ "$(sql "SELECT count(*) FROM leases WHERE id = '$HELD' AND state = 'applied'")" = 0 ] ||
    fail "the lease $HELD was given away and applied all the same"
echo "connected $TOOK_MS ms after it woke; its old lease is $(sql "SELECT state FROM leases WHERE id = '$HELD'")"
echo "stop test passed"
