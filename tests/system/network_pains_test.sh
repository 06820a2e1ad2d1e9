#!/usr/bin/env bash
# Reported faults of the network as the real programs meet them; see the names of the functions. Files of
# more than 4 GiB are sparse: a part of them that is "there already" is a hole, so the disk holds 1 MiB.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
HOLE=4294967296 # 2^32: no offset behind it fits 32 bits
TAIL=1048576
SIZE=$((HOLE + TAIL))
PIECE=262144
LIMIT_MIB=5120
SUM=d7795f96e2cdffd06a51141af63287eeaa949c839b9db5f92998bda96cf881c4 # of 2^32 zeros and the tail
HASH_S=200 # for 4 GiB, on a machine that has more to do

coordinator_start 0 --ping-ms 8000 --artifact-mib-max $LIMIT_MIB

# --- E1 -----------------------------------------------------------------------------------------
printf 'quoth the raven\n%.0s' $(seq $((TAIL / 16))) >"$WORK/tail"
declare_artifact() { # SIZE SHA256
    post /v1/artifacts "{\"kind\":\"dataset_text\",\"filename\":\"large\",\"size_bytes\":$1,\"sha256\":\"$2\"}"
}
offset_of() { api HEAD "/v1/artifacts/$1/upload" -I | tr -d '\r' | sed -n 's/^Upload-Offset: //p'; }
disk_kib() { du -k "$1" | cut -f1; }

# The answer to a PATCH of 5 GiB of which only the head is sent.
answer_to_head() { # ID OFFSET
    exec 8<>"/dev/tcp/127.0.0.1/$PORT"
    printf 'PATCH /v1/artifacts/%s/upload HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nAuthorization: Bearer %s\r\n%s%s%s' \
        "$1" "$PORT" "$KEY" $'Content-Type: application/offset+octet-stream\r\n' \
        "Upload-Offset: $2"$'\r\n' $'Content-Length: 5368709120\r\n\r\n' >&8
    timeout 20 head -n 1 <&8 || true
    exec 8>&-
}

pain_E1_too_large_is_refused_before_the_body() {
    local beyond=$((LIMIT_MIB * 1048576 + 1)) id
    declare_artifact $beyond "$(printf '%064d' 1)" >"$WORK/body"
    jq -e ".status == 413 and (.detail | contains(\"$beyond\") and contains(\"--artifact-mib-max\"))" "$WORK/body" \
        >/dev/null || fail "5 GiB and a byte were declared, and the answer is $(cat "$WORK/body")"
    [ -z "$(ls "$WORK/data/artifacts")" ] || fail "a refused artifact left a file"
    id=$(declare_artifact $TAIL "$(printf '%064d' 2)" | jq -r .id)
    case "$(answer_to_head "$id" 0)" in
    'HTTP/1.1 413 '*) ;;
    *) fail "a body of 5 GiB for an artifact of 1 MiB was not refused at its head" ;;
    esac
    echo "pain_E1: $beyond bytes and a body of 5 GiB refused before the first byte of the body"
}

# Sets TEXT: the last MiB goes up in pieces, behind a hole that stands for what went up before.
pain_E1_more_than_4_gib_go_up_in_pieces() {
    local part at status
    TEXT=$(declare_artifact $SIZE $SUM | jq -r .id)
    part=$WORK/data/artifacts/$TEXT.part
    truncate -s $HOLE "$part"
    for at in $(seq $HOLE $PIECE $((SIZE - 1))); do
        [ "$(offset_of "$TEXT")" = "$at" ] || fail "Upload-Offset is $(offset_of "$TEXT") instead of $at"
        status=$(dd if="$WORK/tail" bs=$PIECE skip=$(((at - HOLE) / PIECE)) count=1 status=none |
            api PATCH "/v1/artifacts/$TEXT/upload" --max-time $HASH_S --data-binary @- -o "$WORK/body" \
                -w '%{http_code}' -H 'Content-Type: application/offset+octet-stream' -H "Upload-Offset: $at")
        [ "$status" = 204 ] || fail "the piece at $at: $status $(cat "$WORK/body")"
    done
    api GET "/v1/artifacts/$TEXT" | jq -e ".state == \"ready\" and .size_bytes == $SIZE" >/dev/null ||
        fail "the artifact is $(api GET "/v1/artifacts/$TEXT")"
    [ "$(disk_kib "$WORK/data/artifacts/$SUM")" -le $((4 * TAIL / 1024)) ] || fail "the hole was filled"
    api GET "/v1/artifacts/$TEXT/content" -r $((HOLE - 8))-$((HOLE + 7)) -D "$WORK/head" -o "$WORK/across"
    grep -qi "^Content-Range: bytes $((HOLE - 8))-$((HOLE + 7))/$SIZE" "$WORK/head" || fail "$(cat "$WORK/head")"
    cmp "$WORK/across" <(printf '\0\0\0\0\0\0\0\0quoth th') || fail "the bytes around 2^32 are wrong"
    echo "pain_E1: $SIZE bytes went up and came down around 2^32"
}

# An agent whose download was cut at 4 GiB: it asks for the rest, checks all of it, trains on it and
# evaluates on its end, which lies behind 2^32.
pain_E1_an_agent_trains_on_more_than_4_gib() {
    agent_join pc
    mkdir -p "$WORK/pc/cache"
    truncate -s $HOLE "$WORK/pc/cache/$SUM.part"
    JOB=$(post /v1/jobs '{"name":"large","model":{"preset":"gpt","layers":1,"width":16,"heads":1,"context":16,
        "vocabulary":256},"data":{"kind":"text","train":"'"$TEXT"'","held_out_ratio":0.0002},
        "training":{"batch_size":4,"steps_per_lease":5,"total_samples":1000000},
        "evaluation":{"every_versions":2,"samples":16}}' | jq -r .id)
    case $JOB in job_*) ;; *) fail "the job was not accepted" ;; esac
    agent_run pc 50
    wait_for $HASH_S "the agent has trained and evaluated" evaluated
    [ "$(disk_kib "$WORK/pc/cache/$SUM")" -le $((4 * TAIL / 1024)) ] ||
        fail "the agent fetched what it had"
    echo "pain_E1: an agent resumed at 2^32, and its held-out loss is $(job_field .progress.held_out_loss)"
}
evaluated() { [ "$(job_field '.progress.held_out_loss != null and .progress.updates_applied > 2')" = true ]; }

# --- E11 ----------------------------------------------------------------------------------------
pain_E11_the_welcome_states_the_limit_of_pings() {
    local own=$URL
    mkfifo "$WORK/relay.in"
    python3 "$(dirname "$0")/../support/relay.py" 0 "$PORT" 0 <"$WORK/relay.in" >"$WORK/relay.out" &
    AGENT_PIDS+=($!)
    exec 9>"$WORK/relay.in"
    wait_for 10 "the relay listens" grep -q ready "$WORK/relay.out"
    URL=http://127.0.0.1:$(head -n 1 "$WORK/relay.out" | jq .port)
    agent_join behind-a-relay
    URL=$own
    jq -e 'select(.event == "welcome") | .message.ping_ms == 8000 and .message.ping_min_ms == 2000' "$WORK/relay.out" \
        >/dev/null || fail "the welcome states no limit: $(cat "$WORK/relay.out")"
    echo "pain_E11: the welcome states a ping each 8000 ms, and at most one each 2000 ms"
}

pain_E11_the_welcome_states_the_limit_of_pings
pain_E1_too_large_is_refused_before_the_body
pain_E1_more_than_4_gib_go_up_in_pieces
pain_E1_an_agent_trains_on_more_than_4_gib
echo "network pains test passed"
