package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/postgres"
)

// BenchmarkPostgresActivation is P13: how long the exclusive side of the route
// lock waits while 16 callers record, beside one record of theirs. A change of
// routes that changes nothing takes it as an activation does.
func BenchmarkPostgresActivation(b *testing.B) {
	s := newShop(b)
	for b.Loop() {
		ctx, stop := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		var mu sync.Mutex
		var records []time.Duration
		for range 16 {
			wg.Go(func() {
				var own []time.Duration
				for ctx.Err() == nil {
					batch := s.batches(1, 1, false)[0]
					began := time.Now()
					// A revision that moved meanwhile is a record too.
					if _, err := s.store.RecordEvents(b.Context(), storage.RecordRequest{Units: batch, Mode: storage.Atomic, RoutesRevision: s.rev}); err != nil {
						b.Error(err)
						return
					}
					own = append(own, time.Since(began))
				}
				mu.Lock()
				records = append(records, own...)
				mu.Unlock()
			})
		}
		var waits []time.Duration
		for range 60 {
			time.Sleep(20 * time.Millisecond) // the pace of the reference
			began := time.Now()
			_, err := s.store.SealBuckets(b.Context(), storage.Seal{Tenant: "nobody", Feature: "tokens", Before: time.Unix(300, 0)})
			if err != nil {
				b.Fatal(err)
			}
			waits = append(waits, time.Since(began))
		}
		stop()
		wg.Wait()
		wait, one := percentile(waits, 0.5), percentile(records, 0.5)
		goal{ID: "P13", What: "p50 of an exclusive lock under 16 recorders / of a record", Floor: 5, Goal: 1.5, Lower: true}.
			print(b, fmt.Sprintf("%v / %v, longest wait %v", wait.Round(time.Microsecond), one.Round(time.Microsecond), percentile(waits, 1).Round(time.Millisecond)), wait.Seconds()/one.Seconds())
	}
}

// BenchmarkPostgresPooler is P20: batches of 1000 through PgBouncer in
// transaction mode, beside direct ones.
func BenchmarkPostgresPooler(b *testing.B) {
	through := os.Getenv("FENCEPOST_TEST_PGBOUNCER")
	if through == "" {
		b.Skip("FENCEPOST_TEST_PGBOUNCER is not set: run make bench, which starts one")
	}
	const size, perRound = 1000, 20
	s := newShop(b)
	pooled, err := postgres.Open(b.Context(), postgres.Config{DSN: through + "&fencepost_schema=" + s.schema, MaxConns: 16})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = pooled.Close() })
	for b.Loop() {
		t := inTurns(rounds,
			func(int) time.Duration {
				return pair(s.batches(perRound, size, false), func(u []storage.Unit) { record(b, pooled, s.rev, u) })
			},
			func(int) time.Duration {
				return pair(s.batches(perRound, size, false), func(u []storage.Unit) { record(b, s.store, s.rev, u) })
			},
		)
		goal{ID: "P20", What: "through PgBouncer / direct, batch 1000", Floor: 0.7, Goal: 0.85}.print(b, "", over(t[0], t[1], 1, 1)...)
	}
}

// BenchmarkPostgresDraining is P21: batches of 500 while two workers claim and
// settle what they lead to, beside recording alone.
func BenchmarkPostgresDraining(b *testing.B) {
	const size, perRound = 500, 40
	s := newShop(b)
	for b.Loop() {
		var settled atomic.Int64
		alone := func(int) time.Duration {
			return pair(s.batches(perRound, size, false), func(u []storage.Unit) { record(b, s.store, s.rev, u) })
		}
		t := inTurns(rounds, alone, func(round int) time.Duration {
			ctx, stop := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			for i := range 2 {
				wg.Go(func() { s.drain(ctx, b, strconv.Itoa(i), &settled) })
			}
			took := alone(round)
			stop()
			wg.Wait()
			return took
		})
		goal{ID: "P21", What: "record while items drain / record alone, batch 500", Floor: 0.55, Goal: 0.75}.
			print(b, fmt.Sprintf("%.0f %% of it delivered meanwhile", 100*float64(settled.Load())/(rounds*size*perRound)), over(t[1], t[0], 1, 1)...)
	}
}

// drain claims and settles until ctx ends.
func (s *shop) drain(ctx context.Context, b *testing.B, owner string, settled *atomic.Int64) {
	b.Helper()
	for ctx.Err() == nil {
		cl, err := s.store.Claim(b.Context(), storage.ClaimRequest{Owner: owner, Routes: []int64{s.route}, Limit: 500, Lease: time.Minute})
		if err != nil {
			b.Error(err)
			return
		}
		if len(cl.Items) == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		moves := make([]storage.Transition, len(cl.Items))
		for i, it := range cl.Items {
			token := it.LeaseToken
			moves[i] = storage.Transition{
				ItemID: it.ItemID, Expect: storage.Expect{State: storage.Leased, LeaseToken: &token},
				Set:     storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: new(true)},
				Attempt: &storage.Attempt{LeaseToken: token, Owner: owner},
			}
		}
		if _, err := s.store.Transition(b.Context(), moves); err != nil {
			b.Error(err)
			return
		}
		settled.Add(int64(len(moves)))
	}
}
