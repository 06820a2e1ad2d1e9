#!/usr/bin/env bash
# The demo: a coordinator with its private PostgreSQL, three agents of unequal speed (100, 60 and 35 %
# of one core) and a real job. Called by ./run demo. Prints progress on standard error and, at the
# end, a summary (or one JSON line with --json) on standard output.
set -euo pipefail
job=kjv
seconds=180
json=0
while [ $# -gt 0 ]; do
    case $1 in
    --job) job=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --json) json=1 ;;
    --keep) KEEP_WORK=1 ;;
    *) echo "demo: unknown option $1; known: --job kjv|fashion, --seconds N, --json, --keep" >&2; exit 2 ;;
    esac
    shift
done
case $job in kjv | fashion) ;; *) echo "demo: --job $job: use kjv or fashion" >&2; exit 2 ;; esac
case $seconds in '' | *[!0-9]*) echo "demo: --seconds $seconds: use a whole number" >&2; exit 2 ;; esac

# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"
say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }

make_kjv_job() {
    bible -f Gen1:1-Rev22:21 >"$WORK/kjv.txt"
    say "uploading the King James text ($(stat -c %s "$WORK/kjv.txt") bytes)"
    local text
    text=$(upload dataset_text "$WORK/kjv.txt")
    # The cosine schedule should end with the demo: samples that three agents do in this time.
    post /v1/jobs '{"name":"KJV byte GPT",
        "model":{"preset":"gpt","layers":2,"width":64,"heads":4,"context":64,"vocabulary":256},
        "data":{"kind":"text","train":"'"$text"'","held_out_ratio":0.05},
        "training":{"batch_size":8,"steps_per_lease":30,"learning_rate":0.003,
            "total_samples":'$((seconds * KJV_SAMPLES_PER_SECOND))'},
        "evaluation":{"every_versions":40,"samples":320}}' | jq -r .id
}

make_fashion_job() {
    local name folder=/usr/share/datasets/fashion-mnist
    declare -A art
    for name in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
        zcat "$folder/$name-ubyte.gz" >"$WORK/$name"
        say "uploading $name ($(stat -c %s "$WORK/$name") bytes)"
        art[$name]=$(upload dataset_idx "$WORK/$name")
    done
    post /v1/jobs '{"name":"Fashion-MNIST CNN",
        "model":{"preset":"cnn","height":28,"width":28,"channels":[16,32],"classes":10},
        "data":{"kind":"images","images":"'"${art[train-images-idx3]}"'",
            "labels":"'"${art[train-labels-idx1]}"'",
            "held_out_images":"'"${art[t10k-images-idx3]}"'",
            "held_out_labels":"'"${art[t10k-labels-idx1]}"'"},
        "training":{"batch_size":64,"steps_per_lease":20,"learning_rate":0.002,"warmup_samples":6400,
            "total_samples":'$((seconds * FASHION_SAMPLES_PER_SECOND))'},
        "evaluation":{"every_versions":20,"samples":2000}}' | jq -r .id
}

show_progress() {
    jq -r --arg s "$1" '.progress // empty | "\($s) s: version \(.version), \(.samples) of \(.total_samples) samples, loss \((.loss_smoothed // 0) / 0.693147 * 1000 | round / 1000) bits" +
        (if .held_out_loss then ", held out \(.held_out_loss / 0.693147 * 1000 | round / 1000) bits" else "" end) +
        (if .held_out_accuracy then ", accuracy \(.held_out_accuracy * 1000 | round / 10) %" else "" end) +
        ", \(.volunteers) volunteers"' <<<"$2" >&2
}

summary() {
    jq -c -n --argjson job "$1" --argjson verify "$2" --argjson seconds "$3" --arg kind "$job" \
        --argjson volunteers "$4" '
        ($job.progress) as $p | ($p.uplink_bytes / ([$p.updates_applied, 1] | max)) as $per |
        {seconds: $seconds}
        + (if $kind == "kjv" then
            {bits_per_byte_first: ($p.held_out_loss_first / 0.6931471805599453),
             bits_per_byte_last: ($p.held_out_loss / 0.6931471805599453)}
           else
            {held_out_loss_first_nats: $p.held_out_loss_first, held_out_loss_last_nats: $p.held_out_loss,
             held_out_accuracy: $p.held_out_accuracy}
           end)
        + {volunteers: $volunteers, versions: $p.version, samples: $p.samples,
           updates_applied: $p.updates_applied, updates_stale: $p.updates_stale,
           updates_refused: $p.updates_refused,
           updates_duplicate_applied: ($verify.jobs | map(.duplicates) | add),
           uplink_bytes_per_update: $per, uplink_ratio_to_fp32: (4 * $p.parameters / $per),
           staleness_histogram: $p.staleness, ledger_verified: $verify.ledger_verified}'
}

KJV_SAMPLES_PER_SECOND=${KJV_SAMPLES_PER_SECOND:-600}
FASHION_SAMPLES_PER_SECOND=${FASHION_SAMPLES_PER_SECOND:-1800}
cd "$(dirname "$0")/../.."
say "starting the coordinator and its private PostgreSQL in $WORK"
coordinator_start "${RAVEN_DEMO_PORT:-0}"
say "dashboard: $URL   sign in with the key $KEY"
JOB=$("make_${job}_job")
case $JOB in job_*) ;; *) fail "the job was not accepted" ;; esac
say "job $JOB; three agents join: 100 %, 60 % and 35 % of one core"
for percent in 100 60 35; do
    agent_join "pc-$percent"
    agent_run "pc-$percent" "$percent"
done

started=$SECONDS
volunteers=0
while [ $((SECONDS - started)) -lt "$seconds" ]; do
    sleep 5
    state=$(api GET "/v1/jobs/$JOB")
    show_progress $((SECONDS - started)) "$state"
    active=$(api GET /v1/volunteers | jq '[.data[] | select(.updates_applied > 0)] | length')
    [ "$active" -le "$volunteers" ] || volunteers=$active
    [ "$(jq -r .state <<<"$state")" = running ] || break
done
state=$(api GET "/v1/jobs/$JOB")
trained=$((SECONDS - started))
say "stopping the agents and the coordinator, then replaying the ledger"
stop_all
verify=$("$COORDINATOR" verify --data "$WORK/data" --json) || true
line=$(summary "$state" "$verify" "$trained" "$volunteers")
if [ $json = 1 ]; then echo "$line"; else jq . <<<"$line"; fi
