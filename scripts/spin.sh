#!/bin/sh
# Checks internal/models/outbox.pml with Spin: every property with all guards,
# and the expected violation without each guard. Installs spin and gcc with apt
# if they are missing (as root). Prints the number of states of each run.
set -eu

model=$(cd "$(dirname "$0")/../internal/models" && pwd)/outbox.pml
script=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")

# one WANT PROPERTY DEFINES LABEL…: builds a variant of the model and checks one
# property of it. WANT is holds or fails. Violations are found early: such a run
# is not worth an optimised build.
one() {
    want=$1 property=$2 defines=$(echo "$3" | tr '|' ' ')
    shift 3
    dir=$(mktemp -d)
    cd "$dir"
    fair='' safety=-DSAFETY optimise=-O2
    [ "$property" = live ] && fair='-a -f' safety=''
    [ "$want" = fails ] && optimise=-O0
    # shellcheck disable=SC2086
    spin -a $defines "$model" >spin.log 2>&1 || { cat spin.log; exit 1; }
    # shellcheck disable=SC2086
    gcc $optimise -w $safety -DNFAIR=5 -DVECTORSZ=512 -DCOLLAPSE -o pan pan.c
    # shellcheck disable=SC2086
    ./pan $fair -m1000000 -w24 -N "$property" >pan.log 2>&1 || true
    states=$(awk '/states, stored/ {print $1; exit}' pan.log)
    got=unknown
    grep -q 'errors: 0' pan.log && got=holds
    grep -qE 'errors: [1-9]' pan.log && got=fails
    grep -qE 'max search depth too small|out of memory|search was not completed' pan.log && [ "$got" = holds ] && got=incomplete
    verdict=ok
    [ "$got" = "$want" ] || { verdict=WRONG; tail -20 pan.log; }
    printf '%-6s %-36s %-8s %-10s %12s states\n' "$verdict" "$*" "$property" "$got" "${states:-?}"
    cd /
    rm -rf "$dir"
    [ "$verdict" = ok ]
}

if [ "${1:-}" = one ]; then
    shift
    one "$@"
    exit
fi
if ! command -v spin >/dev/null || ! command -v gcc >/dev/null; then
    apt-get install -y -q spin gcc libc6-dev >/dev/null
fi
# safe is every property that can be violated at one instant, in one run.
xargs -P "$(nproc)" -L 1 sh "$script" one <<'RUNS'
holds safe -DACTS=2|-DCAP=1|-DFAULTS=1 all guards, a person acts twice
holds safe -DACTS=2|-DPEOPLE=2|-DCAP=1|-DFAULTS=0 all guards, two people
holds live -DACTS=1|-DCAP=1|-DFAULTS=1 all guards, a person acts once
holds safe -DCAP=5 all guards, cap 5
holds safe -DCAP=3 all guards
holds live -DCAP=3|-DFAULTS=1 all guards
holds held -DFOREIGN=1 identifier held by another
fails fence -DFENCE=0 without the fence
fails refusal -DR1=0 without R1
fails set_by -DR1=0 without R1
fails refusal -DMARK=0 without the mark
fails refusal -DHONEST=0 500 taken for a refusal
fails once -DSTABLE=0 another key per attempt
fails cap -DCAPCLAIM=0 without the cap at claim
fails once -DHORIZON=0 without the horizon
fails once -DLEASECHECK=0 without the lease check
fails blind -DDUPRULE=0|-DFOREIGN=1 any duplicate is ours
fails once -DR2=0|-DACTS=2|-DCAP=1|-DFAULTS=1 R2: another identifier after a send
fails refusal -DR3=0|-DACTS=2|-DCAP=1|-DFAULTS=1 R3: people do not wait
fails refusal -DT8TOKEN=0|-DACTS=2|-DPEOPLE=2|-DCAP=1|-DFAULTS=0 people act on an old plan
fails refusal -DEVIDENCE=0|-DACTS=1|-DCAP=1|-DFAULTS=1 people refuse what is in the books
fails once -DMARKEND=0|-DACTS=2|-DCAP=1|-DFAULTS=1 exhausted without the mark
RUNS
