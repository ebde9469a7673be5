package conformance

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func settleCases() []Case {
	return []Case{
		define("settle/supersede", "Q5 O19", exporting(), supersedeOne),
		define("settle/supersede-takes-what-waits", "Q5 Q18 O19", correcting(), supersedeWaiting),
		define("settle/supersede-conflicts-write-nothing", "Q5 O19", correcting(), supersedeConflicts),
		define("settle/supersede-a-window", "Q5 Q20", reporting(), supersedeWindow),
		define("settle/enqueue", "Q4", exporting(), enqueueItems),
		define("settle/enqueue-refuses", "Q4 Q18", exporting(), enqueueRefuses),
		define("settle/actions-in-pages", "O26 O27", exporting(), actionPages),
		fresh("settle/restored", "Q17", exporting(), markRestored),
	}
}

// another is the item that takes an item's place, under mapping 2.
func (r *run) another(it *storage.Item) storage.NewItem {
	_, err := r.change(storage.RouteChange{
		Mappings: []storage.Mapping{{Version: r.mappingVersion("2"), Label: "2", Content: []byte(`{"event_name":"llm2"}`)}},
	})
	r.must("add a mapping", err)
	id := it.Identity
	id.MappingVersion = r.mappingVersion("2")
	return storage.NewItem{
		Identity: id, Digest: hash("digest", text(id)), SubjectKey: hash("subject", id.Tenant, id.SubjectRef, id.Exporter),
		RouteID: it.RouteID, Customer: it.Customer, AttemptBudget: 5, SerialKey: r.prefix + "-s2",
	}
}

// supersedes replaces an item by that of mapping 2 and expects that it did.
func (r *run) supersedes(it storage.Item, edit func(*storage.Supersession)) storage.Item {
	sup := storage.Supersession{
		ItemID: it.ItemID, Expect: storage.Expect{State: it.State}, New: r.another(&it), Action: *r.actionOf(storage.ActionSupersede),
	}
	if edit != nil {
		edit(&sup)
	}
	res, err := r.settlements().Supersede(r.ctx, []storage.Supersession{sup})
	r.must("supersede", err)
	if len(res) != 1 || res[0].Rows != 1 || res[0].NewItemID == 0 {
		r.fatalf("supersede: %s, want one row", text(res))
	}
	return r.now(res[0].NewItemID)
}

func supersedeOne(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	it := r.putItem(t, "e", "7", route, func(_ *storage.Event, n *storage.NewItem) { n.QuarantineReason = "no_account" })
	none, one := 0, 1
	sup := storage.Supersession{
		ItemID: it.ItemID, Expect: storage.Expect{State: storage.Quarantined, Attempts: &one}, New: r.another(&it),
		Action: *r.actionOf(storage.ActionSupersede),
	}
	res, err := r.settlements().Supersede(r.ctx, []storage.Supersession{sup})
	r.must("supersede", err)
	r.same("what does not hold", res, []storage.SupersedeResult{{}})
	r.same("changes nothing", r.now(it.ItemID), it)
	sup.Expect.Attempts = &none
	res, err = r.settlements().Supersede(r.ctx, []storage.Supersession{sup, sup})
	r.must("supersede", err)
	if len(res) != 2 || res[0].Rows != 1 || res[1] != (storage.SupersedeResult{}) {
		r.fatalf("supersede, then again: %s", text(res))
	}
	id := res[0].NewItemID
	old := r.now(it.ItemID)
	r.same("the old one", []any{old.State, old.SupersededBy, old.SettledAt.IsZero()}, []any{storage.Quarantined, id, false})
	d := r.detail(id)
	r.same("the new one", []any{d.Item.State, d.Item.Identity, d.Item.Digest, d.Item.SerialKey, d.Item.AttemptBudget, d.Item.Feature},
		[]any{storage.Pending, sup.New.Identity, sup.New.Digest, r.prefix + "-s2", 5, "tokens"})
	if d.Event == nil || d.Event.EventID != "e" {
		r.errorf("its event: %s", text(d.Event))
	}
	r.actionsAre("once", 0, of(&sup.Action, it.ItemID))
	r.statsAre("counts", map[storage.ItemState][2]int64{storage.Quarantined: {1, 0}, storage.Pending: {1, 1}})
	r.same("the old one moves no more", r.moves(storage.Transition{
		ItemID: it.ItemID, Expect: storage.Expect{State: storage.Quarantined}, Set: storage.Change{State: storage.Rejected},
	}), []int{0})
	got := r.take(route, id)
	r.same("with the new mapping", got.Mapping.Version, r.mappingVersion("2"))
	r.same("once", len(r.claim(storage.ClaimRequest{Routes: []int64{route}}).Items), 0)
}

