#!/usr/bin/env bash
# The coordinator behind real nginx and haproxy (and Caddy where it is installed), set up by the very
# snippets of docs/REVERSE-PROXY.md, over TLS, all times at 1/20: the REST API, the live stream and the
# checks of Host and Origin work through each; pings hold an idle session beyond the proxy's limit; two
# agents train on through cuts at a fixed age (the services that end every connection after 120 s), and
# each update is applied exactly once; every cut and its reason is in the database.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
NAME=raven.example.org
PING_MS=1000
LIMIT_S=3         # of the proxies, for 60 s
AGE_S=6           # at which haproxy's connections are ended
CUTS=3            # at least, of each agent
PARAMETERS=4000000

# --- certificates, ports and configurations ---------------------------------------------------------
TLS=$WORK/tls
mkdir "$TLS"
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj "/CN=RAVEN test authority" \
    -keyout "$TLS/ca.key" -out "$TLS/ca.pem" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj "/CN=$NAME" -keyout "$TLS/key.pem" -out "$TLS/request.pem" 2>/dev/null
openssl x509 -req -in "$TLS/request.pem" -CA "$TLS/ca.pem" -CAkey "$TLS/ca.key" -CAcreateserial -days 30 \
    -extfile <(echo "subjectAltName=DNS:$NAME,DNS:localhost") -out "$TLS/fullchain.pem" 2>/dev/null
cat "$TLS/fullchain.pem" "$TLS/key.pem" >"$TLS/raven.pem"
export RAVEN_CA_FILE=$TLS/ca.pem CURL_CA_BUNDLE=$TLS/ca.pem

# Four ports that are free and that no outgoing connection gets.
free_ports() {
    python3 - <<'PYTHON'
import random, socket
free = []
while len(free) < 4:
    port = random.randrange(10000, 32000)
    with socket.socket() as tried:
        if tried.connect_ex(("127.0.0.1", port)) and port not in free:
            free.append(port)
print(*free)
PYTHON
}
# snippet LANGUAGE SED-SCRIPT: the page's snippet with the ports, paths and times of this test.
snippet() {
    awk -v fence="\`\`\`$1" '$0 == fence { on = 1; next } /^```/ { on = 0 } on' "$SOURCE/docs/REVERSE-PROXY.md" |
        sed -e "s|127\.0\.0\.1:8080|127.0.0.1:$PORT|; s|/etc/raven-tls|$TLS|; s|60s|${LIMIT_S}s|" -e "$2" >"$WORK/$1.conf"
    [ -s "$WORK/$1.conf" ] || fail "docs/REVERSE-PROXY.md has no snippet for $1"
    if grep -nE '443|8080|/etc/|60s' "$WORK/$1.conf"; then fail "the snippet for $1 was not adapted"; fi
}

coordinator_start 0 --ping-ms $PING_MS --allow-hosts $NAME
DIRECT=$URL
read -r NGINX HAPROXY ADMIN CADDY <<<"$(free_ports)"

proxy_start() { # NAME PORT COMMAND…
    local name=$1 port=$2
    shift 2
    "$@" >>"$WORK/$name.log" 2>&1 &
    AGENT_PIDS+=($!)
    PROXY_PIDS+=($!)
    wait_for 20 "$name answers: $(tail -n 3 "$WORK/$name.log")" proxy_answers "$port"
}
proxy_answers() { curl -sf "https://localhost:$1/livez" >/dev/null; }

