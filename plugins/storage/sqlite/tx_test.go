package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var errOwn = errors.New("the caller changed its mind")

// orders counts the rows of the caller's own table.
func orders(t *testing.T, a *Adapter) int {
	t.Helper()
	n := 0
	err := a.read(t.Context(), "count orders", func(c *conn) error {
		got, err := c.pragma("SELECT count(*) FROM orders")
		if err == nil {
			_, err = fmt.Sscan(got, &n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What the caller writes and what is recorded commit together, or neither.
func TestWithTx(t *testing.T) {
	t.Parallel()
	unit := plain(event("acme", "e1", "1"))
	for name, test := range map[string]struct {
		f    func(tx *Tx) error
		want error // by errors.Is
		kept bool
	}{
		"commit": {func(*Tx) error { return nil }, nil, true},
		"error":  {func(*Tx) error { return errOwn }, errOwn, false},
		"tagged": {func(*Tx) error { return sdk.Invalid("order", "paid") }, sdk.ErrInvalid, false},
		"atomic conflict": {func(tx *Tx) error {
			res, err := tx.Store().RecordEvents(context.Background(), storage.RecordRequest{
				Mode:  storage.Atomic,
				Units: []storage.Unit{plain(event("acme", "e0", "1")), plain(event("acme", "e1", "2"))},
			})
			if err == nil && outcomes(res) != "; conflict" {
				err = fmt.Errorf("outcomes %q", outcomes(res))
			}
			return err
		}, nil, true},
		"refused request": {func(tx *Tx) error {
			if _, err := tx.Store().RecordEvents(context.Background(), storage.RecordRequest{
				Mode: storage.Each, RoutesRevision: 0,
				Units: []storage.Unit{plain(event("acme", "e2", "1"), item(event("acme", "e2", "1"), 99, ""))},
			}); err == nil {
				return errors.New("an unknown route was taken")
			}
			return nil
		}, nil, true},
		"ended by the caller": {func(tx *Tx) error { return sqlitex.ExecuteTransient(tx.Conn(), "ROLLBACK", nil) }, sdk.ErrUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := open(t, newClock())
			sqlExec(t, a.path, "CREATE TABLE orders (id INTEGER PRIMARY KEY)")
			err := a.WithTx(t.Context(), func(tx *Tx) error {
				if err := sqlitex.ExecuteTransient(tx.Conn(), "INSERT INTO orders DEFAULT VALUES", nil); err != nil {
					return err
				}
				res, err := tx.Store().RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Atomic, Units: []storage.Unit{unit}})
				if err != nil || outcomes(res) != "inserted e1=1" {
					return fmt.Errorf("recorded %q: %w", outcomes(res), err)
				}
				// The transaction sees what it wrote.
				if _, err := tx.Store().LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: "e1"}); err != nil {
					return err
				}
				return test.f(tx)
			})
			if !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			wantOrders, wantTotals := 0, ""
			if test.kept {
				wantOrders, wantTotals = 1, "tokens 1/1"
			}
			if n, got := orders(t, a), totals(t, a, "acme"); n != wantOrders || got != wantTotals {
				t.Errorf("%d orders, totals %q; want %d, %q", n, got, wantOrders, wantTotals)
			}
		})
	}
}

