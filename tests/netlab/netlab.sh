# For scripts that want home internet lines (raven-netlab, see README.md). Source it, then:
#   netlab_inside LINKS "$@"   at the top of a script: runs the script again inside of a lab with these
#                              links; does nothing when it is there already. Exit status 77: this
#                              machine cannot do it.
#   netlab_in WHERE COMMAND…   runs COMMAND in the hub or in the namespace of a link (c1, c2, …)
#   netlab_set LINK up|down|both KEY=VALUE…, netlab_profile LINK NAME
#   netlab_outage LINK MS, netlab_down LINK, netlab_up LINK, netlab_reset LINK MS
#   netlab_stats [LINK], netlab_events [LINK]      JSON, for jq
#   netlab_counter LINK WAY COUNTER                one number, such as: netlab_counter c1 up drops.loss
# The coordinator is at 10.77.0.1 (NETLAB_HUB) for every link; link c3 itself is 10.77.3.2.
# RAVEN_BUILD names the build directory; inside of a lab RAVEN_NETLAB_PROGRAM is set by the lab.
# shellcheck shell=bash

NETLAB=${RAVEN_NETLAB_PROGRAM:-${RAVEN_BUILD:?set RAVEN_BUILD to a build directory}/netlab/raven-netlab}
# shellcheck disable=SC2034
NETLAB_HUB=10.77.0.1

netlab_inside() {
    local links=$1
    shift
    [ -n "${RAVEN_NETLAB:-}" ] || exec "$NETLAB" run --links "$links" -- bash "$0" "$@"
}
netlab_in() {
    local where=$1
    shift
    "$NETLAB" exec "$where" -- "$@"
}
netlab_set() { "$NETLAB" set "$@"; }
netlab_profile() { "$NETLAB" profile "$@"; }
netlab_outage() { "$NETLAB" outage "$@"; }
netlab_down() { "$NETLAB" down "$@"; }
netlab_up() { "$NETLAB" up "$@"; }
netlab_reset() { "$NETLAB" reset "$@"; }
netlab_stats() { "$NETLAB" stats --json "$@"; }
netlab_events() { "$NETLAB" events --json "$@"; }
netlab_counter() { netlab_stats "$1" | jq ".links[0].$2.$3"; }
