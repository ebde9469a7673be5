#!/bin/sh
# Encodes the golden vectors of plugins/sdk/wire/v1 and of storagev1 from their
# text form with protoc, whose encoder shares nothing with ours. The part of a
# file's name before "Refused" is the message.
set -eu
cd "$(dirname "$0")/../plugins/sdk/wire"
vectors() { # folder package schema
	for text in "$1"/testdata/*.txt; do
		name=$(basename "$text" .txt)
		protoc --deterministic_output -I "$1" --encode="$2.${name%Refused}" "$3" <"$text" | od -An -v -tx1 | tr -d ' ' >"$1/testdata/$name.hex"
	done
}
vectors v1 fencepost.v1 fencepost.proto
vectors storagev1 fencepost.storage.v1 storage.proto