PROXY_PIDS=()
nginx_start() {
    snippet nginx "s|listen 443|listen 127.0.0.1:$NGINX|"
    cat >"$WORK/nginx-all.conf" <<CONF
daemon off;
pid $WORK/nginx.pid;
error_log $WORK/nginx.log;
events { }
http {
    log_format plain '\$uri \$status \$body_bytes_sent \$http_if_range';
    access_log $WORK/nginx-access.log plain;
    client_body_temp_path $WORK/nginx-body;
    proxy_temp_path $WORK/nginx-proxy;
    include $WORK/nginx.conf;
}
CONF
    proxy_start nginx "$NGINX" nginx -c "$WORK/nginx-all.conf" -e "$WORK/nginx.log"
}
haproxy_start() {
    snippet haproxy "s|bind :443|bind 127.0.0.1:$HAPROXY|"
    printf 'global\n    stats socket ipv4@127.0.0.1:%s level admin\n' "$ADMIN" >"$WORK/haproxy-global.conf"
    proxy_start haproxy "$HAPROXY" haproxy -db -f "$WORK/haproxy-global.conf" -f "$WORK/haproxy.conf"
}
nginx_start
haproxy_start
PROXIES="nginx:$NGINX haproxy:$HAPROXY"
if command -v caddy >/dev/null; then
    snippet caddy "s|^$NAME {|localhost:$CADDY, $NAME:$CADDY {\n    tls $TLS/fullchain.pem $TLS/key.pem|"
    printf '{\n    admin off\n    auto_https disable_redirects\n}\n' | cat - "$WORK/caddy.conf" >"$WORK/Caddyfile"
    proxy_start caddy "$CADDY" env HOME="$WORK" caddy run --config "$WORK/Caddyfile" --adapter caddyfile
    PROXIES="$PROXIES caddy:$CADDY"
else
    echo "NOTE: caddy is not installed here; its snippet is not run" >&2
fi

# --- the database and the logs ----------------------------------------------------------------------
SOCKET=$(dirname "$(find "$WORK/data/postgres" -name '.s.PGSQL.5432')")
# reasons LABEL: how that volunteer's sessions ended, "2 connection_lost, 1 draining"; open ones are "".
reasons() {
    psql "host=$SOCKET user=raven dbname=raven" -qAt -F ' ' -c "SELECT count(*), s.end_reason
        FROM sessions s JOIN volunteers v ON v.id = s.volunteer
        WHERE v.label = '$1' AND s.end_reason <> '' GROUP BY 2 ORDER BY 2" | paste -sd, | sed 's/,/, /g'
}
volunteer() { api GET /v1/volunteers | jq -r --arg name "$1" '.data[] | select(.label == $name) | '"$2"; }
is_connected() { [ "$(volunteer "$1" .connected)" = true ]; }
log_says() { grep -qE "$2" "$WORK/$1.log"; }
# stop_agents LABEL-PREFIX: in order.
stop_agents() {
    local pid
    for pid in "${AGENT_PIDS[@]}"; do
        if grep -qas "state-dir.$WORK/$1" "/proc/$pid/cmdline"; then
            kill -TERM "$pid"
            wait "$pid" 2>/dev/null || true
        fi
    done
}

