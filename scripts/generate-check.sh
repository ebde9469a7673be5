#!/usr/bin/env bash
# Fails if generate changes a file. Compares the tree with itself, before and
# after, so uncommitted work does not matter.
set -euo pipefail
cd "$(dirname "$0")/.."
snapshot() { git ls-files -co --exclude-standard -z | xargs -0 sha256sum 2>/dev/null | sort -k2; }
before=$(snapshot)
scripts/generate.sh
after=$(snapshot)
if [[ $before != "$after" ]]; then
  echo "generate changed these files; run make generate and commit them:" >&2
  diff <(echo "$before") <(echo "$after") | awk '/^[<>]/ {print "  " $3}' | sort -u >&2
  exit 1
fi
echo "generated files are up to date"
