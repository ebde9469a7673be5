package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// charged is a store with one event of acme, e1, whose item is leased.
func charged(t *testing.T) (o *outbox, item storage.Item, revision int64) {
	t.Helper()
	a := open(t)
	route, revision := routed(t, a)
	o = &outbox{t: t, Adapter: a, route: route}
	e := tokens("acme", "e1", "5")
	record(t, a, storage.RecordRequest{RoutesRevision: revision, Units: []storage.Unit{plain(e, itemFor(e, route, "m1"))}})
	cl := o.claim(storage.ClaimRequest{})
	if len(cl.Items) != 1 {
		t.Fatalf("claimed %d items", len(cl.Items))
	}
	return o, o.load(cl.Items[0].ItemID).Item, revision
}

// dependent is a correction of e1 whose item depends on that of the original,
// as it was read.
func dependent(of storage.Item, revision int64) storage.CorrectRequest {
	req := correcting("c1", "e1", "5")
	req.RoutesRevision = revision
	id := of.Identity
	id.SubjectKind, id.SubjectRef = storage.SubjectCorrection, "c1"
	req.Items = []storage.NewItem{{
		Identity: id, Digest: digestOf("digest c1"), SubjectKey: digestOf("subject c1"), RouteID: of.RouteID,
		Customer: of.Customer, AttemptBudget: 3, Payload: []byte(`{"value":"-5"}`),
		DependsOn: &storage.Dependency{
			ItemID: of.ItemID, State: of.State, Settled: !of.SettledAt.IsZero(), Superseded: of.SupersededBy != 0,
			Wait: of.State != storage.Accepted && of.State != storage.Confirmed,
		},
	}}
	return req
}

// accepting is what a deliverer writes of an accepted item.
func accepting(of storage.Item) storage.Transition {
	return storage.Transition{
		ItemID: of.ItemID, Expect: fenced(of.LeaseToken),
		Set:     storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: new(true)},
		Waiting: &storage.Change{State: storage.Pending, Release: true},
	}
}

// Q18: the correction is first. Whoever moves the original meanwhile waits for
// it, and then sees what depends on it, although its statement began before.
func TestTransitionBehindACorrection(t *testing.T) {
	t.Parallel()
	o, of, revision := charged(t)
	tx, err := o.pools[workPool].Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	wantTold(t, correct(t, o.WithTx(tx), dependent(of, revision)), "inserted c1 0")
	rows := make(chan int, 1)
	go func() {
		res, err := o.Transition(context.WithoutCancel(t.Context()), []storage.Transition{accepting(of)})
		if err != nil {
			t.Error(err)
			rows <- -1
			return
		}
		rows <- res[0].Rows
	}()
	blocks(t, o.Adapter, sessionOf(t, tx))
	must(t, tx.Commit(t.Context()))
	if n := <-rows; n != 1 {
		t.Fatalf("%d rows", n)
	}
	cl := o.claim(storage.ClaimRequest{})
	if len(cl.Items) != 1 || cl.Items[0].Identity.SubjectRef != "c1" || cl.Items[0].Original.State != storage.Accepted {
		t.Fatalf("claimed %+v, want the correction", cl.Items)
	}
	if of := cl.Items[0].Original; of.Dependents != 1 || of.SinceFirstAttempt <= 0 {
		t.Errorf("original %+v", of)
	}
	o.checkCounts()
}

// Q18: the move is first. The correction that was computed from the item as it
// was waits for it and is stale; computed anew, it does not wait.
func TestCorrectionBehindATransition(t *testing.T) {
	t.Parallel()
	o, of, revision := charged(t)
	tx, err := o.pools[workPool].Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	moved := &movement{t: txOf(o, tx), moves: []storage.Transition{accepting(of)}, results: make([]storage.TransitionResult, 1)}
	must(t, moved.run(t.Context()))
	answers := make(chan storage.CorrectResult, 1)
	go func() {
		res, err := o.RecordCorrection(context.WithoutCancel(t.Context()), dependent(of, revision))
		if err != nil {
			t.Error(err)
		}
		answers <- res
	}()
	blocks(t, o.Adapter, sessionOf(t, tx))
	must(t, tx.Commit(t.Context()))
	if res := <-answers; res.Stale == nil || !res.Stale.Items {
		t.Fatalf("answer %+v, want stale items", res)
	}
	wantTotals(t, o.Adapter, "acme", "tokens 5/1/1")
	res := correct(t, o.Adapter, dependent(o.load(of.ItemID).Item, revision))
	wantTold(t, res, "inserted c1 0")
	if cl := o.claim(storage.ClaimRequest{}); len(cl.Items) != 1 || cl.Items[0].Identity.SubjectRef != "c1" {
		t.Errorf("claimed %+v, want the correction", cl.Items)
	}
	o.checkCounts()
}

func txOf(o *outbox, q pgx.Tx) *tx { return &tx{a: o.Adapter, q: q} }

