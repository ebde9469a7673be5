package conformance

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func claimCases() []Case {
	return []Case{
		define("claim/leases-and-counts", "O9 A27 A28", exporting(), claimLeases),
		define("claim/live-leases-are-left-alone", "O13 A31", exporting(), liveLeases),
		define("claim/expired-lease-comes-alone-and-unresolved", "Q11 Q12 A17", exporting(), expiredLease),
		define("claim/not-before-it-is-due", "A17 O13", exporting(), notBeforeDue),
		define("claim/serial-keys", "Q12 O16", exporting(), serialKeys),
		define("claim/exhausted-attempts", "O9 Q11", exporting(), exhaustedAttempts),
		define("claim/passed-horizon", "O10 Q11", exporting(), passedHorizon),
		define("race/claims-share-nothing", "A31 B47", exporting(), claimRace),
	}
}

// claim fills in what a case does not care about.
func (r *run) claim(req storage.ClaimRequest) storage.Claim {
	c, err := r.tryClaim(req)
	r.must("claim", err)
	return c
}

func (r *run) tryClaim(req storage.ClaimRequest) (storage.Claim, error) {
	if req.Owner == "" {
		req.Owner = "worker"
	}
	if req.Limit == 0 {
		req.Limit = 100
	}
	if req.Lease == 0 {
		req.Lease = time.Hour
	}
	return r.outbox().Claim(r.ctx, req) //nolint:wrapcheck // the case looks at it
}

// reclaim waits for a lease to expire and takes the item.
func (r *run) reclaim(req storage.ClaimRequest) storage.Claim {
	var c storage.Claim
	r.until("an expired lease is handed out", func() bool {
		c = r.claim(req)
		return len(c.Items)+len(c.Exhausted) > 0
	})
	return c
}

// leasedBy expects a lease with its token.
func leasedBy(token int64) storage.Expect {
	return storage.Expect{State: storage.Leased, LeaseToken: &token}
}

// moves applies transitions and answers how many rows each changed.
func (r *run) moves(all ...storage.Transition) []int {
	res, err := r.outbox().Transition(r.ctx, all)
	r.must("transition", err)
	if len(res) != len(all) {
		r.fatalf("%d answers for %d transitions", len(res), len(all))
	}
	rows := make([]int, len(res))
	for i := range all {
		if res[i].ItemID != all[i].ItemID {
			r.errorf("answer %d is about item %d, want %d", i, res[i].ItemID, all[i].ItemID)
		}
		rows[i] = res[i].Rows
	}
	return rows
}

func subjects(claim storage.Claim) []string {
	var all []string
	for _, it := range claim.Items {
		all = append(all, it.Identity.SubjectRef)
	}
	slices.Sort(all)
	return all
}

func claimLeases(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	e := richEvent(t, "10.5")
	e.Feature = "tokens"
	n := r.item(&e, route)
	n.SerialKey = "s"
	r.putUnits(storage.Unit{Entries: []storage.Entry{entry(e, n)}})
	got := r.claim(storage.ClaimRequest{Owner: "me", Routes: []int64{route}})
	if len(got.Items) != 1 || len(got.Exhausted) != 0 {
		r.fatalf("claim %s, want one item", text(got))
	}
	it := got.Items[0]
	r.same("what the payload is made of",
		[]any{it.Identity, it.Digest, it.RouteID, it.SerialKey, it.Customer, it.Mapping.Version, plainJSON(it.Mapping.Content), plainEvent(it.Event)},
		[]any{n.Identity, n.Digest, route, "s", "cus_1", r.mappingVersion("1"), plainJSON([]byte(`{"event_name":"llm"}`)), plainEvent(withEffect(e))})
	r.same("attempts, budget, unresolved", []any{it.Attempts, it.AttemptBudget, it.Unresolved}, []any{1, 3, false})
	d := r.detail(it.ItemID).Item
	r.same("the item", []any{d.State, d.Attempts, d.LeaseOwner, d.LeaseToken}, []any{storage.Leased, 1, "me", it.LeaseToken})
	if it.LeaseToken <= 0 || d.ClaimedAt.IsZero() || !d.FirstAttemptAt.Equal(it.FirstAttemptAt) || d.FirstAttemptAt.IsZero() ||
		!d.LeaseExpiresAt.After(d.ClaimedAt) {
		r.errorf("token and times: %s", text(d))
	}
	r.same("nothing is left", len(r.claim(storage.ClaimRequest{Routes: []int64{route}}).Items), 0)
	r.same("no routes, no items", len(r.claim(storage.ClaimRequest{}).Items), 0)
}

