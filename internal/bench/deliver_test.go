// Package bench holds the benchmarks that print ratios: two things measured in
// one run, so that the machine cancels out. It has no code of its own.
package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/host"
	"github.com/fencepost/fencepost/host/config"
	"github.com/fencepost/fencepost/internal/stripedouble"
	"github.com/fencepost/fencepost/plugins/exporters/stripe/module"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// customers spreads deliveries: the exporter sends one request at a time for
// one customer and meter.
const customers = 64

// BenchmarkDeliver is W3: from a recorded event to a settled item, through the
// Wasm Stripe exporter, the egress and a double that answers at once over TLS.
// The double runs in this process and its CPU time counts against us.
func BenchmarkDeliver(b *testing.B) {
	ctx := b.Context()
	double, err := stripedouble.New(stripedouble.Config{Dir: filepath.Join(b.TempDir(), "stripe")})
	if err != nil {
		b.Fatal(err)
	}
	if err := double.Start(ctx); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = double.Close() })
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(b.TempDir(), "bench.db"), Migrate: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })

	recorder := open(b, store, double, true)
	for i := range customers {
		_, err := recorder.Engine().PutSubscription(ctx, storage.Subscription{
			Tenant: tenant(i), Anchor: time.Unix(0, 0), Customers: map[string]string{"stripe": fmt.Sprintf("cus_%d", i)},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	const events = 5000
	for b.Loop() {
		b.StopTimer()
		fill(b, recorder.Engine(), events, double.Ledger().Events)
		want := double.Ledger().Events + events
		before := cpuTime(b)
		start := time.Now()
		b.StartTimer()
		h := open(b, store, double, false)
		for double.Ledger().Events < want {
			time.Sleep(2 * time.Millisecond)
		}
		waitSettled(b, store)
		b.StopTimer()
		used := cpuTime(b) - before
		if err := h.Close(ctx); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(events)/time.Since(start).Seconds(), "events/s")
		goal{ID: "W3", What: "end to end through the Stripe module, events/s/core", Floor: 1000, Goal: 3000}.
			print(b, "the double's own time included", float64(events)/used.Seconds())
		b.StartTimer()
	}
}

func tenant(i int) string { return fmt.Sprintf("tenant-%d", i%customers) }

func open(b *testing.B, store storage.Adapter, double *stripedouble.Server, withoutDelivery bool) *host.Host {
	b.Helper()
	h, err := host.Open(b.Context(), host.Config{
		Store: store, WithoutDelivery: withoutDelivery,
		Builtins: host.Builtins{Exporters: map[string]func() ([]byte, error){"stripe": module.Bytes}},
		Getenv:   func(string) (string, bool) { return "sk_test_benchmark_key", true },
		Settings: config.Config{
			StateDir: b.TempDir(),
			Exporters: []config.Exporter{{
				Name: "stripe", Plugin: "builtin:stripe", Account: "acct_1", Mode: "test",
				Secrets: map[string]string{"api_key": "env:KEY"}, BaseURL: double.URL(), CAFile: double.CAFile(),
				AllowPrivate: []string{"127.0.0.0/8"}, Rate: 1_000_000, Concurrency: 16,
				Mapping: config.Mapping{Features: map[string]map[string]string{"tokens": {"event_name": "tokens"}}},
			}},
			Outbox: config.Outbox{Tick: config.Duration(10 * time.Millisecond), Page: 200},
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	if withoutDelivery {
		b.Cleanup(func() { _ = h.Close(context.Background()) })
	}
	return h
}

func fill(b *testing.B, e *engine.Engine, n, from int) {
	b.Helper()
	for done := 0; done < n; done += 500 {
		events := make([]engine.Event, min(500, n-done))
		for i := range events {
			k := from + done + i
			events[i] = engine.Event{ID: fmt.Sprintf("e-%d", k), Tenant: tenant(k), Feature: "tokens", Quantity: decimal.One, Time: time.Now()}
		}
		if _, err := e.Record(b.Context(), events...); err != nil {
			b.Fatal(err)
		}
	}
}

func waitSettled(b *testing.B, store storage.OutboxStore) {
	b.Helper()
	for {
		st, err := store.OutboxStats(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		open := int64(0)
		for _, c := range st.Counts {
			if c.State == storage.Pending || c.State == storage.Leased {
				open += c.Items
			}
		}
		if open == 0 {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// cpuTime is the processor time of this process so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
