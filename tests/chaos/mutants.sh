#!/usr/bin/env bash
# mutants.sh [NAME…]: plants known mistakes in a copy of the source, one at a time, and demands that
# the test that each patch names fails and says what it says. A mutant that survives means that the
# tests are broken, not the program.
set -euo pipefail
cd "$(dirname "$0")/../.."
COPY=$(mktemp -d /tmp/raven-mutants-XXXXXX)
trap 'rm -rf "$COPY"' EXIT
git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -C "$COPY" -xf -
cmake -S "$COPY" -B "$COPY/build" -G Ninja -DRAVEN_BENCH=OFF >"$COPY/cmake.log" 2>&1 ||
    { cat "$COPY/cmake.log" >&2; exit 1; }

field() { sed -n "s/^$1: //p" "$2"; }

build() {
    cmake --build "$COPY/build" --target "$1" >"$COPY/build.log" 2>&1 || { tail -n 20 "$COPY/build.log" >&2; exit 1; }
}

run_target() { timeout 120 "$(find "$COPY/build" -type f -name "$1" -perm -u+x)" >"$COPY/out" 2>&1; }

caught=0
for patch in tests/chaos/mutants/*.patch; do
    name=$(basename "$patch" .patch)
    [ $# -eq 0 ] || case " $* " in *" $name "*) ;; *) continue ;; esac
    target=$(field 'Caught by' "$patch")
    says=$(field Saying "$patch")
    build "$target"
    run_target "$target" || { cat "$COPY/out" >&2; echo "$target fails without a mutant" >&2; exit 1; }
    patch -d "$COPY" -p1 -s <"$patch"
    build "$target"
    if run_target "$target"; then
        echo "SURVIVED: $name ($target passes)" >&2
        exit 1
    fi
    grep -qE "$says" "$COPY/out" || { cat "$COPY/out" >&2; echo "$name: $target fails, but for another reason" >&2; exit 1; }
    patch -d "$COPY" -p1 -s -R <"$patch"
    caught=$((caught + 1))
    echo "caught: $name by $target: $says"
done
[ $caught -gt 0 ] || { echo "no mutant of that name" >&2; exit 2; }
echo "$caught mutants, all caught"