// Q5, O19: an item gets a successor, and so does what waits for it; without a
// successor for that nothing is written.
func TestSupersedeTakesWhatWaits(t *testing.T) {
	t.Parallel()
	o, of, revision := charged(t)
	wantTold(t, correct(t, o.Adapter, dependent(of, revision)), "inserted c1 0")
	o.move(storage.Transition{ItemID: of.ItemID, Expect: fenced(of.LeaseToken), Set: storage.Change{State: storage.Quarantined, QuarantineReason: new("provider_refused")}})
	was := o.load(of.ItemID).Item
	next := storage.NewItem{Identity: was.Identity, Digest: digestOf("digest m2"), SubjectKey: digestOf("subject", "acme", "e1"), RouteID: was.RouteID, Customer: "cus_2", AttemptBudget: 3}
	next.Identity.MappingVersion = "m2"
	with := storage.NewItem{Identity: storage.Identity{SubjectRef: "c1"}, Digest: digestOf("digest c1 m2"), SubjectKey: digestOf("subject c1"), Payload: []byte(`{"value":"-5"}`)}
	list := []storage.Supersession{{
		ItemID: of.ItemID, Expect: storage.Expect{State: storage.Quarantined}, New: next,
		Action: storage.Action{Kind: storage.ActionSupersede, Actor: "ops", Reason: "a new mapping"},
	}}
	if _, err := o.Supersede(t.Context(), list); err == nil {
		t.Error("what waits was left behind")
	} else {
		wantFailure(t, err, "conflict", "waiting_missing")
	}
	if it := o.load(of.ItemID).Item; it.SupersededBy != 0 || !it.SettledAt.IsZero() {
		t.Errorf("after a conflict: %+v", it)
	}
	list[0].Waiting = []storage.NewItem{with}
	res, err := o.Supersede(t.Context(), list)
	must(t, err)
	if res[0].Rows != 1 || res[0].NewItemID == 0 {
		t.Fatalf("%+v", res)
	}
	o.checkSuperseded()
	old, successor := o.load(of.ItemID), o.load(res[0].NewItemID).Item
	if old.Item.SupersededBy != successor.ItemID || old.Item.SettledAt.IsZero() || successor.State != storage.Pending || successor.Customer != "cus_2" || len(old.Actions) != 1 {
		t.Errorf("old %+v, new %+v", old, successor)
	}
	page, err := o.ListItems(t.Context(), storage.ItemQuery{Limit: 10, DependsOn: successor.ItemID})
	must(t, err)
	if len(page.Items) != 1 || !page.Items[0].Waits || page.Items[0].Identity.MappingVersion != "m2" || page.Items[0].Customer != "cus_2" {
		t.Errorf("what waits now: %+v", page.Items)
	}
	o.checkCounts()
}

// Q17, F13: what a store that went back may have sent becomes uncertain, page by
// page; the counter rises above what any host remembers with the last page, in
// its transaction.
func TestMarkRestored(t *testing.T) {
	t.Parallel()
	o := seeded(t, 5, noSerial)
	o.claim(storage.ClaimRequest{Limit: 1})
	since := o.now().Add(-time.Hour)
	req := storage.RestoreRequest{
		Before: o.now(), Since: since, Claims: 1000, Limit: 3, DryRun: true,
		Action: storage.Action{Kind: storage.ActionRestore, Actor: "ops", Reason: "restored"},
	}
	mark := func(want int64) {
		t.Helper()
		n, err := o.MarkRestored(t.Context(), req)
		must(t, err)
		if n != want {
			t.Errorf("marked %d, want %d", n, want)
		}
	}
	state := func() storage.Incarnation {
		t.Helper()
		res, err := o.Beat(t.Context(), storage.Heartbeat{Host: "x", Leaving: true})
		must(t, err)
		return res.Incarnation
	}
	mark(5)
	req.DryRun = false
	mark(3)
	if in := state(); in.Claims != 1 || in.Restores != 0 {
		t.Errorf("half way: %+v", in)
	}
	mark(2)
	if in := state(); in.Claims <= 1000 || in.Restores != 1 {
		t.Errorf("done: %+v", in)
	}
	for id := range int64(5) {
		it := o.load(id + 1).Item
		if it.State != storage.Uncertain || !it.Unresolved || !it.FirstUnresolvedAt.Equal(since.UTC().Truncate(time.Microsecond)) ||
			it.LeaseOwner != "" || it.LeaseToken == 0 || it.LastError == nil || it.LastError.Code != "restored" {
			t.Errorf("%+v", it)
		}
	}
	page, err := o.ListActions(t.Context(), storage.ActionQuery{Limit: 10})
	must(t, err)
	if len(page.Actions) != 1 {
		t.Errorf("actions %+v", page.Actions)
	}
	o.checkCounts()
	o.fill(o.route, 6, 6, noSerial)
	if cl := o.claim(storage.ClaimRequest{}); cl.Incarnation.Claims <= 1001 {
		t.Errorf("the next claim: %+v", cl.Incarnation)
	}
}

// Q16: what is unresolved since before the clocks can be trusted is not sent
// again.
func TestClaimTrustsNoClock(t *testing.T) {
	t.Parallel()
	o := seeded(t, 1, noSerial)
	o.claim(storage.ClaimRequest{})
	o.retry(storage.Change{MarkUnresolved: true})
	cl := o.claim(storage.ClaimRequest{TrustedSince: o.now().Add(time.Hour), Horizon: time.Hour})
	if len(cl.Items) != 0 || len(cl.Exhausted) != 1 || cl.Exhausted[0].Code != storage.CodeClockUntrusted {
		t.Errorf("%+v", cl)
	}
	if it := o.load(1).Item; it.State != storage.Uncertain {
		t.Errorf("%+v", it)
	}
}

// sessionOf is the server's session of a transaction, also behind a pooler.
func sessionOf(t *testing.T, tx pgx.Tx) (pid int32) {
	t.Helper()
	must(t, tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	return pid
}
