package conformance

import (
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func dependencyCases() []Case {
	needs := correcting()
	return []Case{
		define("dependency/waits-and-is-released", "Q18 O21", needs, waitsForOriginal),
		define("dependency/moved-is-stale", "Q18 S6", needs, dependencyMoved),
		define("dependency/quarantine-takes-what-waits", "Q18", needs, quarantineTakes),
		define("dependency/release-leaves-quarantine", "Q18 O18", needs, releaseLeaves),
		define("dependency/evidence-reaches-what-was-sent", "O12 Q18", needs, evidenceReaches),
		define("dependency/what-a-claim-tells-of-the-original", "Q19", needs, originalTold),
		define("race/dependents-and-their-original", "Q18 B47", needs, dependencyRace),
	}
}

// A correction waits without spending attempts, and is sent after its original.
func waitsForOriginal(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	_, original, waiting := r.pair(t, route)
	r.same("the correction's item", []any{waiting.State, waiting.DependsOn, waiting.Waits, waiting.Attempts, waiting.Identity.SubjectKind},
		[]any{storage.Pending, original.ItemID, true, 0, storage.SubjectCorrection})
	c := r.claim(storage.ClaimRequest{Routes: []int64{route}})
	if len(c.Items) != 1 || c.Items[0].ItemID != original.ItemID || c.Items[0].Original != nil {
		r.fatalf("handed out: %s, want the original alone", text(c.Items))
	}
	yes := true
	accept := storage.Transition{
		ItemID: original.ItemID, Expect: leasedBy(c.Items[0].LeaseToken + 1),
		Set:     storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: &yes},
		Waiting: &storage.Change{State: storage.Pending, Release: true},
	}
	r.same("without the lease", r.moves(accept), []int{0})
	r.same("still waits", r.now(waiting.ItemID), waiting)
	accept.Expect = leasedBy(c.Items[0].LeaseToken)
	r.same("with the lease", r.moves(accept), []int{1})
	got := r.take(route, waiting.ItemID)
	r.same("attempts", got.Attempts, 1)
	if d := r.now(waiting.ItemID); d.Waits || d.DependsOn != original.ItemID {
		r.errorf("after its release: %s", text(d))
	}
}

// Whoever inserts a dependent has seen the item that it depends on.
func dependencyMoved(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	e := usage(t, "e", "10")
	r.putUnits(storage.Unit{Entries: []storage.Entry{entry(e, r.item(&e, route))}})
	was := r.only(storage.ItemQuery{Tenant: t})
	now := r.accepted(route, was.ItemID, nil)
	open := dependency(&now, false)
	open.Settled = false
	superseded := dependency(&now, false)
	superseded.Superseded = true
	unknown := dependency(&now, false)
	unknown.ItemID = 1 << 60
	for name, d := range map[string]*storage.Dependency{
		"another state": dependency(&was, true), "another settlement": open, "superseded": superseded, "unknown": unknown,
	} {
		c := correction(&e, "c", "1")
		n := r.correctionItem(&c, &now, false)
		n.DependsOn = d
		req := r.correctRequest(c)
		req.Items = []storage.NewItem{n}
		res, err := r.corrections().RecordCorrection(r.ctx, req)
		r.must("correct", err)
		if res.Stale == nil || !res.Stale.Items || res.Stale.Routes || res.Outcome != "" {
			r.errorf("%s: %s, want stale items", name, text(res))
		}
	}
	r.absent("after stale items", t, "c")
	r.totalIs("after stale items", t, "10", 1, 1)
	r.same("items", len(r.items(storage.ItemQuery{Tenant: t})), 1)
	it := r.takeBack(&e, "c", &now, nil)
	r.same("as it is", []any{it.State, it.Waits, it.DependsOn}, []any{storage.Pending, false, now.ItemID})
}

