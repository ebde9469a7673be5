package wasm

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// BenchmarkGuard shows what the deadline costs a Go guest: a batch of 100
// records, with no deadline at all, with wazero's tests at loop headers, with
// the guard, and with a listener on every function.
func BenchmarkGuard(b *testing.B) {
	module, err := buildGuest()
	if err != nil {
		b.Fatal(err)
	}
	l, err := parseLayout(module)
	if err != nil {
		b.Fatal(err)
	}
	guarded, err := planGuard(l, 512)
	if err != nil {
		b.Fatal(err)
	}
	none := plan{watched: make([]bool, len(l.bodies))}
	for _, c := range []struct {
		name string
		plan *plan
		stop bool
	}{{"no-deadline", nil, false}, {"loops-only", &none, true}, {"guard", &guarded, true}, {"every-function", &plan{}, true}} {
		b.Run(c.name, func(b *testing.B) {
			m := benchModule(b, config(module), l, c.plan, c.stop)
			batch := workBatch(100)
			best := time.Hour
			for b.Loop() {
				start := time.Now()
				if _, err := m.Call(b.Context(), guestWork, batch); err != nil {
					b.Fatal(err)
				}
				best = min(best, time.Since(start))
			}
			b.ReportMetric(float64(best.Microseconds()), "best-µs")
		})
	}
}

// benchModule is Open with a guard of the benchmark's choice.
func benchModule(b *testing.B, cfg Config, l *layout, p *plan, stop bool) *Module {
	b.Helper()
	cfg, err := cfg.withDefaults()
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	m := &Module{cfg: cfg, lines: cfg.newLineLog(), pool: newPool(1)}
	m.killed, m.kill = context.WithCancelCause(ctx)
	m.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCloseOnContextDone(stop).
		WithCoreFeatures(api.CoreFeaturesV2).WithMemoryLimitPages(512))
	if err := m.cfg.instantiateHost(ctx, m.runtime); err != nil {
		b.Fatal(err)
	}
	compile := ctx
	if p != nil {
		compile = experimental.WithFunctionListenerFactory(ctx, p.factory(l.importedFuncs))
	}
	if m.compiled, err = m.runtime.CompileModule(compile, cfg.Module); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close(ctx) })
	return m
}

// BenchmarkOpen shows a start from nothing and one from the cache, each up to
// the first answer.
func BenchmarkOpen(b *testing.B) {
	module, err := buildGuest()
	if err != nil {
		b.Fatal(err)
	}
	open := func(b *testing.B, dir string) {
		cfg := config(module)
		cfg.CacheDir = dir
		m, err := Open(b.Context(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := m.Call(b.Context(), guestEcho, []byte("x")); err != nil {
			b.Fatal(err)
		}
		if err := m.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("cold", func(b *testing.B) {
		dir, n := b.TempDir(), 0
		for b.Loop() {
			n++
			open(b, filepath.Join(dir, strconv.Itoa(n)))
		}
	})
	b.Run("warm", func(b *testing.B) {
		dir := b.TempDir()
		open(b, dir)
		for b.Loop() {
			open(b, dir)
		}
	})
}
