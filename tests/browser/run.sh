#!/usr/bin/env bash
# The dashboard in a real browser against a real coordinator with a job that two agents train, one of
# them with a clock that is an hour fast.
set -euo pipefail
. "$(dirname "$0")/../system/lib.sh"
bible -f Gen1:1-Gen50:26 >"$WORK/genesis.txt"
coordinator_start
TEXT=$(upload dataset_text "$WORK/genesis.txt")
JOB=$(post /v1/jobs '{"name":"browser test",
    "model":{"preset":"gpt","layers":1,"width":32,"heads":2,"context":32,"vocabulary":256},
    "data":{"kind":"text","train":"'"$TEXT"'"},
    "training":{"batch_size":4,"steps_per_lease":20,"learning_rate":0.003,"total_samples":100000000},
    "evaluation":{"every_versions":20,"samples":64}}' | jq -r .id)
case $JOB in job_*) ;; *) fail "the job was not accepted" ;; esac
agent_join pc-60
agent_run pc-60 60
agent_join pc-30
AGENT_UNDER=$(clock_off +3600s) agent_run pc-30 30
RAVEN_URL=$URL RAVEN_KEY=$KEY RAVEN_JOB=$JOB RAVEN_SHOTS=${RAVEN_SHOTS:-$WORK/shots} \
    RAVEN_AGENT=$AGENT RAVEN_AGENTS=$WORK \
    node "$(dirname "$0")/live.test.mjs"
