#!/usr/bin/env bash
# Tests of builds that can kill, stop and fail themselves. RUN=regexp picks some.
set -euo pipefail
cd "$(dirname "$0")/.."
go vet -tags faults ./...
mapfile -t dirs < <(git grep -lE --untracked '^//go:build .*\bfaults\b' -- '*_test.go' | xargs -r -n1 dirname | sort -u)
((${#dirs[@]})) || { echo "faults.sh: no test has the build tag faults" >&2; exit 1; }
go test -tags faults -count=1 -timeout 15m -run "${RUN:-.}" "${dirs[@]/#/./}"
