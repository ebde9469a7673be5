#!/usr/bin/env bash
# Fails if generate would change a file. Compares the tree with itself, before
# and after, so uncommitted work does not matter. The Stripe module is compared
# by the hash of what is in it: two versions of gzip may pack it differently.
set -euo pipefail
cd "$(dirname "$0")/.."
snapshot() { git ls-files -co --exclude-standard -z | xargs -0 sha256sum 2>/dev/null | sort -k2; }
before=$(snapshot)
scripts/generate-wire.sh
scripts/generate-wire-vectors.sh
after=$(snapshot)
if [[ $before != "$after" ]]; then
  echo "generate changed these files; run make generate and commit them:" >&2
  diff <(echo "$before") <(echo "$after") | awk '/^[<>]/ {print "  " $3}' | sort -u >&2
  exit 1
fi
scripts/build-stripe-module.sh --check
echo "generated files are up to date"
