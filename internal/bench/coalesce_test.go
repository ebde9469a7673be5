package bench

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// BenchmarkCoalesce is P19: callers that each record one event at a time,
// gathered into shared transactions and each in a transaction of its own, in
// turns.
func BenchmarkCoalesce(b *testing.B) {
	for _, callers := range []int{16, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			gathered, own := newEngine(b, 1), newEngine(b, -1)
			var next atomic.Int64
			var fast, slow time.Duration
			rounds := 0
			for b.Loop() {
				for range 3 {
					fast += race(b, gathered, callers, &next)
					slow += race(b, own, callers, &next)
					rounds++
				}
			}
			total := float64(rounds * perRound(callers))
			b.ReportMetric(total/fast.Seconds(), "coalesced/s")
			b.ReportMetric(total/slow.Seconds(), "own/s")
			goal{ID: "P19", What: fmt.Sprintf("SQLite, %d callers: gathered / own transactions", callers), Floor: 3, Goal: 5}.
				print(b, "", slow.Seconds()/fast.Seconds())
		})
	}
}

func perRound(callers int) int { return max(callers*8, 1024) }

func newEngine(b *testing.B, coalesce int) *engine.Engine {
	b.Helper()
	store, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "p19.db"), Migrate: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	e, err := engine.New(engine.Config{Store: store, Coalesce: coalesce, RecordConcurrency: -1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Close)
	return e
}

// race records one round of single events from that many callers.
func race(b *testing.B, e *engine.Engine, callers int, next *atomic.Int64) time.Duration {
	b.Helper()
	left := int64(perRound(callers))
	var wg sync.WaitGroup
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for atomic.AddInt64(&left, -1) >= 0 {
				k := next.Add(1)
				ev := engine.Event{ID: fmt.Sprintf("e-%d", k), Tenant: tenant(int(k)), Feature: "tokens", Quantity: decimal.One}
				if _, err := e.Record(b.Context(), ev); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}