// heldPair is an original in quarantine and two corrections that wait for it.
func (r *run) heldPair(t string, route int64) (original, pending, held storage.Item) {
	e := usage(t, "e", "10")
	n := r.item(&e, route)
	n.QuarantineReason = "no_account"
	r.putUnits(storage.Unit{Entries: []storage.Entry{entry(e, n)}})
	original = r.only(storage.ItemQuery{Tenant: t})
	pending = r.takeBack(&e, "c", &original, nil)
	held = r.takeBack(&e, "held", &original, func(n *storage.NewItem) { n.QuarantineReason = "no_customer" })
	return original, pending, held
}

// What waits follows its original to the new destination.
func supersedeWaiting(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	original, pending, held := r.heldPair(t, route)
	with := func(it *storage.Item) storage.NewItem {
		n := r.another(it)
		n.Payload = []byte(`{"feature":"tokens","value":"-1","timestamp":"2026-10-02T12:00:00Z","mapping":"2"}`)
		return n
	}
	forPending, forHeld := with(&pending), with(&held)
	to := r.supersedes(original, func(s *storage.Supersession) {
		s.New.Customer = "cus_9"
		s.Waiting = []storage.NewItem{forHeld, forPending}
	})
	for was, want := range map[int64]storage.NewItem{pending.ItemID: forPending, held.ItemID: forHeld} {
		old := r.now(was)
		d := r.detail(old.SupersededBy)
		it := d.Item
		r.same("the copy", []any{it.Identity, it.Digest, it.Customer, it.SerialKey, it.DependsOn, it.Waits, it.State, it.QuarantineReason, it.AttemptBudget},
			[]any{want.Identity, want.Digest, "cus_9", r.prefix + "-s2", to.ItemID, true, old.State, old.QuarantineReason, old.AttemptBudget})
		r.same("its payload", string(plainJSON(d.Payload)), string(plainJSON(want.Payload)))
		r.same("its event", d.Event != nil && d.Event.Kind == storage.Correction, true)
		r.same("the one that waited", old.SettledAt.IsZero(), false)
	}
	r.accepted(route, to.ItemID, nil)
	got := r.take(route, r.now(pending.ItemID).SupersededBy)
	if got.Original == nil || got.Original.ItemID != to.ItemID || got.Original.Dependents != 2 {
		r.errorf("its original: %s", text(got.Original))
	}
	r.statsAre("counts", map[storage.ItemState][2]int64{
		storage.Pending: {1, 0}, storage.Leased: {1, 1}, storage.Accepted: {1, 0}, storage.Quarantined: {3, 1},
	})
}

