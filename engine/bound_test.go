package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

var errRollback = errors.New("the caller thought better of it")

// Issue item 10: what is recorded in a caller's transaction is there when the
// caller commits, and leaves nothing when it does not.
func TestBoundTransaction(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.routes(plan(map[string]string{"tokens": "old"}))
	f.subscribe("acme", "cus_old")
	f.want(f.each(plain("a", "1")), "inserted")

	err := f.store.WithTx(t.Context(), func(tx *sqlite.Tx) error {
		// Within the transaction the tenant moves; what is recorded there
		// follows, and the engine outside does not.
		s := storage.Subscription{
			Tenant: "acme", Customers: map[string]string{"stripe": "cus_new"},
			Anchor: time.Date(2026, 1, 15, 0, 0, 0, 0, time.UTC), Interval: storage.Month, Timezone: "UTC",
		}
		if _, err := tx.Store().PutSubscription(t.Context(), s); err != nil {
			return err
		}
		res, err := f.In(tx.Store()).Record(t.Context(), plain("b", "1"), plain("a", "1"))
		if err != nil {
			return err
		}
		if got := outcomes(res); got != "inserted duplicate" {
			t.Errorf("outcomes %s", got)
		}
		ev, err := tx.Store().LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: "b"})
		if err != nil || !ev.PeriodStart.Equal(time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("inside: period from %v, %v", ev.PeriodStart, err)
		}
		return errRollback
	})
	if !errors.Is(err, errRollback) {
		t.Fatal(err)
	}
	if f.total("tokens") != "1/1" || len(f.items()) != 1 || len(f.events()) != 1 {
		t.Errorf("after the rollback: total %s, %d items, %d events", f.total("tokens"), len(f.items()), len(f.events()))
	}
	f.want(f.each(plain("c", "1")), "inserted")
	ev, err := f.Event(t.Context(), storage.EventKey{Tenant: "acme", EventID: "c"})
	if err != nil || !ev.PeriodStart.Equal(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("outside: period from %v, %v; memory has moved", ev.PeriodStart, err)
	}
	if items := f.items(); items[len(items)-1].Customer != "cus_old" {
		t.Errorf("outside: customer %s", items[len(items)-1].Customer)
	}

	err = f.store.WithTx(t.Context(), func(tx *sqlite.Tx) error {
		_, err := f.In(tx.Store()).RecordBatch(t.Context(), batchOf(plain("b", "1")))
		return err
	})
	if err != nil || f.total("tokens") != "3/3" {
		t.Errorf("after the commit: %v, total %s", err, f.total("tokens"))
	}
}

// B33: a refusal leaves the caller's transaction usable.
func TestRefusalLeavesTheCallersTransaction(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.want(f.each(plain("a", "1")), "inserted")
	err := f.store.WithTx(t.Context(), func(tx *sqlite.Tx) error {
		b := f.In(tx.Store())
		_, err := b.Record(t.Context(), plain("b", "1"), plain("a", "2"))
		tagIs(t, err, sdk.TagConflict, "")
		_, err = b.Record(t.Context(), plain("", "1"))
		tagIs(t, err, sdk.TagInvalid, "")
		res, err := b.RecordBatch(t.Context(), engine.Batch{Mode: storage.Each, Inputs: inputsOf([]any{plain("c", "1"), plain("a", "2")})})
		if err != nil || outcomes(res) != "inserted conflict" {
			t.Errorf("%v, %v", outcomes(res), err)
		}
		return err
	})
	if err != nil || f.total("tokens") != "2/2" {
		t.Errorf("%v, total %s; want a and c", err, f.total("tokens"))
	}
}

// A bound engine outlives its transaction no longer than that.
func TestBoundAfterItsTransaction(t *testing.T) {
	t.Parallel()
	f := open(t)
	var b *engine.Bound
	err := f.store.WithTx(t.Context(), func(tx *sqlite.Tx) error {
		b = f.In(tx.Store())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Record(context.Background(), plain("a", "1"))
	tagIs(t, err, sdk.TagUnavailable, "")
	if len(f.events()) != 0 {
		t.Error("an event was written after the transaction")
	}
}
