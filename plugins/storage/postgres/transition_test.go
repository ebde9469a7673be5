package postgres

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// The update is generic: each part of a change sets its column and no other.
func TestTransitionSets(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	still := storage.Leased
	for name, test := range map[string]struct {
		set  storage.Change
		want func(it *storage.Item, now time.Time)
	}{
		"nothing": {storage.Change{State: still}, func(*storage.Item, time.Time) {}},
		"leaving leased": {storage.Change{State: storage.Rejected}, func(it *storage.Item, _ time.Time) {
			it.State, it.LeaseOwner, it.LeaseExpiresAt = storage.Rejected, "", time.Time{}
		}},
		"delay": {storage.Change{State: still, NextAttemptAfter: new(time.Minute)}, func(it *storage.Item, now time.Time) {
			it.NextAttemptAt = now.Add(time.Minute)
		}},
		"return": {storage.Change{State: still, ReturnAttempt: true}, func(it *storage.Item, _ time.Time) { it.Attempts = 0 }},
		"unresolved": {storage.Change{State: still, MarkUnresolved: true}, func(it *storage.Item, _ time.Time) {
			it.Unresolved, it.FirstUnresolvedAt = true, it.ClaimedAt // Q11
		}},
		"ref":      {storage.Change{State: still, ProviderRef: new("r")}, func(it *storage.Item, _ time.Time) { it.ProviderRef = "r" }},
		"odd ref":  {storage.Change{State: still, ProviderRef: new("r\x00\xff")}, func(it *storage.Item, _ time.Time) { it.ProviderRef = "r\ufffd\ufffd" }},
		"accepted": {storage.Change{State: still, AcceptedNow: true}, func(it *storage.Item, now time.Time) { it.AcceptedAt = now }},
		"confirmed": {storage.Change{State: still, ConfirmedNow: true, ConfirmedBy: new("aggregate")}, func(it *storage.Item, now time.Time) {
			it.ConfirmedAt, it.ConfirmedBy = now, "aggregate"
		}},
		"error": {storage.Change{State: still, LastError: &storage.ItemError{Code: "c\x00", Status: 400, Message: "é"}}, func(it *storage.Item, _ time.Time) {
			it.LastError = &storage.ItemError{Code: "c\x00", Status: 400, Message: "é"}
		}},
		"reason":    {storage.Change{State: still, QuarantineReason: new("no_account")}, func(it *storage.Item, _ time.Time) { it.QuarantineReason = "no_account" }},
		"settled":   {storage.Change{State: still, Settled: &yes}, func(it *storage.Item, now time.Time) { it.SettledAt = now }},
		"unsettled": {storage.Change{State: still, Settled: &no}, func(*storage.Item, time.Time) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := seeded(t, 1, noSerial)
			o.claim(storage.ClaimRequest{})
			want := o.load(1).Item
			before := o.now()
			if rows := o.move(storage.Transition{ItemID: 1, Expect: fenced(1), Set: test.set}); rows[0] != 1 {
				t.Fatal("nothing changed")
			}
			test.want(&want, before)
			// The database's clock has moved on by then, a little.
			later := cmp.Comparer(func(a, b time.Time) bool { return a.Sub(b).Abs() < 10*time.Second && a.IsZero() == b.IsZero() })
			if diff := cmp.Diff(want, o.load(1).Item, later); diff != "" {
				t.Error(diff)
			}
			o.checkCounts()
		})
	}
}

// Every part of an expectation is tested, and only what is given.
func TestTransitionExpects(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		expect storage.Expect
		rows   int
	}{
		"state":           {storage.Expect{State: storage.Leased}, 1},
		"other state":     {storage.Expect{State: storage.Pending}, 0},
		"token":           {storage.Expect{State: storage.Leased, LeaseToken: new(int64(1))}, 1},
		"other token":     {storage.Expect{State: storage.Leased, LeaseToken: new(int64(0))}, 0},
		"mapping":         {storage.Expect{State: storage.Leased, MappingVersion: new("m1")}, 1},
		"other mapping":   {storage.Expect{State: storage.Leased, MappingVersion: new("")}, 0},
		"resolved":        {storage.Expect{State: storage.Leased, Unresolved: new(false)}, 1},
		"unresolved (R1)": {storage.Expect{State: storage.Leased, Unresolved: new(true)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := seeded(t, 1, noSerial)
			o.claim(storage.ClaimRequest{})
			before := o.load(1).Item
			if rows := o.move(storage.Transition{ItemID: 1, Expect: test.expect, Set: storage.Change{State: storage.Rejected}}); rows[0] != test.rows {
				t.Errorf("rows %d, want %d", rows[0], test.rows)
			}
			if after := o.load(1).Item; test.rows == 0 && !cmp.Equal(before, after) {
				t.Errorf("changed: %s", cmp.Diff(before, after))
			}
			o.checkCounts()
		})
	}
	t.Run("superseded", func(t *testing.T) { // Q5
		t.Parallel()
		o := seeded(t, 2, noSerial)
		o.wantClaim(storage.ClaimRequest{Limit: 1}, 1)
		o.exec("UPDATE {schema}.fencepost_outbox_state SET superseded_by = 7")
		o.older(time.Hour)
		o.wantClaim(storage.ClaimRequest{})
		for id, state := range map[int64]storage.ItemState{1: storage.Leased, 2: storage.Pending} {
			if rows := o.move(storage.Transition{ItemID: id, Expect: storage.Expect{State: state}, Set: storage.Change{State: storage.Rejected}}); rows[0] != 0 {
				t.Error("a superseded item moved")
			}
		}
	})
}

