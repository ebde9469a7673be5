#!/bin/sh
# Builds Stripe's own stripe-mock, which checks requests against the official
# OpenAPI and keeps no state, and starts it on free ports of the loopback.
#
#   scripts/stripe-mock.sh build    into bin/stripe-mock
#   scripts/stripe-mock.sh start    builds if need be, runs until interrupted;
#                                   the first lines it prints name the ports
#
# Its HTTPS certificate names no host in the way that Go requires, so a client
# that verifies cannot use it. internal/stripedouble/stripemock puts a
# certificate of the throwaway CA in front.
set -eu
cd "$(dirname "$0")/.."
build() {
	(cd tools/stripemock && GOWORK=off GOFLAGS=-mod=mod go build -o ../../bin/stripe-mock github.com/stripe/stripe-mock)
}
case "${1:-}" in
build) build ;;
start)
	[ -x bin/stripe-mock ] || build
	exec bin/stripe-mock -http-addr 127.0.0.1:0 -https-addr 127.0.0.1:0
	;;
*)
	echo "usage: $0 build|start" >&2
	exit 2
	;;
esac
