package conformance

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func peopleCases() []Case {
	needs := exporting()
	return []Case{
		define("transition/expects-what-people-do", "O26 Q16 Q23 R3", needs, peopleExpect),
		define("transition/sets-what-people-do", "O26 O12 Q11 Q25", needs, peopleSet),
		define("transition/method-is-set-once", "Q19", needs, methodOnce),
		define("transition/customer-is-filled-in-once", "Q6", needs, customerOnce),
		define("transition/action-goes-with-the-change", "O26 O27 O4", needs, actionWithChange),
		define("claim/unresolved-since-an-untrusted-time", "Q16", needs, untrustedClock),
		define("claim/raises-the-incarnation", "Q17", needs, claimIncarnation),
		define("outbox/list-for-people", "O25 O12 Q25", needs, listForPeople),
		define("outbox/gauges", "O28 O12", needs, gaugesOf),
		define("route/rename", "Q4", needs, renameRoute),
		define("route/retire-when-idle", "Q4", needs, retireIdle),
	}
}

// uncertainItem is an item of which nobody knows whether it was sent.
func (r *run) uncertainItem(t string, route int64) storage.Item {
	r.stage(t, route, 1, nil)
	id := r.only(storage.ItemQuery{Tenant: t}).ItemID
	c := r.take(route, id)
	r.same("rows", r.moves(storage.Transition{
		ItemID: id, Expect: leasedBy(c.LeaseToken), Set: storage.Change{State: storage.Uncertain, MarkUnresolved: true},
	}), []int{1})
	return r.now(id)
}

func peopleExpect(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	it := r.uncertainItem(t, route)
	if it.FirstUnresolvedAt.IsZero() {
		r.fatalf("unresolved since never: %s", text(it))
	}
	yes, no, one, two, none, hour := true, false, 1, 2, time.Duration(0), time.Hour
	since, after := it.FirstUnresolvedAt, it.FirstUnresolvedAt.Add(time.Microsecond)
	token := it.LeaseToken
	for name, tc := range map[string]struct {
		expect storage.Expect
		rows   int
	}{
		"settled":         {storage.Expect{Settled: &yes}, 0},
		"open":            {storage.Expect{Settled: &no}, 1},
		"other attempts":  {storage.Expect{Attempts: &two}, 0},
		"attempts":        {storage.Expect{Attempts: &one}, 1},
		"not quiet":       {storage.Expect{QuietFor: &hour}, 0},
		"quiet":           {storage.Expect{QuietFor: &none}, 1},
		"too late":        {storage.Expect{Within: &none}, 0},
		"within":          {storage.Expect{Within: &hour}, 1},
		"untrusted clock": {storage.Expect{TrustedSince: &after}, 0},
		"trusted clock":   {storage.Expect{TrustedSince: &since}, 1},
		"all of it": {storage.Expect{
			Settled: &no, Attempts: &one, QuietFor: &none, Within: &hour, TrustedSince: &since, LeaseToken: &token, Unresolved: &yes,
		}, 1},
	} {
		tc.expect.State = storage.Uncertain
		got := r.moves(storage.Transition{ItemID: it.ItemID, Expect: tc.expect, Set: storage.Change{State: storage.Uncertain}})
		r.same(name, got, []int{tc.rows})
	}
	r.same("nothing was set", r.now(it.ItemID), it)
	u := r.tenant("b")
	r.stage(u, route, 1, nil)
	fresh := r.only(storage.ItemQuery{Tenant: u})
	r.same("never claimed is quiet, never unresolved is within", r.moves(storage.Transition{
		ItemID: fresh.ItemID, Expect: storage.Expect{State: storage.Pending, QuietFor: &hour, Within: &none, TrustedSince: &after},
		Set: storage.Change{State: storage.Pending},
	}), []int{1})
}

