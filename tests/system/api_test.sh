#!/usr/bin/env bash
# The REST API as a careless or hostile user meets it: every wrong job gets a clear problem that names
# field, value and cure, and leaves nothing behind; every route but the health ones wants a credential.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
coordinator_start
printf 'In the beginning God created the heaven and the earth. %.0s' $(seq 2000) >"$WORK/text.txt"
TEXT=$(upload dataset_text "$WORK/text.txt")

# expect STATUS WHAT [jq condition]: the last answer, in $WORK/body and $STATUS.
request() {
    STATUS=$(api "$@" -o "$WORK/body" -w '%{http_code}')
}
expect() {
    [ "$STATUS" = "$1" ] || fail "$2: status $STATUS instead of $1: $(head -c 600 "$WORK/body")"
    if [ $# -gt 2 ]; then
        jq -e "$3" "$WORK/body" >/dev/null || fail "$2: not $3: $(head -c 900 "$WORK/body")"
    fi
}
submit() {
    request POST /v1/jobs -H 'Content-Type: application/json' -H "Idempotency-Key: $(new_key)" "$@"
}
job_json() { # model data training
    printf '{"name":"n","model":%s,"data":%s,"training":%s}' "$1" "$2" "$3"
}
GPT='{"preset":"gpt","layers":1,"width":32,"heads":2,"context":32,"vocabulary":256}'
DATA='{"kind":"text","train":"'$TEXT'"}'
TRAINING='{"batch_size":4,"total_samples":1000}'
complaint() { printf '(.errors | any(.pointer == "%s" and (.detail | length > 10)))' "$1"; }

submit -d "$(job_json '{"preset":"transformer9000"}' "$DATA" "$TRAINING")"
expect 422 "unknown preset" "$(complaint /model/preset)"
submit -d "$(job_json "${GPT/\"width\":32/\"width\":-3}" "$DATA" "$TRAINING")"
expect 422 "negative width" "$(complaint /model/width)"
submit -d "$(job_json "$GPT" '{"kind":"text","train":"art_01JD0000000000000000000000"}' "$TRAINING")"
expect 422 "missing dataset" "$(complaint /data/train)"
submit -d "$(job_json "${GPT/\"width\":32/\"width\":-3}" "$DATA" '{"batch_size":0,"total_samples":1000,"typo":1}')"
expect 422 "several at once" "$(complaint /model/width) and ($(complaint /training/batch_size)) and ($(complaint /training/typo))"
submit -d "$(job_json "${GPT/\"width\":32/\"width\":2048}" "$DATA" "$TRAINING" |
    jq -c '. + {update:{values:"fp32"}}')"
expect 422 "updates larger than a record of the ledger" "$(complaint /update/values)"
head -c 10000000 /dev/zero | tr '\0' 'x' >"$WORK/large"
submit --data-binary "@$WORK/large"
expect 413 "10 MB of JSON" '.type == "/problems/too-large"'
submit -d '{"name":'
expect 400 "broken JSON" '.type == "/problems/invalid-request"'
submit -d "$(printf '[%.0s' $(seq 100000))"
expect 400 "100,000 brackets"
request POST /v1/jobs -H 'Content-Type: application/json' -d "$(job_json "$GPT" "$DATA" "$TRAINING")"
expect 400 "no Idempotency-Key" '.type == "/problems/idempotency-key-missing"'
request GET /v1/jobs
expect 200 "nothing is left behind" '.data | length == 0'
[ -z "$(ls -A "$WORK/data/jobs")" ] || fail "a refused job left files: $(ls -A "$WORK/data/jobs")"

# A good one: dry run, create, the same again, another body under the same key.
request POST '/v1/jobs?dry_run=true' -H 'Content-Type: application/json' -H "Idempotency-Key: $(new_key)" \
    -d "$(job_json "$GPT" "$DATA" "$TRAINING")"
expect 200 "dry run"
IDEMPOTENCY=$(new_key)
request POST /v1/jobs -H 'Content-Type: application/json' -H "Idempotency-Key: $IDEMPOTENCY" \
    -d "$(job_json "$GPT" "$DATA" "$TRAINING")"
expect 201 "a good job" '.state == "queued" or .state == "running"'
ID=$(jq -r .id "$WORK/body")
request POST /v1/jobs -H 'Content-Type: application/json' -H "Idempotency-Key: $IDEMPOTENCY" \
    -d "$(job_json "$GPT" "$DATA" "$TRAINING")"
expect 201 "the same again" ".id == \"$ID\""
request POST /v1/jobs -H 'Content-Type: application/json' -H "Idempotency-Key: $IDEMPOTENCY" \
    -d "$(job_json "$GPT" "$DATA" '{"batch_size":8,"total_samples":1000}')"
expect 422 "the same key for another body" '.type == "/problems/idempotency-key-reused"'
request GET /v1/jobs
expect 200 "one job" '.data | length == 1'
request POST "/v1/jobs/$ID/cancel" -H 'Content-Type: application/json' -d '{}'
expect 202 "cancel"
request POST "/v1/jobs/$ID/cancel" -H 'Content-Type: application/json' -d '{}'
expect 200 "cancel again"
request GET /v1/jobs/job_01JD0000000000000000000000
expect 404 "unknown job" '.type == "/problems/not-found"'
request GET /v1/nonsense
expect 404 "unknown route"
request DELETE /v1/version
expect 405 "wrong method"

# Artifacts: wrong checksum, resumed upload, Range download.
declare_text() {
    request POST /v1/artifacts -H 'Content-Type: application/json' -H "Idempotency-Key: $(new_key)" \
        -d "{\"kind\":\"dataset_text\",\"filename\":\"x\",\"size_bytes\":$1,\"sha256\":\"$2\"}"
}
patch() { # artifact offset file
    request PATCH "/v1/artifacts/$1/upload" -H 'Content-Type: application/offset+octet-stream' \
        -H "Upload-Offset: $2" --data-binary "@$3"
}
printf 'hello world\n' >"$WORK/hello"
declare_text 12 "$(printf '0%.0s' $(seq 64))"
expect 201 "declare with a wrong checksum"
WRONG=$(jq -r .id "$WORK/body")
patch "$WRONG" 0 "$WORK/hello"
expect 460 "upload with a wrong checksum" '.type == "/problems/checksum-mismatch"'
request GET "/v1/artifacts/$WRONG"
expect 200 "the rejected artifact" '.state == "rejected" and (.reason | length > 10)'
declare_text 12 "$(sha256sum "$WORK/hello" | cut -d' ' -f1)"
expect 201 "declare"
RIGHT=$(jq -r .id "$WORK/body")
head -c 5 "$WORK/hello" >"$WORK/first"
tail -c +6 "$WORK/hello" >"$WORK/second"
patch "$RIGHT" 0 "$WORK/first"
expect 204 "first part"
patch "$RIGHT" 0 "$WORK/first"
expect 409 "the same part at a wrong offset" '.type == "/problems/upload-offset-mismatch"'
OFFSET=$(api GET "/v1/artifacts/$RIGHT/upload" -I -X HEAD | tr -d '\r' | sed -n 's/^[Uu]pload-[Oo]ffset: //p')
[ "$OFFSET" = 5 ] || fail "HEAD says offset '$OFFSET' instead of 5"
patch "$RIGHT" 5 "$WORK/second"
expect 204 "second part"
request GET "/v1/artifacts/$RIGHT/content" -H 'Range: bytes=6-10'
[ "$STATUS" = 206 ] && [ "$(cat "$WORK/body")" = world ] || fail "Range: $STATUS $(cat "$WORK/body")"
request GET "/v1/artifacts/$RIGHT/content" -H 'Range: bytes=50-60'
expect 416 "Range outside"

# Who may come in.
ADMIN=$KEY
for route in /v1/jobs /v1/volunteers /v1/events /v1/artifacts /v1/me "/v1/artifacts/$RIGHT/content" "/v1/jobs/$ID/replica"; do
    KEY=
    request GET "$route"
    expect 401 "no key at $route"
    KEY=rvn_sk_00000000_0000000000000000000000000000000000000000000_000000
    request GET "$route"
    expect 401 "wrong key at $route"
done
for route in /livez /readyz /v1/version; do
    request GET "$route"
    expect 200 "$route is open"
done
KEY=$ADMIN
request GET /v1/jobs -H 'Host: evil.example'
[ "$STATUS" = 421 ] || [ "$STATUS" = 403 ] || [ "$STATUS" = 400 ] || fail "a foreign Host got $STATUS"
request GET /v1/me
expect 200 "who am I" '.scopes | length == 9'
if grep -rqF "$KEY" "$WORK/coordinator.log" "$WORK/coordinator.out"; then fail "the key is in the log"; fi

# With --database-url that server is used and no private one is made.
SOCKET=$(dirname "$(find "$WORK/data/postgres" -name '.s.PGSQL.5432')")
psql "host=$SOCKET user=raven dbname=postgres" -qc 'create database other'
"$COORDINATOR" --data "$WORK/coordinator-b" --port 0 --database-url "host=$SOCKET user=raven dbname=other" \
    >"$WORK/second.out" 2>"$WORK/second.log" &
SECOND=$!
second_is_ready() { grep -q '^raven-coordinator is ready' "$WORK/second.out"; }
wait_for 20 "the second coordinator is ready" second_is_ready
[ ! -e "$WORK/coordinator-b/postgres" ] || fail "a private PostgreSQL was made beside --database-url"
kill -TERM "$SECOND"
wait "$SECOND" || fail "the second coordinator did not stop well: $(cat "$WORK/second.log")"
CODE=0
"$COORDINATOR" --data "$WORK/coordinator-c" --bind 0.0.0.0 2>"$WORK/third.log" || CODE=$?
[ "$CODE" = 1 ] && grep -q allow-plain-http "$WORK/third.log" || fail "an unsafe bind: $CODE"
[ ! -e "$WORK/coordinator-c" ] || fail "a refused start left files"
echo "api test passed"