# --- people: REST, Host, Origin, the live stream ----------------------------------------------------
ask() { # NAME:PORT WANTED-STATUS PATH [curl options]
    local port=${1#*:} wanted=$2 path=$3 status
    shift 3
    status=$(curl -s --max-time 20 --resolve "$NAME:$port:127.0.0.1" -o "$WORK/body" \
        -w '%{http_code}' "$@" "https://$NAME:$port$path") || true
    [ "$status" = "$wanted" ] || fail "$PROXY: $path: $status instead of $wanted: $(head -c 400 "$WORK/body")"
}
live() { # PORT ORIGIN SECONDS
    python3 "$SOURCE/tests/support/live_client.py" "$1" "$TLS/ca.pem" "$NAME" "$2" "$COOKIE" "$3" >"$WORK/live.out"
}
browse() {
    local port=${PROXY#*:} origin refused=0
    origin=https://$NAME:$port
    ask "$PROXY" 200 /livez
    curl -s --max-time 20 -H 'Host: evil.example' "https://localhost:$port/livez" >"$WORK/body"
    if grep -q '"ok"' "$WORK/body"; then fail "$PROXY: a foreign Host is served"; fi
    ask "$PROXY" 403 /v1/session -H 'Content-Type: application/json' -H 'Origin: https://evil.example' -d "{\"key\":\"$KEY\"}"
    ask "$PROXY" 201 /v1/session -H 'Content-Type: application/json' -H "Origin: $origin" -d "{\"key\":\"$KEY\"}" \
        -D "$WORK/head"
    COOKIE=$(sed -n 's/^[Ss]et-[Cc]ookie: \(raven_session=[^;]*\);.*/\1/p' "$WORK/head")
    grep -qi '^set-cookie:.*; Secure' "$WORK/head" || fail "$PROXY: the cookie is not for TLS only"
    ask "$PROXY" 403 /v1/invites -H 'Content-Type: application/json' -H "Idempotency-Key: $(new_key)" \
        -H "Cookie: $COOKIE" -H 'Origin: https://evil.example' -d '{}'
    ask "$PROXY" 201 /v1/invites -H 'Content-Type: application/json' -H "Idempotency-Key: $(new_key)" \
        -H "Cookie: $COOKIE" -H "Origin: $origin" -d '{}'
    jq -e --arg url "https://$NAME" '.command | contains($url)' "$WORK/body" >/dev/null ||
        fail "$PROXY: the invite's command is not for https: $(cat "$WORK/body")"
    live "$port" "$origin" 3 || fail "$PROXY: the live stream: $(tail -c 300 "$WORK/live.out")"
    jq -es '(map(select(.t == "snap" and .ch == "overview")) | length == 1)
        and (map(select(.t == "hb")) | length >= 2)' "$WORK/live.out" >/dev/null ||
        fail "$PROXY: no snapshot and heartbeats: $(head -c 600 "$WORK/live.out")"
    live "$port" https://evil.example 1 || refused=$?
    [ $refused = 1 ] && grep -qE ' (401|403)' "$WORK/live.out" ||
        fail "$PROXY: another site reads the live stream ($refused): $(head -c 300 "$WORK/live.out")"
}
# 8 MB up in one request and back: in part, and only while they are the same bytes.
transfer() {
    local id size
    head -c 6000000 /dev/urandom | base64 -w 70 >"$WORK/text-${PROXY%:*}"
    size=$(stat -c %s "$WORK/text-${PROXY%:*}")
    URL=https://localhost:${PROXY#*:}
    id=$(upload dataset_text "$WORK/text-${PROXY%:*}")
    URL=$DIRECT
    ask "$PROXY" 200 "/v1/artifacts/$id/content" -H "Authorization: Bearer $KEY" -H 'Accept-Encoding: gzip' -D "$WORK/head"
    cmp -s "$WORK/body" "$WORK/text-${PROXY%:*}" || fail "$PROXY: the file came back changed"
    ETAG=$(sed -n 's/^[Ee][Tt]ag: \("[^"]*"\).*/\1/p' "$WORK/head")
    [ -n "$ETAG" ] || fail "$PROXY: no strong ETag: $(cat "$WORK/head")"
    ask "$PROXY" 206 "/v1/artifacts/$id/content" -H "Authorization: Bearer $KEY" -H "If-Range: $ETAG" -r 6000000-
    cmp -s "$WORK/body" <(tail -c +6000001 "$WORK/text-${PROXY%:*}") || fail "$PROXY: the part is another"
    echo "${PROXY%:*}: $size bytes up and back, the rest from byte 6000000 by If-Range"
}

# --- agents: an idle session beside a proxy's limit -------------------------------------------------
join_by() { # LABEL PORT
    URL=https://localhost:$2
    agent_join "$1"
    URL=$DIRECT
}
for PROXY in $PROXIES; do
    join_by "idle-${PROXY%:*}" "${PROXY#*:}"
    agent_run "idle-${PROXY%:*}" 100
done
IDLE_SINCE=$SECONDS
for PROXY in $PROXIES; do wait_for 20 "the agent comes by ${PROXY%:*}" is_connected "idle-${PROXY%:*}"; done

for PROXY in $PROXIES; do
    browse
    transfer
    echo "${PROXY%:*}: REST, Host, Origin and the live stream work"
done

pain_E11_pings_hold_an_idle_session() {
    local idle=$((2 * LIMIT_S + 2 - (SECONDS - IDLE_SINCE)))
    [ $idle -le 0 ] || sleep $idle
    for PROXY in $PROXIES; do
        # One short session was the enrolment's.
        [ "$(reasons "idle-${PROXY%:*}")" = "1 agent_stopped" ] && is_connected "idle-${PROXY%:*}" ||
            fail "an idle session by $PROXY was cut: $(reasons "idle-${PROXY%:*}")"
    done
    echo "idle for $((SECONDS - IDLE_SINCE)) s behind limits of $LIMIT_S s: nobody was cut"
}
pain_E11_pings_hold_an_idle_session
stop_agents idle-

# --- agents: every connection is ended at its age ---------------------------------------------------
admin() { # haproxy's own commands
    exec 8<>"/dev/tcp/127.0.0.1/$ADMIN"
    echo "$1" >&8
    cat <&8
    exec 8>&-
}
cut_the_old() {
    while sleep 0.5; do
        admin 'show sess' | awk -v age=$AGE_S '/ srv=coordinator / {
            match($0, / age=[0-9]+s/)
            if (RLENGTH > 0 && substr($0, RSTART + 5) + 0 >= age) print substr($1, 1, length($1) - 1)
        }' | while read -r id; do admin "shutdown session $id" >/dev/null; done
    done
}
lost() { reasons "$1" | grep -oE '[0-9]+ connection_lost' | cut -d' ' -f1 || true; }
cuts_reach() { for name in pc-1 pc-2; do [ "$(($(lost $name) + 0))" -ge "$1" ] || return 1; done; }
# verdicts LABEL WORD: the leases with this verdict in the agent's log; ":" stands for an update made.
verdicts() { sed -nE "s/.*update of lease ([A-Za-z0-9_]*) ?($2)(:? .*|$)/\1/p" "$WORK/$1.log" | sort; }

JOB=$(post /v1/jobs '{"name":"behind a proxy","model":{"preset":"synthetic","parameters":'$PARAMETERS',"step_ms":10},
    "data":{"kind":"synthetic"},
    "training":{"batch_size":8,"steps_per_lease":40,"total_samples":1000000000},
    "evaluation":{"every_versions":100000,"samples":8}}' | jq -r .id)
case $JOB in job_*) ;; *) fail "the job was not accepted" ;; esac
for name in pc-1 pc-2; do
    join_by $name "$HAPROXY"
    agent_run $name 100