// What was never charged is never credited.
func quarantineTakes(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	e, original, waiting := r.pair(t, route)
	held := r.takeBack(&e, "held", &original, func(n *storage.NewItem) { n.QuarantineReason = "no_customer" })
	sent := r.takeBack(&e, "sent", &original, nil)
	r.moves(storage.Transition{ItemID: sent.ItemID, Expect: storage.Expect{State: storage.Pending}, Set: storage.Change{State: storage.Uncertain}})
	gone := r.takeBack(&e, "gone", &original, func(n *storage.NewItem) { n.QuarantineReason = "no_customer" })
	r.supersedes(gone, func(s *storage.Supersession) { s.New.QuarantineReason = "no_account" })
	sent, gone = r.now(sent.ItemID), r.now(gone.ItemID)
	c := r.take(route, original.ItemID)
	why, yes, no := "original_not_charged", true, false
	refuse := storage.Transition{
		ItemID: original.ItemID, Expect: leasedBy(c.LeaseToken), Set: storage.Change{State: storage.Rejected},
		Waiting: &storage.Change{State: storage.Quarantined, QuarantineReason: &why, Release: true, Settled: &yes},
	}
	other := refuse
	other.Expect.Unresolved = &yes
	r.same("what does not hold", r.moves(other), []int{0})
	r.same("changes no dependent", r.now(waiting.ItemID), waiting)
	refuse.Expect.Unresolved = &no
	r.same("what does", r.moves(refuse), []int{1})
	for _, id := range []int64{waiting.ItemID, held.ItemID} {
		d := r.now(id)
		r.same("a dependent", []any{d.State, d.QuarantineReason, d.Waits, d.SettledAt.IsZero()},
			[]any{storage.Quarantined, why, false, false})
	}
	r.same("nothing is handed out", len(r.claim(storage.ClaimRequest{Routes: []int64{route}}).Items), 0)
	r.same("what may have been sent", r.now(sent.ItemID), sent)
	r.same("what was superseded", r.now(gone.ItemID), gone)
	r.statsAre("counts", map[storage.ItemState][2]int64{
		storage.Rejected: {1, 1}, storage.Quarantined: {4, 1}, storage.Uncertain: {1, 1},
	})
	_, err := r.outbox().Transition(r.ctx, []storage.Transition{{
		ItemID: original.ItemID, Expect: storage.Expect{State: storage.Rejected}, Set: storage.Change{State: storage.Rejected},
		Waiting: &storage.Change{State: storage.Accepted},
	}})
	r.tagIs("what waits is not accepted with it", err, sdk.TagInvalid, "")
}

// Being released takes nothing out of quarantine.
func releaseLeaves(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	e, original, waiting := r.pair(t, route)
	held := r.takeBack(&e, "held", &original, func(n *storage.NewItem) { n.QuarantineReason = "no_customer" })
	r.accepted(route, original.ItemID, nil)
	d := r.now(held.ItemID)
	r.same("the one in quarantine", []any{d.State, d.QuarantineReason, d.Waits}, []any{storage.Quarantined, "no_customer", false})
	r.take(route, waiting.ItemID)
	r.same("nothing else", len(r.claim(storage.ClaimRequest{Routes: []int64{route}}).Items), 0)
}

// Evidence against an original concerns what was sent to take it back; what
// waits is told by what releases it.
func evidenceReaches(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	e, original, _ := r.pair(t, route)
	original = r.accepted(route, original.ItemID, nil)
	sent := r.only(storage.ItemQuery{Tenant: t, SubjectRef: "c"})
	sent = r.accepted(route, sent.ItemID, nil)
	later := r.takeBack(&e, "later", &original, func(n *storage.NewItem) { n.DependsOn.Wait = true })
	why, no := "meter_error", false
	r.same("rows", r.moves(storage.Transition{
		ItemID: original.ItemID, Expect: storage.Expect{State: storage.Accepted},
		Set:        storage.Change{State: storage.Accepted, Disputed: &why, Settled: &no},
		Dependents: &storage.Change{Disputed: &why, Settled: &no},
		Waiting:    &storage.Change{State: storage.Pending, Release: true},
	}), []int{1})
	for id, disputed := range map[int64]string{original.ItemID: why, sent.ItemID: why, later.ItemID: ""} {
		d := r.now(id)
		r.same("disputed, open", []any{d.Disputed, d.SettledAt.IsZero()}, []any{disputed, true})
	}
	r.same("the one that waited", r.now(later.ItemID).Waits, false)
	r.statsAre("counts", map[storage.ItemState][2]int64{storage.Accepted: {2, 2}, storage.Pending: {1, 1}})
}