func peopleSet(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 1, func(_ int, it *storage.NewItem) { it.QuarantineReason = "no_account" })
	it := r.only(storage.ItemQuery{Tenant: t})
	now, yes, no, why, none := time.Duration(0), true, false, "meter_error", ""
	r.moves(storage.Transition{ItemID: it.ItemID, Expect: storage.Expect{State: storage.Quarantined}, Set: storage.Change{
		State: storage.Pending, ClearQuarantine: true, AddBudget: 4, NextAttemptAfter: &now,
	}})
	d := r.now(it.ItemID)
	it.State, it.QuarantineReason, it.AttemptBudget, it.NextAttemptAt = storage.Pending, "", it.AttemptBudget+4, d.NextAttemptAt
	r.same("requeued", d, it)
	d = r.accepted(route, it.ItemID, func(m *storage.Transition) { m.Set.Disputed = &why })
	r.same("disputed while it is accepted: open", []any{d.Disputed, d.SettledAt.IsZero()}, []any{why, true})
	confirm := storage.Change{State: storage.Confirmed, ConfirmedNow: true, Settled: &yes}
	r.moves(storage.Transition{ItemID: it.ItemID, Expect: storage.Expect{State: storage.Accepted}, Set: confirm})
	r.same("confirmed while it is disputed: open", r.now(it.ItemID).SettledAt.IsZero(), true)
	r.moves(storage.Transition{ItemID: it.ItemID, Expect: storage.Expect{State: storage.Confirmed}, Set: storage.Change{
		State: storage.Confirmed, Disputed: &none, Settled: &yes,
	}})
	d = r.now(it.ItemID)
	r.same("withdrawn", []any{d.Disputed, d.SettledAt.IsZero()}, []any{"", false})
	r.moves(storage.Transition{ItemID: it.ItemID, Expect: storage.Expect{State: storage.Confirmed}, Set: storage.Change{
		State: storage.Confirmed, Disputed: &why, Settled: &no,
	}})
	r.statsAre("counts", map[storage.ItemState][2]int64{storage.Confirmed: {1, 1}})
}

// How a correction is told never changes once it may have been told.
func methodOnce(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 1, nil)
	id := r.only(storage.ItemQuery{Tenant: t}).ItemID
	c := r.take(route, id)
	cancel, negative, delay := "cancel", "negative", time.Duration(0)
	choose := func(method *string, to storage.ItemState) storage.Transition {
		return storage.Transition{
			ItemID: id, Expect: leasedBy(c.LeaseToken), Set: storage.Change{State: to, Method: method, NextAttemptAfter: &delay},
		}
	}
	before := r.now(id)
	r.same("chosen", r.moves(choose(&cancel, storage.Leased)), []int{1})
	d := r.now(id)
	before.Method, before.NextAttemptAt = cancel, d.NextAttemptAt
	r.same("the lease stays", d, before)
	r.same("another one", r.moves(choose(&negative, storage.Pending)), []int{0})
	r.same("changes nothing", r.now(id), d)
	r.same("the same one", r.moves(choose(&cancel, storage.Pending)), []int{1})
	again := r.take(route, id)
	r.same("told by the next claim", again.Method, cancel)
}

func customerOnce(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 1, func(_ int, it *storage.NewItem) { it.QuarantineReason, it.Customer = "no_customer", "" })
	it := r.only(storage.ItemQuery{Tenant: t})
	now, one, two, serial := time.Duration(0), "cus_1", "cus_2", r.prefix
	set := func(customer *string) storage.Transition {
		return storage.Transition{ItemID: it.ItemID, Expect: storage.Expect{State: storage.Quarantined}, Set: storage.Change{
			State: storage.Quarantined, Customer: customer, SerialKey: &serial, NextAttemptAfter: &now,
		}}
	}
	r.same("filled in", r.moves(set(&one)), []int{1})
	d := r.now(it.ItemID)
	r.same("the item", []any{d.Customer, d.SerialKey}, []any{one, serial})
	r.same("another one", r.moves(set(&two)), []int{0})
	r.same("changes nothing", r.now(it.ItemID), d)
	r.same("the same one", r.moves(set(&one)), []int{1})
}

