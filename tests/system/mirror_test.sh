#!/usr/bin/env bash
# Datasets from mirrors: plain web servers with a copy of the coordinator's artifacts. An agent takes
# the file from the first that has it and sends it no credential; what a mirror damages, lacks or does
# not answer costs no more than another source (pain A19: all others are gone, so the coordinator is
# asked).
set -euo pipefail
. "$(dirname "$0")/lib.sh"
MIRROR=$WORK/mirror
mkdir "$MIRROR"

# A web server that writes each request with its headers to mirror.log.
cat >"$WORK/serve.py" <<'PYTHON'
import http.server, sys

class Handler(http.server.SimpleHTTPRequestHandler):
    def log_request(self, code="-", size="-"):
        credential = "with" if self.headers.get("Authorization") else "without"
        print(f"{self.path} {code} {credential} credential", flush=True)

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: Handler(*a, directory=sys.argv[1]))
print(f"port {server.server_port}", flush=True)
server.serve_forever()
PYTHON
python3 "$WORK/serve.py" "$MIRROR" >"$WORK/mirror.log" 2>"$WORK/mirror.err" &
AGENT_PIDS+=($!)
wait_for 10 "the mirror listens" grep -q '^port' "$WORK/mirror.log"
GOOD=http://127.0.0.1:$(sed -n 's/^port //p' "$WORK/mirror.log")
DEAD=http://127.0.0.1:1

refused() { # MIRRORS WORDS
    "$COORDINATOR" --data "$WORK/none" --port 0 --mirrors "$1" >"$WORK/refused" 2>&1 && fail "--mirrors $1 was taken"
    grep -q "$2" "$WORK/refused" || fail "--mirrors $1: $(cat "$WORK/refused")"
    [ ! -e "$WORK/none" ] || fail "--mirrors $1 left files"
}
refused ftp://a "use http"
refused http://a,http://b,http://c,http://d,http://e "at most 4"

head -c 3000000 /dev/urandom | base64 >"$WORK/text.txt"
SUM=$(sha256sum "$WORK/text.txt" | cut -d' ' -f1)
coordinator_start 0 --mirrors "$DEAD, $GOOD/folder"
TEXT=$(upload dataset_text "$WORK/text.txt")
JOB=$(post /v1/jobs '{"name":"mirrors","model":{"preset":"gpt","layers":1,"width":16,"heads":2,"context":32,
    "vocabulary":256},"data":{"kind":"text","train":"'"$TEXT"'"},
    "training":{"batch_size":4,"total_samples":100000000}}' | jq -r .id)
case $JOB in job_*) ;; *) fail "the job was not accepted" ;; esac
asked() { grep -c "^/folder/$SUM $1 without credential" "$WORK/mirror.log" || true; }
trains() { grep -q 'model loaded' "$WORK/$1.log"; }
run_one() {
    agent_join "$1"
    agent_run "$1" 50
    wait_for 40 "$1 has the dataset" trains "$1"
    cmp -s "$WORK/text.txt" "$WORK/$1/cache/$SUM" || fail "$1 has another file"
    kill -TERM "$AGENT_PID"
    wait "$AGENT_PID" 2>/dev/null || true
}

pain_A19_mirrors_that_fail() {
    run_one nobody-has-it
    [ "$(asked 404)" = 1 ] || fail "the mirror was not asked once: $(cat "$WORK/mirror.log")"
    grep -q "127.0.0.1:1/$SUM.*another source is asked" "$WORK/nobody-has-it.log" ||
        fail "the agent does not tell of the mirror that is gone"
    mkdir "$MIRROR/folder"
    tr a b <"$WORK/text.txt" >"$MIRROR/folder/$SUM"
    run_one damaged
    grep -q "/folder/$SUM.*SHA-256 is not the announced one; another source" "$WORK/damaged.log" ||
        fail "the agent does not tell of the damaged copy"
    head -c 1000 "$WORK/text.txt" >"$MIRROR/folder/$SUM"
    run_one short
    cp "$WORK/data/artifacts/$SUM" "$MIRROR/folder/"
    : >"$WORK/mirror.log"
    run_one mirrored
    [ "$(asked 200)" = 1 ] || fail "the good mirror was not used: $(cat "$WORK/mirror.log")"
    if grep -q "/folder.*another source" "$WORK/mirrored.log"; then fail "the good mirror was given up"; fi
}
pain_A19_mirrors_that_fail
if grep -q 'with credential' "$WORK/mirror.log"; then fail "a mirror got the agent's credential"; fi
stop_all
echo "mirror test passed"
