package sqlite

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// The update is generic: each part of a change sets its column and no other.
func TestTransitionSets(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for name, test := range map[string]struct {
		set  storage.Change
		want func(it *storage.Item, now time.Time)
	}{
		"nothing": {storage.Change{State: storage.Leased}, func(*storage.Item, time.Time) {}},
		"leaving leased": {storage.Change{State: storage.Rejected}, func(it *storage.Item, _ time.Time) {
			it.State, it.LeaseOwner, it.LeaseExpiresAt = storage.Rejected, "", time.Time{}
		}},
		"delay": {storage.Change{State: storage.Leased, NextAttemptAfter: new(time.Minute)}, func(it *storage.Item, now time.Time) {
			it.NextAttemptAt = now.Add(time.Minute)
		}},
		"return": {storage.Change{State: storage.Leased, ReturnAttempt: true}, func(it *storage.Item, _ time.Time) { it.Attempts = 0 }},
		"unresolved": {storage.Change{State: storage.Leased, MarkUnresolved: true}, func(it *storage.Item, _ time.Time) {
			it.Unresolved, it.FirstUnresolvedAt = true, it.ClaimedAt
		}},
		"ref":      {storage.Change{State: storage.Leased, ProviderRef: new("r")}, func(it *storage.Item, _ time.Time) { it.ProviderRef = "r" }},
		"accepted": {storage.Change{State: storage.Leased, AcceptedNow: true}, func(it *storage.Item, now time.Time) { it.AcceptedAt = now }},
		"confirmed": {storage.Change{State: storage.Leased, ConfirmedNow: true, ConfirmedBy: new("aggregate")}, func(it *storage.Item, now time.Time) {
			it.ConfirmedAt, it.ConfirmedBy = now, "aggregate"
		}},
		"error": {storage.Change{State: storage.Leased, LastError: &storage.ItemError{Code: "c", Status: 400, Message: "é"}}, func(it *storage.Item, _ time.Time) {
			it.LastError = &storage.ItemError{Code: "c", Status: 400, Message: "é"}
		}},
		"reason":    {storage.Change{State: storage.Leased, QuarantineReason: new("no_account")}, func(it *storage.Item, _ time.Time) { it.QuarantineReason = "no_account" }},
		"settled":   {storage.Change{State: storage.Leased, Settled: &yes}, func(it *storage.Item, now time.Time) { it.SettledAt = now }},
		"unsettled": {storage.Change{State: storage.Leased, Settled: &no}, func(*storage.Item, time.Time) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			a := open(t, c)
			claim(t, a, seed(t, a, 1, nil))
			c.advance(time.Second)
			want := load(t, a, 1).Item
			test.want(&want, c.t)
			if rows := move(t, a, storage.Transition{ItemID: 1, Expect: fenced(1), Set: test.set}); rows[0] != 1 {
				t.Fatal("nothing changed")
			}
			if diff := cmp.Diff(want, load(t, a, 1).Item); diff != "" {
				t.Error(diff)
			}
			checkCounts(t, a)
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
			a := open(t, newClock())
			claim(t, a, seed(t, a, 1, nil))
			before := load(t, a, 1).Item
			rows := move(t, a, storage.Transition{ItemID: 1, Expect: test.expect, Set: storage.Change{State: storage.Rejected}})
			if rows[0] != test.rows {
				t.Errorf("rows %d, want %d", rows[0], test.rows)
			}
			if after := load(t, a, 1).Item; test.rows == 0 && !cmp.Equal(before, after) {
				t.Errorf("changed: %s", cmp.Diff(before, after))
			}
			checkCounts(t, a)
		})
	}
	t.Run("superseded", func(t *testing.T) { // Q5
		t.Parallel()
		a := open(t, newClock())
		route := seed(t, a, 1, nil)
		sqlExec(t, a.path, "UPDATE fencepost_outbox_state SET superseded_by = 7")
		wantIDs(t, claim(t, a, route))
		if rows := move(t, a, storage.Transition{ItemID: 1, Expect: storage.Expect{State: storage.Pending}, Set: storage.Change{State: storage.Rejected}}); rows[0] != 0 {
			t.Error("a superseded item moved")
		}
	})
}

