# Helpers for scripts that run the real programs: a coordinator with its private PostgreSQL, agents,
# and the REST API through curl. Source it; set RAVEN_BUILD to a build directory first. Everything is
# started below $WORK and ended by the EXIT trap.
# shellcheck shell=bash

COORDINATOR=$RAVEN_BUILD/coordinator/raven-coordinator
AGENT=$RAVEN_BUILD/agent/raven-agent
WORK=${WORK:-$(mktemp -d /tmp/raven-XXXXXX)}
chmod 0711 "$WORK"
COORDINATOR_PID=
AGENT_PIDS=()

fail() {
    echo "FAILED: $*" >&2
    if [ -f "$WORK/coordinator.log" ]; then tail -n 20 "$WORK/coordinator.log" >&2; fi
    exit 1
}

stop_all() {
    local pid
    for pid in "${AGENT_PIDS[@]}" $COORDINATOR_PID; do kill "$pid" 2>/dev/null || true; done
    for pid in "${AGENT_PIDS[@]}" $COORDINATOR_PID; do
        for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
        kill -9 "$pid" 2>/dev/null || true
    done
    AGENT_PIDS=()
    COORDINATOR_PID=
}

cleanup() {
    stop_all
    [ -n "${KEEP_WORK:-}" ] || rm -rf "$WORK"
}
trap cleanup EXIT

# wait_for SECONDS DESCRIPTION COMMAND…: polls until COMMAND succeeds.
wait_for() {
    local seconds=$1 what=$2 until=$((SECONDS + $1))
    shift 2
    until "$@"; do
        [ $SECONDS -lt $until ] || fail "$what: not within $seconds s"
        sleep 0.2
    done
}

# coordinator_start [PORT] [options]: sets URL; the first start also sets KEY (the admin key).
coordinator_start() {
    local port=${1:-0} token
    [ $# -eq 0 ] || shift
    : >"$WORK/coordinator.out"
    "$COORDINATOR" --data "$WORK/data" --port "$port" "$@" >"$WORK/coordinator.out" \
        2>>"$WORK/coordinator.log" &
    COORDINATOR_PID=$!
    wait_for 60 "the coordinator is ready" coordinator_has_started
    URL=$(sed -n 's/^raven-coordinator is ready: //p' "$WORK/coordinator.out")
    PORT=${URL##*:}
    token=$(sed -n 's/.*#\(rvn_set_[A-Za-z0-9_]*\)$/\1/p' "$WORK/coordinator.out")
    if [ -n "$token" ]; then
        KEY=$(curl -sf -X POST "$URL/v1/session" -H 'Content-Type: application/json' \
            -d "{\"setup_token\":\"$token\"}" | jq -r .key)
        case $KEY in rvn_sk_*) ;; *) fail "the setup token gave no admin key" ;; esac
    fi
}

coordinator_has_started() {
    kill -0 "$COORDINATOR_PID" 2>/dev/null || fail "the coordinator ended at its start"
    grep -q '^raven-coordinator is ready' "$WORK/coordinator.out"
}

# api METHOD PATH [curl options]: prints the body; HTTP errors are for the caller to see.
api() {
    local method=$1 path=$2
    shift 2
    curl -s --max-time 30 -X "$method" "$URL$path" -H "Authorization: Bearer $KEY" "$@"
}

new_key() { tr -d - </proc/sys/kernel/random/uuid; }

# post PATH JSON: a creating POST with a fresh Idempotency-Key.
post() {
    api POST "$1" -H 'Content-Type: application/json' -H "Idempotency-Key: $(new_key)" -d "$2"
}

# upload KIND FILE: prints the artifact's id, ready to use.
upload() {
    local kind=$1 file=$2 size sum id state
    size=$(stat -c %s "$file")
    sum=$(sha256sum "$file" | cut -d' ' -f1)
    id=$(post /v1/artifacts "{\"kind\":\"$kind\",\"filename\":\"$(basename "$file")\",\"size_bytes\":$size,\"sha256\":\"$sum\"}" |
        jq -r .id)
    case $id in art_*) ;; *) fail "the artifact $file was not declared" ;; esac
    state=$(api GET "/v1/artifacts/$id" | jq -r .state)
    if [ "$state" != ready ]; then
        api PATCH "/v1/artifacts/$id/upload" -H 'Content-Type: application/offset+octet-stream' \
            -H 'Upload-Offset: 0' -H 'Expect:' --data-binary "@$file" >"$WORK/upload.out"
        state=$(api GET "/v1/artifacts/$id" | jq -r .state)
    fi
    [ "$state" = ready ] || fail "the artifact $file is $state: $(cat "$WORK/upload.out")"
    echo "$id"
}

# agent_join NAME: enrols a new agent with its own state directory.
agent_join() {
    local invite
    invite=$(post /v1/invites '{}' | jq -r .token)
    RAVEN_INVITE=$invite "$AGENT" join "$URL" --state-dir "$WORK/$1" --label "$1" \
        >>"$WORK/$1.log" 2>&1 || fail "$1 could not join: $(tail -n 3 "$WORK/$1.log")"
}

# agent_run NAME CPU_PERCENT [options]: sets AGENT_PID. AGENT_UNDER: what it runs under, such as env.
agent_run() {
    local name=$1 percent=$2
    shift 2
    ${AGENT_UNDER:-} "$AGENT" run --state-dir "$WORK/$name" --threads 1 --cpu-percent "$percent" "$@" \
        >>"$WORK/$name.log" 2>&1 &
    AGENT_PID=$!
    AGENT_PIDS+=("$AGENT_PID")
}

# A wrong clock for agent_run: AGENT_UNDER=$(clock_off +3600s); or clock_off @FILE, whose content may
# change while it runs. Only wall time: the clocks that go by intervals stay right.
clock_off() {
    local library
    library=$(ls /usr/lib/*/faketime/libfaketimeMT.so.1) || fail "faketime is missing (./run setup)"
    case $1 in
    @*) echo "env LD_PRELOAD=$library FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_NO_CACHE=1" \
        "FAKETIME_TIMESTAMP_FILE=${1#@}" ;;
    *) echo "env LD_PRELOAD=$library FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME=$1" ;;
    esac
}

job_field() { api GET "/v1/jobs/$JOB" | jq -r "$1"; }
