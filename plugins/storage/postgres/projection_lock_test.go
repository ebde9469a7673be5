package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// drained makes a build that waits for nothing but its activation.
func drained(t testing.TB, a *Adapter) storage.ProjectionState {
	t.Helper()
	st := begin(t, a)
	for {
		b, more, err := scan(t.Context(), a, state(t, a), 1000)
		must(t, err)
		if !more {
			break
		}
		must(t, a.WriteProjection(t.Context(), b))
	}
	for n := 1000; n == 1000; {
		var err error
		n, err = a.DrainSeed(t.Context(), st.Building, 1000)
		must(t, err)
	}
	return state(t, a)
}

// waiting polls what the server says of waits for our route lock until ok
// accepts it.
func waiting(t testing.TB, a *Adapter, mode string, ok func(starts []time.Time) bool) {
	t.Helper()
	const text = `SELECT coalesce(array_agg(waitstart), '{}') FROM pg_locks
WHERE locktype = 'advisory' AND mode = $1 AND NOT granted AND waitstart IS NOT NULL
  AND classid = $2::bigint::oid AND objid = $3::bigint::oid`
	eventually(t, func() bool {
		return ok(sqlOne[[]time.Time](t, a, text, mode, int64(lockClassRoutes), int64(uint32(a.target.scope()))))
	})
}

// eventually asks until the answer is yes. The bound only ends a test that
// hangs.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			t.Fatal("it did not come about")
		}
	}
}

// openTx opens a transaction of an embedder's on a connection of its own.
func openTx(t testing.TB, a *Adapter) pgx.Tx {
	t.Helper()
	c, err := a.pools[workPool].Acquire(t.Context())
	must(t, err)
	tx, err := c.Begin(t.Context())
	must(t, err)
	t.Cleanup(func() {
		_ = tx.Rollback(context.WithoutCancel(t.Context()))
		c.Release()
	})
	return tx
}

// An activation waits for every record that is in flight, and is then the only
// one. While it waits for an embedder's long transaction others go on
// recording: it gives way and comes back. What the transaction recorded is in
// both generations (S13, Q26, B43).
func TestActivationWaitsForRecords(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *Adapter) error{
		"begin": func(ctx context.Context, a *Adapter) error {
			_, err := a.BeginProjection(ctx, "")
			return err
		},
		"activate": func(ctx context.Context, a *Adapter) error {
			_, err := a.ActivateProjection(ctx, 2)
			return err
		},
		"seal": func(ctx context.Context, a *Adapter) error {
			_, err := a.SealBuckets(ctx, storage.Seal{Tenant: "t1", Feature: "calls", Before: november})
			return err
		},
		"abandon": func(ctx context.Context, a *Adapter) error {
			_, err := a.PruneProjection(ctx, 2, 1000)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := open(t)
			must(t, recordUsage(t.Context(), a, usageOf("t1", "e0", "1", november, nil)))
			if name != "begin" && name != "seal" {
				drained(t, a)
			}
			before := state(t, a)
			embedder := openTx(t, a)
			must(t, recordUsage(t.Context(), a.WithTx(embedder), usageOf("t1", "e1", "1", november, nil)))
			var done atomic.Bool
			ended := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := call(ctx, a)
				done.Store(true)
				ended <- err
			}()
			// Three waits that began at different times: it came back twice.
			seen := map[time.Time]bool{}
			n := 1
			for len(seen) < 3 {
				waiting(t, a, "ExclusiveLock", func(starts []time.Time) bool {
					for _, s := range starts {
						seen[s] = true
					}
					return len(starts) > 0 || done.Load()
				})
				if done.Load() {
					t.Fatalf("it went past a record in flight: %+v became %+v", before, state(t, a))
				}
				// Whoever records now queues behind that wait, for 250 ms at
				// most, and not until the embedder's transaction ends.
				n++
				must(t, recordUsage(t.Context(), a, usageOf("t2", "e"+strconv.Itoa(n), "1", november, nil)))
			}
			if after := state(t, a); after != before {
				t.Errorf("it changed something before its turn: %+v became %+v", before, after)
			}
			must(t, embedder.Commit(t.Context()))
			must(t, <-ended)
			must(t, checkEquations(t.Context(), a))
			if after := state(t, a); name != "seal" && after == before {
				t.Error("nothing happened")
			}
		})
	}
}