// The times that must not move do not, and a first settlement can be undone.
func TestTransitionKeeps(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	route := seed(t, a, 1, nil)
	claim(t, a, route)
	start := c.t
	retry(t, a, storage.Change{MarkUnresolved: true})
	c.advance(time.Minute)
	claim(t, a, route)
	move(t, a, storage.Transition{ItemID: 1, Expect: fenced(2), Set: storage.Change{
		State: storage.Accepted, MarkUnresolved: true, AcceptedNow: true, Settled: new(true),
	}})
	it := load(t, a, 1).Item
	if !it.FirstUnresolvedAt.Equal(start) || !it.FirstAttemptAt.Equal(start) || !it.ClaimedAt.Equal(c.t) || !it.Unresolved || it.SettledAt.IsZero() {
		t.Errorf("item %+v", it)
	}
	checkCounts(t, a)
	move(t, a, storage.Transition{ItemID: 1, Expect: storage.Expect{State: storage.Accepted}, Set: storage.Change{State: storage.Accepted, Settled: new(false)}})
	if it := load(t, a, 1).Item; !it.SettledAt.IsZero() || !it.AcceptedAt.Equal(c.t) {
		t.Errorf("item %+v", it)
	}
	checkCounts(t, a)
}

// Q13: the log keeps every attempt in order, whole.
func TestAttemptsLog(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	route := seed(t, a, 1, nil)
	claim(t, a, route)
	want := []storage.Attempt{
		{
			ItemID: 1, LeaseToken: 1, Owner: "w", StartedAt: c.t, FinishedAt: c.t.Add(time.Second), HostClass: "indefinite", Outcome: "retry",
			Evidence: "host", Status: 500, RequestID: "req_1", Code: "api_error", Message: "boom", Decided: storage.Pending,
		},
		{ItemID: 1, LeaseToken: 1, Decided: storage.Accepted, Fenced: true},
	}
	move(t, a,
		storage.Transition{ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Pending}, Attempt: &want[0]},
		storage.Transition{ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Accepted}, Attempt: &storage.Attempt{LeaseToken: 1, Decided: storage.Accepted}},
	)
	d := load(t, a, 1)
	if diff := cmp.Diff(want, d.Attempts); diff != "" {
		t.Error(diff)
	}
	if d.Event == nil || d.Event.EventID != "e000000" || d.Mapping.Label != "1" || d.Item.Feature != "tokens" {
		t.Errorf("detail %+v", d)
	}
	_, err := a.LoadItem(t.Context(), 2)
	wantError(t, err, sdk.TagNotFound, "")
}

func TestTransitionRefuses(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	claim(t, a, seed(t, a, 1, nil))
	for name, bad := range map[string]storage.Transition{
		"expect": {ItemID: 1, Set: storage.Change{State: storage.Accepted}},
		"set":    {ItemID: 1, Expect: fenced(1)},
		"lease":  {ItemID: 1, Expect: storage.Expect{State: storage.Pending}, Set: storage.Change{State: storage.Leased}},
	} {
		good := storage.Transition{ItemID: 1, Expect: fenced(1), Set: storage.Change{State: storage.Accepted}}
		_, err := a.Transition(t.Context(), []storage.Transition{good, bad})
		e := wantError(t, err, sdk.TagInvalid, "")
		if i, ok := e.ItemIndex(); !ok || i != 1 {
			t.Errorf("%s: index %d", name, i)
		}
	}
	if it := load(t, a, 1).Item; it.State != storage.Leased {
		t.Errorf("half of a refused call was done: %s", it.State)
	}
	if rows := move(t, a); len(rows) != 0 {
		t.Errorf("rows %v", rows)
	}
}

func TestListItems(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	route := seed(t, a, 5, func(i int, it *storage.NewItem) {
		if i == 1 || i == 3 {
			it.QuarantineReason = "no_customer"
		}
	})
	claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 1})
	for name, test := range map[string]struct {
		q    storage.ItemQuery
		want []int64
		more bool
	}{
		"all":           {storage.ItemQuery{Limit: 10}, []int64{1, 2, 3, 4, 5}, false},
		"page":          {storage.ItemQuery{Limit: 2, After: 1}, []int64{2, 3}, true},
		"last page":     {storage.ItemQuery{Limit: 2, After: 3}, []int64{4, 5}, false},
		"state":         {storage.ItemQuery{Limit: 10, State: storage.Pending}, []int64{3, 5}, false},
		"attention":     {storage.ItemQuery{Limit: 1, State: storage.Quarantined}, []int64{2}, true},
		"attention on":  {storage.ItemQuery{Limit: 1, State: storage.Quarantined, After: 2}, []int64{4}, false},
		"uncertain":     {storage.ItemQuery{Limit: 1, State: storage.Uncertain}, nil, false},
		"reason":        {storage.ItemQuery{Limit: 10, Reason: "no_customer"}, []int64{2, 4}, false},
		"tenant":        {storage.ItemQuery{Limit: 10, Tenant: "zeta"}, nil, false},
		"exporter":      {storage.ItemQuery{Limit: 10, Exporter: "webhook"}, nil, false},
		"feature":       {storage.ItemQuery{Limit: 10, Feature: "tokens", State: storage.Leased}, []int64{1}, false},
		"event":         {storage.ItemQuery{Limit: 10, Tenant: "acme", SubjectRef: "e000002"}, []int64{3}, false},
		"subject":       {storage.ItemQuery{Limit: 10, SubjectRef: "e000003"}, []int64{4}, false},
		"other subject": {storage.ItemQuery{Limit: 10, Tenant: "acme", SubjectRef: "nope"}, nil, false},
	} {
		page, err := a.ListItems(t.Context(), test.q)
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
		_, err := a.ListItems(t.Context(), storage.ItemQuery{Limit: limit})
		wantError(t, err, sdk.TagInvalid, "")
		_, err = a.StreamEvents(t.Context(), storage.StreamQuery{Limit: limit})
		wantError(t, err, sdk.TagInvalid, "")
		_, err = a.ListSubscriptions(t.Context(), "", limit)
		wantError(t, err, sdk.TagInvalid, "")
	}
}