// Everything that can be bound is.
func TestBoundStore(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	var kept BoundStore
	err := a.WithTx(t.Context(), func(tx *Tx) error {
		s := tx.Store()
		kept = s
		set, err := s.ChangeRoutes(t.Context(), storage.RouteChange{Add: []storage.Route{{Exporter: "x", Feature: "f", Disposition: storage.RouteIgnore}}})
		if err != nil || set.Revision != 1 {
			return fmt.Errorf("routes %+v: %w", set, err)
		}
		_, err = s.ChangeRoutes(t.Context(), storage.RouteChange{Revision: 1, Retire: []int64{1, 99}})
		if sdk.TagOf(err) != sdk.TagConflict {
			return fmt.Errorf("retired: %w", err)
		}
		if set, err = s.Routes(t.Context()); err != nil || set.Revision != 1 || !set.Routes[0].RetiredAt.IsZero() {
			return fmt.Errorf("half a change was kept: %+v, %w", set, err)
		}
		if _, err := s.PutSubscription(t.Context(), storage.Subscription{Tenant: "acme"}); err != nil {
			return err
		}
		subs, err := s.Subscriptions(t.Context(), []string{"acme"})
		if err != nil || len(subs) != 1 {
			return fmt.Errorf("%d subscriptions: %w", len(subs), err)
		}
		if subs, err = s.ListSubscriptions(t.Context(), "", 5); err != nil || len(subs) != 1 {
			return fmt.Errorf("%d subscriptions: %w", len(subs), err)
		}
		if _, err := s.LoadTotals(t.Context(), storage.TotalsQuery{Tenant: "acme"}); err != nil {
			return err
		}
		if _, err := s.LoadReceipt(t.Context(), storage.ReceiptKey{}); sdk.TagOf(err) != sdk.TagNotFound {
			return fmt.Errorf("receipt: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = kept.Routes(t.Context())
	wantError(t, err, sdk.TagUnavailable, "transaction_ended")
	if set, err := a.Routes(t.Context()); err != nil || set.Revision != 1 {
		t.Errorf("%+v, %v", set, err)
	}
}

func TestWithTxPanics(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = a.WithTx(t.Context(), func(tx *Tx) error {
			if _, err := tx.Store().PutSubscription(t.Context(), storage.Subscription{Tenant: "acme"}); err != nil {
				t.Error(err)
			}
			panic("boom")
		})
	}()
	if subs, err := a.Subscriptions(t.Context(), []string{"acme"}); err != nil || len(subs) != 0 {
		t.Errorf("%+v, %v", subs, err)
	}
	if err := a.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// B46, S14: a call that cannot be done in time says so in time, leaves no
// transaction, and the connection works on.
func TestTimeout(t *testing.T) { //nolint:tparallel // the parts share a store
	t.Parallel()
	a := open(t, newClock())
	t.Run("expired before", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantError(t, a.Ping(ctx), sdk.TagUnavailable, "canceled")
		_, err := a.Routes(ctx)
		wantError(t, err, sdk.TagUnavailable, "canceled")
	})
	t.Run("statement", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := a.WithTx(ctx, func(tx *Tx) error {
			if _, err := tx.Store().PutSubscription(ctx, storage.Subscription{Tenant: "acme"}); err != nil {
				return err
			}
			return sqlitex.ExecuteTransient(tx.Conn(), // counts for hours
				"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", nil)
		})
		wantError(t, err, sdk.TagUnavailable, "timeout")
	})
	t.Run("ignored by the callback", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		err := a.WithTx(ctx, func(tx *Tx) error {
			if _, err := tx.Store().PutSubscription(ctx, storage.Subscription{Tenant: "acme"}); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		wantError(t, err, sdk.TagUnavailable, "timeout")
	})
	t.Run("waiting for the writer", func(t *testing.T) {
		w := <-a.writer
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := a.RecordEvents(ctx, storage.RecordRequest{Mode: storage.Each, Units: []storage.Unit{plain(event("acme", "e1", "1"))}})
		a.writer <- w
		wantError(t, err, sdk.TagUnavailable, "timeout")
	})
	if subs, err := a.Subscriptions(t.Context(), []string{"acme"}); err != nil || len(subs) != 0 {
		t.Errorf("left behind: %+v, %v", subs, err)
	}
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(event("acme", "e1", "1"))}})
}

// Concurrent callers of everything: the race detector watches, and the sums
// are right.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	route, rev := addRoute(t, a)
	const workers, each = 8, 25
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				e := event("acme", fmt.Sprintf("e%d", (w/2)*each+i), "1") // every event twice
				if _, err := a.RecordEvents(t.Context(), storage.RecordRequest{
					Mode: storage.Each, RoutesRevision: rev,
					Units: []storage.Unit{plain(e, item(e, route, "m1"))},
				}); err != nil {
					t.Error(err)
				}
				if _, err := a.LoadTotals(t.Context(), storage.TotalsQuery{Tenant: "acme"}); err != nil {
					t.Error(err)
				}
				if _, err := a.OutboxStats(t.Context()); err != nil {
					t.Error(err)
				}
				cl, err := a.Claim(t.Context(), storage.ClaimRequest{Owner: strconv.Itoa(w), Routes: []int64{route}, Limit: 3, Lease: time.Hour})
				if err != nil {
					t.Error(err)
				}
				for _, it := range cl.Items {
					res, err := a.Transition(t.Context(), []storage.Transition{{
						ItemID: it.ItemID, Expect: fenced(it.LeaseToken),
						Set: storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: new(true)},
					}})
					if err != nil || res[0].Rows != 1 {
						t.Errorf("%+v, %v", res, err)
					}
				}
			}
		})
	}
	wg.Wait()
	want := fmt.Sprintf("tokens %d/%d", workers/2*each, workers/2*each)
	if got := totals(t, a, "acme"); got != want {
		t.Errorf("totals %s, want %s", got, want)
	}
	checkCounts(t, a)
}

// A COMMIT that fails is unavailable, whatever SQLite calls it; nothing of the
// transaction is left and the store works on.
func TestFailedCommit(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	sqlExec(t, a.path, `CREATE TABLE parents (id INTEGER PRIMARY KEY);
CREATE TABLE orders (id INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)`)
	err := a.WithTx(t.Context(), func(tx *Tx) error {
		_, err := tx.Store().PutSubscription(t.Context(), storage.Subscription{Tenant: "acme"})
		return errors.Join(err, sqlitex.ExecuteTransient(tx.Conn(), "INSERT INTO orders VALUES (1)", nil))
	})
	wantError(t, err, sdk.TagUnavailable, "constraint", "commit")
	if subs, err := a.Subscriptions(t.Context(), []string{"acme"}); err != nil || len(subs) != 0 {
		t.Errorf("%+v, %v", subs, err)
	}
	if n := orders(t, a); n != 0 {
		t.Errorf("%d orders", n)
	}
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(event("acme", "e1", "1"))}})
}
