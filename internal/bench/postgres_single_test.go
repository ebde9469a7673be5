package bench

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// single records one event at a time from many callers and returns the time of
// the whole and of each call.
func single(b *testing.B, callers, total int, call func(k int) error) (time.Duration, []time.Duration) {
	b.Helper()
	var left, next atomic.Int64
	left.Store(int64(total))
	took := make([][]time.Duration, callers)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				if err := call(int(next.Add(1))); err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	return time.Since(start), slices.Concat(took...)
}

func percentile(d []time.Duration, p float64) time.Duration {
	slices.Sort(d)
	return d[min(len(d)-1, int(float64(len(d))*p))]
}

func (s *shop) engine(b *testing.B, coalesce int) *engine.Engine {
	b.Helper()
	e, err := engine.New(engine.Config{Store: s.store, Coalesce: coalesce, RecordConcurrency: 512})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Close)
	return e
}

// event records the event of a number, of a tenant of its own or of one tenant
// that all callers share.
func (s *shop) event(b *testing.B, e *engine.Engine, hot bool) func(int) error {
	return func(int) error {
		k := s.next.Add(1)
		who := fmt.Sprintf("tenant-%03d", k%1000)
		if hot {
			who = "tenant-hot"
		}
		_, err := e.Record(b.Context(), engine.Event{ID: fmt.Sprintf("single-%d", k), Tenant: who, Feature: "tokens", Quantity: decimal.One})
		return err
	}
}

// BenchmarkPostgresSingle is P4 to P8: calls with one event each.
func BenchmarkPostgresSingle(b *testing.B) {
	s := newShop(b)
	s.bare(b)
	gathered, own := s.engine(b, 1), s.engine(b, -1)
	plain := func(callers, total int) (time.Duration, []time.Duration) {
		// One row of the bare table for each call: what an application would
		// write without any of this.
		batches := make(chan []storage.Unit, total)
		for _, u := range s.batches(total, 1, false) {
			batches <- u
		}
		type insert func([]storage.Unit)
		free := make(chan insert, callers)
		for range callers {
			c := s.connect(b)
			free <- func(u []storage.Unit) { s.insertInto(b, c, u) }
		}
		return single(b, callers, total, func(int) error {
			f := <-free
			f(<-batches)
			free <- f
			return nil
		})
	}
	for b.Loop() {
		var slowest, quiet []float64
		timed := func(callers, total int, e *engine.Engine, hot bool) func(int) time.Duration {
			return func(int) time.Duration {
				wall, calls := single(b, callers, total, s.event(b, e, hot))
				if e == gathered && callers == 16 && !hot {
					slowest = append(slowest, percentile(calls, 0.99).Seconds())
				}
				return wall
			}
		}
		const few, many = 4000, 8000
		t := inTurns(rounds,
			timed(16, few, gathered, false), timed(16, few, own, false),
			timed(16, few, gathered, true), timed(16, few/4, own, true),
			timed(256, many, gathered, true), timed(256, many/8, own, true),
			func(int) time.Duration { wall, _ := plain(16, few); return wall },
			func(int) time.Duration {
				wall, calls := plain(1, few/8)
				quiet = append(quiet, percentile(calls, 0.5).Seconds())
				return wall
			},
		)
		note := fmt.Sprintf("%.0f events/s", few/t[0][rounds/2].Seconds())
		goal{ID: "P4", What: "16 callers: gathered / own transactions", Floor: 1.7, Goal: 2.5}.print(b, note, over(t[0], t[1], few, few)...)
		goal{ID: "P5", What: "16 callers on one total: gathered / own", Floor: 5, Goal: 8}.print(b, "", over(t[2], t[3], few, few/4)...)
		goal{ID: "P6", What: "256 callers on one total: gathered / own", Floor: 12, Goal: 25}.print(b, "", over(t[4], t[5], many, many/8)...)
		goal{ID: "P7", What: "16 callers: gathered record / one-row INSERT", Floor: 1.1, Goal: 1.5}.print(b, "", over(t[0], t[6], few, few)...)
		worst := make([]float64, rounds)
		for i := range worst {
			worst[i] = slowest[i] / quiet[i]
		}
		goal{ID: "P8", What: "p99 of a gathered record / p50 of a one-row INSERT", Floor: 15, Goal: 8, Lower: true}.
			print(b, fmt.Sprintf("%.1f ms / %.2f ms", slowest[rounds/2]*1e3, quiet[rounds/2]*1e3), worst...)
	}
}