func liveLeases(r *run) {
	t := r.tenant("a")
	route, other := r.addRoute("tokens"), r.addRoute("calls")
	r.stage(t, route, 5, nil)
	first := r.claim(storage.ClaimRequest{Routes: []int64{route, other}, Limit: 2})
	second := r.claim(storage.ClaimRequest{Routes: []int64{route}, Limit: 2})
	third := r.claim(storage.ClaimRequest{Routes: []int64{route}})
	r.same("pages", []int{len(first.Items), len(second.Items), len(third.Items)}, []int{2, 2, 1})
	all := slices.Concat(subjects(first), subjects(second), subjects(third))
	slices.Sort(all)
	r.same("each once", all, strings.Fields("e100 e101 e102 e103 e104"))
	r.same("another route", len(r.claim(storage.ClaimRequest{Routes: []int64{other}}).Items), 0)
}

// An item that kills its worker takes nobody with it, and nobody knows whether
// it was sent.
func expiredLease(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 1, nil)
	first := r.claim(storage.ClaimRequest{Routes: []int64{route}, Lease: time.Millisecond}).Items[0]
	claimedAt := r.detail(first.ItemID).Item.ClaimedAt
	e := usage(t, "later", "1")
	r.putUnits(storage.Unit{Entries: []storage.Entry{entry(e, r.item(&e, route))}})
	// The pending item goes first if the lease has not expired yet: it is
	// given back.
	var again storage.Claim
	r.until("the expired lease is handed out", func() bool {
		again = r.claim(storage.ClaimRequest{Routes: []int64{route}})
		for _, it := range again.Items {
			if it.ItemID != first.ItemID {
				zero := time.Duration(0)
				r.moves(storage.Transition{
					ItemID: it.ItemID, Expect: leasedBy(it.LeaseToken),
					Set: storage.Change{State: storage.Pending, NextAttemptAfter: &zero, ReturnAttempt: true},
				})
			}
		}
		return slices.ContainsFunc(again.Items, func(it storage.ClaimedItem) bool { return it.ItemID == first.ItemID })
	})
	if len(again.Items) != 1 {
		r.errorf("%d items came with the expired one", len(again.Items)-1)
	}
	it := again.Items[0]
	if it.LeaseToken <= first.LeaseToken || it.Attempts != 2 || !it.FirstAttemptAt.Equal(first.FirstAttemptAt) {
		r.errorf("claimed again: %s, want a higher token, attempt 2 and the first time of the first", text(it))
	}
	d := r.detail(it.ItemID).Item
	if !d.Unresolved || !d.FirstUnresolvedAt.Equal(claimedAt) {
		r.errorf("unresolved %v since %s, want since the claim at %s", d.Unresolved, d.FirstUnresolvedAt, claimedAt)
	}
	r.same("the pending one is still there", subjects(r.claim(storage.ClaimRequest{Routes: []int64{route}})), []string{"later"})
}

func notBeforeDue(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 2, nil)
	c := r.claim(storage.ClaimRequest{Routes: []int64{route}})
	hour, now := time.Hour, time.Duration(0)
	r.same("back to pending", r.moves(
		storage.Transition{
			ItemID: c.Items[0].ItemID, Expect: leasedBy(c.Items[0].LeaseToken),
			Set: storage.Change{State: storage.Pending, NextAttemptAfter: &hour},
		},
		storage.Transition{
			ItemID: c.Items[1].ItemID, Expect: leasedBy(c.Items[1].LeaseToken),
			Set: storage.Change{State: storage.Pending, NextAttemptAfter: &now, ReturnAttempt: true},
		},
	), []int{1, 1})
	d := r.detail(c.Items[0].ItemID).Item
	if d.LeaseOwner != "" || !d.LeaseExpiresAt.IsZero() {
		r.errorf("back to pending, it still has a lease: %s", text(d))
	}
	again := r.reclaim(storage.ClaimRequest{Routes: []int64{route}})
	r.same("only the one that is due", subjects(again), []string{c.Items[1].Identity.SubjectRef})
	r.same("its attempt was returned", again.Items[0].Attempts, 1)
}

func serialKeys(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 6, func(i int, it *storage.NewItem) {
		it.SerialKey = r.prefix + "-" + []string{"", "one", "two"}[i/2]
	})
	first := r.claim(storage.ClaimRequest{Routes: []int64{route}, Limit: 3})
	r.same("a claim takes many of one key", len(first.Items), 3)
	held := map[string]bool{}
	for _, it := range first.Items {
		held[it.SerialKey] = true
	}
	second := r.claim(storage.ClaimRequest{Routes: []int64{route}})
	for _, it := range second.Items {
		if held[it.SerialKey] {
			r.errorf("an item of key %q was handed out while another claim holds that key", it.SerialKey)
		}
	}
	var moves []storage.Transition
	for _, it := range first.Items {
		moves = append(moves, storage.Transition{
			ItemID: it.ItemID, Expect: leasedBy(it.LeaseToken), Set: storage.Change{State: storage.Accepted},
		})
	}
	r.moves(moves...)
	third := r.claim(storage.ClaimRequest{Routes: []int64{route}})
	r.same("the key is free again", len(first.Items)+len(second.Items)+len(third.Items), 6)
}

