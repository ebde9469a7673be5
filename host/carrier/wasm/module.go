// Package wasm carries calls to a WebAssembly plugin through the pull ABI of
// docs/wasm-abi.md, on wazero. No other package knows wazero.
package wasm

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/host/carrier"
)

// Module is one loaded plugin: one compiled module and its pool of instances.
// It is safe for concurrent use.
type Module struct{}

var _ carrier.Caller = (*Module)(nil)

// Open checks and compiles a module. No code of the module runs yet:
// instances are made when calls need them.
//
// An error of the module itself is an *sdk.Error with tag invalid and a code.
func Open(ctx context.Context, cfg Config) (*Module, error) {
	return nil, errors.New("open: not written yet")
}

// Call implements [carrier.Caller].
func (m *Module) Call(ctx context.Context, method uint32, request []byte) ([]byte, error) {
	return nil, &carrier.Fault{Kind: carrier.KindClosed}
}

// Close implements [carrier.Caller].
func (m *Module) Close(ctx context.Context) error { return nil }

// Stats are counts since Open, and gauges of now.
type Stats struct {
	// Calls entered the guest; PluginErrors of them answered with an Error
	// message, and the rest of these broke off.
	Calls, PluginErrors, Traps, Deadlines, ProtocolFaults, MemoryFaults, Exits uint64
	// Created, Discarded and Recycled count instances: made, thrown away
	// after a fault, replaced for their memory or age.
	Created, Discarded, Recycled uint64
	// LinesDropped counts lines of the guest that the rate limit kept from
	// the log.
	LinesDropped uint64
	// Instances exist now; MemoryBytes is the sum of their linear memories
	// when each was last idle.
	Instances   int
	MemoryBytes uint64
}

// Stats returns the counters. They are not one snapshot.
func (m *Module) Stats() Stats { return Stats{} }
