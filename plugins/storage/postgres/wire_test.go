package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/fault"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// D8, D9, F09-F11: a commit whose answer is lost, and one that never arrives,
// are unavailable, never anything else; the same call again is a duplicate, or
// inserts.
func TestLostCommitOfRecord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   pgtest.Action
		then string
	}{
		"answer": {pgtest.DropAnswer, "duplicate e"}, "request": {pgtest.DropRequest, "inserted e"},
		"answer hangs": {pgtest.HangAnswer, "duplicate e"}, "request hangs": {pgtest.HangRequest, "inserted e"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, _ := pgtest.Schema(t)
			openDSN(t, dsn) // migrates beside the proxy
			p := pgtest.NewProxy(t, dsn)
			a := openDSN(t, p.DSN())
			req := storage.RecordRequest{Mode: storage.Atomic, Units: []storage.Unit{plain(tokens("acme", "e", "1"))}}
			record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "warm", "1"))}})
			p.Set(pgtest.Rule{On: pgtest.Exchange.Commits, Do: c.do, Times: 1})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := a.RecordEvents(ctx, req)
			if sdk.TagOf(err) != sdk.TagUnavailable {
				t.Errorf("error %v, want unavailable", err)
			}
			if p.Fired() != 1 {
				t.Errorf("fired %d times", p.Fired())
			}
			wantOutcomes(t, record(t, a, req), c.then)
			wantTotals(t, a, "acme", "tokens 2/2/2")

			// The same for a transaction with a COMMIT of its own.
			p.Set(pgtest.Rule{On: pgtest.Exchange.Commits, Do: c.do, Times: 1})
			ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			sub := storage.Subscription{Tenant: "acme", Anchor: november, Interval: storage.Month, Timezone: "UTC"}
			if _, err := a.PutSubscription(ctx, sub); sdk.TagOf(err) != sdk.TagUnavailable {
				t.Errorf("error %v, want unavailable", err)
			}
			if p.Fired() != 1 {
				t.Errorf("fired %d times", p.Fired())
			}
			stored, err := a.PutSubscription(t.Context(), sub)
			want := int64(1) // nobody ran the lost one a second time
			if c.then == "duplicate e" {
				want = 2
			}
			if err != nil || stored.Revision != want {
				t.Errorf("revision %d, want %d: %v", stored.Revision, want, err)
			}
		})
	}
}

// P15: a batch is one round trip, lock included, fresh or a duplicate.
func TestRecordIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	if fault.Enabled {
		t.Skip("with fault points the steps are round trips")
	}
	dsn, _ := pgtest.Schema(t)
	openDSN(t, dsn)
	p := pgtest.NewProxy(t, dsn)
	a, err := Open(t.Context(), Config{DSN: p.DSN(), MaxConns: 1})
	must(t, err)
	t.Cleanup(func() { _ = a.Close() })
	batch := func(round int) storage.RecordRequest {
		req := storage.RecordRequest{Mode: storage.Atomic}
		for i := range 1000 {
			req.Units = append(req.Units, plain(tokens("acme", fmt.Sprintf("e%d-%d", round, i), "1")))
		}
		return req
	}
	record(t, a, batch(0)) // prepares
	for name, req := range map[string]storage.RecordRequest{"fresh": batch(1), "duplicates": batch(0)} {
		before := p.RoundTrips()
		record(t, a, req)
		if n := p.RoundTrips() - before; n != 1 {
			t.Errorf("%s: %d round trips, want 1", name, n)
		}
	}
}

// S14, D12, F16, F20: the deadline on our side bounds a call whatever the
// server does, and the adapter works again afterwards.
func TestDeadline(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.Schema(t)
	openDSN(t, dsn)
	p := pgtest.NewProxy(t, dsn)
	a := openDSN(t, p.DSN())
	call := func(name, code string) {
		t.Helper()
		const limit = 2 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := a.RecordEvents(ctx, storage.RecordRequest{Mode: storage.Atomic, Units: []storage.Unit{plain(tokens("acme", "e1", "1"))}})
		if ctx.Err() != nil {
			t.Errorf("%s: answered after the deadline", name)
		}
		wantFailure(t, err, sdk.TagUnavailable, code)
	}
	lock, err := a.pools[deliveryPool].Begin(t.Context())
	must(t, err)
	defer func() { _ = lock.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = lock.Exec(t.Context(), withSchema("LOCK TABLE {schema}.fencepost_totals IN ACCESS EXCLUSIVE MODE", a.target.schema))
	must(t, err)
	call("table lock", "timeout")
	_, err = lock.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1, $2)", lockClassRoutes, a.target.scope())
	must(t, err)
	call("route lock", "timeout")
	must(t, lock.Rollback(t.Context()))
	p.Freeze()
	call("black hole", "timeout")
	p.Thaw()
	wantOutcomes(t, record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e2", "1"))}}), "inserted e2")
}

// F15: with every connection in use a record says so within its deadline, and
// health and delivery have connections of their own.
func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	a := open(t)
	for range a.cfg.MaxConns {
		c, err := a.pools[workPool].Acquire(t.Context())
		must(t, err)
		defer c.Release()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := a.RecordEvents(ctx, storage.RecordRequest{Mode: storage.Atomic})
	wantFailure(t, err, sdk.TagUnavailable, "pool_exhausted")
	must(t, a.Ping(t.Context()))
	must(t, a.run.write(t.Context(), "claim", writing{pool: deliveryPool}, func(context.Context, *tx) error { return nil }))
}
