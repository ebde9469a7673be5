#!/usr/bin/env bash
# Tests of builds that can kill, stop and fail themselves. RUN=regexp picks some;
# SOAK=1 runs the long ones, and only those.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/services.sh
. scripts/services.sh
install_packages gcc:gcc # for the shims that make a disk fail and a clock step
start_services
go vet -tags faults ./...
mapfile -t dirs < <(git grep -lE --untracked '^//go:build .*\bfaults\b' -- '*_test.go' | xargs -r -n1 dirname | sort -u)
((${#dirs[@]})) || { echo "faults.sh: no test has the build tag faults" >&2; exit 1; }
run=${RUN:-.} limit=15m verbose=
if [[ ${SOAK:-0} == 1 ]]; then
  export FENCEPOST_SOAK=1
  run=${RUN:-^TestSoak} limit=90m verbose=-v # what they print is what they are run for
fi
# They wait for processes more than they compute. The suites of the adapters have
# no faults: make test runs them.
go test -tags faults -skip '^Test(Conformance|BrokenAdaptersAreFound)$' -count=1 -parallel 4 -timeout "$limit" $verbose -run "$run" "${dirs[@]/#/./}"
