#!/usr/bin/env bash
# What the CUDA images of a build take: one line per kernel and architecture, from the logs that
# embed.cmake left (which fails the build when a kernel spills).
# agent/kernels/resource_report.sh BUILD-FOLDER
set -euo pipefail
build=${1:?usage: resource_report.sh BUILD-FOLDER}
shopt -s nullglob
logs=("$build"/agent/kernels/cuda_*.log)
if [ ${#logs[@]} = 0 ]; then
    echo "no CUDA images in $build: built without nvcc" >&2
    exit 1
fi
printf '%-14s %-7s %9s %12s %11s\n' kernel device registers 'local bytes' 'spill bytes'
awk '
    # The number that stands before (by) words the given word.
    function before(word, by,   i) { for (i = 1; i <= NF; i++) if ($i ~ word) return $(i - by); return 0 }
    /Compiling entry function/ { split($0, quoted, "\x27"); kernel = quoted[2]; device = quoted[4] }
    /spill stores/ { spill = before("^stores", 3) + before("^loads", 3) }
    /Used [0-9]+ registers/ {
        printf "%-14s %-7s %9d %12d %11d\n", kernel, device, before("^registers", 1), before("^smem", 2), spill
    }' "${logs[@]}" | sort -k1,1 -k2,2V
