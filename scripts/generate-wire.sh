#!/bin/sh
# Generates the Go code of the wire messages. Needs protoc (Debian:
# protobuf-compiler). Only marshal, unmarshal and size are generated: JSON and
# text would make every guest larger.
set -eu
cd "$(dirname "$0")/.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN=$bin GOFLAGS= GOOS= GOARCH= go install github.com/aperturerobotics/protobuf-go-lite/cmd/protoc-gen-go-lite@v0.14.0
for proto in plugins/sdk/wire/v1/fencepost plugins/sdk/wire/sqlv1/sql plugins/sdk/guest/subprocess/subprocess; do
	dir=$(dirname "$proto")
	protoc --plugin="$bin/protoc-gen-go-lite" -I "$dir" \
		--go-lite_out="$dir" --go-lite_opt=paths=source_relative,features=marshal+unmarshal+size \
		"$proto.proto"
	# The version of protoc in the header would differ between machines.
	sed -i '/^\/\/ protoc  *v/d;/^\/\/ *- protoc  *v/d' "$proto.pb.go"
	gofmt -w "$proto.pb.go"
done
# Storage: schema and code come from the contract.
go run ./internal/wiregen
