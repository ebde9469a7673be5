#!/usr/bin/env bash
# Everything that reads the source and runs none of it. FIX=1 mends what a
# program can mend first.
set -euo pipefail
cd "$(dirname "$0")/.."
lint=$(scripts/tool.sh golangci-lint)
"$lint" config verify
if [[ ${FIX:-0} == 1 ]]; then
  "$lint" fmt
  "$lint" run --fix ./... || true # what is left is reported below
fi
"$lint" fmt --diff
"$lint" run --max-issues-per-linter 0 --max-same-issues 0 ./...
go vet ./...
# What becomes a plugin must also be right for the platform it is built for.
guest=$(go list ./plugins/sdk/... ./plugins/exporters/... | grep -vE 'storagetest|exportertest')
# shellcheck disable=SC2086 # a list of packages is words
GOOS=wasip1 GOARCH=wasm go vet $guest
go test ./internal/arch ./internal/tidy
