package sqlite

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func ids(cl storage.Claim) []int64 {
	var all []int64
	for _, it := range cl.Items {
		all = append(all, it.ItemID)
	}
	return all
}

func wantIDs(t *testing.T, cl storage.Claim, want ...int64) {
	t.Helper()
	if got := ids(cl); !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}

// T1, O9, O10, A-T3, A-T7: a claim counts the attempt, raises the token and sets
// first_attempt_at once; nobody else gets the item while the lease runs.
func TestClaim(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	route := seed(t, a, 3, nil)
	cl := claimWith(t, a, storage.ClaimRequest{Owner: "w1", Routes: []int64{route, route}, Limit: 2, Lease: time.Minute})
	wantIDs(t, cl, 1, 2)
	got := cl.Items[0]
	e := event("acme", "e000000", "1")
	if got.LeaseToken != 1 || got.Attempts != 1 || got.AttemptBudget != 3 || got.Unresolved || !got.FirstAttemptAt.Equal(c.t) ||
		got.Event.EventID != e.EventID || got.Event.Quantity.Cmp(e.Quantity) != 0 || got.Event.Dimensions["model"] != "m1" ||
		got.Mapping.Version != "m1" || string(got.Mapping.Content) != `{"event_name":"llm_tokens"}` ||
		got.Identity != item(e, route, "m1").Identity || got.Digest != item(e, route, "m1").Digest || got.Customer != "cus_1" || got.RouteID != route {
		t.Errorf("claimed %+v", got)
	}
	row := load(t, a, 1).Item
	if row.State != storage.Leased || row.LeaseOwner != "w1" || !row.LeaseExpiresAt.Equal(c.t.Add(time.Minute)) || !row.ClaimedAt.Equal(c.t) {
		t.Errorf("row %+v", row)
	}
	wantIDs(t, claim(t, a, route), 3)
	wantIDs(t, claim(t, a, route))
	wantIDs(t, claim(t, a, route+1))
	// Back to pending later: the first attempt stays where it was.
	first := c.t
	move(t, a, storage.Transition{ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Pending, NextAttemptAfter: new(time.Second)}})
	wantIDs(t, claim(t, a, route))
	c.advance(time.Second) // due at this very microsecond
	cl = claim(t, a, route)
	wantIDs(t, cl, 1)
	if got := cl.Items[0]; got.LeaseToken != 2 || got.Attempts != 2 || !got.FirstAttemptAt.Equal(first) || got.Unresolved {
		t.Errorf("claimed %+v", got)
	}
	checkCounts(t, a)
}

func TestClaimRefuses(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	good := storage.ClaimRequest{Owner: "w", Limit: 1, Lease: time.Second}
	for field, change := range map[string]func(*storage.ClaimRequest){
		"owner":   func(r *storage.ClaimRequest) { r.Owner = "" },
		"limit":   func(r *storage.ClaimRequest) { r.Limit = 0 },
		"lease":   func(r *storage.ClaimRequest) { r.Lease = 0 },
		"horizon": func(r *storage.ClaimRequest) { r.Horizon = -1 },
	} {
		req := good
		change(&req)
		_, err := a.Claim(t.Context(), req)
		if e := wantError(t, err, sdk.TagInvalid, ""); e.Field != field {
			t.Errorf("field %q, want %q", e.Field, field)
		}
	}
	if cl, err := a.Claim(t.Context(), good); err != nil || len(cl.Items) != 0 {
		t.Errorf("%+v, %v", cl, err)
	}
}

