package mysql_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/host/sql"
	"github.com/fencepost/fencepost/internal/mysqltest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/mysql"
)

// direct is the capability with one session for all calls of a test.
type direct struct {
	db  *sql.Database
	ctx context.Context //nolint:containedctx // of the session
	// before, if set, sees every piece of work first.
	before func(w capability.Work) error
}

func (d *direct) Do(_ context.Context, w capability.Work) (capability.Done, error) {
	if d.before != nil {
		if err := d.before(w); err != nil {
			return capability.Done{}, err
		}
	}
	return mysqltest.Do(d.ctx, d.db, w)
}

func connect(t *testing.T) (*direct, string) {
	t.Helper()
	dsn := mysqltest.Database(t)
	db, err := sql.Open(dsn, 4)
	if err != nil {
		t.Fatal(err)
	}
	ctx, session := db.Begin(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		session.End()
		_ = db.Close()
	})
	return &direct{db: db, ctx: ctx}, dsn
}

func open(t *testing.T) (*mysql.Adapter, *direct, string) {
	t.Helper()
	d, dsn := connect(t)
	a, err := mysql.Open(t.Context(), d, true)
	if err != nil {
		t.Fatal(err)
	}
	return a, d, dsn
}

var start = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func usage(id, quantity string) storage.RecordRequest {
	return storage.RecordRequest{Mode: storage.Each, Units: []storage.Unit{{Entries: []storage.Entry{{Event: storage.Event{
		Tenant: "t", EventID: id, Feature: "f", Quantity: decimal.MustParse(quantity), Kind: storage.Usage, OccurredAt: start,
		PeriodStart: start, PeriodEnd: start.AddDate(0, 1, 0), PeriodSource: storage.FromCalendar,
	}}}}}}
}

// Identifiers differ by case, by trailing spaces and by accents that collations
// fold, and where one name ends is part of an identity.
func TestIdentifiersAreBytes(t *testing.T) {
	t.Parallel()
	a, _, _ := open(t)
	ids := []string{"a", "A", "a ", "a  ", "\u00e4", "a\u0308", "a\x00", "%", "_"}
	for _, id := range ids {
		res, err := a.RecordEvents(t.Context(), usage(id, "1"))
		if err != nil || res.Units[0].Outcome != storage.Inserted {
			t.Errorf("%q: %v, %+v", id, err, res)
		}
	}
	one, other := usage("bc", "1"), usage("c", "1")
	one.Units[0].Entries[0].Event.Tenant, other.Units[0].Entries[0].Event.Tenant = "a", "ab"
	for _, req := range []storage.RecordRequest{one, other} {
		if res, err := a.RecordEvents(t.Context(), req); err != nil || res.Units[0].Outcome != storage.Inserted {
			t.Errorf("%v, %+v", err, res)
		}
	}
	totals, err := a.LoadTotals(t.Context(), storage.TotalsQuery{Tenant: "t"})
	if err != nil || len(totals) != 1 || totals[0].Events != int64(len(ids)) {
		t.Errorf("%v, %+v", err, totals)
	}
}

// A transaction that the database gave up itself is made again; one whose end is
// unknown is not, and is unavailable.
func TestGivenUpByTheDatabase(t *testing.T) {
	t.Parallel()
	for _, want := range []struct {
		code     string
		times    int
		recorded bool
	}{{"deadlock", 3, true}, {"serialization", 1, true}, {"deadlock", 4, false}, {"commit_unknown", 1, false}, {"lock_timeout", 1, false}} {
		a, d, _ := open(t)
		var mu sync.Mutex
		n := 0
		d.before = func(w capability.Work) error {
			mu.Lock()
			defer mu.Unlock()
			if w.End != capability.Commit || w.ReadOnly || n == want.times {
				return nil
			}
			n++
			_, _ = mysqltest.Do(d.ctx, d.db, capability.Work{Transaction: w.Transaction, End: capability.Rollback})
			return &sdk.Error{Tag: sdk.TagUnavailable, Code: want.code}
		}
		_, err := a.RecordEvents(t.Context(), usage("1", "1"))
		if (err == nil) != want.recorded || err != nil && !errors.Is(err, sdk.ErrUnavailable) {
			t.Errorf("%s %d times: %v", want.code, want.times, err)
		}
		d.before = nil
		_, err = a.LoadEvent(t.Context(), storage.EventKey{Tenant: "t", EventID: "1"})
		if (err == nil) != want.recorded {
			t.Errorf("%s: stored: %v", want.code, err)
		}
	}
}

// A store that somebody changed by hand is noticed where a row is missing, and
// what the database says of its own rows is no conflict of the caller's.
func TestChangedByHand(t *testing.T) {
	t.Parallel()
	a, _, dsn := open(t)
	if _, err := a.RecordEvents(t.Context(), usage("1", "1")); err != nil {
		t.Fatal(err)
	}
	mysqltest.Exec(t, dsn, "UPDATE fencepost_state SET last_event = 0")
	_, err := a.RecordEvents(t.Context(), usage("2", "1"))
	if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Tag != sdk.TagUnavailable || e.Code != "unique_violation" {
		t.Errorf("a number given twice: %v", err)
	}
	mysqltest.Exec(t, dsn, "DELETE FROM fencepost_state")
	_, err = a.RecordEvents(t.Context(), usage("2", "1"))
	if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Code != "schema_missing" {
		t.Errorf("without its state: %v", err)
	}
}

// A migration that broke off is ended by the next, two hosts may run it at once,
// and one that is refused says so.
func TestMigrate(t *testing.T) {
	t.Parallel()
	d, dsn := connect(t)
	a, err := mysql.Open(t.Context(), d, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Ping(t.Context()); !errors.Is(err, sdk.ErrUnavailable) {
		t.Errorf("without a schema: %v", err)
	}
	if _, err := a.RecordEvents(t.Context(), usage("1", "1")); !errors.Is(err, sdk.ErrUnavailable) {
		t.Errorf("recording without a schema: %v", err)
	}
	for range 2 {
		done, err := a.Migrate(t.Context())
		if err != nil || len(done) != 1 || !done[0].Applied() {
			t.Fatalf("%v, %+v", err, done)
		}
		if _, err := a.RecordEvents(t.Context(), usage("1", "1")); err != nil {
			t.Fatal(err)
		}
		// As if it had broken off before its last tables and its note.
		mysqltest.Exec(t, dsn, "DROP TABLE fencepost_bounds")
		mysqltest.Exec(t, dsn, "DELETE FROM fencepost_migrations")
	}
	if done, err := a.Migrate(t.Context()); err != nil || len(done) != 1 {
		t.Fatalf("%v, %+v", err, done)
	}
	if done, err := a.Migrate(t.Context()); err != nil || len(done) != 0 {
		t.Errorf("again: %v, %+v", err, done)
	}
	mysqltest.Exec(t, dsn, "UPDATE fencepost_migrations SET checksum = 'another'")
	list, err := a.MigrationStatus(t.Context())
	if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Code != "schema_changed" || len(list) != 1 {
		t.Errorf("changed: %v, %+v", err, list)
	}
	var all sync.WaitGroup
	_, dsn2 := connect(t)
	for range 3 {
		db, err := sql.Open(dsn2, 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, session := db.Begin(t.Context())
		all.Go(func() {
			defer func() { _ = db.Close() }()
			defer session.End()
			if _, err := mysql.Open(ctx, &direct{db: db, ctx: ctx}, true); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