// O28: the age of the oldest pending item, by its creation, also after an old
// one came back.
func TestOldestPending(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	route := seed(t, a, 1, nil)
	c.advance(time.Minute)
	e := event("zeta", "e1", "1")
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(e, item(e, route, "m1"))}, RoutesRevision: 1})
	want := func(age time.Duration) {
		t.Helper()
		stats, err := a.OutboxStats(t.Context())
		if err != nil || stats.OldestPending != age {
			t.Errorf("oldest pending %v, %v; want %v", stats.OldestPending, err, age)
		}
	}
	want(time.Minute)
	claimWith(t, a, storage.ClaimRequest{Routes: []int64{route}, Limit: 1})
	want(0)
	c.advance(time.Second)
	want(time.Second)
	retry(t, a, storage.Change{})
	want(61 * time.Second)
	claim(t, a, route)
	want(0)
}

// The view shows an item as one row.
func TestView(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	seed(t, a, 1, nil)
	w := <-a.writer
	defer func() { a.writer <- w }()
	got, err := w.pragma("SELECT identifier || ' ' || state || ' ' || feature FROM fencepost_outbox")
	if err != nil || !strings.HasPrefix(got, "fencepost_") || len(got) != len("fencepost_")+64+len(" pending tokens") {
		t.Errorf("%q, %v", got, err)
	}
}

// Streaming pages through everything in the order of insertion; a filter
// moves its cursor past what did not match.
func TestStreamEvents(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	for _, id := range []string{"a", "b", "c", "d"} {
		tenant := "acme"
		if id > "b" {
			tenant = "zeta"
		}
		e := event(tenant, id, "1")
		if id == "d" {
			e.Feature = "calls"
		}
		record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(e)}})
	}
	for name, test := range map[string]struct {
		q    storage.StreamQuery
		want string
		next int64
		more bool
	}{
		"first":   {storage.StreamQuery{Limit: 3}, "abc", 3, true},
		"rest":    {storage.StreamQuery{Limit: 3, After: 3}, "d", 4, false},
		"end":     {storage.StreamQuery{Limit: 3, After: 4}, "", 4, false},
		"beyond":  {storage.StreamQuery{Limit: 3, After: 9, Tenant: "acme"}, "", 9, false},
		"tenant":  {storage.StreamQuery{Limit: 3, Tenant: "acme"}, "ab", 4, false},
		"limited": {storage.StreamQuery{Limit: 1, Tenant: "acme"}, "a", 1, true},
		"feature": {storage.StreamQuery{Limit: 3, Feature: "tokens", Tenant: "zeta"}, "c", 4, false},
	} {
		page, err := a.StreamEvents(t.Context(), test.q)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := ""
		var gotSb319 strings.Builder
		for _, e := range page.Events {
			gotSb319.WriteString(e.EventID)
		}
		got += gotSb319.String()
		if got != test.want || page.Next != test.next || page.More != test.more || page.Events == nil {
			t.Errorf("%s: %q, next %d, more %v", name, got, page.Next, page.More)
		}
	}
}

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	s := storage.Subscription{
		Tenant: "acme", Plan: "pro", PlanVersion: "3", Anchor: period, Interval: storage.Month,
		Timezone: "America/New_York", Customers: map[string]string{"stripe": "cus_1"},
	}
	for revision := int64(1); revision <= 2; revision++ {
		got, err := a.PutSubscription(t.Context(), s)
		want := s
		want.Revision, want.UpdatedAt = revision, c.t
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("put: %v\n%s", err, diff)
		}
		s.Plan, s.Customers = "basic", nil
		c.advance(time.Hour)
	}
	if _, err := a.PutSubscription(t.Context(), storage.Subscription{Tenant: "zeta", Anchor: period, Interval: storage.Day, Timezone: "UTC"}); err != nil {
		t.Fatal(err)
	}
	got, err := a.Subscriptions(t.Context(), []string{"nobody", "zeta", "acme"})
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	list, err := a.ListSubscriptions(t.Context(), "", 1)
	if err != nil || len(list) != 1 || list[0].Tenant != "acme" || list[0].Plan != "basic" || list[0].Revision != 2 || list[0].Customers != nil {
		t.Errorf("list %+v, %v", list, err)
	}
	list, err = a.ListSubscriptions(t.Context(), "acme", 10)
	if err != nil || len(list) != 1 || list[0].Tenant != "zeta" {
		t.Errorf("list %+v, %v", list, err)
	}
	_, err = a.PutSubscription(t.Context(), storage.Subscription{})
	wantError(t, err, sdk.TagInvalid, "")
}