// Q12: an expired lease is alone in its claim, goes first, and is unresolved
// from the start of the attempt that nobody answered (Q11).
func TestExpiredLease(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	route := seed(t, a, 4, nil)
	start := c.t
	wantIDs(t, claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 2, Lease: time.Minute}), 1, 2)
	c.advance(time.Minute)
	wantIDs(t, claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 1}), 3) // not expired yet
	c.advance(time.Microsecond)
	for _, id := range []int64{1, 2} {
		cl := claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 10, Lease: time.Hour, Horizon: time.Hour})
		wantIDs(t, cl, id)
		if got := cl.Items[0]; !got.Unresolved || got.LeaseToken != 2 || got.Attempts != 2 || !got.FirstAttemptAt.Equal(start) {
			t.Errorf("re-claimed %+v", got)
		}
		row := load(t, a, id).Item
		if !row.Unresolved || !row.FirstUnresolvedAt.Equal(start) || !row.ClaimedAt.Equal(c.t) {
			t.Errorf("row %+v", row)
		}
	}
	// Now that nothing is expired, the rest.
	wantIDs(t, claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 10}), 4)
	// A second expiry keeps the first unresolved time.
	c.advance(2 * time.Hour)
	wantIDs(t, claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 10}), 3)
	wantIDs(t, claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 10}), 4)
	wantIDs(t, claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 10}), 1)
	if row := load(t, a, 1).Item; !row.FirstUnresolvedAt.Equal(start) || row.Attempts != 3 {
		t.Errorf("row %+v", row)
	}
	checkCounts(t, a)
}

// P3: whoever lost its lease changes nothing.
func TestFence(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	route := seed(t, a, 1, nil)
	claim(t, a, route)
	c.advance(time.Hour)
	claim(t, a, route) // token 2
	accept := storage.Change{State: storage.Accepted, ProviderRef: new("stale"), AcceptedNow: true}
	rows := move(t, a,
		storage.Transition{ItemID: 1, Expect: fenced(1), Set: accept, Attempt: &storage.Attempt{LeaseToken: 1, Outcome: "accepted"}},
		storage.Transition{ItemID: 1, Expect: fenced(2), Set: storage.Change{State: storage.Uncertain}, Attempt: &storage.Attempt{LeaseToken: 2}},
		storage.Transition{ItemID: 1, Expect: fenced(2), Set: accept},
		storage.Transition{ItemID: 9, Expect: fenced(1), Set: accept, Attempt: &storage.Attempt{LeaseToken: 1}},
	)
	if !slices.Equal(rows, []int{0, 1, 0, 0}) {
		t.Errorf("rows %v", rows)
	}
	d := load(t, a, 1)
	if d.Item.State != storage.Uncertain || d.Item.ProviderRef != "" || !d.Item.AcceptedAt.IsZero() {
		t.Errorf("item %+v", d.Item)
	}
	// Q13: what the stale worker saw is kept, marked.
	if len(d.Attempts) != 2 || !d.Attempts[0].Fenced || d.Attempts[0].Outcome != "accepted" || d.Attempts[1].Fenced {
		t.Errorf("attempts %+v", d.Attempts)
	}
	stats, err := a.OutboxStats(t.Context())
	if err != nil || stats.FencedAttempts != 2 {
		t.Errorf("stats %+v, %v", stats, err)
	}
	checkCounts(t, a)
}

