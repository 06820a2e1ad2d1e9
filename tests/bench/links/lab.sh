# The lab as the bench of links sees it: everything that knows how raven-netlab is called. Source it
# inside `raven-netlab run`; $RAVEN_NETLAB_BIN is the program. Clients are c1 … c$LAB_CLIENTS.
# shellcheck shell=bash

LAB_CLIENTS=${LAB_CLIENTS:-4}
export LAB_HUB=10.77.0.1
LAB_PROFILES=$(dirname "${BASH_SOURCE[0]}")/../../netlab/profiles.def

lab_address() { echo "10.77.${1#c}.2"; }

# lab_exec CLIENT COMMAND…: in that client's namespace.
lab_exec() {
    local client=$1
    shift
    "$RAVEN_NETLAB_BIN" exec "$client" -- "$@"
}

lab_interface() {
    lab_exec "$1" ip -o -4 address show | awk -v want="$(lab_address "$1")" 'index($4, want) == 1 { print $2; exit }'
}

# Seconds since the machine started, the clock of all time stamps (CLOCK_BOOTTIME).
lab_now() {
    local up rest
    read -r up rest </proc/uptime
    echo "$up"
}

# lab_profile NAME FIELD: from tests/netlab/profiles.def: 4 round trip ms, 5 jitter ms, 6 loss in percent.
lab_profile() {
    awk -F, -v name="PROFILE(\"$1\"" -v field="$2" '$1 == name { gsub(/ /, "", $field); print $field }' \
        "$LAB_PROFILES"
}

half() { awk -v value="$1" 'BEGIN { print value / 2 }'; }

lab_halve() {
    "$RAVEN_NETLAB_BIN" set all both "rtt=$(half "$(lab_profile "$1" 4)")" \
        "jitter=$(half "$(lab_profile "$1" 5)")" "loss=$(half "$(lab_profile "$1" 6)")%" >/dev/null
}

# lab_links_open PROFILE: so fast that the peers' start takes seconds; but with the delay that TCP will
# meet, for BBR would believe in a shorter one for 10 s.
lab_links_open() {
    "$RAVEN_NETLAB_BIN" profile all lan >/dev/null
    lab_halve "$1"
}

# lab_links_close PROFILE: the profile with half its delay, jitter and loss.
lab_links_close() {
    "$RAVEN_NETLAB_BIN" profile all "$1" >/dev/null
    lab_halve "$1"
}

# lab_snapshot FILE: the moment and the links' counters at it.
lab_snapshot() {
    jq -c -n --argjson t "$(lab_now)" --argjson links "$("$RAVEN_NETLAB_BIN" stats --json)" \
        '{t: $t, links: $links}' >"$1.json"
}

# lab_events FILE: what happened to the links so far.
lab_events() { "$RAVEN_NETLAB_BIN" events --json >"$1"; }
