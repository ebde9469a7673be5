#!/usr/bin/env bash
# Prints the path of a pinned tool, building it on first use: scripts/tool.sh NAME [MODULE_DIR]
# The versions are those of tools/go.mod; a binary is kept for each version of tool and Go.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 dir=${2:-tools}
read -r pkg version < <(cd "$dir" && GOFLAGS='' go list -f '{{.ImportPath}} {{.Module.Version}}' tool | grep -E "/$name ") || {
  echo "tool.sh: $dir/go.mod pins no tool $name" >&2
  exit 1
}
bin=$PWD/bin/tools/$name-$version-$(go env GOVERSION)
if [[ ! -x $bin ]]; then
  echo "building $name $version (once)" >&2
  mkdir -p bin/tools
  # The new name appears only when it is whole: two runs at once do no harm.
  (cd "$dir" && GOFLAGS='' CGO_ENABLED=0 go build -trimpath -o "$bin.$$" "$pkg") && mv "$bin.$$" "$bin"
fi
echo "$bin"
