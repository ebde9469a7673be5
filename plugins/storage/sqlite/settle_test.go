package sqlite

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// What the adapter promises, the schema holds against any other writer.
func TestSettledTablesAreGuarded(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	route := seed(t, a, 1, nil)
	claim(t, a, route)
	move(t, a, storage.Transition{
		ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Leased, Method: new("cancel")},
		Action: &storage.Action{Kind: storage.ActionResolve, Actor: "a", Reason: "r"},
	})
	if _, err := a.DecideCutovers(t.Context(), []storage.Cutover{{Tenant: "acme", Feature: "tokens", DurableFrom: period}}); err != nil {
		t.Fatal(err)
	}
	err := a.SaveReconciliation(t.Context(), storage.Reconciliation{
		ID: "1", StartedAt: period, FinishedAt: period, NewLines: []storage.ReconciliationLine{{Customer: "c"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"UPDATE fencepost_actions SET actor = 'b'",
		"DELETE FROM fencepost_actions",
		"UPDATE fencepost_cutovers SET durable_from = 0",
		"DELETE FROM fencepost_cutovers",
		"UPDATE fencepost_reconciliations SET error = 'x'",
		"UPDATE fencepost_reconciliation_lines SET cause = 'x'",
		"UPDATE fencepost_outbox_state SET method = 'negative'",
		"UPDATE fencepost_outbox_state SET method = NULL",
		"UPDATE fencepost_outbox_items SET depends_on = 7",
		"UPDATE fencepost_routes SET mode = 'live'",
		"UPDATE fencepost_routes SET exporter = 'x', retired_at = 1",
		"UPDATE fencepost_routes SET exporter = 'x', feature = 'y'",
		"INSERT INTO fencepost_report_bounds VALUES ('x', '', '', 't', 'f', 0, 1, '0', '5', NULL, 0)",
	} {
		if err := trySQL(a.path, statement); err == nil {
			t.Errorf("%s: done", statement)
		}
	}
	sqlExec(t, a.path, "UPDATE fencepost_outbox_state SET superseded_by = 7")
	if err := trySQL(a.path, "UPDATE fencepost_outbox_state SET superseded_by = NULL"); err == nil {
		t.Error("a superseded item came back")
	}
}

// The gauge follows every way in which an item moves with another one.
func TestCountsOfDependents(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	route := seed(t, a, 1, func(_ int, it *storage.NewItem) { it.QuarantineReason = "no_account" })
	correct := func(id string, reason string, settled bool) {
		e := event("acme", "e000000", "1")
		cor := storage.Event{
			Tenant: "acme", EventID: id, Kind: storage.Correction, Quantity: decimal.MustParse("0.1"), OriginalEventID: e.EventID,
			DedupeHash: hash(id), PayloadHash: hash(id),
		}
		n := item(storage.Event{Tenant: "acme", EventID: id}, route, "m1")
		n.Identity.SubjectKind, n.QuarantineReason, n.Settled = storage.SubjectCorrection, reason, settled
		n.DependsOn = &storage.Dependency{ItemID: 1, State: storage.Quarantined, Wait: true}
		n.Payload = []byte(`{"feature":"tokens","value":"-0.1","timestamp":"2026-11-02T12:00:00Z"}`)
		res, err := a.RecordCorrection(t.Context(), storage.CorrectRequest{Event: cor, Items: []storage.NewItem{n}, RoutesRevision: 1})
		if err != nil || res.Outcome != storage.Inserted {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	correct("c1", "", false)
	correct("c2", "no_customer", false)
	correct("c3", "period_buffered", true)
	checkCounts(t, a)
	action := storage.Action{Kind: storage.ActionSupersede, Actor: "a", Reason: "r"}
	next := item(event("acme", "e000000", "1"), route, "m1")
	next.Identity.Account, next.Digest, next.SubjectKey = "acct_2", hash("next"), hash("next subject")
	var waiting []storage.NewItem
	for _, id := range []string{"c1", "c2", "c3"} {
		w := storage.NewItem{Digest: hash("next", id), SubjectKey: hash("next subject", id), Payload: []byte(`{}`)}
		w.Identity.SubjectRef = id
		waiting = append(waiting, w)
	}
	res, err := a.Supersede(t.Context(), []storage.Supersession{{
		ItemID: 1, Expect: storage.Expect{State: storage.Quarantined}, New: next, Waiting: waiting, Action: action,
	}})
	if err != nil || res[0].Rows != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	checkCounts(t, a)
	cl := claim(t, a, route)
	wantIDs(t, cl, res[0].NewItemID)
	why, yes, no := "original_not_charged", true, false
	move(t, a, storage.Transition{
		ItemID: res[0].NewItemID, Expect: fenced(1), Set: storage.Change{State: storage.Rejected},
		Waiting: &storage.Change{State: storage.Quarantined, QuarantineReason: &why, Settled: &yes, Release: true},
	})
	checkCounts(t, a)
	move(t, a, storage.Transition{
		ItemID: res[0].NewItemID, Expect: storage.Expect{State: storage.Rejected}, Set: storage.Change{State: storage.Rejected, Settled: &yes},
		Dependents: &storage.Change{Disputed: new("x"), Settled: &no},
	})
	checkCounts(t, a)
	if _, err := a.MarkRestored(t.Context(), storage.RestoreRequest{
		Before: c.t, Since: period, Limit: 100, Action: storage.Action{Kind: storage.ActionRestore, Actor: "a", Reason: "r"},
	}); err != nil {
		t.Fatal(err)
	}
	checkCounts(t, a)
	if it := load(t, a, res[0].NewItemID+1).Item; it.State != storage.Uncertain || it.FirstUnresolvedAt != period {
		t.Errorf("after a restore: %+v", it)
	}
}

// R3: durations are compared with the store's clock, to the microsecond.
func TestExpectationsOfTime(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	claim(t, a, seed(t, a, 1, nil))
	claimed := c.t
	move(t, a, storage.Transition{ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Uncertain, MarkUnresolved: true}})
	c.advance(time.Hour)
	hour, less, more := time.Hour, time.Hour-time.Microsecond, time.Hour+time.Microsecond
	after := claimed.Add(time.Microsecond)
	for name, tc := range map[string]struct {
		expect storage.Expect
		rows   int
	}{
		"quiet for as long":       {storage.Expect{QuietFor: &hour}, 1},
		"not quiet for longer":    {storage.Expect{QuietFor: &more}, 0},
		"not within as long":      {storage.Expect{Within: &hour}, 0},
		"not within less":         {storage.Expect{Within: &less}, 0},
		"within more":             {storage.Expect{Within: &more}, 1},
		"trusted since then":      {storage.Expect{TrustedSince: &claimed}, 1},
		"not trusted since later": {storage.Expect{TrustedSince: &after}, 0},
	} {
		tc.expect.State = storage.Uncertain
		rows := move(t, a, storage.Transition{ItemID: 1, Expect: tc.expect, Set: storage.Change{State: storage.Uncertain}})
		if rows[0] != tc.rows {
			t.Errorf("%s: %d rows, want %d", name, rows[0], tc.rows)
		}
	}
}

// Whoever records in a transaction of WithTx decides cutovers there, too: a
// second connection would wait for the first.
func TestDecideCutoversWithTx(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	list := []storage.Cutover{{Tenant: "acme", Feature: "tokens", DurableFrom: period}}
	decide := func(fail error) error {
		return a.WithTx(t.Context(), func(tx *Tx) error {
			decider, ok := tx.Store().(interface {
				DecideCutovers(ctx context.Context, list []storage.Cutover) ([]storage.Cutover, error)
			})
			if !ok {
				t.Fatal("a bound store does not decide cutovers")
			}
			if _, err := decider.DecideCutovers(t.Context(), list); err != nil {
				return err
			}
			return fail
		})
	}
	if err := decide(errUndo); err == nil {
		t.Fatal("the transaction did not fail")
	}
	if all, err := a.Cutovers(t.Context(), storage.Cutover{}, 10); err != nil || len(all) != 0 {
		t.Fatalf("%+v, %v after a rollback", all, err)
	}
	if err := decide(nil); err != nil {
		t.Fatal(err)
	}
	if all, err := a.Cutovers(t.Context(), storage.Cutover{}, 10); err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
}
