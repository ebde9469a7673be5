#!/usr/bin/env bash
# Everything that reads the source and runs none of it.
set -euo pipefail
cd "$(dirname "$0")/.."
lint=$(scripts/tool.sh golangci-lint)
"$lint" config verify
"$lint" fmt --diff
"$lint" run ./...
go vet -tags faults ./...
# What becomes a plugin must also be right for the platform it is built for.
guest=$(go list ./plugins/sdk/... ./plugins/exporters/... | grep -vE 'storagetest|exportertest')
# shellcheck disable=SC2086 # a list of packages is words
GOOS=wasip1 GOARCH=wasm go vet $guest
go test ./internal/arch ./internal/tidy