func supersedeConflicts(r *run) {
	t, u := r.tenant("a"), r.tenant("b")
	route := r.addRoute("tokens")
	original, pending, _ := r.heldPair(t, route)
	free := r.putItem(u, "e", "7", route, func(_ *storage.Event, n *storage.NewItem) { n.QuarantineReason = "no_account" })
	before := r.items(storage.ItemQuery{Exporter: r.exporter()})
	for code, edit := range map[string]func(first, second *storage.Supersession){
		"waiting_missing": func(_, s *storage.Supersession) { s.Waiting = []storage.NewItem{r.another(&pending)} },
		"item_exists":     func(_, s *storage.Supersession) { s.New.Digest = pending.Digest },
		"items_moved": func(_, s *storage.Supersession) {
			s.New.DependsOn = &storage.Dependency{ItemID: free.ItemID, State: storage.Accepted}
		},
	} {
		first := storage.Supersession{
			ItemID: free.ItemID, Expect: storage.Expect{State: free.State}, New: r.another(&free), Action: *r.actionOf(storage.ActionSupersede),
		}
		second := storage.Supersession{
			ItemID: original.ItemID, Expect: storage.Expect{State: original.State}, New: r.another(&original),
			Action: *r.actionOf(storage.ActionSupersede),
		}
		edit(&first, &second)
		_, err := r.settlements().Supersede(r.ctx, []storage.Supersession{first, second})
		r.tagIs(code, err, sdk.TagConflict, code)
		r.same("after "+code, r.items(storage.ItemQuery{Exporter: r.exporter()}), before)
		r.actionsAre("after "+code, 0)
	}
	r.statsAre("counts", map[storage.ItemState][2]int64{storage.Pending: {1, 1}, storage.Quarantined: {3, 3}})
}

// The bound of a counter goes on with the window that took the old one's place.
func supersedeWindow(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	id := r.stageWindow(t, "0", "5").ItemID
	c, why := r.take(route, id), "mapping_changed"
	r.moves(storage.Transition{ItemID: id, Expect: leasedBy(c.LeaseToken), Set: storage.Change{State: storage.Quarantined, QuarantineReason: &why}})
	it := r.now(id)
	to := r.supersedes(it, func(s *storage.Supersession) {
		s.New.Payload, s.New.SubjectKey = r.window(t, route, "0", "5").Item.Payload, hash("subject", "window", t)
	})
	r.boundIs("the bound", t, "0", "5", to.ItemID)
	r.same("its feature", to.Feature, "tokens")
}

// What is enqueued again is found, not sent twice.
func enqueueItems(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	e, f := usage(t, "e", "1"), usage(t, "f", "1")
	r.put(e, f)
	first, second := r.item(&e, route), r.item(&f, route)
	other := second
	other.Identity.MappingVersion = r.mappingVersion("2")
	other.Digest = hash("digest", text(other.Identity))
	a := r.actionOf(storage.ActionBackfill)
	ids := r.enqueue(storage.EnqueueRequest{Items: []storage.NewItem{first, second}, Action: a})
	if len(ids) != 2 || ids[0] == 0 || ids[1] == 0 || ids[0] == ids[1] {
		r.fatalf("ids %s, want two", text(ids))
	}
	d := r.detail(ids[0])
	r.same("an item", []any{d.Item.State, d.Item.Feature, d.Item.Identity, d.Event != nil && d.Event.EventID == "e"},
		[]any{storage.Pending, "tokens", first.Identity, true})
	r.actionsAre("done", 0, a)
	r.same("again", r.enqueue(storage.EnqueueRequest{Items: []storage.NewItem{second, other, first}, Action: a}), []int64{0, 0, 0})
	r.actionsAre("nothing done", 0, a)
	r.same("items", len(r.items(storage.ItemQuery{Tenant: t})), 2)
	r.statsAre("counts", map[storage.ItemState][2]int64{storage.Pending: {2, 2}})
	r.same("handed out", len(r.claim(storage.ClaimRequest{Routes: []int64{route}}).Items), 2)
}

// enqueue repeats when the routes moved.
func (r *run) enqueue(req storage.EnqueueRequest) []int64 {
	for range retries {
		req.RoutesRevision = r.revision()
		ids, err := r.settlements().Enqueue(r.ctx, req)
		if e, ok := tagged(err); ok && e.Code == "routes_moved" {
			continue
		}
		r.must("enqueue", err)
		return ids
	}
	r.fatalf("enqueue: the routes moved %d times", retries)
	return nil
}