// How a correction may be told depends on its original as it is at the claim.
func originalTold(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	e, original, first := r.pair(t, route)
	second := r.takeBack(&e, "c2", &original, func(n *storage.NewItem) { n.QuarantineReason = "no_customer" })
	why := "because"
	r.accepted(route, original.ItemID, func(m *storage.Transition) {
		m.Set.MarkUnresolved, m.Set.Disputed = true, &why
	})
	got := r.take(route, first.ItemID)
	if got.Original == nil {
		r.fatalf("a correction without its original: %s", text(got))
	}
	since := got.Original.SinceFirstAttempt
	want := storage.OriginalItem{
		ItemID: original.ItemID, Digest: original.Digest, State: storage.Accepted, Unresolved: true, Disputed: why,
		SinceFirstAttempt: since, Dependents: 2,
	}
	r.same("the original", *got.Original, want)
	if since < 0 || since > time.Hour {
		r.errorf("first attempted %s ago", since)
	}
	d := r.detail(second.ItemID)
	if d.Original == nil || d.Original.Dependents != 2 || d.Original.ItemID != original.ItemID {
		r.errorf("the original of an item: %s", text(d.Original))
	}
	r.same("of the original itself", r.detail(original.ItemID).Original, (*storage.OriginalItem)(nil))
	r.supersedes(second, func(s *storage.Supersession) { s.New.QuarantineReason = "no_account" })
	r.same("without what was superseded", r.detail(first.ItemID).Original.Dependents, 1)
	all := r.items(storage.ItemQuery{DependsOn: original.ItemID})
	slices.SortFunc(all, func(a, b storage.Item) int { return int(a.ItemID - b.ItemID) })
	r.same("what depends on it", []int{len(all)}, []int{2})
}

// Whichever goes first: no correction waits for what was accepted meanwhile.
func dependencyRace(r *run) {
	route := r.addRoute("tokens")
	for i := range r.opts.Rounds {
		t := r.tenant(decimalInt(i))
		e := usage(t, "e", "10")
		r.putUnits(storage.Unit{Entries: []storage.Entry{entry(e, r.item(&e, route))}})
		original := r.only(storage.ItemQuery{Tenant: t})
		c := r.take(route, original.ItemID)
		original = r.now(original.ItemID)
		r.together(2, func(n int) {
			if n == 0 {
				yes := true
				r.moves(storage.Transition{
					ItemID: original.ItemID, Expect: leasedBy(c.LeaseToken),
					Set:     storage.Change{State: storage.Accepted, AcceptedNow: true, Settled: &yes},
					Waiting: &storage.Change{State: storage.Pending, Release: true},
				})
				return
			}
			r.insertDependent(&e, original)
		})
		it := r.only(storage.ItemQuery{Tenant: t, SubjectRef: "c"})
		if it.Waits {
			r.fatalf("round %d: the correction waits for an accepted item", i)
		}
		r.accepted(route, it.ItemID, nil)
	}
}

// insertDependent corrects with what it saw, and looks again when that moved.
func (r *run) insertDependent(e *storage.Event, seen storage.Item) {
	for range retries {
		c := correction(e, "c", "1")
		req := r.correctRequest(c)
		req.Items = []storage.NewItem{r.correctionItem(&c, &seen, seen.State != storage.Accepted)}
		res, err := r.corrections().RecordCorrection(r.ctx, req)
		if err != nil {
			r.errorf("correct: %v", err)
			return
		}
		if res.Stale == nil {
			return
		}
		d, err := r.outbox().LoadItem(r.ctx, seen.ItemID)
		if err != nil {
			r.errorf("load: %v", err)
			return
		}
		seen = d.Item
	}
	r.errorf("still stale after %d tries", retries)
}