// O9, Q11: cap and horizon are tested before sending, on the values after the
// rule for re-claimed leases.
func TestExhausted(t *testing.T) {
	t.Parallel()
	const horizon = 23 * time.Hour
	for name, test := range map[string]struct {
		// before brings item 1, claimed once at the start, to where it stands
		// when it is claimed again.
		before func(t *testing.T, a *Adapter, c *clock)
		want   string // code, or empty when it is handed out
	}{
		"expired inside the horizon": {func(_ *testing.T, _ *Adapter, c *clock) { c.advance(horizon) }, ""},
		"expired past the horizon":   {func(_ *testing.T, _ *Adapter, c *clock) { c.advance(horizon + time.Microsecond) }, storage.CodeHorizonPassed},
		"refused before, long ago":   {func(t *testing.T, a *Adapter, c *clock) { retry(t, a, storage.Change{}); c.advance(10 * horizon) }, ""},
		"indefinite, at the horizon": {func(t *testing.T, a *Adapter, c *clock) {
			retry(t, a, storage.Change{MarkUnresolved: true})
			c.advance(horizon)
		}, ""},
		"indefinite, past it": {func(t *testing.T, a *Adapter, c *clock) {
			retry(t, a, storage.Change{MarkUnresolved: true})
			c.advance(horizon + 1000)
		}, storage.CodeHorizonPassed},
		"unresolved since unknown": {func(t *testing.T, a *Adapter, _ *clock) {
			retry(t, a, storage.Change{})
			sqlExec(t, a.path, "UPDATE fencepost_outbox_state SET unresolved = 1 WHERE item = 1")
		}, storage.CodeHorizonPassed},
		"attempts used up": {func(t *testing.T, a *Adapter, _ *clock) {
			retry(t, a, storage.Change{})
			sqlExec(t, a.path, "UPDATE fencepost_outbox_state SET attempts = 3 WHERE item = 1")
		}, storage.CodeAttemptsExhausted},
		"attempts used up by a crash": {func(t *testing.T, a *Adapter, c *clock) {
			sqlExec(t, a.path, "UPDATE fencepost_outbox_state SET attempts = 3 WHERE item = 1")
			c.advance(time.Hour)
		}, storage.CodeAttemptsExhausted},
		"one attempt returned": {func(t *testing.T, a *Adapter, _ *clock) {
			sqlExec(t, a.path, "UPDATE fencepost_outbox_state SET attempts = 3 WHERE item = 1")
			retry(t, a, storage.Change{ReturnAttempt: true})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			a := open(t, c)
			route := seed(t, a, 2, nil)
			wantIDs(t, claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 1, Horizon: horizon}), 1)
			test.before(t, a, c)
			token := load(t, a, 1).Item.LeaseToken
			cl := claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 10, Horizon: horizon})
			row := load(t, a, 1).Item
			if row.LeaseToken != token+1 {
				t.Errorf("token %d, want %d", row.LeaseToken, token+1)
			}
			checkCounts(t, a)
			if test.want == "" {
				if !slices.Contains(ids(cl), 1) || row.State != storage.Leased {
					t.Errorf("claim %+v", cl)
				}
				return
			}
			if diff := cmp.Diff([]storage.Exhausted{{ItemID: 1, Code: test.want}}, cl.Exhausted); diff != "" {
				t.Error(diff)
			}
			wantIDs(t, cl, 2) // the next one is handed out all the same
			if row.State != storage.Uncertain || row.LastError == nil || row.LastError.Code != test.want || row.LeaseOwner != "" ||
				!row.LeaseExpiresAt.IsZero() || !row.SettledAt.IsZero() {
				t.Errorf("row %+v", row)
			}
			// The worker that had it is fenced out.
			if rows := move(t, a, storage.Transition{ItemID: 1, Expect: fenced(token), Set: storage.Change{State: storage.Rejected}}); rows[0] != 0 {
				t.Error("a stale write went through")
			}
		})
	}
}

// retry sends item 1 back to pending, due at once.
func retry(t *testing.T, a *Adapter, set storage.Change) {
	t.Helper()
	set.State, set.NextAttemptAfter = storage.Pending, new(time.Duration(0))
	if rows := move(t, a, storage.Transition{ItemID: 1, Expect: fenced(1), Set: set}); rows[0] != 1 {
		t.Fatal("item 1 did not go back")
	}
}

// Q12, O16: no other claim takes a serial key that is being sent; one claim
// may take many of it.
func TestSerialKey(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	route := seed(t, a, 6, func(i int, it *storage.NewItem) {
		if i%2 == 0 {
			it.SerialKey = "cus_1"
		}
	})
	one := storage.ClaimRequest{Routes: []int64{route}, Limit: 3}
	wantIDs(t, claimWith(t, a, one), 1, 2, 3)
	wantIDs(t, claim(t, a, route), 4, 6) // 5 waits
	wantIDs(t, claim(t, a, route))
	for _, id := range []int64{1, 3} { // both must be out of the way
		wantIDs(t, claim(t, a, route))
		move(t, a, storage.Transition{ItemID: id, Expect: fenced(1), Set: storage.Change{State: storage.Accepted, AcceptedNow: true}})
	}
	wantIDs(t, claim(t, a, route), 5)
	c.advance(time.Hour) // an expired lease holds nothing
	wantIDs(t, claim(t, a, route), 2)
	wantIDs(t, claim(t, a, route), 4)
	wantIDs(t, claim(t, a, route), 5)
	wantIDs(t, claim(t, a, route), 6)
}