// Who records while the exclusive side is held waits until it is given back,
// and then finds the generation that it left (B13, S13, B-T3).
func TestRecordWaitsForActivation(t *testing.T) {
	t.Parallel()
	a := open(t)
	must(t, recordUsage(t.Context(), a, usageOf("t1", "e0", "1", november, nil)))
	drained(t, a)
	activator := openTx(t, a)
	bound := &tx{a: a, q: activator, bound: true}
	must(t, bound.tryExclusive(t.Context(), lockClassRoutes))
	n, err := bound.exec(t.Context(), qProjectionActivate, 2)
	if err != nil || n != 1 {
		t.Fatalf("activate: %d, %v", n, err)
	}
	const records = 2
	ended := make(chan error, records)
	for i := range records {
		go func() { ended <- recordUsage(t.Context(), a, usageOf("t1", fmt.Sprintf("w%d", i), "1", november, nil)) }()
	}
	waiting(t, a, "ShareLock", func(starts []time.Time) bool { return len(starts) == records })
	if n := sqlOne[int](t, a, `SELECT count(*) FROM {schema}.fencepost_events`); n != 1 {
		t.Errorf("%d events while the lock was held", n)
	}
	must(t, activator.Commit(t.Context()))
	for range records {
		must(t, <-ended)
	}
	must(t, checkEquations(t.Context(), a))
	left := sqlOne[string](t, a, `SELECT string_agg(generation || ':' || events, ' ' ORDER BY generation) FROM {schema}.fencepost_totals`)
	if left != "1:1 2:3" { // nothing more went to the generation before
		t.Errorf("totals %q", left)
	}
}

// Readers see the whole of one generation, whatever is activated meanwhile
// (B43, I12, B-T8).
func TestActivationIsAtomicForReaders(t *testing.T) {
	t.Parallel()
	a := open(t)
	const keys = 40
	var events []storage.Event
	for i := range keys {
		e := usageOf("t1", "e"+strconv.Itoa(i), "1", november, nil)
		e.Feature = "f" + strconv.Itoa(i)
		events = append(events, e)
	}
	must(t, recordUsage(t.Context(), a, events...))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reads := make(chan error, 2)
	var count atomic.Int64
	for range 2 {
		go func() {
			for {
				totals, err := a.LoadTotals(ctx, storage.TotalsQuery{Tenant: "t1"})
				if ctx.Err() != nil {
					reads <- nil
					return
				}
				if err == nil && len(totals) != keys {
					err = fmt.Errorf("%d totals", len(totals))
				}
				for _, x := range totals {
					if err == nil && !x.Quantity.Equal(totals[0].Quantity) {
						err = fmt.Errorf("%s of one generation beside %s of another", x.Quantity, totals[0].Quantity)
					}
				}
				if err != nil {
					reads <- err
					return
				}
				count.Add(1)
			}
		}()
	}
	for range 8 {
		st := drained(t, a)
		// Every generation counts something else, so that a mixture shows.
		sqlExec(t, a, `UPDATE {schema}.fencepost_totals SET quantity = $1::bigint WHERE generation = $1`, st.Building)
		_, err := a.ActivateProjection(t.Context(), st.Building)
		must(t, err)
	}
	stop()
	for range 2 {
		must(t, <-reads)
	}
	if count.Load() == 0 {
		t.Error("nobody read")
	}
}

