//go:build faults && linux

package faults

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/pgtest"
)

// F15, F16, I17: another session locks a table that every record writes, so that
// records take every connection of their pool and wait. Each call ends
// unavailable within its bound and is stored whole or not at all; meanwhile the
// health check answers, and deliveries settle what was recorded before.
func TestLockedTable(t *testing.T) {
	t.Parallel()
	b := newProxied(t, hasty())
	b.subscribe()
	b.faults("before:500@first20") // so that there is something left to deliver
	b.start("")
	b.record(events("before", 60))
	holder := b.session()
	tx, err := holder.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "LOCK TABLE "+b.schema+".fencepost_totals IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	calls := make([][]event, 40)
	var wg sync.WaitGroup
	for c := range calls {
		calls[c] = events(fmt.Sprint("during", c), 5)
		wg.Go(func() {
			began := time.Now()
			_, err := b.post(calls[c])
			if err == nil || !(strings.Contains(err.Error(), "status 503") || strings.Contains(err.Error(), "status 429")) {
				t.Errorf("a record that waits for a lock is answered %v", err)
			}
			if took := time.Since(began); took > 3*time.Second+slack {
				t.Errorf("it took %v", took)
			}
		})
	}
	var waiting int
	admin := b.session()
	eventually(t, "records wait for the lock", func() bool {
		err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::text::regclass", b.schema+".fencepost_totals").Scan(&waiting)
		return err == nil && waiting > 0
	})
	for range 5 {
		if code := b.status("/readyz"); code != http.StatusOK {
			t.Errorf("ready answers %d while records wait", code)
		}
	}
	b.drain() // on connections of its own
	wg.Wait()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no statement is left", func() bool {
		err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::text::regclass", b.schema+".fencepost_totals").Scan(&waiting)
		return err == nil && waiting == 0
	})
	stored := b.read()
	for _, call := range calls {
		n := 0
		for _, e := range call {
			if _, ok := stored.byKey[eventKey{tenant, e.id}]; ok {
				n++
			}
		}
		if n != 0 && n != len(call) {
			t.Errorf("%d of the %d events of a call are stored", n, len(call))
		}
	}
	b.fired()
	b.recovers(calls...)
}

// F17: two callers send the same events in opposite orders, again and again.
// The server logs the deadlocks that it had to break: none. The same rows without
// our order give one, which proves that it would have logged them.
func TestOppositeOrder(t *testing.T) {
	t.Parallel()
	oppositeOrder(t, 150)
}

// The number of rounds that the requirement names.
func TestSoakOppositeOrder(t *testing.T) {
	if os.Getenv("FENCEPOST_SOAK") == "" {
		t.Skip("FENCEPOST_SOAK is not set")
	}
	t.Parallel()
	oppositeOrder(t, 10_000)
}

func oppositeOrder(t *testing.T, rounds int) {
	t.Helper()
	c := pgtest.NewCluster(t, pgtest.ClusterConfig{Options: []string{"deadlock_timeout=50ms"}})
	b := newOwn(t, defaults(), c)
	b.subscribeCrowd()
	b.start("")
	const each = 20
	for round := range rounds {
		// Of several tenants: several totals. Both callers send every event.
		batch := crowd(fmt.Sprint("round", round), each)
		var wg sync.WaitGroup
		for range 2 {
			call := slices.Clone(batch)
			wg.Go(func() { b.record(call) })
			slices.Reverse(batch)
		}
		wg.Wait()
	}
	const broken = "deadlock detected"
	if n := c.Logged(broken); n != 0 {
		t.Errorf("%d deadlocks in %d rounds", n, rounds)
	}
	b.drain()
	if got := b.audit().accepted(b.rig); got != rounds*each {
		t.Errorf("%d items of %d events", got, rounds*each)
	}
	if n := unsorted(t, b); n != 1 || c.Logged(broken) != 1 {
		t.Errorf("without an order: %d callers were told of a deadlock, the server logged %d", n, c.Logged(broken))
	}
}

// unsorted updates the totals of two tenants in opposite orders, in two
// sessions that wait for each other's first step, and returns how many heard of
// a deadlock.
func unsorted(t *testing.T, b *bed) int {
	t.Helper()
	var wg, first sync.WaitGroup
	first.Add(2)
	told := make(chan error, 2)
	for n := range 2 {
		c := b.session()
		wg.Go(func() {
			tx, err := c.Begin(t.Context())
			if err != nil {
				t.Error(err)
				first.Done()
				return
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			touch := func(name string) error {
				_, err := tx.Exec(t.Context(), "UPDATE "+b.schema+".fencepost_totals SET quantity = quantity + 0 WHERE tenant_key = $1", name)
				return err
			}
			err = touch(crowdTenants[n])
			first.Done()
			first.Wait()
			if err == nil {
				err = touch(crowdTenants[1-n])
			}
			if err != nil {
				told <- err
			}
		})
	}
	wg.Wait()
	close(told)
	n := 0
	for err := range told {
		if strings.Contains(err.Error(), "40P01") {
			n++
		}
	}
	return n
}

// F21: by way of PgBouncer in transaction mode, with the flag that says so:
// everything works, and nothing that belongs to a session is assumed.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	pooled := os.Getenv("FENCEPOST_TEST_PGBOUNCER")
	if pooled == "" {
		if os.Getenv(pgtest.Strict) != "" {
			t.Fatal("FENCEPOST_TEST_PGBOUNCER is not set")
		}
		t.Skip("FENCEPOST_TEST_PGBOUNCER is not set")
	}
	dsn, schema := pgtest.Schema(t)
	b := &bed{rig: newBareRig(t, defaults()), dsn: dsn, schema: schema}
	b.program = shipped
	b.use(pooled + "&fencepost_schema=" + schema)
	b.subscribe()
	b.start("")
	load := b.stream(6)
	load.more(60)
	load.stop()
}

// F24, D12, I7, I9: the database's clock steps back and forth under two hosts with
// load, inside sessions. Leases end early or late; nothing is charged twice or lost, and calls
// end by the program's own clock.
func TestDatabaseClockSteps(t *testing.T) {
	t.Parallel()
	clock := pgtest.NewClock(t)
	c := pgtest.NewCluster(t, pgtest.ClusterConfig{Clock: clock})
	b := newOwn(t, shortLease(), c)
	b.apart()
	b.subscribe()
	b.faults("after:500@every7; before:500@every11")
	b.pair("")
	load := b.stream(3)
	load.more(10)
	var seen time.Duration
	admin := b.session()
	for _, step := range []time.Duration{-400 * time.Millisecond, -5 * time.Second, -time.Hour, time.Hour, -400 * time.Millisecond, time.Hour - 5*time.Second, 0, time.Hour} {
		clock.Step(step)
		load.more(5)
		var now time.Time
		if err := admin.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
			t.Fatal(err)
		}
		seen = max(seen, time.Until(now).Abs())
	}
	if seen < 50*time.Minute {
		t.Errorf("the clock never stepped: %v", seen)
	}
	// An hour ahead: whatever was put off is due. What was on its way while the
	// clock went back is not sent again: nobody can tell how old it is (Q16).
	for _, it := range load.settle().items {
		if it.state != "accepted" && (it.state != "uncertain" || it.code != "clock_untrusted" || !it.unresolved) {
			t.Errorf("item %d is %s (%s), unresolved %t", it.id, it.state, it.code, it.unresolved)
		}
	}
	b.fired()
}
