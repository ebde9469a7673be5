#!/usr/bin/env bash
# The whole default test run. RACE=0 leaves the race detector out.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/services.sh
. scripts/services.sh
# shellcheck source=scripts/suites.sh
. scripts/suites.sh

# The race detector needs a C compiler. A machine that has only Go, git and make
# gets one where that is allowed, and the tests without the detector elsewhere.
[[ ${RACE:-1} == 0 ]] || install_packages gcc:gcc
if [[ ${RACE:-1} == 1 ]] && ! command -v gcc >/dev/null; then
  echo "no gcc: running without the race detector" >&2
  RACE=0
fi
PG_OPTIONS='-c fsync=off -c full_page_writes=off' # what these servers hold need not last
start_services
FENCEPOST_TEST_PROMTOOL=$(promtool_program) || echo "test: no promtool: the alert rules are not evaluated" >&2
export FENCEPOST_TEST_PROMTOOL

# step NAME COMMAND… says how long a part took.
step() {
  local name=$1 began=$SECONDS
  shift
  "$@"
  echo "test: $name in $((SECONDS - began))s"
}

# Too slow under the race detector, and with no concurrency of their own: what
# runs whole binaries, what only reads source, and the simulation, in which one
# goroutine runs at a time.
alone='^(TestModel|TestManyAdditions)$' # one goroutine each, over SQLite
plain='/(cmd|examples|internal/arch|internal/tidy|internal/simulation)(/|$)'

# The longest first: at the end there is nothing to run beside them.
all=$(go list ./... | awk '/plugins\/storage\// {print; next} {rest = rest $0 "\n"} END {printf "%s", rest}')
mapfile -t race < <(grep -vE "$plain" <<<"$all")
mapfile -t rest < <(grep -E "$plain" <<<"$all")

if [[ ${RACE:-1} == 1 ]]; then
  # SQLite is C, translated, and six times slower when it is watched. Only it is
  # left out: generic code that an unwatched package shares with others would
  # hide what synchronises them.
  CGO_ENABLED=1 step 'race' go test -race -gcflags='modernc.org/sqlite/lib=-race=false' -timeout 18m -skip "$alone|$plugin_suites" "${race[@]}"
  step 'models' go test -timeout 10m -run "$alone" ./plugins/storage/...
else
  step 'without race' go test -timeout 10m -skip "$plugin_suites" "${race[@]}"
fi
step 'whole binaries, rules' go test -timeout 10m "${rest[@]}"

# Once more what speaks to PostgreSQL: with the newest, and by way of PgBouncer.
mapfile -t speaking < <(git grep -l --untracked 'internal/pgtest"' -- '*_test.go' | xargs -r grep -L '^//go:build .*faults' | xargs -r dirname | sort -u)
if [[ -n ${FENCEPOST_TEST_POSTGRES_NEWEST:-} && $FENCEPOST_TEST_POSTGRES != "$FENCEPOST_TEST_POSTGRES_NEWEST" ]]; then
  # The broken adapters prove the suite, not the server.
  FENCEPOST_TEST_POSTGRES=$FENCEPOST_TEST_POSTGRES_NEWEST step 'newest PostgreSQL' go test -timeout 10m -skip "^TestBroken|$plugin_suites" "${speaking[@]/#/./}"
fi
if [[ -n ${FENCEPOST_TEST_PGBOUNCER:-} ]]; then
  FENCEPOST_TEST_POSTGRES=$FENCEPOST_TEST_PGBOUNCER step 'PgBouncer' go test -timeout 10m -run '^TestConformance$' ./plugins/storage/postgres
fi
