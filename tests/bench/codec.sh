#!/usr/bin/env bash
# The update code: sizes, speeds, memory. The binary needs the demo jobs' data as files.
set -euo pipefail
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT
bible -f Gen1:1-Rev22:21 >"$data/kjv.txt"
for name in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
    zcat "/usr/share/datasets/fashion-mnist/$name-ubyte.gz" >"$data/$name"
done
RAVEN_BENCH_DATA=$data "${RAVEN_BUILD:-build/release}/bench/codec" "$@"
