#!/bin/sh
# Checks internal/models/outbox.pml with Spin: every property with all guards,
# and the expected violation without each guard. Installs spin and gcc with apt
# if they are missing (as root). Prints the number of states of each run.
set -eu

model=$(cd "$(dirname "$0")/../internal/models" && pwd)/outbox.pml
if ! command -v spin >/dev/null || ! command -v gcc >/dev/null; then
    apt-get install -y -q spin gcc libc6-dev >/dev/null
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
bad=0

# build DEFINES...: makes ./pan for a variant of the model.
build() {
    rm -f pan ./*.trail
    # shellcheck disable=SC2086
    spin -a $1 "$model" >spin.log 2>&1 || { cat spin.log; exit 1; }
    gcc -O2 -w -DNFAIR=4 -DVECTORSZ=512 -DCOLLAPSE -o pan pan.c
}

# check WANT PROPERTY LABEL: WANT is holds or fails.
check() {
    fair=
    [ "$2" = live ] && fair=-f
    # shellcheck disable=SC2086
    ./pan -a $fair -m1000000 -w24 -N "$2" >pan.log 2>&1 || true
    states=$(awk '/states, stored/ {print $1; exit}' pan.log)
    got=unknown
    grep -q 'errors: 0' pan.log && got=holds
    grep -qE 'errors: [1-9]' pan.log && got=fails
    grep -qE 'max search depth too small|out of memory|search was not completed' pan.log && [ "$got" = holds ] && got=incomplete
    verdict=ok
    if [ "$got" != "$1" ]; then
        verdict=WRONG
        bad=1
        tail -20 pan.log
    fi
    printf '%-6s %-28s %-8s %-10s %12s states\n' "$verdict" "$3" "$2" "$got" "${states:-?}"
}

all='once refusal set_by blind fence cap live'
build ''
for p in $all fact; do check holds "$p" 'all guards'; done
build '-DCAP=5'
for p in once refusal set_by cap live; do check holds "$p" 'all guards, cap 5'; done
build '-DFOREIGN=1'
for p in $all; do check holds "$p" 'identifier held by another'; done

# Without a guard, a property fails.
while read -r define property label; do
    build "$(echo "$define" | tr "|" " ")"
    check fails "$property" "$label"
done <<'GUARDS'
-DFENCE=0 fence without the fence
-DR1=0 refusal without R1
-DR1=0 set_by without R1
-DMARK=0 refusal without the mark
-DHONEST=0 refusal 500 taken for a refusal
-DSTABLE=0 once another key per attempt
-DCAPCLAIM=0 cap without the cap at claim
-DHORIZON=0 once without the horizon
-DLEASECHECK=0 once without the lease check
-DDUPRULE=0|-DFOREIGN=1 blind any duplicate is ours
GUARDS
exit $bad
