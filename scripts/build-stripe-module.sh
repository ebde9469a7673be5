#!/bin/sh
# Builds the embedded Stripe module, reproducibly: the same sources give the
# same bytes on every machine.
#
#   scripts/build-stripe-module.sh           rebuild and replace
#   scripts/build-stripe-module.sh --check   rebuild and compare the hash
set -eu
cd "$(dirname "$0")/.."
dir=plugins/exporters/stripe/module
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

env -u GOEXPERIMENT -u GOWASM GOTOOLCHAIN=go1.26.8 GOFLAGS=-mod=readonly GOWORK=off GOENV=off CGO_ENABLED=0 \
	GOOS=wasip1 GOARCH=wasm \
	go build -buildmode=c-shared -trimpath -buildvcs=false -ldflags "-s -w" \
	-o "$out/stripe.wasm" ./plugins/exporters/stripe/plugin
sum=$(sha256sum "$out/stripe.wasm" | cut -d ' ' -f 1)

if [ "${1:-}" = --check ]; then
	want=$(cat "$dir/stripe.wasm.sha256")
	have=$(gzip -dc "$dir/stripe.wasm.gz" | sha256sum | cut -d ' ' -f 1)
	if [ "$sum" != "$want" ] || [ "$have" != "$want" ]; then
		echo "stripe module: the sources build $sum, the committed module is $have, its hash file says $want" >&2
		echo "run scripts/build-stripe-module.sh and commit $dir" >&2
		exit 1
	fi
	echo "stripe module: $sum is what the sources build"
	exit 0
fi
gzip -9nc "$out/stripe.wasm" >"$out/stripe.wasm.gz"
mv "$out/stripe.wasm.gz" "$dir/stripe.wasm.gz"
echo "$sum" >"$dir/stripe.wasm.sha256"
chmod 644 "$dir/stripe.wasm.gz" "$dir/stripe.wasm.sha256"
echo "stripe module: $sum"
