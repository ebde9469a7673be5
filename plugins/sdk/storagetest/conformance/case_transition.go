package conformance

import (
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func transitionCases() []Case {
	return []Case{
		define("transition/fence", "A32 B47 O8 Q13", exporting(), fence),
		define("transition/sets-what-it-says", "O8 Q2", exporting(), transitionSets),
		define("transition/expectations", "O8 A24 A25", exporting(), transitionExpects),
		define("race/one-transition-wins", "A32 O8", exporting(), transitionRace),
	}
}

// A worker whose lease was taken changes nothing, and what it saw is kept.
func fence(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 1, nil)
	old := r.claim(storage.ClaimRequest{Routes: []int64{route}, Lease: time.Millisecond}).Items[0]
	current := r.reclaim(storage.ClaimRequest{Routes: []int64{route}}).Items[0]
	write := func(token int64, state storage.ItemState) storage.Transition {
		return storage.Transition{
			ItemID: old.ItemID, Expect: leasedBy(token), Set: storage.Change{State: state},
			Attempt: &storage.Attempt{
				LeaseToken: token, Owner: "worker", StartedAt: period, FinishedAt: period.Add(time.Second), HostClass: "success",
				Outcome: "accepted", Evidence: "host", Status: 200, RequestID: "req_1", Code: "c", Message: "m", Decided: state,
			},
		}
	}
	r.same("the old owner", r.moves(write(old.LeaseToken, storage.Rejected)), []int{0})
	r.same("state", r.detail(old.ItemID).Item.State, storage.Leased)
	r.same("the owner", r.moves(write(current.LeaseToken, storage.Accepted)), []int{1})
	r.same("the owner again", r.moves(write(current.LeaseToken, storage.Rejected)), []int{0})
	d := r.detail(old.ItemID)
	r.same("state", d.Item.State, storage.Accepted)
	if len(d.Attempts) != 3 {
		r.fatalf("%d attempts in the log, want all 3: %s", len(d.Attempts), text(d.Attempts))
	}
	var want []storage.Attempt
	for i, m := range []storage.Transition{
		write(old.LeaseToken, storage.Rejected), write(current.LeaseToken, storage.Accepted), write(current.LeaseToken, storage.Rejected),
	} {
		a := *m.Attempt
		a.ItemID, a.Fenced = old.ItemID, i != 1
		want = append(want, a)
	}
	r.same("the log", d.Attempts, want)
}

func transitionSets(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 1, nil)
	c := r.claim(storage.ClaimRequest{Routes: []int64{route}}).Items[0]
	ref, by, why, yes, no := "mtr_1", "aggregate", "correction_late", true, false
	r.moves(storage.Transition{ItemID: c.ItemID, Expect: leasedBy(c.LeaseToken), Set: storage.Change{
		State: storage.Accepted, ProviderRef: &ref, AcceptedNow: true, Settled: &yes, MarkUnresolved: true,
		LastError: &storage.ItemError{Code: "c", Status: 409, Message: "é"},
	}})
	d := r.detail(c.ItemID).Item
	r.same("accepted", []any{d.State, d.ProviderRef, d.LastError, d.Unresolved, d.LeaseOwner, d.Attempts},
		[]any{storage.Accepted, ref, &storage.ItemError{Code: "c", Status: 409, Message: "é"}, true, "", 1})
	if d.AcceptedAt.IsZero() || d.SettledAt.IsZero() || !d.FirstUnresolvedAt.Equal(d.ClaimedAt) || !d.LeaseExpiresAt.IsZero() {
		r.errorf("times: %s", text(d))
	}
	r.moves(storage.Transition{ItemID: c.ItemID, Expect: storage.Expect{State: storage.Accepted}, Set: storage.Change{
		State: storage.Confirmed, ConfirmedNow: true, ConfirmedBy: &by, QuarantineReason: &why, Settled: &no,
	}})
	after := r.detail(c.ItemID).Item
	if after.ConfirmedAt.IsZero() || !after.SettledAt.IsZero() {
		r.errorf("times: %s", text(after))
	}
	d.State, d.ConfirmedBy, d.QuarantineReason, d.ConfirmedAt, d.SettledAt = storage.Confirmed, by, why, after.ConfirmedAt, after.SettledAt
	r.same("what was not named stays", after, d)
}

func transitionExpects(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, 1, func(_ int, it *storage.NewItem) { it.QuarantineReason = "no_customer" })
	id := r.items(storage.ItemQuery{Tenant: t})[0].ItemID
	right, wrong, yes, no := r.mappingVersion("1"), r.mappingVersion("2"), true, false
	zero := time.Duration(0)
	to := storage.Change{State: storage.Pending, NextAttemptAfter: &zero}
	move := func(e storage.Expect) storage.Transition { return storage.Transition{ItemID: id, Expect: e, Set: to} }
	r.same("what does not hold", r.moves(
		move(storage.Expect{State: storage.Uncertain}),
		move(storage.Expect{State: storage.Quarantined, MappingVersion: &wrong}),
		move(storage.Expect{State: storage.Quarantined, Unresolved: &yes}),
		move(leasedBy(0)),
		storage.Transition{ItemID: 1 << 60, Expect: storage.Expect{State: storage.Quarantined}, Set: to},
	), []int{0, 0, 0, 0, 0})
	r.same("what does, and then no more", r.moves(
		move(storage.Expect{State: storage.Quarantined, MappingVersion: &right, Unresolved: &no}),
		move(storage.Expect{State: storage.Quarantined, MappingVersion: &right, Unresolved: &no}),
	), []int{1, 0})
}

func transitionRace(r *run) {
	t := r.tenant("a")
	route := r.addRoute("tokens")
	r.stage(t, route, min(r.opts.Rounds, 90), nil)
	for _, it := range r.claim(storage.ClaimRequest{Routes: []int64{route}}).Items {
		rows := make([]int, 6)
		r.together(len(rows), func(i int) {
			state := storage.Accepted
			if i%2 == 0 {
				state = storage.Uncertain
			}
			res, err := r.outbox().Transition(r.ctx, []storage.Transition{{
				ItemID: it.ItemID, Expect: leasedBy(it.LeaseToken), Set: storage.Change{State: state},
				Attempt: &storage.Attempt{LeaseToken: it.LeaseToken, Owner: "w" + decimalInt(i), Decided: state, Evidence: "host"},
			}})
			if err != nil || len(res) != 1 {
				r.errorf("transition: %v, %s", err, text(res))
				return
			}
			rows[i] = res[0].Rows
		})
		won := 0
		for _, n := range rows {
			won += n
		}
		r.same("rows changed by all", won, 1)
		r.same("lines in the log", len(r.detail(it.ItemID).Attempts), len(rows))
	}
}
