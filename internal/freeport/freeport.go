// Package freeport picks ports for servers that tests start as programs.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports below those that systems give to outgoing connections (Linux from 32768,
// others from 49152): what is free stays free until the program listens, and while
// a test has it down.
const (
	lowest = 20_000
	count  = 12_000
)

// Pick returns a port of the loopback that nobody listens on. Programs of other
// tests may pick the same, at the odds of one in some thousands.
func Pick(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := lowest + rand.IntN(count) //nolint:gosec // no secret
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		return port
	}
	t.Fatal("no port is free")
	return 0
}
