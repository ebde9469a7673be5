package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const noSerial = "''"

// T1, O9, O10, A-T3, A-T7, A-T8: a claim counts the attempt, raises the token and sets
// first_attempt_at once; nobody else gets the item while the lease runs.
func TestClaim(t *testing.T) {
	t.Parallel()
	o := seeded(t, 3, noSerial)
	start := o.now()
	cl := o.wantClaim(storage.ClaimRequest{Owner: "w1", Routes: []int64{o.route, o.route}, Limit: 2}, 1, 2)
	got := cl.Items[0]
	wantIdentity := storage.Identity{
		Tenant: "acme", SubjectKind: storage.SubjectEvent, SubjectRef: "e1", Exporter: "stripe",
		Account: "acct_1", Mode: "test", MappingVersion: "m1",
	}
	if got.LeaseToken != 1 || got.Attempts != 1 || got.AttemptBudget != 3 || got.Unresolved || got.Identity != wantIdentity ||
		got.Event.EventID != "e1" || got.Event.Seq != 1 || !got.Event.Quantity.Equal(decimal.MustParse("1.5")) ||
		got.Event.Dimensions["model"] != "m1" || got.Event.PayloadHash != sum("p") || got.Event.DedupeHash != sum("d") ||
		got.Mapping.Version != "m1" || got.Mapping.Label != "1" || string(got.Mapping.Content) != `{"event_name":"llm_tokens"}` ||
		got.Digest != sum("digest 1") || got.Customer != "cus_1" || got.RouteID != o.route {
		t.Errorf("claimed %+v", got)
	}
	near(t, "first attempt", got.FirstAttemptAt, start)
	row := o.load(1).Item
	if row.State != storage.Leased || row.LeaseOwner != "w1" || row.LeaseExpiresAt.Sub(row.ClaimedAt) != time.Minute {
		t.Errorf("row %+v", row)
	}
	near(t, "claimed at", row.ClaimedAt, start)
	o.wantClaim(storage.ClaimRequest{}, 3)
	o.wantClaim(storage.ClaimRequest{})
	o.wantClaim(storage.ClaimRequest{Routes: []int64{o.route + 1}})
	// Back to pending, due later: the first attempt stays where it was.
	o.move(storage.Transition{ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Pending, NextAttemptAfter: new(time.Hour)}})
	o.wantClaim(storage.ClaimRequest{})
	first := o.load(1).Item.FirstAttemptAt
	o.exec("UPDATE {schema}.fencepost_outbox_state SET next_attempt_at = next_attempt_at - interval '1 hour' WHERE item = 1")
	cl = o.wantClaim(storage.ClaimRequest{}, 1)
	if got := cl.Items[0]; got.LeaseToken != 2 || got.Attempts != 2 || !got.FirstAttemptAt.Equal(first) || got.Unresolved {
		t.Errorf("claimed %+v", got)
	}
	o.checkCounts()
}

func TestClaimRefuses(t *testing.T) {
	t.Parallel()
	o := newOutbox(t)
	good := storage.ClaimRequest{Owner: "w", Limit: 1, Lease: time.Second}
	for field, change := range map[string]func(*storage.ClaimRequest){
		"owner":   func(r *storage.ClaimRequest) { r.Owner = "" },
		"limit":   func(r *storage.ClaimRequest) { r.Limit = 1001 },
		"lease":   func(r *storage.ClaimRequest) { r.Lease = 0 },
		"horizon": func(r *storage.ClaimRequest) { r.Horizon = -1 },
	} {
		req := good
		change(&req)
		_, err := o.Claim(t.Context(), req)
		if e := wantTag(t, err, sdk.TagInvalid, ""); e.Field != field {
			t.Errorf("field %q, want %q", e.Field, field)
		}
	}
	if cl, err := o.Claim(t.Context(), good); err != nil || len(cl.Items) != 0 {
		t.Errorf("%+v, %v", cl, err)
	}
}

