#!/usr/bin/env bash
# Fuzzes each target of the tree in turn for FUZZ_TIME (default 10s).
# FUZZ=regexp picks targets by "folder/FuzzName".
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZ_TIME:-10s} pick=${FUZZ:-.}

fuzz() { # folder name tags
  go test ${3:+-tags "$3"} -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 10s -parallel 2 "./$1" 2>&1
}

n=0
while IFS=: read -r file func; do
  name=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/' <<<"$func")
  dir=$(dirname "$file") tags=''
  if grep -qE '^//go:build (.*[^!])?\bfaults\b' "$file"; then tags=faults; fi
  [[ $dir/$name =~ $pick ]] || continue
  n=$((n + 1))
  echo "== $dir/$name"
  if out=$(fuzz "$dir" "$name" "$tags"); then
    tail -n 2 <<<"$out" | head -n 1
    continue
  fi
  # Go's fuzzer can report its own end of time as a failure; a real one names
  # the input that it wrote.
  if grep -q 'context deadline exceeded' <<<"$out" && ! grep -q 'Failing input' <<<"$out"; then
    out=$(fuzz "$dir" "$name" "$tags") && continue
  fi
  echo "$out"
  exit 1
done < <(git grep -E --untracked '^func Fuzz[A-Z][A-Za-z0-9_]*\(' -- '*_test.go')
((n)) || { echo "fuzz.sh: no fuzz target matches $pick" >&2; exit 1; }
echo "$n targets fuzzed for $time each"
