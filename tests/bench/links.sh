#!/usr/bin/env bash
# RAVEN against PyTorch DDP and against synchronous dense DiLoCo on the same emulated home links:
#   links.sh [--profiles "home50 home10 bad-evening flapping"] [--seconds 90] [--peers | --no-peers]
#            [--json] [--parameters 30800000] [--step-ms 25] [--keep]
# Every system gets a lab of its own (tests/netlab): a hub and four clients with the profile's links.
# A system that fails has thereby its result; the bench fails only if it cannot measure at all. Needs
# root (network namespaces); the peers need python3-torch and libopenblas0.
set -euo pipefail
cd "$(dirname "$0")/../.."
ROOT=$PWD
HERE=$ROOT/tests/bench/links
export RAVEN_BUILD=${RAVEN_BUILD:-$ROOT/build/release}
PYTHON=/usr/bin/python3

profiles="home50 home10 bad-evening flapping"
seconds=90
peers=auto
json=
keep=0
parameters=30800000
step_ms=25
batch=8
say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
usage() { echo "links: $*; known: --profiles LIST, --seconds N, --peers, --no-peers, --json, --parameters N, --step-ms N, --keep" >&2; exit 2; }
whole() { case $2 in '' | *[!0-9]* | 0*) usage "$1 $2: use a whole number" ;; esac }

while [ $# -gt 0 ]; do
    case $1 in
    --profiles | --seconds | --parameters | --step-ms) [ $# -gt 1 ] || usage "$1 needs a value" ;;
    esac
    case $1 in
    --profiles) profiles=${2//,/ }; shift ;;
    --seconds) whole "$1" "$2"; seconds=$2; shift ;;
    --parameters) whole "$1" "$2"; parameters=$2; shift ;;
    --step-ms) whole "$1" "$2"; step_ms=$2; shift ;;
    --peers) peers=yes ;;
    --no-peers) peers=no ;;
    --json) json=--json ;;
    --keep) keep=1 ;;
    *) usage "unknown option $1" ;;
    esac
    shift
done

need() { echo "links: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || need "network namespaces need root: run it as root"
RAVEN_NETLAB_BIN=${RAVEN_NETLAB_BIN:-$(find "$RAVEN_BUILD" -name raven-netlab -type f -perm -u+x -print -quit 2>/dev/null)}
[ -x "$RAVEN_NETLAB_BIN" ] || need "raven-netlab is not built; run ./run build"
[ -x "$PYTHON" ] || need "$PYTHON is missing; run ./run setup --bench"
export RAVEN_NETLAB_BIN LAB_CLIENTS=4

has_torch() { "$PYTHON" -c 'import torch.distributed' 2>/dev/null; }
case $peers in
yes) has_torch || need "python3-torch is missing; run ./run setup --bench" ;;
auto) if has_torch; then peers=yes; else peers=no; say "python3-torch is not installed: RAVEN alone"; fi ;;
esac
systems=raven
[ $peers = no ] || systems="raven ddp diloco-32 diloco-128"

WORK=$(mktemp -d /tmp/raven-links-XXXXXX)
chmod 0711 "$WORK" # the coordinator's PostgreSQL runs as another user below it
LAB_PID=
# The lab ends with its command, and its namespaces with it.
stop_lab() {
    [ -z "$LAB_PID" ] || { kill "$LAB_PID" 2>/dev/null && wait "$LAB_PID" 2>/dev/null; } || true
    LAB_PID=
}
finish() {
    stop_lab
    if [ $keep = 1 ]; then say "kept: $WORK"; else rm -rf "$WORK"; fi
}
trap finish EXIT
trap 'exit 130' INT TERM

lab_links() {
    local i list=
    for ((i = 1; i <= LAB_CLIENTS; i++)); do list+="c$i:$1,"; done
    echo "${list%,}"
}

# run_system PROFILE SYSTEM: one lab; the results go to $WORK/PROFILE/SYSTEM.
run_system() {
    local profile=$1 system=$2 results=$WORK/$1/$2
    local common="--seconds $seconds --parameters $parameters --step-ms $step_ms --batch $batch"
    mkdir -p "$results"
    chmod 0711 "$WORK/$1" "$results"
    # shellcheck disable=SC2086 # $common is a list of words
    case $system in
    raven) set -- "$HERE/raven.sh" "$results" "$seconds" "$parameters" "$step_ms" "$batch" ;;
    ddp) set -- "$HERE/peers.sh" "$results" "$profile" ddp $common ;;
    diloco-*) set -- "$HERE/peers.sh" "$results" "$profile" diloco $common --inner-steps "${system#diloco-}" ;;
    esac
    say "$profile: $system"
    "$RAVEN_NETLAB_BIN" run --links "$(lab_links "$profile")" -- "$@" >"$results/lab.log" 2>&1 &
    LAB_PID=$!
    if ! wait "$LAB_PID" && [ ! -e "$results/failure" ]; then
        { echo "the run ended early:"; tail -n 5 "$results/lab.log"; } >"$results/failure"
    fi
    LAB_PID=
    [ ! -e "$results/failure" ] || say "$profile: $system: $(tr '\n' ' ' <"$results/failure" | cut -c1-200)"
}

# words LIST: as a JSON array.
words() { jq -c -n '$ARGS.positional' --args -- "$@"; }

# shellcheck disable=SC2086
jq -n --argjson profiles "$(words $profiles)" --argjson systems "$(words $systems)" \
    --argjson workers $LAB_CLIENTS --argjson seconds "$seconds" --argjson parameters "$parameters" \
    --argjson step_ms "$step_ms" --argjson batch $batch '{$profiles, $systems, $workers, $seconds, $parameters,
    $step_ms, $batch, notes: [
        "compute used = steps completed × step time / (wall time × workers)",
        "RAVEN: measured for \($seconds) s from the moment when every agent has the model and has trained; the first download is not in it",
        "peers: measured from the first step on, after the first broadcast, to the end of the last whole round; what failed counts as idle to the end of \($seconds) s",
        "peers: each link has half the profile'"'"'s delay, jitter and random loss, since their traffic crosses two: worker to worker equals RAVEN'"'"'s worker to coordinator",
        "gloo time-out 120 s (PyTorch'"'"'s own default is 30 minutes)"]}' >"$WORK/settings.json"

for profile in $profiles; do
    for system in $systems; do run_system "$profile" "$system"; done
done
"$PYTHON" -B "$HERE/report.py" "$WORK" $json
