#!/usr/bin/env bash
# Benchmarks in one run. Every limit is printed beside its figure and none
# fails the run: a busy machine is not a defect. BENCH=regexp picks, COUNT=n
# repeats (for benchstat: scripts/tool.sh benchstat).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/services.sh
. scripts/services.sh
scripts/build-sdk-samples.sh || echo "bench: without some of the samples" >&2
start_services # with fsync: durability is part of what is measured

dir=''
pid=''
trap '[[ -z $pid ]] || kill "$pid" 2>/dev/null; rm -rf "$dir"; stop_services' EXIT

report() { printf '%-28s %10s   limit %s\n' "$1" "$2" "$3"; }

# serve_figures prints the size of the binary, and the time to ready and the
# resident memory of an idle server on a second (warm) start.
serve_figures() {
  local root=$PWD port began rss
  dir=$(mktemp -d)
  report 'binary, MB' "$(($(stat -c %s bin/fencepost) / 1000000))" '60'
  cp scripts/bench.yaml "$dir/fencepost.yaml"
  for start in cold warm; do
    port=$((20000 + RANDOM % 20000))
    began=$(date +%s%N)
    (cd "$dir" && STRIPE_API_KEY=sk_test_bench exec "$root/bin/fencepost" serve --config fencepost.yaml --listen "127.0.0.1:$port" >serve.log 2>&1) &
    pid=$!
    until curl -fs -o /dev/null "http://127.0.0.1:$port/readyz"; do
      kill -0 "$pid" 2>/dev/null || { cat "$dir/serve.log" >&2; return 1; }
      sleep 0.02
    done
    report "serve ready, $start, ms" "$((($(date +%s%N) - began) / 1000000))" "$([[ $start == warm ]] && echo 1000 || echo 10000)"
    if [[ $start == warm ]]; then
      sleep 3 # idle is what is left after the start
      rss=$(awk '/^VmRSS/ {print int($2 / 1000)}' "/proc/$pid/status")
      report 'serve idle, MB resident' "$rss" '120'
    fi
    kill -TERM "$pid"
    wait "$pid" || true
    pid=''
  done
}

serve_figures
mapfile -t dirs < <(git grep -lE --untracked '^func Benchmark[A-Z]' -- '*_test.go' | grep -v '^tools/' | xargs -r -n1 dirname | sort -u)
((${#dirs[@]})) || { echo "no benchmarks" >&2; exit 1; }
# Ratios go to bin/bench.jsonl too, and are printed together at the end.
export FENCEPOST_BENCH_JSON=$PWD/bin/bench.jsonl
rm -f "$FENCEPOST_BENCH_JSON"
go test -run '^$' -bench "${BENCH:-.}" -benchmem -count "${COUNT:-1}" -timeout 30m "${dirs[@]/#/./}"
[[ ! -f $FENCEPOST_BENCH_JSON ]] || { echo; echo "== $(nproc) cores, $(go version), load $(cut -d' ' -f1-3 /proc/loadavg)"; sort "$FENCEPOST_BENCH_JSON"; }