// A batch that has to create a total takes the locks of all its totals in key
// order first: a record that comes between its two statements does not get an
// earlier key, to wait for the new one then (B35, B45).
func TestProjectionLocksInKeyOrder(t *testing.T) {
	t.Parallel()
	a := open(t)
	must(t, recordUsage(t.Context(), a, usageOf("t1", "e1", "1", november, nil)))
	st := begin(t, a)
	delta := func(tenants ...string) (c totalColumns) {
		var all []storage.TotalDelta
		for _, tenant := range tenants {
			all = append(all, totalOf(usageOf(tenant, "x", "1", november, nil)))
		}
		return totalColumnsOf(all)
	}
	// In transactions of ours: what runs again after a deadlock would hide it.
	batch := openTx(t, a)
	bound := &tx{a: a, q: batch, bound: true}
	must(t, delta("t1", "t2").ensure(t.Context(), bound, st.Building))
	recorder := openTx(t, a)
	var pid int32 // of the server's: a pooler tells another one
	must(t, recorder.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	ended := make(chan error, 1)
	go func() {
		bound := &tx{a: a, q: recorder, bound: true}
		err := delta("t1").write(t.Context(), bound, st.Building)
		if err == nil {
			err = delta("t2").write(t.Context(), bound, st.Building)
		}
		ended <- errors.Join(err, recorder.Commit(t.Context()))
	}()
	eventually(t, func() bool {
		return sqlOne[bool](t, a, `SELECT cardinality(pg_blocking_pids($1)) > 0`, pid)
	})
	must(t, delta("t1", "t2").move(t.Context(), bound, st.Building))
	must(t, batch.Commit(t.Context()))
	must(t, <-ended)
	sums := sqlOne[string](t, a, `SELECT string_agg(tenant_key || ' ' || quantity::int, ', ' ORDER BY tenant_key)
FROM {schema}.fencepost_totals WHERE generation = 2`)
	if sums != "t1 3, t2 2" {
		t.Errorf("sums %q", sums)
	}
}

// An abandoned build goes with its seed, in slices; its number is not given
// again, and what is recorded later does not touch it.
func TestProjectionPrune(t *testing.T) {
	t.Parallel()
	a := open(t)
	for i := range 4 {
		must(t, recordUsage(t.Context(), a, usageOf("t"+strconv.Itoa(i), "e1", "1", november, nil)))
	}
	begin(t, a)
	must(t, recordUsage(t.Context(), a, usageOf("t1", "e2", "1", november, nil)))
	prune := func(generation int64, limit, want int) {
		t.Helper()
		n, err := a.PruneProjection(t.Context(), generation, limit)
		must(t, err)
		if n != want {
			t.Errorf("pruned %d rows of generation %d, want %d", n, generation, want)
		}
	}
	prune(2, 3, 3)
	if st := state(t, a); st.Building != 0 || st.Seed != 0 || st.Watermark != 0 || st.BuildingSettings != "" {
		t.Errorf("abandoned: %+v", st)
	}
	must(t, recordUsage(t.Context(), a, usageOf("t9", "e1", "1", november, nil)))
	prune(2, 3, 3)
	prune(2, 100, 3) // four totals and their seed, and a bucket
	prune(2, 100, 0)
	prune(77, 100, 0)
	_, err := a.PruneProjection(t.Context(), 1, 1)
	code(t, err, "conflict", "in_use")
	_, err = a.PruneProjection(t.Context(), 0, 1)
	code(t, err, "invalid", "")
	if st := begin(t, a); st.Building != 3 {
		t.Errorf("the next build is %d", st.Building)
	}
	must(t, replay(t.Context(), a, 100, func() error { return nil }))
	must(t, checkEquations(t.Context(), a))
	// The one that was active before: 5 totals and 5 buckets, one of two events.
	prune(1, 100, 10)
	if st := state(t, a); st.Active != 3 || st.Previous != 0 {
		t.Errorf("after the previous one was pruned: %+v", st)
	}
	if n := sqlOne[int](t, a, `SELECT count(*) FROM {schema}.fencepost_totals WHERE generation <> 3`); n != 0 {
		t.Errorf("%d totals are left behind", n)
	}
	must(t, checkEquations(t.Context(), a))
}
