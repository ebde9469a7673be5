#!/bin/sh
# Encodes the golden vectors of plugins/sdk/wire/v1 from their text form with
# protoc, whose encoder shares nothing with ours. The part of a file's name
# before "Refused" is the message.
set -eu
cd "$(dirname "$0")/../plugins/sdk/wire/v1"
for text in testdata/*.txt; do
	name=$(basename "$text" .txt)
	protoc --encode="fencepost.v1.${name%Refused}" fencepost.proto <"$text" | od -An -v -tx1 | tr -d ' ' >"testdata/$name.hex"
done