done
earns() { [ "$(volunteer "$1" .updates_applied)" -gt "$2" ]; }
for name in pc-1 pc-2; do wait_for 60 "$name works" earns $name 0; done

# A snapshot that is half there when the agent is killed goes on at the byte, through nginx.
snapshot_resumes() {
    local total=$((48 + 4 * PARAMETERS)) half=$((2 * PARAMETERS))
    join_by late "$NGINX"
    agent_run late 100 --download-limit 4000
    wait_for 30 "half a snapshot is there" part_has $half
    kill -9 "$AGENT_PID"
    wait "$AGENT_PID" 2>/dev/null || true
    agent_run late 100
    wait_for 30 "the snapshot is loaded" log_says late 'model loaded'
    grep "$JOB/replica" "$WORK/nginx-access.log" | tail -n 1 >"$WORK/access"
    awk -v most=$((total - half)) '{ exit !($2 == 206 && $3 <= most && $4 != "-") }' "$WORK/access" ||
        fail "the snapshot of $total bytes began again: $(cat "$WORK/access")"
    echo "a snapshot of $total bytes after kill -9 of the agent: $(cut -d' ' -f2- "$WORK/access")"
    stop_agents late
}
part_has() { [ "$(stat -c %s "$WORK/late/cache/replica.part" 2>/dev/null || echo 0)" -ge "$1" ]; }
snapshot_resumes

BEFORE=$(job_field .progress.version)
cut_the_old &
CUTTER=$!
AGENT_PIDS+=("$CUTTER")
wait_for 120 "each agent's connection is ended $CUTS times" cuts_reach $CUTS
kill "$CUTTER" && wait "$CUTTER" 2>/dev/null || true
for name in pc-1 pc-2; do wait_for 60 "$name works again" earns $name "$(volunteer $name .updates_applied)"; done
AFTER=$(job_field .progress.version)

