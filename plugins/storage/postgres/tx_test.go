package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

var errOwn = errors.New("the caller changed its mind")

// embedder is a program with a pool and a table of its own in the store's
// database.
type embedder struct {
	*pgxpool.Pool
	table string
}

func embedded(t testing.TB) (*Adapter, embedder) {
	t.Helper()
	dsn, schema := pgtest.Schema(t)
	a := openDSN(t, dsn)
	cfg, err := pgxpool.ParseConfig(pgtest.Plain(dsn))
	must(t, err)
	if pooled(dsn) {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	e := embedder{pool, schema + ".orders"}
	_, err = pool.Exec(t.Context(), "CREATE TABLE "+e.table+" (id int)")
	must(t, err)
	return a, e
}

func (e embedder) order(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "INSERT INTO "+e.table+" VALUES (1)")
	return err
}

// B21, B22, B33, B-T10: what the caller writes and what is recorded commit together,
// or neither; a conflict or a refusal undoes its call and leaves the
// transaction usable.
func TestWithTx(t *testing.T) {
	t.Parallel()
	both := storage.RecordRequest{Mode: storage.Atomic, Units: []storage.Unit{plain(tokens("acme", "e0", "1")), plain(tokens("acme", "e1", "2"))}}
	e2 := tokens("acme", "e2", "1")
	for name, test := range map[string]struct {
		f    func(ctx context.Context, s BoundStore) error
		want error
		kept bool
	}{
		"commit": {func(context.Context, BoundStore) error { return nil }, nil, true},
		"error":  {func(context.Context, BoundStore) error { return errOwn }, errOwn, false},
		"atomic conflict": {func(ctx context.Context, s BoundStore) error {
			res, err := s.RecordEvents(ctx, both)
			if err == nil && outcomes(res) != "; conflict" {
				err = fmt.Errorf("outcomes %q", outcomes(res))
			}
			return err
		}, nil, true},
		"stale": {func(ctx context.Context, s BoundStore) error {
			res, err := s.RecordEvents(ctx, storage.RecordRequest{Mode: storage.Each, RoutesRevision: 9, Units: []storage.Unit{plain(e2)}})
			if err == nil && res.Stale == nil {
				err = errors.New("not stale")
			}
			return err
		}, nil, true},
		"refused request": {func(ctx context.Context, s BoundStore) error {
			_, err := s.RecordEvents(ctx, storage.RecordRequest{Mode: storage.Each, Units: []storage.Unit{plain(e2, itemFor(e2, 99, ""))}})
			if sdk.TagOf(err) != sdk.TagInvalid {
				return fmt.Errorf("an unknown route: %w", err)
			}
			return nil
		}, nil, true},
		"not found": {func(ctx context.Context, s BoundStore) error {
			_, err := s.LoadEvent(ctx, storage.EventKey{Tenant: "acme", EventID: "none"})
			if sdk.TagOf(err) != sdk.TagNotFound {
				return fmt.Errorf("an event that does not exist: %w", err)
			}
			return nil
		}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, own := embedded(t)
			err := pgx.BeginFunc(t.Context(), own, func(tx pgx.Tx) error {
				if err := own.order(t.Context(), tx); err != nil {
					return err
				}
				var before, after string
				const settings = "SELECT concat_ws(' ', current_setting('jit'), current_setting('enable_nestloop'), current_setting('plan_cache_mode'), current_setting('statement_timeout'), current_setting('lock_timeout'))"
				must(t, tx.QueryRow(t.Context(), settings).Scan(&before))
				s := a.WithTx(tx)
				res, err := s.RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Atomic, Units: []storage.Unit{plain(tokens("acme", "e1", "1"))}})
				if err != nil || outcomes(res) != "inserted e1" {
					return fmt.Errorf("recorded %q: %w", outcomes(res), err)
				}
				// The transaction sees what it wrote; nobody else does.
				if _, err := s.LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: "e1"}); err != nil {
					return err
				}
				wantTotals(t, a, "acme", "")
				if err := test.f(t.Context(), s); err != nil {
					return err
				}
				must(t, tx.QueryRow(t.Context(), settings).Scan(&after))
				if before != after {
					t.Errorf("settings of the caller's transaction: %s, then %s", before, after)
				}
				return own.order(t.Context(), tx) // it is still usable
			})
			if !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			orders, total := 0, ""
			if test.kept {
				orders, total = 2, "tokens 1/1/1"
			}
			if n := sqlOne[int](t, a, "SELECT count(*) FROM {schema}.orders"); n != orders {
				t.Errorf("%d orders, want %d", n, orders)
			}
			wantTotals(t, a, "acme", total)
		})
	}
}