// Q12: an expired lease is alone in its claim, goes first, and is unresolved
// from the start of the attempt that nobody answered (Q11).
func TestExpiredLease(t *testing.T) {
	t.Parallel()
	o := seeded(t, 4, noSerial)
	o.wantClaim(storage.ClaimRequest{Limit: 2}, 1, 2)
	o.older(30 * time.Second)
	o.wantClaim(storage.ClaimRequest{Limit: 1}, 3) // not expired yet
	o.older(31 * time.Second)
	for _, id := range []int64{1, 2} {
		before, now := o.load(id).Item, o.now()
		cl := o.wantClaim(storage.ClaimRequest{Lease: time.Hour, Horizon: time.Hour}, id)
		if got := cl.Items[0]; !got.Unresolved || got.LeaseToken != 2 || got.Attempts != 2 || !got.FirstAttemptAt.Equal(before.FirstAttemptAt) {
			t.Errorf("re-claimed %+v", got)
		}
		row := o.load(id).Item
		if !row.Unresolved || !row.FirstUnresolvedAt.Equal(before.ClaimedAt) {
			t.Errorf("row %+v", row)
		}
		near(t, "claimed at", row.ClaimedAt, now)
	}
	// Now that nothing is expired, the rest.
	o.wantClaim(storage.ClaimRequest{}, 4)
	// A second expiry keeps the first unresolved time.
	o.older(2 * time.Hour)
	first := o.load(1).Item.FirstUnresolvedAt
	o.wantClaim(storage.ClaimRequest{}, 3)
	o.wantClaim(storage.ClaimRequest{}, 4)
	o.wantClaim(storage.ClaimRequest{}, 1)
	if row := o.load(1).Item; !row.FirstUnresolvedAt.Equal(first) || row.Attempts != 3 {
		t.Errorf("row %+v", row)
	}
	o.checkCounts()
}

// P3: whoever lost its lease changes nothing.
func TestFence(t *testing.T) {
	t.Parallel()
	o := seeded(t, 1, noSerial)
	o.claim(storage.ClaimRequest{})
	o.older(time.Hour)
	o.host().claim(storage.ClaimRequest{}) // token 2
	accept := storage.Change{State: storage.Accepted, ProviderRef: new("stale"), AcceptedNow: true}
	rows := o.move(
		storage.Transition{ItemID: 1, Expect: fenced(1), Set: accept, Attempt: &storage.Attempt{LeaseToken: 1, Outcome: "accepted"}},
		storage.Transition{ItemID: 1, Expect: fenced(2), Set: storage.Change{State: storage.Uncertain}, Attempt: &storage.Attempt{LeaseToken: 2}},
		storage.Transition{ItemID: 1, Expect: fenced(2), Set: accept},
		storage.Transition{ItemID: 9, Expect: fenced(1), Set: accept, Attempt: &storage.Attempt{LeaseToken: 1}},
	)
	if !slices.Equal(rows, []int{0, 1, 0, 0}) {
		t.Errorf("rows %v", rows)
	}
	d := o.load(1)
	if d.Item.State != storage.Uncertain || d.Item.ProviderRef != "" || !d.Item.AcceptedAt.IsZero() {
		t.Errorf("item %+v", d.Item)
	}
	// Q13: what the stale worker saw is kept, marked.
	if len(d.Attempts) != 2 || !d.Attempts[0].Fenced || d.Attempts[0].Outcome != "accepted" || d.Attempts[1].Fenced {
		t.Errorf("attempts %+v", d.Attempts)
	}
	if n := o.stats().FencedAttempts; n != 2 {
		t.Errorf("%d fenced attempts", n)
	}
	o.checkCounts()
}

