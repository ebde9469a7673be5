#!/usr/bin/env bash
# The whole default test run. RACE=0 leaves the race detector out.
set -euo pipefail
cd "$(dirname "$0")/.."

# start_services starts what the tests need beside Go, on free ports and in
# folders below $work, and exports how to reach it; stop_services ends only
# that. Nothing is needed yet: SQLite is linked in, and the Stripe double is a
# Go package.
start_services() { :; }
stop_services() { :; }

# The race detector needs a C compiler. A machine that has only Go, git and make
# gets one where that is allowed, and the tests without the detector elsewhere.
if [[ ${RACE:-1} == 1 ]] && ! command -v gcc >/dev/null; then
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null
  else
    echo "no gcc: running without the race detector" >&2
    RACE=0
  fi
fi

work=$(mktemp -d)
trap 'stop_services; rm -rf "$work"' EXIT
start_services

# Too slow under the race detector, and with no concurrency of their own: what
# runs whole binaries, and what only reads source.
plain='/(cmd|examples|internal/arch|internal/tidy)(/|$)'

all=$(go list ./...)
race=$(grep -vE "$plain" <<<"$all" || true)
rest=$(grep -E "$plain" <<<"$all" || true)

if [[ ${RACE:-1} == 1 && -n $race ]]; then
  # shellcheck disable=SC2086 # package lists are words
  CGO_ENABLED=1 go test -race -timeout 10m $race
elif [[ -n $race ]]; then
  # shellcheck disable=SC2086
  go test -timeout 10m $race
fi
# shellcheck disable=SC2086
[[ -z $rest ]] || go test -timeout 10m $rest