// The times that must not move do not, and a first settlement can be undone.
func TestTransitionKeeps(t *testing.T) {
	t.Parallel()
	o := seeded(t, 1, noSerial)
	o.claim(storage.ClaimRequest{})
	start := o.load(1).Item.ClaimedAt
	o.retry(storage.Change{MarkUnresolved: true})
	o.claim(storage.ClaimRequest{})
	again := o.load(1).Item.ClaimedAt
	o.move(storage.Transition{ItemID: 1, Expect: fenced(2), Set: storage.Change{
		State: storage.Accepted, MarkUnresolved: true, AcceptedNow: true, Settled: new(true),
	}})
	it := o.load(1).Item
	if !again.After(start) || !it.FirstUnresolvedAt.Equal(start) || !it.FirstAttemptAt.Equal(start) || !it.ClaimedAt.Equal(again) ||
		!it.Unresolved || it.SettledAt.IsZero() {
		t.Errorf("item %+v", it)
	}
	o.checkCounts()
	accepted := it.AcceptedAt
	o.move(storage.Transition{ItemID: 1, Expect: storage.Expect{State: storage.Accepted}, Set: storage.Change{State: storage.Accepted, Settled: new(false)}})
	if it := o.load(1).Item; !it.SettledAt.IsZero() || !it.AcceptedAt.Equal(accepted) {
		t.Errorf("item %+v", it)
	}
	o.checkCounts()
}

// Q13: the log keeps every attempt in order, whole; a zero byte in what a
// provider said does not lose the outcome.
func TestAttemptsLog(t *testing.T) {
	t.Parallel()
	o := seeded(t, 2, noSerial)
	o.claim(storage.ClaimRequest{Limit: 1})
	at := o.now()
	want := []storage.Attempt{
		{
			ItemID: 1, LeaseToken: 1, Owner: "w", StartedAt: at, FinishedAt: at.Add(time.Second), HostClass: "indefinite", Outcome: "retry",
			Evidence: "host", Status: 500, RequestID: "req_1", Code: "api_error", Message: "boom", Decided: storage.Pending,
		},
		{ItemID: 1, LeaseToken: 1, Decided: storage.Accepted, Fenced: true, Message: "\ufffd"},
	}
	o.move(
		storage.Transition{ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Pending, NextAttemptAfter: new(time.Hour)}, Attempt: &want[0]},
		storage.Transition{ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Accepted}, Attempt: &storage.Attempt{LeaseToken: 1, Decided: storage.Accepted, Message: "\x00"}},
	)
	d := o.load(1)
	if diff := cmp.Diff(want, d.Attempts); diff != "" {
		t.Error(diff)
	}
	if d.Event == nil || d.Event.EventID != "e1" || d.Mapping.Label != "1" || d.Mapping.Version != "m1" || d.Item.Feature != "tokens" {
		t.Errorf("detail %+v", d)
	}
	if d := o.load(2); len(d.Attempts) != 0 || d.Attempts == nil {
		t.Errorf("attempts %+v", d.Attempts)
	}
	_, err := o.LoadItem(t.Context(), 3)
	wantTag(t, err, sdk.TagNotFound, "")
}

// An item of no event and no mapping has neither; its payload is its own.
func TestItemWithoutEvent(t *testing.T) {
	t.Parallel()
	o := seeded(t, 1, noSerial)
	o.exec(`INSERT INTO {schema}.fencepost_outbox_items (item, tenant_key, subject_kind, subject_ref, exporter, destination_account,
  mode, mapping_version, digest, subject_key, route, feature, payload, created_at)
VALUES (2, 'acme', 'usage_window', 'w', 'stripe', 'acct_1', 'test', '', sha256('x'), sha256('x'), $1, 'tokens', '{"b": 1,"a":2}', now())`, o.route)
	o.exec(`INSERT INTO {schema}.fencepost_outbox_state (item, route, state, attempt_budget, next_attempt_at)
VALUES (2, $1, 'pending', 3, now())`, o.route)
	if d := o.load(2); d.Event != nil || d.Mapping.Content != nil || string(d.Payload) != `{"b": 1,"a":2}` {
		t.Errorf("detail %+v", d)
	}
	cl := o.wantClaim(storage.ClaimRequest{}, 1, 2)
	if it := cl.Items[1]; it.Event.Seq != 0 || it.Mapping.Content != nil || string(it.Payload) != `{"b": 1,"a":2}` || it.Identity.SubjectKind != storage.SubjectWindow {
		t.Errorf("claimed %+v", it)
	}
}