func actionWithChange(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	it := r.uncertainItem(t, route)
	token, stale := it.LeaseToken, it.LeaseToken+1
	resolve := func(token *int64, a *storage.Action) storage.Transition {
		return storage.Transition{
			ItemID: it.ItemID, Expect: storage.Expect{State: storage.Uncertain, LeaseToken: token},
			Set: storage.Change{State: storage.Accepted, AcceptedNow: true}, Action: a,
		}
	}
	a := r.actionOf(storage.ActionResolve)
	a.At = period // not theirs to say
	r.same("what moved meanwhile", r.moves(resolve(&stale, a)), []int{0})
	r.actionsAre("nothing done", it.ItemID)
	r.same("resolved", r.moves(resolve(&token, a)), []int{1})
	r.actionsAre("done", it.ItemID, of(a, it.ItemID))
	r.same("with the item", len(r.detail(it.ItemID).Actions), 1)
	page, err := r.settlements().ListActions(r.ctx, storage.ActionQuery{ItemID: it.ItemID, Kind: storage.ActionAbandon, Limit: 10})
	r.must("list", err)
	r.same("of another kind", len(page.Actions), 0)
	for name, edit := range map[string]func(*storage.Action){
		"no actor":        func(a *storage.Action) { a.Actor = "" },
		"no reason":       func(a *storage.Action) { a.Reason = "" },
		"an unknown kind": func(a *storage.Action) { a.Kind = "magic" },
	} {
		bad := *a
		edit(&bad)
		_, err := r.outbox().Transition(r.ctx, []storage.Transition{{
			ItemID: it.ItemID, Expect: storage.Expect{State: storage.Accepted}, Set: storage.Change{State: storage.Rejected}, Action: &bad,
		}})
		r.tagIs(name, err, sdk.TagInvalid, "")
	}
	r.same("state", r.now(it.ItemID).State, storage.Accepted)
}

func untrustedClock(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 1, nil)
	id := r.only(storage.ItemQuery{Tenant: t}).ItemID
	now := time.Duration(0)
	back := func(c storage.ClaimedItem, mark bool) storage.Item {
		r.moves(storage.Transition{ItemID: id, Expect: leasedBy(c.LeaseToken), Set: storage.Change{
			State: storage.Pending, NextAttemptAfter: &now, MarkUnresolved: mark,
		}})
		return r.now(id)
	}
	far := r.opts.Now().Add(1000 * time.Hour)
	get := func(since time.Time) storage.Claim {
		var c storage.Claim
		r.until("it is decided", func() bool {
			c = r.claim(storage.ClaimRequest{Routes: []int64{route}, TrustedSince: since, Horizon: 1000 * time.Hour})
			return len(c.Items)+len(c.Exhausted) > 0
		})
		return c
	}
	c := get(far)
	r.same("never unresolved: handed out", []int{len(c.Items), len(c.Exhausted)}, []int{1, 0})
	d := back(c.Items[0], true)
	c = get(d.FirstUnresolvedAt)
	r.same("unresolved since then: handed out", []int{len(c.Items), len(c.Exhausted)}, []int{1, 0})
	d = back(c.Items[0], true)
	c = get(d.FirstUnresolvedAt.Add(time.Microsecond))
	r.same("unresolved since before", c.Exhausted, []storage.Exhausted{{ItemID: id, Code: storage.CodeClockUntrusted}})
	d = r.now(id)
	if d.State != storage.Uncertain || d.LastError == nil || d.LastError.Code != storage.CodeClockUntrusted {
		r.errorf("the item: %s", text(d))
	}
}

// By its claims a store that went back in time is known.
func claimIncarnation(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 3, func(_ int, it *storage.NewItem) { it.AttemptBudget = 1 })
	var last storage.Incarnation
	for range 3 {
		c := r.claim(storage.ClaimRequest{Routes: []int64{route}, Limit: 1})
		r.same("handed out", len(c.Items), 1)
		in := c.Incarnation
		if in.Store == "" || len(in.Store) > 64 || in.Claims <= last.Claims || last.Store != "" && in.Store != last.Store {
			r.errorf("incarnation %s after %s", text(in), text(last))
		}
		last = in
	}
	beat, err := r.hosts().Beat(r.ctx, storage.Heartbeat{Host: r.prefix})
	r.must("beat", err)
	in := beat.Incarnation
	if in.Store != last.Store || in.Claims < last.Claims || in.Restores < last.Restores {
		r.errorf("a beat says %s, the last claim said %s", text(in), text(last))
	}
	_, err = r.hosts().Beat(r.ctx, storage.Heartbeat{Host: r.prefix, Leaving: true})
	r.must("leave", err)
}

