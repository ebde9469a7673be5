package wasm

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
)

// M1: an instance's memory is no part of the Go heap, does not move when it
// grows, and is given back with the instance, zeros again, however that ended.
func TestMemoryIsGivenBack(t *testing.T) {
	t.Parallel()
	var m memories
	t.Cleanup(m.close)
	a := m.Allocate(1<<16, 1<<20)
	first := a.Reallocate(1 << 16)
	first[0] = 1
	if grown := a.Reallocate(1 << 20); &grown[0] != &first[0] || grown[0] != 1 || len(grown) != 1<<20 {
		t.Error("the memory moved as it grew")
	}
	if a.Reallocate(1<<20+1) != nil {
		t.Error("the memory grew beyond its limit")
	}
	a.Free()
	a.Free()
	b := m.Allocate(1<<16, 1<<20).Reallocate(1 << 20)
	if &b[0] != &first[0] || !bytes.Equal(b, make([]byte, 1<<20)) {
		t.Error("the next instance did not get the same memory, cleared")
	}
	if len(m.regions.all) != 1 || len(m.regions.idle) != 0 {
		t.Errorf("%d regions, %d idle", len(m.regions.all), len(m.regions.idle))
	}
}

// Each of these instances ends in its own way: a trap, an exit, a passed
// deadline, which wazero itself closes without freeing, and a start that fails.
func TestNoMemoryIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		module mod
		kind   carrier.Kind
	}{
		"trap":     {plugin(nil, []byte{0x00}), carrier.KindTrap},
		"exit":     {plugin([]imp{impExit}, cat(i32c(3), call(0), i32c(0))), carrier.KindExit},
		"deadline": {plugin(nil, cat(loop(br(0)), i32c(0))), carrier.KindDeadline},
		"start":    {plugin(nil, i32c(0), fn{sig: sigVoid, code: []byte{0x00}, export: "_initialize"}), carrier.KindTrap},
	} {
		m := mustOpen(t, config(c.module.encode()))
		for range 3 {
			wantFault(t, m, c.kind, 1, nil, 50*time.Millisecond)
		}
		if all, idle := len(m.memories.regions.all), len(m.memories.regions.idle); all != 1 || idle != 1 {
			t.Errorf("%s: %d regions for one instance at a time, %d of them idle", name, all, idle)
		}
	}
}

// wazero marks an instance closed when the context ends, and leaves the freeing
// to a test of that mark which a call that is about to return no longer makes.
func TestMemoryOfALateEnd(t *testing.T) {
	t.Parallel()
	cfg := config(plugin([]imp{impSend}, cat(i32c(0), i32c(1), call(0), drop(), i32c(0))).encode())
	var end func()
	cfg.Host.HTTPSend = func(ctx context.Context, _ []byte) ([]byte, error) {
		end()
		for !instanceOf(ctx).mod.IsClosed() {
			runtime.Gosched()
		}
		return nil, nil
	}
	m := mustOpen(t, cfg)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		end = cancel
		_, _ = m.Call(ctx, 1, nil) // an answer or a fault: either may come
		cancel()
	}
	if all, idle := len(m.memories.regions.all), len(m.memories.regions.idle); all != 1 || idle != 1 {
		t.Errorf("%d regions for one instance at a time, %d of them idle", all, idle)
	}
}
