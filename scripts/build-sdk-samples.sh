#!/usr/bin/env bash
# Builds the sample exporter in every language of sdk/ into bin/sdk, for the tests
# that compare them. Compilers that are missing are installed where that is allowed.
# Exit 3: one is missing and its sample was left out; with FENCEPOST_TEST_STRICT=1
# that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/services.sh
. scripts/services.sh
out=$PWD/bin/sdk
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
mkdir -p "$out"
absent=()

# rust_program prints a rustc that can build and link for wasm32: that of a
# toolchain manager, first in the path, often cannot.
rust_program() {
  local r
  for r in "$(command -v rustc || true)" /usr/bin/rustc; do
    if [[ -x $r ]] && "$r" --crate-type cdylib --crate-name probe --target wasm32-unknown-unknown -o "$new/probe.wasm" - <<<'' 2>/dev/null; then
      echo "$r"
      return
    fi
  done
}

# example LANGUAGE INFO prints the example of docs/plugins/languages.md: the block
# of that language.
example() { awk -v info="\`\`\`$1" '$0 == info {on = 1; next} /^```/ {on = 0} on' docs/plugins/languages.md; }

# keep LANGUAGE moves what was built to its place.
keep() {
  mv "$new/$1.wasm" "$out/meterline-$1.wasm"
  mv "$new/example-$1.wasm" "$out/example-$1.wasm"
  [[ ! -f $new/ledger-$1.wasm ]] || mv "$new/ledger-$1.wasm" "$out/ledger-$1.wasm"
  printf 'sdk: %-15s %8d bytes\n' "$1" "$(stat -c %s "$out/meterline-$1.wasm")"
}

# leave_out LANGUAGE WHAT removes what an earlier build left, so that no test
# passes over it.
leave_out() {
  rm -f "$out/meterline-$1.wasm" "$out/example-$1.wasm" "$out/ledger-$1.wasm"
  echo "sdk: no $2: the sample in $1 is left out" >&2
  absent+=("$1")
}

build_go() {
  local go=(env GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 go build -buildmode=c-shared -trimpath -ldflags '-s -w')
  example go >"$new/example.go"
  "${go[@]}" -o "$new/go.wasm" ./examples/exporter-go
  "${go[@]}" -o "$new/example-go.wasm" "$new/example.go"
  keep go
}

build_c() {
  local clang=(clang --target=wasm32 -O2 -mbulk-memory -ffreestanding -nostdlib -Wall -Wextra -Werror '-Wl,--no-entry' '-Wl,--strip-all' -I sdk/c)
  example c >"$new/example.c"
  "${clang[@]}" -o "$new/c.wasm" sdk/c/sample/meterline.c
  "${clang[@]}" -o "$new/ledger-c.wasm" sdk/c/sample/ledger.c
  "${clang[@]}" -o "$new/example-c.wasm" "$new/example.c"
  keep c
}

build_rust() {
  local rustc=("$1" --edition 2021 -D warnings) wasm=(--target wasm32-unknown-unknown -C opt-level=s -C panic=abort)
  if command -v cc >/dev/null; then # the crate's own tests run on this machine, which needs a linker
    "${rustc[@]}" --test -o "$new/unit" sdk/rust/src/lib.rs
    "$new/unit" --quiet >"$new/log" || { cat "$new/log" >&2; return 1; }
  fi
  "${rustc[@]}" "${wasm[@]}" --crate-type rlib --crate-name fencepost --out-dir "$new" sdk/rust/src/lib.rs
  wasm+=(-C lto -C strip=symbols --crate-type cdylib --extern "fencepost=$new/libfencepost.rlib")
  example rust >"$new/example.rs"
  "${rustc[@]}" "${wasm[@]}" --crate-name meterline -o "$new/rust.wasm" sdk/rust/sample/src/lib.rs
  "${rustc[@]}" "${wasm[@]}" --crate-name ledger -o "$new/ledger-rust.wasm" sdk/rust/sample/src/ledger.rs
  "${rustc[@]}" "${wasm[@]}" --crate-name example -o "$new/example-rust.wasm" "$new/example.rs"
  keep rust
}

# asc_program prints the compiler's script, installed by the lock file beside the
# tools, so that the source tree stays as it is.
asc_program() {
  local lock=sdk/assemblyscript/package-lock.json dir=$PWD/bin/tools/assemblyscript try
  if ! cmp -s "$lock" "$dir/package-lock.json" || [[ ! -f $dir/installed ]]; then
    rm -rf "$dir"
    mkdir -p "$dir"
    cp sdk/assemblyscript/package.json "$lock" "$dir/"
    for try in 1 2 3; do # a registry may be slow, or away for a moment
      (cd "$dir" && timeout 300 npm ci --silent --no-audit --no-fund --ignore-scripts >&2) && touch "$dir/installed" && break
      [[ $try != 3 ]] || return 1
    done
  fi
  echo "$dir/node_modules/assemblyscript/bin/asc.js"
}

build_assemblyscript() {
  local compile=(node "$1" -O3 --runtime incremental --use abort= --exportStart _initialize)
  mkdir -p "$new/node_modules"
  ln -s "$PWD/sdk/assemblyscript" "$new/node_modules/fencepost-assemblyscript"
  example ts >"$new/example.ts"
  "${compile[@]}" sdk/assemblyscript/sample/meterline.ts --outFile "$new/assemblyscript.wasm"
  "${compile[@]}" sdk/assemblyscript/sample/ledger.ts --outFile "$new/ledger-assemblyscript.wasm"
  "${compile[@]}" --baseDir "$new" example.ts --outFile example-assemblyscript.wasm
  keep assemblyscript
}

install_packages clang:clang wasm-ld:lld node:nodejs npm:npm
[[ -n $(rust_program) ]] || install_packages rustc-for-wasm32:rustc wasm32-of-rustc:libstd-rust-dev-wasm32

build_go
if command -v clang >/dev/null && command -v wasm-ld >/dev/null; then build_c; else leave_out c 'clang with wasm-ld'; fi
rust=$(rust_program)
if [[ -n $rust ]]; then build_rust "$rust"; else leave_out rust 'rustc for wasm32-unknown-unknown'; fi
if command -v node >/dev/null && command -v npm >/dev/null && asc=$(asc_program); then build_assemblyscript "$asc"; else leave_out assemblyscript 'node, npm or its registry'; fi

((${#absent[@]})) || exit 0
if [[ ${FENCEPOST_TEST_STRICT:-0} == 1 ]]; then
  echo "sdk: every language is wanted, and these are missing: ${absent[*]}" >&2
  exit 1
fi
exit 3
