#!/usr/bin/env bash
# House rules that a machine can check: the walls between folders, size limits, formatting, words
# that must not appear. Prints every breach as file:line: rule, and fails if there is one.
set -uo pipefail
cd "$(dirname "$0")/../.."
found=$(mktemp)
trap 'rm -f "$found"' EXIT
report() { tee -a "$found"; }

mapfile -t sources < <(find common coordinator agent tests -name '*.[ch]' -not -path '*/node_modules/*' | sort)
mapfile -t texts < <(find . \( -name build -o -name node_modules -o -name .git -o -name .local \) -prune -o \
    -type f \( -name '*.[ch]' -o -name '*.def' -o -name '*.sh' -o -name '*.md' -o -name '*.ts' -o -name '*.tsx' \
    -o -name '*.mjs' -o -name '*.css' -o -name '*.html' -o -name '*.sql' -o -name '*.json' -o -name CMakeLists.txt \
    -o -name '*.cmake' -o -name run \) -print | sort)

# only_in PATTERN RULE FOLDER…: includes matching PATTERN are allowed below these folders only.
only_in() {
    local pattern=$1 rule=$2 exclude=()
    shift 2
    local folder
    for folder in "$@"; do exclude+=(-e "^$folder/"); done
    grep -nE "#include [<\"]$pattern" "${sources[@]}" | grep -vE "${exclude[@]}" | sed "s|\$|   <- $rule|" | report
}
only_in 'libpq' 'libpq only in coordinator/store' coordinator/store tests/unit/coordinator/store
only_in 'microhttpd' 'libmicrohttpd only in coordinator/http' coordinator/http tests/unit/coordinator/http
only_in 'libwebsockets' 'libwebsockets only in coordinator/hub, agent/session, tests/support' \
    coordinator/hub agent/session tests/support tests/unit/coordinator/hub tests/unit/agent/session
only_in '(cuda|nvrtc|CL/|cblas|blis|openblas)' 'GPU and BLAS headers only in agent/gpu and agent/backend/<name>' \
    'agent/gpu' 'agent/backend/[a-z]*'
only_in 'coordinator/' 'the agent and common know nothing of the coordinator' coordinator tests
only_in 'agent/' 'the coordinator and common know nothing of the agent' agent tests

# walled FOLDER ALLOWED RULE: project includes in FOLDER must match ALLOWED.
walled() {
    grep -rnE '#include "' "$1" --include='*.[ch]' | grep -vE "#include \"($2)" | sed "s|\$|   <- $3|" | report
}
walled common/base 'common/base/' 'common/base stands on nothing'
for folder in wire codec graph tensorfile; do
    walled common/$folder "common/(base|$folder)/" "common/$folder may use common/base only"
done
for folder in ledger aggregate job; do
    walled coordinator/$folder 'common/(base|codec|graph)/|coordinator/(ledger|aggregate|job)/' \
        "coordinator/$folder knows neither HTTP nor SQL nor sockets"
done
# Libraries neither log nor exit.
grep -nE '\b(log_(debug|info|warn|error|line)|exit|abort)\(' "${sources[@]}" |
    grep -vE '^(coordinator/(core|main|verify)[a-z_]*\.c|agent/(core|main|cli|worker)[a-z_]*\.c|common/base/(log|rng)\.[ch]|tests/)' |
    sed 's|$|   <- a library neither logs nor exits|' | report

awk '
    FNR == 1 { start = 0 }
    /\t/ { print FILENAME ":" FNR ": tab" }
    /^[{]/ { start = FNR }
    /^[}]/ { if (start && FNR - start + 1 > 70) print FILENAME ":" start ": function of " FNR - start + 1 " lines, at most 70"; start = 0 }
    FNR == 801 { print FILENAME ":801: file longer than 800 lines" }
' "${sources[@]}" | report
LC_ALL=C.UTF-8 grep -nE '^.{101,}' "${sources[@]}" | sed 's|$|   <- longer than 100 columns|' | report
awk 'FNR == 1 && !/^\/\*/ { print FILENAME ":1: a file opens with a comment that says what it is" }' "${sources[@]}" | report
grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${texts[@]}" | grep -v '^./tests/tidy/' | sed 's|$|   <- finish it or file it|' | report
# Host names of package registries never appear; nor do web addresses other than examples.
grep -nE 'https?://[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]{2,}' "${texts[@]}" |
    grep -vE 'https?://[a-z0-9.-]*(example|www\.w3\.org)' |
    sed 's|$|   <- a foreign host name|' | report
if command -v clang-format >/dev/null; then
    clang-format --dry-run -Werror "${sources[@]}" 2>&1 | sed -n 's|:[0-9:]* error:.*|: run clang-format -i|p' | sort -u | report
else
    echo "clang-format is missing (./run setup)" | report
fi
echo "tidy: ${#sources[@]} C files, $(wc -l <"$found") breaches"
[ ! -s "$found" ]