// Two routes share a serial key: an expired lease waits for the live one.
func TestSerialKeyAcrossRoutes(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	route, rev := addRoute(t, a)
	set, err := a.ChangeRoutes(t.Context(), storage.RouteChange{Revision: rev, Add: []storage.Route{{
		Exporter: "stripe", Account: "acct_1", Mode: "test", Feature: "calls", Disposition: storage.RouteExport, MappingVersion: "m1",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	other := set.Routes[1].ID
	var units []storage.Unit
	for i, r := range []int64{route, other, other, route} {
		e := event("acme", fmt.Sprint("e", i), "1")
		it := item(e, r, "m1")
		if i < 2 {
			it.SerialKey = "k"
		}
		units = append(units, plain(e, it))
		c.advance(time.Second)
		record(t, a, storage.RecordRequest{Units: units[i:], RoutesRevision: set.Revision})
	}
	short := storage.ClaimRequest{Routes: []int64{route}, Limit: 1, Lease: time.Second}
	wantIDs(t, claimWith(t, a, short), 1)
	wantIDs(t, claim(t, a, other), 3)
	c.advance(2 * time.Second)
	wantIDs(t, claim(t, a, other), 2) // 1 has expired
	wantIDs(t, claim(t, a, route), 4) // and now waits for 2
	// Across routes the oldest due goes first.
	for id, after := range map[int64]time.Duration{2: 5 * time.Second, 3: time.Second, 4: 3 * time.Second} {
		move(t, a, storage.Transition{ItemID: id, Expect: fenced(1), Set: storage.Change{State: storage.Pending, NextAttemptAfter: new(after)}})
	}
	c.advance(time.Minute)
	wantIDs(t, claim(t, a, route, other), 1)
	wantIDs(t, claim(t, a, other, route), 3, 4) // 2 waits for 1
}

// What a killed process held can be claimed at once by the next one; the
// rules of a re-claim hold.
func TestOpenEndsLeases(t *testing.T) {
	t.Parallel()
	c := newClock()
	path := t.TempDir() + "/f.db"
	a, err := Open(t.Context(), Config{Path: path, Now: c.now, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	route := seed(t, a, 2, nil)
	wantIDs(t, claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 2, Lease: time.Hour}), 1, 2)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b := openAt(t, path, c)
	if row := load(t, b, 1).Item; row.State != storage.Leased || row.LeaseToken != 1 || row.Unresolved {
		t.Errorf("row %+v", row)
	}
	cl := claim(t, b, route)
	wantIDs(t, cl, 1)
	if got := cl.Items[0]; !got.Unresolved || got.Attempts != 2 || got.LeaseToken != 2 {
		t.Errorf("claimed %+v", got)
	}
}

// A claim that meets nothing but held serial keys stops looking after a while.
func TestSkippingIsBounded(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	route := seed(t, a, maxSkipped+10, func(i int, it *storage.NewItem) {
		if i < maxSkipped+5 {
			it.SerialKey = "k"
		}
	})
	wantIDs(t, claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 1}), 1)
	wantIDs(t, claim(t, a, route))
}

// Found by the model: a page of expired leases that must wait hides nothing
// behind it.
func TestExpiredBehindHeld(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	route := seed(t, a, 4, func(i int, it *storage.NewItem) {
		if i < 3 {
			it.SerialKey = "k"
		}
	})
	wantIDs(t, claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 4}), 1, 2, 3, 4)
	c.advance(time.Hour)
	one := storage.ClaimRequest{Routes: []int64{route}, Limit: 1}
	wantIDs(t, claimWith(t, a, one), 1)
	wantIDs(t, claimWith(t, a, one), 4) // 2 and 3 wait for 1
	wantIDs(t, claimWith(t, a, one))
}