// Q3, Q4: routes change under their revision, apply from where they were
// added, are retired and stay.
func TestRoutes(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(event("acme", "e1", "1"))}})
	route, rev := addRoute(t, a)
	add := storage.Route{Exporter: "stripe", Account: "acct_1", Mode: "test", Feature: "tokens", Disposition: storage.RouteExport, MappingVersion: "m1"}
	same := storage.Mapping{Version: "m1", Label: "other", Content: []byte(`{"event_name":"llm_tokens"}`)}
	for name, test := range map[string]struct {
		change storage.RouteChange
		tag    sdk.Tag
		code   string
	}{
		"old revision":     {storage.RouteChange{Revision: rev - 1, Retire: []int64{route}}, sdk.TagConflict, "routes_changed"},
		"second in force":  {storage.RouteChange{Revision: rev, Add: []storage.Route{add}}, sdk.TagConflict, "route_exists"},
		"unknown":          {storage.RouteChange{Revision: rev, Retire: []int64{99}}, sdk.TagConflict, "route_not_in_force"},
		"changed mapping":  {storage.RouteChange{Revision: rev, Mappings: []storage.Mapping{{Version: "m1", Content: []byte(`{}`)}}}, sdk.TagConflict, "mapping_changed"},
		"empty mapping":    {storage.RouteChange{Revision: rev, Mappings: []storage.Mapping{{Version: "m2"}}}, sdk.TagInvalid, ""},
		"mapping missing":  {storage.RouteChange{Revision: rev, Retire: []int64{route}, Add: []storage.Route{{Exporter: "x", Feature: "f", Disposition: storage.RouteExport, MappingVersion: "m9"}}}, sdk.TagInvalid, ""},
		"bad disposition":  {storage.RouteChange{Revision: rev, Add: []storage.Route{{Exporter: "x", Feature: "f", Disposition: "send"}}}, sdk.TagInvalid, "constraint"},
		"exporter missing": {storage.RouteChange{Revision: rev, Add: []storage.Route{{Feature: "f", Disposition: storage.RouteIgnore}}}, sdk.TagInvalid, "constraint"},
	} {
		_, err := a.ChangeRoutes(t.Context(), test.change)
		if e := wantError(t, err, test.tag, test.code); e == nil {
			t.Error(name)
		}
	}
	c.advance(time.Hour)
	set, err := a.ChangeRoutes(t.Context(), storage.RouteChange{Revision: rev, Mappings: []storage.Mapping{same}, Retire: []int64{route}, Add: []storage.Route{add}})
	want := storage.RouteSet{Revision: rev + 1, Mappings: []storage.Mapping{{Version: "m1", Label: "1", Content: same.Content}}, Routes: []storage.Route{add, add}, Features: []storage.Feature{}}
	want.Routes[0].ID, want.Routes[0].AppliesAfter, want.Routes[0].RetiredAt = route, 1, c.t
	want.Routes[1].ID, want.Routes[1].AppliesAfter = route+1, 1
	if diff := cmp.Diff(want, set); diff != "" || err != nil {
		t.Errorf("changed: %v\n%s", err, diff)
	}
	read, err := a.Routes(t.Context())
	if diff := cmp.Diff(set, read); diff != "" || err != nil {
		t.Errorf("read: %v\n%s", err, diff)
	}
}
