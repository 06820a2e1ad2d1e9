#!/usr/bin/env bash
# Who is who: one coordinator to a data directory and to a database.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

pain() { echo "--- $1: $2"; }

coordinator_start 0 --ping-ms 1000
SOCKET=$(dirname "$(find "$WORK/data/postgres" -name '.s.PGSQL.5432')")
DATABASE="host=$SOCKET user=raven dbname=raven"

# refused NAME WORDS COMMAND…: the command ends by itself, with status 1 and one line with these words.
refused() {
    local name=$1 words=$2 code=0
    shift 2
    timeout 60 "$@" >"$WORK/$name.out" 2>"$WORK/$name.log" || code=$?
    [ $code = 1 ] || fail "$name ended with $code: $(cat "$WORK/$name.log")"
    grep -q "$words" "$WORK/$name.log" || fail "$name does not say why: $(cat "$WORK/$name.log")"
}

pain pain_A7 "a second coordinator on the same data directory or database is refused"
refused same-data "data $WORK/data is in use by another coordinator: stop that one" \
    "$COORDINATOR" --data "$WORK/data" --port 0
refused same-data-other-database "is in use by another coordinator: stop that one" \
    "$COORDINATOR" --data "$WORK/data" --port 0 --database-url "$DATABASE"
refused same-database "database raven is in use by another coordinator: stop that one" \
    "$COORDINATOR" --data "$WORK/other" --port 0 --database-url "$DATABASE"
[ "$(api GET /readyz | jq -r .status)" = ok ] || fail "the first coordinator suffered"
kill -9 "$COORDINATOR_PID"
wait "$COORDINATOR_PID" 2>/dev/null || true
coordinator_start "$PORT" --ping-ms 1000 # what the killed one left behind is no obstacle

echo "identity test passed"