func TestTransitionRefuses(t *testing.T) {
	t.Parallel()
	o := seeded(t, 1, noSerial)
	o.claim(storage.ClaimRequest{})
	for name, bad := range map[string]storage.Transition{
		"expect": {ItemID: 1, Set: storage.Change{State: storage.Accepted}},
		"set":    {ItemID: 1, Expect: fenced(1)},
		"lease":  {ItemID: 1, Expect: storage.Expect{State: storage.Pending}, Set: storage.Change{State: storage.Leased}},
	} {
		good := storage.Transition{ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Accepted}}
		_, err := o.Transition(t.Context(), []storage.Transition{good, bad})
		e := wantTag(t, err, sdk.TagInvalid, "")
		if i, ok := e.ItemIndex(); !ok || i != 1 {
			t.Errorf("%s: index %d", name, i)
		}
	}
	if it := o.load(1).Item; it.State != storage.Leased {
		t.Errorf("half of a refused call was done: %s", it.State)
	}
	if rows := o.move(); len(rows) != 0 {
		t.Errorf("rows %v", rows)
	}
}

func TestListItems(t *testing.T) {
	t.Parallel()
	o := seeded(t, 5, noSerial)
	o.exec("UPDATE {schema}.fencepost_outbox_state SET state = 'quarantined', quarantine_reason = 'no_customer' WHERE item IN (2, 4)")
	o.claim(storage.ClaimRequest{Limit: 1})
	for name, test := range map[string]struct {
		q    storage.ItemQuery
		want []int64
		more bool
	}{
		"all":           {storage.ItemQuery{Limit: 5}, []int64{1, 2, 3, 4, 5}, false},
		"first":         {storage.ItemQuery{Limit: 2}, []int64{1, 2}, true},
		"after":         {storage.ItemQuery{Limit: 2, After: 3}, []int64{4, 5}, false},
		"pending":       {storage.ItemQuery{Limit: 10, State: storage.Pending}, []int64{3, 5}, false},
		"pending on":    {storage.ItemQuery{Limit: 10, State: storage.Pending, After: 3}, []int64{5}, false},
		"attention":     {storage.ItemQuery{Limit: 1, State: storage.Quarantined}, []int64{2}, true},
		"attention on":  {storage.ItemQuery{Limit: 1, State: storage.Quarantined, After: 2}, []int64{4}, false},
		"uncertain":     {storage.ItemQuery{Limit: 1, State: storage.Uncertain}, nil, false},
		"reason":        {storage.ItemQuery{Limit: 10, Reason: "no_customer"}, []int64{2, 4}, false},
		"tenant":        {storage.ItemQuery{Limit: 10, Tenant: "zeta"}, nil, false},
		"exporter":      {storage.ItemQuery{Limit: 10, Exporter: "webhook"}, nil, false},
		"feature":       {storage.ItemQuery{Limit: 10, Feature: "tokens", State: storage.Leased}, []int64{1}, false},
		"event":         {storage.ItemQuery{Limit: 10, Tenant: "acme", SubjectRef: "e3"}, []int64{3}, false},
		"event, state":  {storage.ItemQuery{Limit: 10, Tenant: "acme", SubjectRef: "e3", State: storage.Leased}, nil, false},
		"subject":       {storage.ItemQuery{Limit: 10, SubjectRef: "e4"}, []int64{4}, false},
		"other subject": {storage.ItemQuery{Limit: 10, Tenant: "acme", SubjectRef: "nope"}, nil, false},
	} {
		page, err := o.ListItems(t.Context(), test.q)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []int64
		for _, it := range page.Items {
			got = append(got, it.ItemID)
		}
		next := test.q.After
		if len(got) > 0 {
			next = got[len(got)-1]
		}
		if !slices.Equal(got, test.want) || page.More != test.more || page.Next != next || page.Items == nil {
			t.Errorf("%s: items %v, more %v, next %d", name, got, page.More, page.Next)
		}
	}
	for _, limit := range []int{0, 1001} {
		_, err := o.ListItems(t.Context(), storage.ItemQuery{Limit: limit})
		wantTag(t, err, sdk.TagInvalid, "")
	}
}

