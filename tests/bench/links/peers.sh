#!/usr/bin/env bash
# One run of a reference system inside the lab: peers.sh RESULTS PROFILE SYSTEM [options of the peer].
# Runs in the hub's namespace; rank r lives in client c(r+1). The links are opened wide for the start
# (rendezvous, rank 0's parameters), then get the profile's rates, then everybody begins. Delay, jitter
# and loss are half the profile's from the beginning, for the peers' traffic crosses two links.
set -euo pipefail
results=$1 profile=$2 system=$3
shift 3
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/bench/links/lab.sh
. "$here/lab.sh"

state=$results/state
mkdir -p "$state"
RANKS=()
stop_ranks() {
    local pid
    for pid in "${RANKS[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
    for pid in "${RANKS[@]}"; do wait "$pid" 2>/dev/null || true; done
}
trap stop_ranks EXIT

start_rank() {
    local rank=$1 client=c$(($1 + 1)) interface
    shift
    interface=$(lab_interface "$client")
    # glibc's limits as design/65-platform.md found them fair: no page faults for every large tensor.
    # Not lab_exec: its process would be a shell.
    "$RAVEN_NETLAB_BIN" exec "$client" -- env RANK="$rank" LOCAL_RANK="$rank" WORLD_SIZE="$LAB_CLIENTS" \
        MASTER_ADDR="$(lab_address c1)" MASTER_PORT=29500 GLOO_SOCKET_IFNAME="$interface" \
        OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_WAIT_POLICY=passive \
        MALLOC_MMAP_THRESHOLD_=1000000000 MALLOC_TRIM_THRESHOLD_=1000000000 MALLOC_TOP_PAD_=67108864 \
        /usr/bin/python3 -B "$here/../peers/$system.py" --state "$state" --wait-for-go "$@" \
        >"$results/rank.$rank.out" 2>"$results/rank.$rank.log" &
    RANKS+=($!)
}

all_ready() {
    local rank
    for ((rank = 0; rank < LAB_CLIENTS; rank++)); do [ -e "$state/ready.$rank" ] || return 1; done
}

lab_links_open "$profile"
for ((rank = 0; rank < LAB_CLIENTS; rank++)); do start_rank "$rank" "$@"; done
for ((tries = 0; tries < 600; tries++)); do
    all_ready && break
    sleep 0.2
done
if ! all_ready; then
    echo "the ranks did not find each other within 120 s" >"$results/failure"
    exit 0
fi
lab_links_close "$profile"
lab_snapshot "$results/begin"
: >"$state/go"
for pid in "${RANKS[@]}"; do wait "$pid" || true; done
RANKS=()
lab_snapshot "$results/end"
lab_events "$results/events.json"