// O9, Q11: cap and horizon are tested before sending, on the values after the
// rule for re-claimed leases.
func TestExhausted(t *testing.T) {
	t.Parallel()
	const horizon, lot = 23 * time.Hour, time.Minute
	used := func(o *outbox) { o.exec("UPDATE {schema}.fencepost_outbox_state SET attempts = 3 WHERE item = 1") }
	for name, test := range map[string]struct {
		// before brings item 1, claimed once at the start, to where it stands
		// when it is claimed again.
		before func(o *outbox)
		want   string // code, or empty when it is handed out
	}{
		"expired inside the horizon": {func(o *outbox) { o.older(horizon - lot) }, ""},
		"expired past the horizon":   {func(o *outbox) { o.older(horizon + lot) }, storage.CodeHorizonPassed},
		"refused before, long ago":   {func(o *outbox) { o.retry(storage.Change{}); o.older(10 * horizon) }, ""},
		"indefinite, inside the horizon": {func(o *outbox) {
			o.retry(storage.Change{MarkUnresolved: true})
			o.older(horizon - lot)
		}, ""},
		"indefinite, past it": {func(o *outbox) {
			o.retry(storage.Change{MarkUnresolved: true})
			o.older(horizon + lot)
		}, storage.CodeHorizonPassed},
		"unresolved since unknown": {func(o *outbox) {
			o.retry(storage.Change{})
			o.exec("UPDATE {schema}.fencepost_outbox_state SET unresolved = true WHERE item = 1")
		}, storage.CodeHorizonPassed},
		"attempts used up":            {func(o *outbox) { o.retry(storage.Change{}); used(o) }, storage.CodeAttemptsExhausted},
		"attempts used up by a crash": {func(o *outbox) { used(o); o.older(time.Hour) }, storage.CodeAttemptsExhausted},
		"one attempt returned":        {func(o *outbox) { used(o); o.retry(storage.Change{ReturnAttempt: true}) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := seeded(t, 2, noSerial)
			o.wantClaim(storage.ClaimRequest{Limit: 1, Horizon: horizon}, 1)
			test.before(o)
			token := o.load(1).Item.LeaseToken
			cl := o.claim(storage.ClaimRequest{Horizon: horizon})
			row := o.load(1).Item
			if row.LeaseToken != token+1 {
				t.Errorf("token %d, want %d", row.LeaseToken, token+1)
			}
			o.checkCounts()
			if test.want == "" {
				if len(cl.Exhausted) != 0 || row.State != storage.Leased {
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
			if rows := o.move(storage.Transition{ItemID: 1, Expect: fenced(token), Set: storage.Change{State: storage.Rejected}}); rows[0] != 0 {
				t.Error("a stale write went through")
			}
		})
	}
}

// Without a horizon nothing is too old.
func TestNoHorizon(t *testing.T) {
	t.Parallel()
	o := seeded(t, 1, noSerial)
	o.claim(storage.ClaimRequest{})
	o.older(1000 * time.Hour)
	o.wantClaim(storage.ClaimRequest{}, 1)
}

// Q12, O16: no other claim takes a serial key that is being sent, on no host;
// one claim may take many of it.
func TestSerialKey(t *testing.T) {
	t.Parallel()
	o := seeded(t, 6, "CASE n % 2 WHEN 1 THEN 'cus_1' ELSE '' END")
	other := o.host()
	o.wantClaim(storage.ClaimRequest{Limit: 3}, 1, 2, 3)
	other.wantClaim(storage.ClaimRequest{}, 4, 6) // 5 waits
	other.wantClaim(storage.ClaimRequest{})
	for _, id := range []int64{1, 3} { // both must be out of the way
		other.wantClaim(storage.ClaimRequest{})
		o.move(storage.Transition{ItemID: id, Expect: fenced(1), Set: storage.Change{State: storage.Accepted, AcceptedNow: true}})
	}
	other.wantClaim(storage.ClaimRequest{}, 5)
	o.older(time.Hour) // an expired lease holds nothing
	other.hints.forget()
	for _, id := range []int64{2, 4, 6, 5} {
		other.wantClaim(storage.ClaimRequest{}, id)
	}
}

// Two routes share a serial key: an expired lease waits for the live one.
// Across routes the oldest due goes first.
func TestSerialKeyAcrossRoutes(t *testing.T) {
	t.Parallel()
	o := newOutbox(t)
	second := o.addRoute("calls")
	for i, r := range []int64{o.route, second, second, o.route} {
		o.fill(r, i+1, i+1, "CASE WHEN n < 3 THEN 'k' ELSE '' END")
	}
	first, both := []int64{o.route}, []int64{second, o.route}
	o.wantClaim(storage.ClaimRequest{Routes: first, Limit: 1}, 1)
	o.wantClaim(storage.ClaimRequest{Routes: []int64{second}}, 3)
	o.exec("UPDATE {schema}.fencepost_outbox_state SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE item = 1")
	o.wantClaim(storage.ClaimRequest{Routes: []int64{second}}, 2) // 1 has expired
	o.wantClaim(storage.ClaimRequest{Routes: first}, 4)           // and now waits for 2
	for id, after := range map[int64]time.Duration{2: 5 * time.Microsecond, 3: time.Microsecond, 4: 3 * time.Microsecond} {
		o.move(storage.Transition{ItemID: id, Expect: fenced(1), Set: storage.Change{State: storage.Pending, NextAttemptAfter: new(after)}})
	}
	o.wantClaim(storage.ClaimRequest{Routes: both}, 1)
	cl := o.claim(storage.ClaimRequest{Routes: both, Limit: 1}) // 2 waits for 1
	cl2 := o.claim(storage.ClaimRequest{Routes: both})
	if len(cl.Items) != 1 || len(cl2.Items) != 1 || !o.load(cl2.Items[0].ItemID).Item.NextAttemptAt.After(o.load(cl.Items[0].ItemID).Item.NextAttemptAt) {
		t.Errorf("claimed %+v, then %+v", cl.Items, cl2.Items)
	}
}

// A claim that meets nothing but held serial keys stops looking after a while;
// a page of them hides nothing that is near.
func TestSkippingIsBounded(t *testing.T) {
	t.Parallel()
	o := seeded(t, 3500, "CASE WHEN n <= 1000 OR n > 1001 AND n <= 3400 THEN 'k' ELSE '' END")
	o.wantClaim(storage.ClaimRequest{Limit: 1}, 1)
	o.wantClaim(storage.ClaimRequest{Limit: 1}, 1001)
	o.wantClaim(storage.ClaimRequest{Limit: 1})
}

// Found by a model on the other adapter: a page of expired leases that must
// wait hides nothing behind it.
func TestExpiredBehindHeld(t *testing.T) {
	t.Parallel()
	o := seeded(t, 151, "CASE WHEN n < 151 THEN 'k' ELSE '' END")
	o.claim(storage.ClaimRequest{Limit: 151})
	o.older(time.Hour)
	one := storage.ClaimRequest{Limit: 1}
	o.wantClaim(one, 1)
	o.wantClaim(one, 151) // the others wait for 1
	o.wantClaim(one)
}

// T1: many claims at once, on two hosts, never take an item twice, and take
// every one.
func TestClaimsDoNotOverlap(t *testing.T) {
	t.Parallel()
	const items = 2000
	o := seeded(t, items, noSerial)
	hosts := []*outbox{o, o.host()}
	var mu sync.Mutex
	owners := map[int64]string{}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			owner := fmt.Sprint("w", w)
			for {
				cl, err := hosts[w%2].Claim(t.Context(), storage.ClaimRequest{Owner: owner, Routes: []int64{o.route}, Limit: 37, Lease: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, it := range cl.Items {
					if was, taken := owners[it.ItemID]; taken {
						t.Errorf("item %d went to %s and to %s", it.ItemID, was, owner)
					}
					owners[it.ItemID] = owner
				}
				done := len(owners) == items
				mu.Unlock()
				if len(cl.Items) == 0 && done || t.Failed() {
					return
				}
			}
		})
	}
	wg.Wait()
	if len(owners) != items {
		t.Errorf("%d of %d items were claimed", len(owners), items)
	}
	var differ int
	o.query(&differ, "SELECT count(*) FROM {schema}.fencepost_outbox_state WHERE lease_token <> 1 OR attempts <> 1")
	if differ != 0 {
		t.Errorf("%d items have another token or count than 1", differ)
	}
	o.checkCounts()
}

// Q12 across hosts: claims that run at the same time never send one serial key
// from two places.
func TestSerialKeysExcludeAcrossHosts(t *testing.T) {
	t.Parallel()
	o := seeded(t, 600, "'k' || n % 5")
	hosts := []*outbox{o, o.host(), o.host()}
	var mu sync.Mutex
	sending := map[string]int{}
	left := 600
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for {
				host := hosts[w%3]
				cl, err := host.Claim(t.Context(), storage.ClaimRequest{Owner: strconv.Itoa(w), Routes: []int64{o.route}, Limit: 7, Lease: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				left -= len(cl.Items)
				for _, it := range cl.Items {
					if by, taken := sending[it.SerialKey]; taken && by != w {
						t.Errorf("%s is sent by %d and by %d", it.SerialKey, by, w)
					}
					sending[it.SerialKey] = w
				}
				done := left == 0
				mu.Unlock()
				if len(cl.Items) == 0 && done || t.Failed() {
					return
				}
				if len(cl.Items) == 0 {
					continue
				}
				var moves []storage.Transition
				for _, it := range cl.Items {
					moves = append(moves, storage.Transition{ItemID: it.ItemID, Expect: fenced(it.LeaseToken), Set: storage.Change{State: storage.Accepted}})
				}
				mu.Lock() // before the key is free for others
				for _, it := range cl.Items {
					delete(sending, it.SerialKey)
				}
				mu.Unlock()
				if _, err := host.Transition(t.Context(), moves); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	o.checkCounts()
}

// Q12: a claim that is not committed yet holds its serial keys too: another
// waits for it, and then finds them held.
func TestSerialKeyOfOpenClaim(t *testing.T) {
	t.Parallel()
	o := seeded(t, 3, "'k'")
	other := o.host()
	q, err := o.pools[workPool].Begin(t.Context())
	must(t, err)
	defer func() { _ = q.Rollback(context.WithoutCancel(t.Context())) }()
	cl := &claimer{
		t: &tx{a: o.Adapter, q: q}, routes: []int64{o.route}, serial: true,
		req: storage.ClaimRequest{Owner: "w1", Limit: 1, Lease: time.Hour},
	}
	must(t, cl.run(t.Context()))
	wantIDs(t, cl.claim, 1)
	answer := make(chan storage.Claim, 1)
	go func() {
		got, err := other.Claim(t.Context(), storage.ClaimRequest{Owner: "w2", Routes: []int64{o.route}, Limit: 1, Lease: time.Hour})
		if err != nil {
			t.Error(err)
		}
		answer <- got
	}()
	// It had an item of the key in hand and began anew, under the lock of such
	// keys.
	waits(t, o.Adapter, "pg_advisory_xact_lock")
	must(t, q.Commit(t.Context()))
	wantIDs(t, <-answer)
}

// A hint only says where to look first: what became due before it is found by
// the next claim that has room, and a lease that ended before it a little later.
func TestHints(t *testing.T) {
	t.Parallel()
	o := seeded(t, 12, noSerial)
	o.exec("UPDATE {schema}.fencepost_outbox_state SET next_attempt_at = now() + interval '1 hour' WHERE item = 12")
	five := storage.ClaimRequest{Limit: 5, Lease: time.Hour}
	o.wantClaim(five, 1, 2, 3, 4, 5)
	known := o.hints.get([]int64{o.route}, time.Now())
	if known.pending.item != 5 || known.leased.IsZero() {
		t.Errorf("hint %+v", known)
	}
	// It came back, or committed late, with a time before the hint.
	o.exec("UPDATE {schema}.fencepost_outbox_state SET next_attempt_at = now() - interval '2 hours' WHERE item = 12")
	o.wantClaim(five, 6, 7, 8, 9, 10)
	o.wantClaim(five, 12, 11)
	o.exec("UPDATE {schema}.fencepost_outbox_state SET lease_expires_at = now() - interval '2 hours' WHERE item = 3")
	deadline := time.Now().Add(20 * hintLife)
	for {
		if cl := o.claim(five); len(cl.Items) == 1 && cl.Items[0].ItemID == 3 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("an expired lease stayed hidden")
		}
	}
}
