#!/usr/bin/env bash
# The suites of plugins over every carrier and in every language: too long for the
# default run, and without concurrency that the race detector would watch there.
# Compilers and servers that are missing are installed where that is allowed.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/services.sh
. scripts/services.sh
# shellcheck source=scripts/suites.sh
. scripts/suites.sh
# The sample exporter in every language. Where a compiler is missing and cannot be
# had, its tests are skipped, and nothing that is missing fails the run.
built=0
scripts/build-sdk-samples.sh || built=$?
case $built in
  0) ;;
  3) export FENCEPOST_TEST_STRICT=0 ;;
  *) exit "$built" ;;
esac
PG_OPTIONS='-c fsync=off -c full_page_writes=off' # what these servers hold need not last
start_services
# The table of exporters and carriers, also after a failure.
export FENCEPOST_TEST_MATRIX=$PWD/bin/plugin-matrix.txt
rm -f "$FENCEPOST_TEST_MATRIX"
failed=0
go test -timeout 20m -run "$plugin_suites" ./host ./host/remote ./host/carrier/wasm || failed=$?
[[ ! -f $FENCEPOST_TEST_MATRIX ]] || cat "$FENCEPOST_TEST_MATRIX"
((failed == 0)) || exit "$failed"
# The tutorial in the languages whose compilers were installed above.
FENCEPOST_TEST_TUTORIAL=1 go test -timeout 20m -run '^TestTutorialInMoreLanguages$' ./cmd/fencepost