# What was begun is answered; then nothing more is asked for.
api POST "/v1/jobs/$JOB/cancel" -H 'Content-Type: application/json' -d '{}' >/dev/null
disagreement() {
    for name in pc-1 pc-2; do
        echo "$name: API $(volunteer $name .updates_applied), log $(verdicts $name applied | wc -l)," \
            "not answered: $(comm -3 <(verdicts $name :) <(verdicts $name 'applied|stale|refused') | xargs)"
    done
}
counts_agree() {
    for name in pc-1 pc-2; do
        [ "$(volunteer $name .updates_applied)" = "$(verdicts $name applied | wc -l)" ] &&
            [ "$(verdicts $name :)" = "$(verdicts $name 'applied|stale|refused')" ] || return 1
    done
}
for _ in $(seq 100); do
    if counts_agree; then break; else sleep 0.2; fi
done
counts_agree || fail "updates are not answered once each, as the API counts: $(disagreement)"
for name in pc-1 pc-2; do
    if grep -E 'update of lease .* (stale|refused)' "$WORK/$name.log" | grep -v 'the job has ended'; then
        fail "an update of $name was lost"
    fi
    echo "$name: sessions ended: $(reasons $name); $(verdicts $name applied | wc -l) updates, each applied once"
done
[ "$AFTER" -ge $((BEFORE + 2 * CUTS)) ] || fail "the job went from version $BEFORE to $AFTER only"
echo "the job went from version $BEFORE to $AFTER meanwhile"
stop_agents pc-

# --- a proxy that has lost its coordinator, and one whose limit is shorter than the ping -------------
pain_A9_the_proxy_answers_without_a_coordinator() {
    for PROXY in nginx:$NGINX haproxy:$HAPROXY; do agent_run "idle-${PROXY%:*}" 100; done
    for PROXY in nginx haproxy; do wait_for 20 "the agent comes by $PROXY" is_connected idle-$PROXY; done
    kill -TERM "$COORDINATOR_PID"
    wait "$COORDINATOR_PID" 2>/dev/null || true
    for PROXY in nginx haproxy; do
        wait_for 10 "an orderly stop is told through $PROXY" log_says idle-$PROXY 'the coordinator is stopping'
    done
    wait_for 20 "nginx answers 502" log_says idle-nginx 'answers 502'
    wait_for 20 "haproxy answers 503" log_says idle-haproxy 'answers 503'
    coordinator_start "$PORT" --allow-hosts $NAME # pings each 20 s
    for PROXY in nginx haproxy; do wait_for 60 "the agent comes back by $PROXY" is_connected idle-$PROXY; done
    for PROXY in nginx haproxy; do
        [ "$(reasons idle-$PROXY)" = "2 agent_stopped, 1 draining" ] || fail "idle-$PROXY: $(reasons idle-$PROXY)"
    done
}
pain_A9_the_proxy_answers_without_a_coordinator

# An agent without work speaks each 3 s: the limit is shorter.
pain_E11_a_limit_below_the_ping_cuts() {
    local before
    stop_agents idle-
    for pid in "${PROXY_PIDS[@]}"; do
        kill -TERM "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    LIMIT_S=1
    nginx_start
    haproxy_start
    for PROXY in nginx haproxy; do
        before=$(lost idle-$PROXY)
        agent_run idle-$PROXY 100
        wait_for 20 "$PROXY cuts an idle session" was_lost_again idle-$PROXY "$((before + 0))"
        [ "$(volunteer idle-$PROXY .last_end_reason)" = connection_lost ] ||
            fail "$PROXY cut, but the API says $(volunteer idle-$PROXY .last_end_reason)"
        log_says idle-$PROXY 'the connection broke' || fail "the agent does not say that $PROXY cut it"
        echo "idle-$PROXY: sessions ended: $(reasons idle-$PROXY)"
    done
}
was_lost_again() { [ "$(($(lost "$1") + 0))" -gt "$2" ]; }
pain_E11_a_limit_below_the_ping_cuts

"$COORDINATOR" verify --data "$WORK/data" --json >"$WORK/verify.json" || fail "the ledger is not whole"
jq -e '.ledger_verified and ([.jobs[].duplicates] | add) == 0' "$WORK/verify.json" >/dev/null ||
    fail "an update was applied twice: $(cat "$WORK/verify.json")"
stop_all
echo "reverse proxy test passed"