// B29: at another isolation level a statement does not see what was committed
// before its lock was granted: such a transaction is refused, and lives on.
func TestWithTxIsolation(t *testing.T) {
	t.Parallel()
	a, own := embedded(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		err := pgx.BeginTxFunc(t.Context(), own, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			_, err := a.WithTx(tx).RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Each})
			wantFailure(t, err, sdk.TagInvalid, "isolation")
			return own.order(t.Context(), tx)
		})
		must(t, err)
	}
}

// Everything that can be bound is; half a change is not kept.
func TestBoundStore(t *testing.T) {
	t.Parallel()
	a, own := embedded(t)
	err := pgx.BeginFunc(t.Context(), own, func(tx pgx.Tx) error {
		s := a.WithTx(tx)
		set, err := s.ChangeRoutes(t.Context(), storage.RouteChange{Add: []storage.Route{{Exporter: "x", Feature: "f", Disposition: storage.RouteIgnore}}})
		if err != nil || set.Revision != 1 {
			return fmt.Errorf("routes %+v: %w", set, err)
		}
		_, err = s.ChangeRoutes(t.Context(), storage.RouteChange{Revision: 1, Retire: []int64{set.Routes[0].ID, 99}})
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
	must(t, err)
	if set, err := a.Routes(t.Context()); err != nil || set.Revision != 1 {
		t.Errorf("%+v, %v", set, err)
	}
}

// Q26: while an embedder's transaction holds the shared side for long, other
// records go on and a change of routes comes through when it ends.
func TestLongEmbedderTransaction(t *testing.T) {
	t.Parallel()
	a, own := embedded(t)
	changed := make(chan error, 1)
	err := pgx.BeginFunc(t.Context(), own, func(tx pgx.Tx) error {
		if _, err := a.WithTx(tx).RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Each, Units: []storage.Unit{plain(tokens("acme", "long", "1"))}}); err != nil {
			return err
		}
		go func() {
			_, err := a.ChangeRoutes(t.Context(), storage.RouteChange{Add: []storage.Route{{Exporter: "x", Feature: "f", Disposition: storage.RouteIgnore}}})
			changed <- err
		}()
		waitForLockWaits(t, a, 1)
		for i := range 20 {
			start := time.Now()
			record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("zeta", fmt.Sprint("e", i), "1"))}})
			if d := time.Since(start); d > 5*time.Second { // it queues for lockWait at most
				t.Errorf("a record waited %v behind a change of routes", d)
			}
		}
		select {
		case err := <-changed:
			return fmt.Errorf("changed beside a record: %w", err)
		default:
			return nil
		}
	})
	must(t, err)
	must(t, <-changed)
	// With a deadline the change gives up instead.
	err = pgx.BeginFunc(t.Context(), own, func(tx pgx.Tx) error {
		if _, err := a.WithTx(tx).RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Each, RoutesRevision: 1}); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
		defer cancel()
		_, err := a.ChangeRoutes(ctx, storage.RouteChange{Revision: 1})
		wantFailure(t, err, sdk.TagUnavailable, "timeout")
		return nil
	})
	must(t, err)
}

// A bound change leaves the caller's own lock_timeout as it was.
func TestBoundLockTimeout(t *testing.T) {
	t.Parallel()
	a, own := embedded(t)
	err := pgx.BeginFunc(t.Context(), own, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '2s'"); err != nil {
			return err
		}
		if _, err := a.WithTx(tx).ChangeRoutes(t.Context(), storage.RouteChange{}); err != nil {
			return err
		}
		var now string
		err := tx.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&now)
		if now != "2s" {
			t.Errorf("the caller's lock_timeout is %s, was 2s", now)
		}
		return err
	})
	must(t, err)
}

// A transaction in which a statement of the caller's failed is told apart from
// a store that does not work.
func TestAbortedTransaction(t *testing.T) {
	t.Parallel()
	a, own := embedded(t)
	tx, err := own.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "SELECT 1/0"); err == nil {
		t.Fatal("divided by zero")
	}
	_, err = a.WithTx(tx).RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Each})
	wantFailure(t, err, sdk.TagUnavailable, "transaction_aborted")
}