func exhaustedAttempts(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 1, func(_ int, it *storage.NewItem) { it.AttemptBudget = 2 })
	first := r.claim(storage.ClaimRequest{Routes: []int64{route}, Lease: time.Millisecond}).Items[0]
	second := r.reclaim(storage.ClaimRequest{Routes: []int64{route}, Lease: time.Millisecond}).Items[0]
	r.same("the last attempt", second.Attempts, 2)
	last := r.reclaim(storage.ClaimRequest{Routes: []int64{route}})
	r.same("handed out", len(last.Items), 0)
	r.same("exhausted", last.Exhausted, []storage.Exhausted{{ItemID: first.ItemID, Code: storage.CodeAttemptsExhausted}})
	d := r.detail(first.ItemID).Item
	r.same("the item", []any{d.State, d.Attempts, d.Unresolved, d.LeaseOwner}, []any{storage.Uncertain, 2, true, ""})
	if d.LastError == nil || d.LastError.Code != storage.CodeAttemptsExhausted || d.LeaseToken <= second.LeaseToken {
		r.errorf("last error %s, token %d after %d", text(d.LastError), d.LeaseToken, second.LeaseToken)
	}
	r.same("the old owner's write", r.moves(storage.Transition{
		ItemID: first.ItemID, Expect: leasedBy(second.LeaseToken), Set: storage.Change{State: storage.Accepted},
	}), []int{0})
}

// The horizon binds only what may have been sent.
func passedHorizon(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 2, nil)
	c := r.claim(storage.ClaimRequest{Routes: []int64{route}})
	now := time.Duration(0)
	r.moves(
		storage.Transition{
			ItemID: c.Items[0].ItemID, Expect: leasedBy(c.Items[0].LeaseToken),
			Set: storage.Change{State: storage.Pending, NextAttemptAfter: &now, MarkUnresolved: true},
		},
		storage.Transition{
			ItemID: c.Items[1].ItemID, Expect: leasedBy(c.Items[1].LeaseToken),
			Set: storage.Change{State: storage.Pending, NextAttemptAfter: &now},
		},
	)
	var got []storage.ClaimedItem
	var exhausted []storage.Exhausted
	r.until("both are decided", func() bool {
		next := r.claim(storage.ClaimRequest{Routes: []int64{route}, Horizon: time.Microsecond})
		got, exhausted = append(got, next.Items...), append(exhausted, next.Exhausted...)
		return len(got)+len(exhausted) >= 2
	})
	r.same("past the horizon", exhausted, []storage.Exhausted{{ItemID: c.Items[0].ItemID, Code: storage.CodeHorizonPassed}})
	if len(got) != 1 || got[0].ItemID != c.Items[1].ItemID {
		r.errorf("handed out %s, want the one that was never unresolved", text(got))
	}
	r.same("state", r.detail(c.Items[0].ItemID).Item.State, storage.Uncertain)
}

func claimRace(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	const n = 120
	r.stage(t, route, n, nil)
	var mu sync.Mutex
	owners := map[int64]int{}
	hosts := []storage.OutboxStore{r.outbox()}
	if other := r.beside(); other != nil {
		impl, err := need[storage.OutboxStore](other, storage.Outbox)
		r.must("reach outbox at the other host", err)
		hosts = append(hosts, impl)
	}
	r.together(8, func(w int) {
		for empty := 0; empty < 3; {
			c, err := hosts[w%len(hosts)].Claim(r.ctx, storage.ClaimRequest{
				Owner: "w" + decimalInt(w), Routes: []int64{route}, Limit: 3, Lease: time.Hour,
			})
			if err != nil {
				r.errorf("claim: %v", err)
				return
			}
			if len(c.Items) == 0 {
				empty++
			}
			mu.Lock()
			for _, it := range c.Items {
				owners[it.ItemID]++
			}
			mu.Unlock()
		}
	})
	for rest := r.claim(storage.ClaimRequest{Routes: []int64{route}}); len(rest.Items) > 0; rest = r.claim(storage.ClaimRequest{Routes: []int64{route}}) {
		for _, it := range rest.Items {
			owners[it.ItemID]++
		}
	}
	r.same("items handed out", len(owners), n)
	for id, times := range owners {
		if times != 1 {
			r.errorf("item %d was handed out %d times", id, times)
		}
	}
}
