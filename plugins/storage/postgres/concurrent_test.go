package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// B13, B-T1, B19: two sessions record one identity. The second waits for the
// first, does not see its row in the snapshot it has, and still answers what
// became of it.
func TestInvisibleRow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		commit   bool
		quantity string // of the second session
		mode     storage.RecordMode
		want     string
	}{
		"duplicate, atomic": {true, "1", storage.Atomic, "duplicate e"}, "duplicate, each": {true, "1", storage.Each, "duplicate e"},
		"conflict, atomic": {true, "2", storage.Atomic, "conflict"}, "conflict, each": {true, "2", storage.Each, "conflict"},
		"rolled back": {false, "2", storage.Atomic, "inserted e"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := open(t)
			first, err := a.pools[deliveryPool].Begin(t.Context())
			must(t, err)
			defer func() { _ = first.Rollback(context.WithoutCancel(t.Context())) }()
			wantOutcomes(t, record(t, a.WithTx(first), storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e", "1"))}}), "inserted e")
			answer := make(chan string, 1)
			go func() {
				res, err := a.RecordEvents(t.Context(), storage.RecordRequest{
					Mode: c.mode, Units: []storage.Unit{plain(tokens("acme", "e", c.quantity)), plain(tokens("acme", "other", "8"))},
				})
				answer <- fmt.Sprint(outcomes(storage.RecordResult{Units: res.Units[:min(1, len(res.Units))]}), errText(err))
			}()
			waitForLockWaits(t, a, 1)
			if c.commit {
				must(t, first.Commit(t.Context()))
			} else {
				must(t, first.Rollback(t.Context()))
			}
			if got := <-answer; got != c.want {
				t.Errorf("answered %q, want %q", got, c.want)
			}
		})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// waitForLockWaits waits until n sessions of the store wait for a lock.
func waitForLockWaits(t testing.TB, a *Adapter, n int) {
	t.Helper()
	for range 3000 {
		got := sqlOne[int](t, a, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = $1", a.target.schema)
		if got >= n {
			return
		}
		time.Sleep(time.Millisecond) // a poll: the database tells nobody that a session waits
	}
	t.Fatalf("no %d sessions wait for a lock", n)
}

// B35, F17: batches in opposite orders never deadlock. Sorted, the sessions
// wait for each other at the first common row.
func TestOppositeOrder(t *testing.T) {
	t.Parallel()
	a := open(t)
	const sessions, rounds, batch = 4, 25, 100 // 10,000 rows
	var wg sync.WaitGroup
	var inserted atomic.Int64
	for s := range sessions {
		wg.Go(func() {
			for r := range rounds {
				units := make([]storage.Unit, batch)
				for i := range units { // every session the same identities
					e := tokens(fmt.Sprint("t", i%7), fmt.Sprintf("e%d-%d", r, i), "1")
					e.Feature = fmt.Sprint("f", i%5)
					units[i] = plain(e)
					units[i].Entries[0].Bucket = &storage.BucketKey{Start: november}
				}
				if s%2 == 1 {
					slices.Reverse(units)
				}
				res, err := a.RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Each, Units: units})
				if err != nil {
					t.Error(err)
				}
				for _, u := range res.Units {
					if u.Outcome == storage.Inserted {
						inserted.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := inserted.Load(); n != rounds*batch {
		t.Errorf("%d inserted, want %d: each identity once", n, rounds*batch)
	}
	if n := sqlOne[string](t, a, "SELECT concat_ws(' ', sum(quantity)::int, sum(events)) FROM {schema}.fencepost_totals"); n != "2500 2500" {
		t.Errorf("totals %s", n)
	}
	if n := a.reruns.Load(); n != 0 {
		t.Errorf("%d transactions were run again", n)
	}
}

// S13, B38, B43: what takes the exclusive side waits for every record in
// flight, and a record waits for it; records do not wait for each other.
func TestRouteLockExcludes(t *testing.T) {
	t.Parallel()
	a := open(t)
	inFlight, err := a.pools[deliveryPool].Begin(t.Context())
	must(t, err)
	defer func() { _ = inFlight.Rollback(context.WithoutCancel(t.Context())) }()
	record(t, a.WithTx(inFlight), storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "1"))}})

	changed := make(chan error, 1)
	held := make(chan struct{})
	release := make(chan struct{})
	go func() {
		changed <- a.run.write(t.Context(), "exclusive", writing{lock: lockExclusive}, func(context.Context, *tx) error {
			close(held)
			<-release
			return nil
		})
	}()
	waitForLockWaits(t, a, 1)
	// Q26: another record gets through while it waits: it lets go again.
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("zeta", "e2", "1"))}})
	select {
	case <-held:
		t.Fatal("the exclusive side was granted beside a record")
	default:
	}
	must(t, inFlight.Commit(t.Context()))
	<-held
	recorded := make(chan error, 1)
	go func() {
		_, err := a.RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Atomic, Units: []storage.Unit{plain(tokens("acme", "e3", "1"))}})
		recorded <- err
	}()
	waitForLockWaits(t, a, 1)
	select {
	case <-recorded:
		t.Fatal("a record was let in beside the exclusive side")
	default:
	}
	close(release)
	must(t, <-changed)
	must(t, <-recorded)
}

// P14: records lock no row that they share, so they use up no multixact ids.
func TestNoMultixacts(t *testing.T) {
	t.Parallel()
	a := open(t)
	route, rev := routed(t, a)
	locked := func() int64 {
		return sqlOne[int64](t, a, `SELECT coalesce(sum(n), 0) FROM (
  SELECT count(*) AS n FROM {schema}.fencepost_routes WHERE xmax <> 0 UNION ALL
  SELECT count(*) FROM {schema}.fencepost_meta WHERE key = 'routes_revision' AND xmax <> 0 UNION ALL
  SELECT count(*) FROM {schema}.fencepost_generations WHERE xmax <> 0 UNION ALL
  SELECT count(*) FROM {schema}.fencepost_subscriptions WHERE xmax <> 0) AS x`)
	}
	before := locked()
	var wg sync.WaitGroup
	for s := range 4 {
		wg.Go(func() {
			for i := range 250 { // 1000 records
				e := tokens(fmt.Sprint("t", s), fmt.Sprint("e", i), "1")
				_, err := a.RecordEvents(t.Context(), storage.RecordRequest{
					Mode: storage.Atomic, RoutesRevision: rev, Units: []storage.Unit{plain(e, itemFor(e, route, "m1"))},
					Subscriptions: []storage.SubscriptionRevision{{Tenant: e.Tenant}},
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := locked(); n != before {
		t.Errorf("%d shared rows are locked by records, %d before", n, before)
	}
}