func enqueueRefuses(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	e, gone := usage(t, "e", "1"), usage(t, "gone", "1")
	r.put(e)
	first, unknown, moved := r.item(&e, route), r.item(&gone, route), r.item(&e, route)
	moved.DependsOn = &storage.Dependency{ItemID: 1 << 60, State: storage.Accepted}
	try := func(revision int64, items ...storage.NewItem) error {
		_, err := r.settlements().Enqueue(r.ctx, storage.EnqueueRequest{
			Items: items, RoutesRevision: revision, Action: r.actionOf(storage.ActionBackfill),
		})
		return err //nolint:wrapcheck // the case looks at it
	}
	r.tagIs("routes that moved", try(r.revision()-1, first), sdk.TagConflict, "routes_moved")
	r.tagIs("an event that never was", try(r.revision(), first, unknown), sdk.TagNotFound, "")
	r.tagIs("a dependency that moved", try(r.revision(), first, moved), sdk.TagConflict, "items_moved")
	r.same("items", len(r.items(storage.ItemQuery{Tenant: t})), 0)
	r.actionsAre("nothing done", 0)
}

func actionPages(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	it, other := r.uncertainItem(t, route), r.uncertainItem(r.tenant("b"), route)
	same := storage.Transition{
		ItemID: it.ItemID, Expect: storage.Expect{State: storage.Uncertain}, Set: storage.Change{State: storage.Uncertain},
		Action: r.actionOf(storage.ActionEvidence),
	}
	elsewhere := same
	elsewhere.ItemID = other.ItemID
	r.same("rows", r.moves(same, elsewhere, same, same), []int{1, 1, 1, 1})
	got := r.actions(storage.ActionQuery{ItemID: it.ItemID, Limit: 2})
	r.same("of the item, in pages", len(got), 3)
	for i := 1; i < len(got); i++ {
		if got[i].ID <= got[i-1].ID || got[i].At.Before(got[i-1].At) {
			r.errorf("not in order: %s", text(got))
		}
	}
	_, err := r.settlements().ListActions(r.ctx, storage.ActionQuery{})
	r.tagIs("no limit", err, sdk.TagInvalid, "")
}

// restore calls MarkRestored.
func (r *run) restore(req storage.RestoreRequest) int64 {
	if req.Action.Kind == "" {
		req.Action = *r.actionOf(storage.ActionRestore)
	}
	req.Since = period
	n, err := r.settlements().MarkRestored(r.ctx, req)
	r.must("mark as restored", err)
	return n
}

// restoredThrough wants a store that was restored through an instant, and that
// neither an earlier one nor what is adopted moves it.
func (r *run) restoredThrough(want time.Time) {
	for i, req := range []storage.RestoreRequest{
		{Before: want, Limit: 10},
		{Before: want.Add(-time.Hour), Limit: 10},
		{Before: want.Add(time.Microsecond), Limit: 10, Action: storage.Action{Kind: storage.ActionAdopt, Actor: "ada", Reason: "a copy"}},
	} {
		if i > 0 {
			r.restore(req)
		}
		got := r.beat(storage.Heartbeat{Host: r.prefix, Leaving: true}).Incarnation.RestoredThrough
		r.same("restored through", got.UTC(), want.UTC())
	}
}

