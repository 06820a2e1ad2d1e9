#!/usr/bin/env bash
# One run of RAVEN inside the lab: raven.sh RESULTS SECONDS PARAMETERS STEP_MS BATCH. Runs in the hub's
# namespace: the coordinator with its private PostgreSQL is here, an agent in every client. The
# measurement begins when every agent has the model and has trained; the agents' own status is then
# sampled twice a second. What goes wrong is written to RESULTS/failure: it is this run's result.
set -euo pipefail
results=$1 seconds=$2 parameters=$3 step_ms=$4 batch=$5
here=$(dirname "$(readlink -f "$0")")
WORK=$results/work
mkdir -p "$WORK"
# shellcheck source=tests/system/lib.sh
. "$here/../../system/lib.sh"
# shellcheck source=tests/bench/links/lab.sh
. "$here/lab.sh"
export RAVEN_BIND=$LAB_HUB RAVEN_ALLOW_PLAIN_HTTP=1
WARM_UP_SECONDS=${LINKS_WARM_UP_SECONDS:-300}

# In place of lib.sh's: a bench reports what failed and ends well.
fail() {
    echo "$*" >"$results/failure"
    tail -n 5 "$WORK"/*.log >>"$results/failure" 2>/dev/null || true
    save_logs
    exit 0
}

save_logs() { cp "$WORK"/*.log "$results/" 2>/dev/null || true; }

client_agent_start() {
    local client=$1 invite
    invite=$(post /v1/invites '{}' | jq -r .token)
    RAVEN_INVITE=$invite lab_exec "$client" "$AGENT" join "$URL" --state-dir "$WORK/$client" \
        --label "$client" >>"$WORK/$client.log" 2>&1 || fail "$client could not join"
    "$RAVEN_NETLAB_BIN" exec "$client" -- "$AGENT" run --state-dir "$WORK/$client" --threads 1 \
        >>"$WORK/$client.log" 2>&1 & # not lab_exec: its process would be a shell
    AGENT_PIDS+=($!)
}

agent_status() { "$AGENT" status --json --state-dir "$WORK/$1" 2>/dev/null || true; }

# One line of the time line: {"t": …, "agents": {"c1": {…}, …}}.
sample() {
    local i line status
    line="{\"t\":$(lab_now),\"agents\":{"
    for ((i = 1; i <= LAB_CLIENTS; i++)); do
        status=$(agent_status "c$i" | tr -d '\n')
        line+="\"c$i\":${status:-null},"
    done
    echo "${line%,}}}"
}

everybody_trains() {
    sample >"$results/last_sample.json"
    jq -e '[.agents[] | ((.steps_done // 0) > 0)] | all' "$results/last_sample.json" >/dev/null
}

job_snapshot() { api GET "/v1/jobs/$JOB" >"$results/job.$1.json"; }

make_job() {
    post /v1/jobs '{"name":"links","model":{"preset":"synthetic","parameters":'"$parameters"',"step_ms":'"$step_ms"'},
        "data":{"kind":"synthetic"},
        "training":{"batch_size":'"$batch"',"total_samples":1000000000},
        "evaluation":{"every_versions":1000000,"samples":1}}'
}

# A busy coordinator says 503, try again: it has to lay out the whole model first.
accept_job() {
    local tries answer=
    for ((tries = 0; tries < 5; tries++)); do
        answer=$(make_job)
        JOB=$(jq -r '.id // empty' <<<"$answer" 2>/dev/null) || JOB=
        [ "$(jq -r '.status // 0' <<<"$answer" 2>/dev/null)" = 503 ] || break
        sleep 2
    done
    case $JOB in job_*) ;; *) fail "the job was not accepted: $answer" ;; esac
}

coordinator_start 0
accept_job
for ((i = 1; i <= LAB_CLIENTS; i++)); do client_agent_start "c$i"; done
wait_for "$WARM_UP_SECONDS" "every agent has the model and trains" everybody_trains

job_snapshot begin
lab_snapshot "$results/begin"
until=$((SECONDS + seconds))
while [ $SECONDS -lt $until ]; do
    sample >>"$results/timeline.jsonl"
    sleep 0.4
done
lab_snapshot "$results/end"
lab_events "$results/events.json"
job_snapshot end
stop_all
save_logs
"$COORDINATOR" verify --data "$WORK/data" --json >"$results/verify.json" || true
