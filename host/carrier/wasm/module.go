// Package wasm carries calls to a WebAssembly plugin through the pull ABI of
// docs/wasm-abi.md, on wazero. No other package knows wazero.
//
// A module is isolated in what it can reach and how much memory it takes, and
// every call ends soon after its deadline. It runs on the host's threads,
// though: a plugin that nobody trusts belongs into a process of its own.
package wasm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tetratelabs/wazero"

	"github.com/fencepost/fencepost/host/carrier"
)

// Module is one loaded plugin: one compiled module and its pool of instances.
// It is safe for concurrent use. The zero value is not usable; see [Open].
type Module struct {
	cfg      Config
	lines    *lineLog
	runtime  wazero.Runtime
	cache    wazero.CompilationCache
	compiled wazero.CompiledModule
	pool     *pool
	memories memories
	stats    counters

	// killed ends all running calls.
	killed context.Context
	kill   context.CancelCauseFunc

	closing sync.Mutex
	held    int
	closed  bool
}

var _ carrier.Caller = (*Module)(nil)

// Call implements [carrier.Caller].
func (m *Module) Call(ctx context.Context, method uint32, request []byte) ([]byte, error) {
	if most := m.cfg.Limits.MaxRequest; len(request) > most {
		return nil, m.notEntered(carrier.KindRefused, fmt.Errorf("the request has %d bytes, more than %d", len(request), most))
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Limits.CallTimeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(m.killed, func() { stop(errClosed) })()

	in, err := m.pool.acquire(ctx)
	if err != nil {
		kind := carrier.KindDeadline
		if errors.Is(err, errClosed) {
			kind = carrier.KindClosed
		}
		return nil, m.notEntered(kind, err)
	}
	if in == nil {
		made, fault := m.newInstance(ctx)
		if fault != nil {
			m.pool.release(nil)
			return nil, m.count(fault)
		}
		in = made
		m.stats.instances.Add(1)
		m.stats.memory.Add(in.memory)
	}
	answer, err := in.run(ctx, method, request)
	m.giveBack(ctx, in, err)
	m.stats.calls.Add(1)
	return answer, m.count(err)
}

func (m *Module) notEntered(kind carrier.Kind, err error) *carrier.Fault {
	return &carrier.Fault{Kind: kind, Plugin: m.cfg.Name, Detail: err.Error(), Err: err}
}

// giveBack returns the instance to the pool, or closes it if it may be damaged
// or has grown or aged. The token is held while it closes.
func (m *Module) giveBack(ctx context.Context, in *instance, err error) {
	before := in.memory
	in.memory = uint64(in.mod.Memory().Size())
	m.stats.memory.Add(in.memory - before)
	var fault *carrier.Fault
	switch {
	case errors.As(err, &fault):
		m.cfg.Logger.WarnContext(ctx, "plugin instance thrown away", "kind", string(fault.Kind))
		m.stats.discarded.Add(1)
	case ctx.Err() != nil || in.mod.IsClosed():
		// The call finished, but the runtime may be closing the instance at
		// this moment because the context ended just now.
		m.stats.discarded.Add(1)
	case in.calls >= m.cfg.Limits.MaxCalls || in.memory > uint64(m.cfg.Limits.HighWaterPages)<<16:
		m.stats.recycled.Add(1)
	default:
		m.pool.release(in)
		return
	}
	m.drop(in)
	m.pool.release(nil)
}

// drop closes an instance that no call uses.
func (m *Module) drop(in *instance) {
	// Closing frees memory only; there are no files whose loss could matter.
	in.close()
	m.stats.instances.Add(-1)
	m.stats.memory.Add(-in.memory)
}

// Close implements [carrier.Caller].
func (m *Module) Close(ctx context.Context) error {
	m.closing.Lock()
	defer m.closing.Unlock()
	if m.closed {
		return nil
	}
	held, err := m.pool.drain(ctx, m.held)
	if m.held = held; err != nil {
		// The running calls end now, by the same means as at a deadline; an
		// instance is never closed while a call is in it.
		m.kill(errClosed)
		m.held, _ = m.pool.drain(context.Background(), held)
	}
	m.closed = true
	m.kill(errClosed)
	for _, in := range m.pool.idle {
		m.drop(in)
	}
	m.pool.idle = nil
	return m.release()
}

// release frees the compiled module and the runtime.
func (m *Module) release() error {
	ctx := context.Background()
	var errs []error
	if m.compiled != nil {
		errs = append(errs, m.compiled.Close(ctx))
	}
	errs = append(errs, m.runtime.Close(ctx))
	if m.cache != nil {
		errs = append(errs, m.cache.Close(ctx))
	}
	m.memories.close()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close plugin %s: %w", m.cfg.Name, err)
	}
	return nil
}

// Stats are counts since Open, and gauges of now.
type Stats struct {
	// Calls entered the guest; PluginErrors of them answered with an Error
	// message, and the faults broke off. Faults include instances that could
	// not be started.
	Calls, PluginErrors, Traps, Deadlines, ProtocolFaults, MemoryFaults, Exits uint64
	// Created, Discarded and Recycled count instances: made, thrown away
	// after a fault, replaced for their memory or age.
	Created, Discarded, Recycled uint64
	// LinesDropped counts lines of the guest that a limit kept from the log.
	LinesDropped uint64
	// Instances exist now; MemoryBytes is the sum of their linear memories
	// when each was last idle.
	Instances   int
	MemoryBytes uint64
}

// Usage implements [carrier.Measured].
func (m *Module) Usage() carrier.Usage {
	s := m.Stats()
	return carrier.Usage{Instances: s.Instances, MemoryBytes: s.MemoryBytes}
}

type counters struct {
	calls, pluginErrors, traps, deadlines, protocol, memoryFaults, exits atomic.Uint64
	created, discarded, recycled                                         atomic.Uint64
	instances                                                            atomic.Int64
	memory                                                               atomic.Uint64
}

// count notes how a call ended and returns its error.
func (m *Module) count(err error) error {
	var fault *carrier.Fault
	var answered *carrier.PluginError
	switch {
	case errors.As(err, &answered):
		m.stats.pluginErrors.Add(1)
	case errors.As(err, &fault):
		if fault.Kind == carrier.KindDeadline && errors.Is(fault.Err, errClosed) {
			fault.Kind = carrier.KindClosed
		}
		switch fault.Kind {
		case carrier.KindTrap:
			m.stats.traps.Add(1)
		case carrier.KindDeadline:
			m.stats.deadlines.Add(1)
		case carrier.KindProtocol:
			m.stats.protocol.Add(1)
		case carrier.KindMemory:
			m.stats.memoryFaults.Add(1)
		case carrier.KindExit:
			m.stats.exits.Add(1)
		case carrier.KindRefused, carrier.KindClosed: // no fault of the plugin
		}
	}
	return err
}

// Stats returns the counters. They are not one snapshot.
func (m *Module) Stats() Stats {
	c := &m.stats
	return Stats{
		Calls: c.calls.Load(), PluginErrors: c.pluginErrors.Load(), Traps: c.traps.Load(), Deadlines: c.deadlines.Load(),
		ProtocolFaults: c.protocol.Load(), MemoryFaults: c.memoryFaults.Load(), Exits: c.exits.Load(),
		Created: c.created.Load(), Discarded: c.discarded.Load(), Recycled: c.recycled.Load(),
		LinesDropped: m.lines.dropped.Load(), Instances: int(c.instances.Load()), MemoryBytes: c.memory.Load(),
	}
}