// In the time that the store does not remember, anything open may have been
// sent.
func markRestored(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	at := func() storage.HeartbeatResult { return r.beat(storage.Heartbeat{Host: r.prefix, Leaving: true}) }
	for r.restore(storage.RestoreRequest{Before: at().Now, Limit: 10_000}) == 10_000 {
	}
	now := time.Duration(0)
	uncertain := r.uncertainItem(r.tenant("known"), route)
	unknown := r.putItem(t, "unknown", "1", route, nil)
	c := r.take(route, unknown.ItemID)
	r.moves(storage.Transition{ItemID: unknown.ItemID, Expect: leasedBy(c.LeaseToken), Set: storage.Change{State: storage.Uncertain}})
	leased := r.putItem(t, "leased", "1", route, nil)
	c = r.take(route, leased.ItemID)
	r.moves(storage.Transition{ItemID: leased.ItemID, Expect: leasedBy(c.LeaseToken), Set: storage.Change{
		State: storage.Pending, NextAttemptAfter: &now, MarkUnresolved: true,
	}})
	c = r.take(route, leased.ItemID)
	leased = r.now(leased.ItemID)
	pending := r.putItem(t, "pending", "1", route, nil)
	hold := func(settled bool) func(*storage.Event, *storage.NewItem) {
		return func(_ *storage.Event, n *storage.NewItem) { n.QuarantineReason, n.Settled = "no_customer", settled }
	}
	held, born := r.putItem(t, "held", "1", route, hold(false)), r.putItem(t, "born", "1", route, hold(true))
	before := at()
	r.same("after nothing", r.restore(storage.RestoreRequest{Before: pending.CreatedAt.Add(-time.Hour), Limit: 10, DryRun: true}), int64(0))
	req := storage.RestoreRequest{Before: before.Now, Claims: before.Incarnation.Claims + 100, Limit: 3}
	dry := req
	dry.DryRun = true
	r.same("a dry run", r.restore(dry), int64(4))
	r.same("changes nothing", r.now(pending.ItemID), pending)
	done := len(r.actions(storage.ActionQuery{Kind: storage.ActionRestore, Limit: 1000}))
	r.same("the first page", r.restore(req), int64(3))
	r.same("is not all", at().Incarnation.Restores, before.Incarnation.Restores)
	r.same("the rest", r.restore(req), int64(1))
	after := at().Incarnation
	if after.Restores != before.Incarnation.Restores+1 || after.Claims <= req.Claims || after.Store != before.Incarnation.Store {
		r.errorf("incarnation %s, was %s", text(after), text(before.Incarnation))
	}
	r.same("actions", len(r.actions(storage.ActionQuery{Kind: storage.ActionRestore, Limit: 1000})), done+1)
	r.restoredThrough(req.Before)
	for id, since := range map[int64]time.Time{
		pending.ItemID: period, held.ItemID: period, unknown.ItemID: period, leased.ItemID: leased.FirstUnresolvedAt,
		uncertain.ItemID: uncertain.FirstUnresolvedAt,
	} {
		d := r.now(id)
		r.same("an item", []any{d.State, d.Unresolved, d.FirstUnresolvedAt.UTC(), d.LeaseOwner, d.LeaseExpiresAt.IsZero()},
			[]any{storage.Uncertain, true, since.UTC(), "", true})
		// R3: what was claimed in the lost time may be on its way.
		if id != uncertain.ItemID && d.ClaimedAt.Before(before.Now) {
			r.errorf("claimed at %v, before it was restored at %v", d.ClaimedAt, before.Now)
		}
	}
	if e := r.now(pending.ItemID).LastError; e == nil || e.Code != "restored" {
		r.errorf("last error %s", text(e))
	}
	// What it lacked then it lacks still: somebody who looked puts it back.
	reason := "no_customer"
	r.same("why it was held", r.now(held.ItemID).QuarantineReason, reason)
	token := r.now(held.ItemID).LeaseToken
	r.moves(storage.Transition{
		ItemID: held.ItemID, Expect: storage.Expect{State: storage.Uncertain, LeaseToken: &token, Settled: new(bool)},
		Set: storage.Change{State: storage.Quarantined, QuarantineReason: &reason},
	})
	d := r.now(held.ItemID)
	r.same("back in quarantine", []any{d.State, d.QuarantineReason, d.Unresolved, d.SettledAt.IsZero()}, []any{storage.Quarantined, reason, true, true})
	r.same("what nobody needs to act on", r.now(born.ItemID), born)
	r.same("the old owner", r.moves(storage.Transition{
		ItemID: leased.ItemID, Expect: leasedBy(c.LeaseToken), Set: storage.Change{State: storage.Accepted},
	}), []int{0})
	r.statsAre("counts", map[storage.ItemState][2]int64{storage.Uncertain: {4, 4}, storage.Quarantined: {2, 1}})
}