func listForPeople(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 3, func(i int, it *storage.NewItem) {
		if i == 0 {
			it.QuarantineReason, it.Settled = "period_buffered", true
		}
	})
	all := r.items(storage.ItemQuery{Tenant: t})
	why := "meter_error"
	r.accepted(route, all[1].ItemID, func(m *storage.Transition) { m.Set.Disputed = &why })
	for name, tc := range map[string]struct {
		q    storage.ItemQuery
		want int
	}{
		"account":            {storage.ItemQuery{Exporter: r.exporter(), Account: "acct"}, 3},
		"another account":    {storage.ItemQuery{Exporter: r.exporter(), Account: "acct2"}, 0},
		"mode":               {storage.ItemQuery{Exporter: r.exporter(), Mode: "test"}, 3},
		"another mode":       {storage.ItemQuery{Exporter: r.exporter(), Mode: "live"}, 0},
		"open":               {storage.ItemQuery{Tenant: t, Open: true}, 2},
		"open in quarantine": {storage.ItemQuery{Tenant: t, State: storage.Quarantined, Open: true}, 0},
		"disputed":           {storage.ItemQuery{Tenant: t, Disputed: true}, 1},
		"unconfirmed":        {storage.ItemQuery{Tenant: t, Unconfirmed: time.Hour}, 0},
		"digests":            {storage.ItemQuery{Digests: []storage.Hash{all[0].Digest, all[2].Digest, {1}}}, 2},
		"digests and open":   {storage.ItemQuery{Digests: []storage.Hash{all[0].Digest, all[2].Digest}, Open: true}, 1},
		"events":             {storage.ItemQuery{Events: []storage.EventKey{{Tenant: t, EventID: "e102"}, {Tenant: t, EventID: "e100"}, {Tenant: t, EventID: "e199"}, {Tenant: r.tenant("b"), EventID: "e101"}}}, 2},
		"an event twice":     {storage.ItemQuery{Events: []storage.EventKey{{Tenant: t, EventID: "e100"}, {Tenant: t, EventID: "e100"}}}, 1},
		"events of nobody":   {storage.ItemQuery{Tenant: t, Events: []storage.EventKey{{Tenant: r.tenant("b"), EventID: "e101"}}}, 0},
		"events and open":    {storage.ItemQuery{Events: []storage.EventKey{{Tenant: t, EventID: "e100"}, {Tenant: t, EventID: "e102"}}, Open: true}, 1},
		"events and state":   {storage.ItemQuery{Events: []storage.EventKey{{Tenant: t, EventID: "e100"}, {Tenant: t, EventID: "e102"}}, State: storage.Quarantined}, 1},
		"events and digests": {storage.ItemQuery{Events: []storage.EventKey{{Tenant: t, EventID: "e100"}, {Tenant: t, EventID: "e101"}}, Digests: []storage.Hash{all[1].Digest, all[2].Digest}}, 1},
		"events, after":      {storage.ItemQuery{Events: []storage.EventKey{{Tenant: t, EventID: "e100"}, {Tenant: t, EventID: "e102"}}, After: all[0].ItemID}, 1},
		"after":              {storage.ItemQuery{Digests: []storage.Hash{all[0].Digest, all[2].Digest}, After: all[0].ItemID}, 1},
	} {
		r.same("items by "+name, len(r.items(tc.q)), tc.want)
	}
	r.until("it is accepted for a while", func() bool {
		return len(r.items(storage.ItemQuery{Tenant: t, Unconfirmed: time.Millisecond})) == 1
	})
	_, err := r.outbox().ListItems(r.ctx, storage.ItemQuery{Limit: 1, Digests: make([]storage.Hash, 101)})
	r.tagIs("101 digests", err, sdk.TagInvalid, "")
	_, err = r.outbox().ListItems(r.ctx, storage.ItemQuery{Limit: 1, Events: make([]storage.EventKey, 1001)})
	r.tagIs("1001 events", err, sdk.TagInvalid, "")
	both := storage.ItemQuery{Limit: 1, Events: []storage.EventKey{{Tenant: t, EventID: "e102"}, {Tenant: t, EventID: "e100"}}}
	page, err := r.outbox().ListItems(r.ctx, both)
	r.must("list the items of events", err)
	if len(page.Items) != 1 || !page.More || page.Items[0].ItemID != all[0].ItemID {
		r.errorf("the first page of items of events: %s", text(page))
	}
}

func gaugesOf(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 2, nil)
	before, err := r.outbox().OutboxStats(r.ctx)
	r.must("stats", err)
	ids := r.items(storage.ItemQuery{Tenant: t})
	why := "meter_error"
	r.accepted(route, ids[0].ItemID, func(m *storage.Transition) { m.Set.Disputed = &why })
	var after storage.OutboxStats
	r.until("an accepted item grows old", func() bool {
		after, err = r.outbox().OutboxStats(r.ctx)
		r.must("stats", err)
		return after.OldestAccepted > 0 || after.Disputed != before.Disputed+1
	})
	r.same("disputed", after.Disputed, before.Disputed+1)
}
