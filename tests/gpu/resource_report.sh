#!/usr/bin/env bash
# Registers, local memory and spills of every kernel on every architecture, as nvcc said while it
# built them. Prints a table in Markdown. Needs a build with nvcc.
set -euo pipefail
cd "$(dirname "$0")/../.."
logs=("${RAVEN_BUILD:-build/release}"/agent/kernels/cuda_*.log)
[ -e "${logs[0]}" ] || { echo "there is no build with nvcc" >&2; exit 1; }
echo "| kernel | architecture | registers | local memory, bytes | spills, bytes |"
echo "|---|---|---:|---:|---:|"
for log in $(printf '%s\n' "${logs[@]}" | sort -V); do
    awk '
        /Compiling entry function/ { split($0, q, "\x27"); kernel = q[2]; sm = q[4] }
        /bytes spill stores/ { match($0, /[0-9]+ bytes spill stores/); split(substr($0, RSTART), s, " ")
            match($0, /[0-9]+ bytes spill loads/); split(substr($0, RSTART), l, " "); spills = s[1] + l[1] }
        /Used [0-9]+ registers/ { match($0, /Used [0-9]+/); split(substr($0, RSTART), r, " ")
            smem = 0; if (match($0, /[0-9]+ bytes smem/)) { split(substr($0, RSTART), m, " "); smem = m[1] }
            printf "| %s | %s | %s | %s | %s |\n", kernel, sm, r[2], smem, spills }
    ' "$log"
done
