#!/usr/bin/env bash
# Fuzzes the update code's decoder under AddressSanitizer and UndefinedBehaviorSanitizer.
# run.sh [SECONDS]: 20 by default. Prints executions, coverage and findings; fails on a finding.
# Without clang or its fuzzer runtime: skipped (77), or failed if RAVEN_EXPECT_FUZZ=1.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-20}
build=${RAVEN_FUZZ_BUILD:-build/fuzz}
flags=(-std=gnu17 -O1 -g -D_GNU_SOURCE -I. -ffp-contract=off -fno-strict-aliasing
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
mkdir -p "$build/corpus"

probe='int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return 0; }'
if ! clang "${flags[@]}" -x c - -o "$build/probe" <<<"$probe" 2>"$build/probe.log"; then
    head -n 3 "$build/probe.log"
    echo "fuzz: clang with libclang-rt is missing (./run setup test installs both): skipped"
    [ "${RAVEN_EXPECT_FUZZ:-0}" = 1 ] && exit 1
    exit 77
fi
clang "${flags[@]}" tests/fuzz/codec_fuzz.c \
    common/codec/{decode,format,values}.c common/base/{pool,checksum,buffer,bytes,status}.c \
    -lxxhash -lsodium -lm -lpthread -o "$build/codec_fuzz"
"$build/codec_fuzz" -max_total_time="$seconds" -max_len=20000 -rss_limit_mb=2048 -timeout=10 \
    -print_final_stats=1 -artifact_prefix="$build/" \
    "$build/corpus" tests/golden/codec tests/golden/bad/codec 2>&1 |
    grep -E 'cov:|ERROR|SUMMARY|stat::|Test unit|runtime error' | tail -n 12