// O28: the age of the oldest pending item, by its creation, also after an old
// one came back.
func TestOldestPending(t *testing.T) {
	t.Parallel()
	o := seeded(t, 2, noSerial)
	if _, err := o.pools[workPool].Exec(t.Context(), withSchema(`
ALTER TABLE {schema}.fencepost_outbox_items DISABLE TRIGGER no_update;
UPDATE {schema}.fencepost_outbox_items SET created_at = now() - item * interval '1 hour'`, o.target.schema)); err != nil {
		t.Fatal(err)
	}
	want := func(age time.Duration) {
		t.Helper()
		if got := o.stats().OldestPending; got < age || got > age+time.Minute || (age == 0) != (got == 0) {
			t.Errorf("oldest pending %v, want %v", got, age)
		}
	}
	want(time.Hour) // the oldest by its number, which creation gave it
	o.claim(storage.ClaimRequest{Limit: 1})
	want(2 * time.Hour)
	o.retry(storage.Change{})
	want(time.Hour)
	o.claim(storage.ClaimRequest{})
	want(0)
}

// The gauge stays exact while many move items, read it and fold it.
func TestGaugeUnderLoad(t *testing.T) {
	t.Parallel()
	const items = 600
	o := seeded(t, items, noSerial)
	hosts := []*outbox{o, o.host()}
	done := make(chan struct{})
	var folder sync.WaitGroup
	folder.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			o.foldCounts(t.Context())
			stats, err := o.OutboxStats(t.Context())
			var n int64
			for _, c := range stats.Counts {
				n += c.Items
			}
			if err != nil || n != items {
				t.Errorf("the gauge counts %d of %d items, %v", n, items, err)
				return
			}
		}
	})
	var left atomic.Int64
	left.Store(items)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for left.Load() > 0 && !t.Failed() {
				cl, err := hosts[w%2].Claim(t.Context(), storage.ClaimRequest{Owner: strconv.Itoa(w), Routes: []int64{o.route}, Limit: 11, Lease: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				var moves []storage.Transition
				for _, it := range cl.Items {
					moves = append(moves, storage.Transition{ItemID: it.ItemID, Expect: fenced(it.LeaseToken), Set: storage.Change{State: storage.Accepted, Settled: new(true)}})
				}
				if _, err := hosts[w%2].Transition(t.Context(), moves); err != nil {
					t.Error(err)
					return
				}
				left.Add(-int64(len(moves)))
			}
		})
	}
	wg.Wait()
	close(done)
	folder.Wait()
	o.foldCounts(t.Context())
	var lines int
	o.query(&lines, "SELECT count(*) FROM {schema}.fencepost_outbox_counts")
	if lines != 1 { // accepted
		t.Errorf("%d lines after folding", lines)
	}
	o.checkCounts()
}

// A gauge of many lines folds itself.
func TestGaugeFolds(t *testing.T) {
	t.Parallel()
	o := seeded(t, 1, noSerial)
	o.exec("INSERT INTO {schema}.fencepost_outbox_counts SELECT $1, 'pending', n % 2 * 2 - 1, 0 FROM generate_series(1, 20002) AS n", o.route)
	o.checkCounts()
	var lines int
	o.query(&lines, "SELECT count(*) FROM {schema}.fencepost_outbox_counts")
	if lines > 3 {
		t.Errorf("%d lines after folding", lines)
	}
	o.checkCounts()
}

// F17: transitions of the same items in opposite orders do not wait for each
// other in a circle. (A deadlock would be run again and show as nothing, so
// the statement is run without that.)
func TestTransitionsInOppositeOrder(t *testing.T) {
	t.Parallel()
	o := seeded(t, 200, noSerial)
	o.claim(storage.ClaimRequest{Limit: 200})
	up := make([]storage.Transition, 200)
	for i := range up {
		up[i] = storage.Transition{ItemID: int64(i + 1), Expect: fenced(1), Set: storage.Change{State: storage.Leased, MarkUnresolved: true}}
	}
	down := slices.Clone(up)
	slices.Reverse(down)
	var wg sync.WaitGroup
	for _, moves := range [][]storage.Transition{up, down, up, down} {
		wg.Go(func() {
			for range 25 {
				results := make([]storage.TransitionResult, len(moves))
				err := pgx.BeginFunc(t.Context(), o.pools[workPool], func(q pgx.Tx) error {
					tx := &tx{a: o.Adapter, q: q}
					if _, err := tx.exec(t.Context(), qOutboxPlanner); err != nil {
						return err
					}
					return (&movement{t: tx, moves: moves, results: results}).run(t.Context())
				})
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range results {
					if r.Rows != 1 {
						t.Errorf("item %d: %d rows", r.ItemID, r.Rows)
					}
				}
			}
		})
	}
	wg.Wait()
}
