package sqlite

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// cloudEvent is a receipt that feeds one event for each feature.
func cloudEvent(tenant, id, content string, features ...string) storage.Unit {
	u := storage.Unit{Receipt: &storage.Receipt{
		Tenant: tenant, ReceiptID: "4:/src" + id, Source: "/src", ID: id, Type: "llm.completion",
		OccurredAt: period, DedupeHash: hash("ce", tenant, id, content), Features: features,
		Body: []byte(`{"id":"` + id + `"}`),
	}}
	for _, f := range features {
		e := event(tenant, "ce-"+id+"-"+f, "2")
		e.Feature, e.DedupeHash = f, u.Receipt.DedupeHash
		u.Entries = append(u.Entries, storage.Entry{Event: e})
	}
	return u
}

func outcomes(res storage.RecordResult) string {
	var all []string
	for _, u := range res.Units {
		s := string(u.Outcome)
		var sSb37 strings.Builder
		for _, e := range u.Entries {
			sSb37.WriteString(fmt.Sprintf(" %s=%d", e.EventID, e.Seq))
		}
		s += sSb37.String()
		all = append(all, s)
	}
	return strings.Join(all, "; ")
}

func wantOutcomes(t *testing.T, res storage.RecordResult, want string) {
	t.Helper()
	if got := outcomes(res); got != want {
		t.Errorf("outcomes %q, want %q", got, want)
	}
}

func totals(t *testing.T, a *Adapter, tenant string) string {
	t.Helper()
	all, err := a.LoadTotals(t.Context(), storage.TotalsQuery{Tenant: tenant})
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, x := range all {
		parts = append(parts, fmt.Sprintf("%s %s/%d", x.Feature, x.Quantity, x.Events))
	}
	return strings.Join(parts, ", ")
}

// B11, B14-B18, B20, S4-S6: inserted, duplicate and conflict, in the caller's
// order, in both modes.
func TestRecord(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	route, rev := addRoute(t, a)
	e1, e2, e3 := event("acme", "e1", "1.5"), event("acme", "e2", "2"), event("zeta", "e1", "4")
	unit := func(e storage.Event) storage.Unit { return plain(e, item(e, route, "m1")) }
	req := func(mode storage.RecordMode, units ...storage.Unit) storage.RecordRequest {
		return storage.RecordRequest{Units: units, Mode: mode, RoutesRevision: rev}
	}
	// Sorted by identity for the rows, in order for the caller.
	wantOutcomes(t, record(t, a, req(storage.Atomic, unit(e3), unit(e2), unit(e1))), "inserted e1=3; inserted e2=2; inserted e1=1")
	wantOutcomes(t, record(t, a, req(storage.Atomic, unit(e2), unit(e3))), "duplicate e2=2; duplicate e1=3")

	other := event("acme", "e2", "3") // the same id, other content
	fresh := event("acme", "e4", "8")
	wantOutcomes(t, record(t, a, req(storage.Atomic, unit(fresh), unit(other), unit(e1))), "; conflict; ")
	if got := totals(t, a, "acme"); got != "tokens 3.5/2" {
		t.Errorf("totals after an atomic conflict: %s", got)
	}
	wantOutcomes(t, record(t, a, req(storage.Each, unit(fresh), unit(other), unit(e1))), "inserted e4=4; conflict; duplicate e1=1")
	if got := totals(t, a, "acme"); got != "tokens 11.5/3" {
		t.Errorf("totals after each: %s", got)
	}
	if got := totals(t, a, "zeta"); got != "tokens 4/1" {
		t.Errorf("totals of the other tenant: %s", got)
	}
	// O20: an item for each inserted event, none for duplicates and conflicts.
	page, err := a.ListItems(t.Context(), storage.ItemQuery{Limit: 100})
	if err != nil || len(page.Items) != 4 {
		t.Errorf("%d items, %v; want 4", len(page.Items), err)
	}
	stored, err := a.LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: "e2"})
	want := e2
	want.Seq, want.RecordedAt, want.Effect = 2, newClock().t, e2.Quantity
	if diff := cmp.Diff(want, stored, cmp.Comparer(func(a, b decimal.Decimal) bool { return a.Cmp(b) == 0 })); diff != "" || err != nil {
		t.Errorf("stored event: %v\n%s", err, diff)
	}
	_, err = a.LoadEvent(t.Context(), storage.EventKey{Tenant: "zeta", EventID: "e2"})
	wantError(t, err, sdk.TagNotFound, "")
}

// Q1: the first receipt decides its features for good, none included.
func TestReceipts(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	each := func(units ...storage.Unit) storage.RecordResult {
		return record(t, a, storage.RecordRequest{Units: units, Mode: storage.Each})
	}
	wantOutcomes(t, each(cloudEvent("acme", "2", "x"), cloudEvent("acme", "1", "x", "in", "out")), "inserted; inserted ce-1-in=1 ce-1-out=2")
	// Now that meters differ: what was first recorded is answered.
	wantOutcomes(t, each(cloudEvent("acme", "1", "x", "out", "other"), cloudEvent("acme", "2", "x", "in")),
		"duplicate ce-1-in=1 ce-1-out=2; duplicate")
	wantOutcomes(t, each(cloudEvent("acme", "1", "y", "in", "out"), cloudEvent("acme", "3", "x", "in")), "conflict; inserted ce-3-in=3")
	if got := totals(t, a, "acme"); got != "in 4/2, out 2/1" {
		t.Errorf("totals %s", got)
	}
	rc, err := a.LoadReceipt(t.Context(), storage.ReceiptKey{Tenant: "acme", ReceiptID: "4:/src1"})
	if err != nil || !slices.Equal(rc.Features, []string{"in", "out"}) || string(rc.Body) != `{"id":"1"}` || rc.DedupeHash != hash("ce", "acme", "1", "x") {
		t.Errorf("receipt %+v, %v", rc, err)
	}
	rc, err = a.LoadReceipt(t.Context(), storage.ReceiptKey{Tenant: "acme", ReceiptID: "4:/src2"})
	if err != nil || len(rc.Features) != 0 {
		t.Errorf("unmatched receipt %+v, %v", rc, err)
	}
	_, err = a.LoadReceipt(t.Context(), storage.ReceiptKey{Tenant: "zeta", ReceiptID: "4:/src1"})
	wantError(t, err, sdk.TagNotFound, "")
}

// A unit is recorded or refused as a whole: a conflict in its second event
// leaves nothing of its first, and the other units stand.
func TestUnitIsWhole(t *testing.T) {
	t.Parallel()
	for _, mode := range []storage.RecordMode{storage.Atomic, storage.Each} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			a := open(t, newClock())
			record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(event("acme", "ce-1-out", "7"))}})
			res := record(t, a, storage.RecordRequest{Mode: mode, Units: []storage.Unit{
				cloudEvent("acme", "1", "x", "in", "out"), plain(event("acme", "e1", "1")),
			}})
			want, wantTotals := "conflict; ", "tokens 7/1"
			if mode == storage.Each {
				want, wantTotals = "conflict; inserted e1=2", "tokens 8/2"
			}
			wantOutcomes(t, res, want)
			if got := totals(t, a, "acme"); got != wantTotals {
				t.Errorf("totals %s, want %s", got, wantTotals)
			}
			_, err := a.LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: "ce-1-in"})
			wantError(t, err, sdk.TagNotFound, "")
			_, err = a.LoadReceipt(t.Context(), storage.ReceiptKey{Tenant: "acme", ReceiptID: "4:/src1"})
			wantError(t, err, sdk.TagNotFound, "")
		})
	}
}

// Q4: what was computed from old routes or subscriptions is not recorded.
func TestStale(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	_, rev := addRoute(t, a)
	sub, err := a.PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Anchor: period, Interval: storage.Month, Timezone: "UTC"})
	if err != nil {
		t.Fatal(err)
	}
	units := []storage.Unit{plain(event("acme", "e1", "1"))}
	for name, test := range map[string]struct {
		routes int64
		subs   []storage.SubscriptionRevision
		want   *storage.Stale
	}{
		"routes":       {rev - 1, nil, &storage.Stale{Routes: true}},
		"subscription": {rev, []storage.SubscriptionRevision{{Tenant: "acme", Revision: 0}}, &storage.Stale{Tenants: []string{"acme"}}},
		"none stored":  {rev, []storage.SubscriptionRevision{{Tenant: "zeta", Revision: 1}}, &storage.Stale{Tenants: []string{"zeta"}}},
		"both":         {0, []storage.SubscriptionRevision{{Tenant: "acme", Revision: 9}}, &storage.Stale{Routes: true, Tenants: []string{"acme"}}},
	} {
		res := record(t, a, storage.RecordRequest{Units: units, RoutesRevision: test.routes, Subscriptions: test.subs})
		if diff := cmp.Diff(storage.RecordResult{Stale: test.want}, res); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if got := totals(t, a, "acme"); got != "" {
		t.Errorf("a stale request wrote %s", got)
	}
	res := record(t, a, storage.RecordRequest{Units: units, RoutesRevision: rev, Subscriptions: []storage.SubscriptionRevision{
		{Tenant: "acme", Revision: sub.Revision}, {Tenant: "zeta", Revision: 0},
	}})
	wantOutcomes(t, res, "inserted e1=1")
}

// B18, B19: skipped and not visible is neither duplicate nor conflict.
func TestConflictUnresolved(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"fencepost_events", "fencepost_cloudevents"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			a := open(t, newClock())
			sqlExec(t, a.path, "CREATE TRIGGER skip BEFORE INSERT ON "+table+" BEGIN SELECT RAISE(IGNORE); END")
			_, err := a.RecordEvents(t.Context(), storage.RecordRequest{
				Mode:  storage.Each,
				Units: []storage.Unit{cloudEvent("acme", "1", "x", "in")},
			})
			wantError(t, err, sdk.TagUnavailable, "conflict_unresolved")
			sqlExec(t, a.path, "DROP TRIGGER skip")
			if got := totals(t, a, "acme"); got != "" {
				t.Errorf("totals %s", got)
			}
		})
	}
}

func TestRecordRefuses(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	for name, req := range map[string]storage.RecordRequest{
		"mode":              {Units: []storage.Unit{plain(event("a", "b", "1"))}},
		"no entry":          {Mode: storage.Each, Units: []storage.Unit{{}}},
		"receipt unmatched": {Mode: storage.Each, Units: []storage.Unit{{Receipt: &storage.Receipt{Features: []string{"x"}}}}},
	} {
		if _, err := a.RecordEvents(t.Context(), req); sdk.TagOf(err) != sdk.TagInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An item of a route that is not stored takes the whole call with it.
	e := event("acme", "e1", "1")
	_, err := a.RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Atomic, Units: []storage.Unit{plain(e, item(e, 77, "m1"))}})
	wantError(t, err, sdk.TagInvalid, "constraint")
	if got := totals(t, a, "acme"); got != "" {
		t.Errorf("totals %s", got)
	}
}

// Q5: of two items of one subject only one is sendable, whatever the mapping;
// a repeated identity is not counted as superseded.
func TestSendableSubject(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	route, rev := addRoute(t, a)
	e := event("acme", "e1", "1")
	res := record(t, a, storage.RecordRequest{RoutesRevision: rev, Units: []storage.Unit{
		plain(e, item(e, route, "m1"), item(e, route, "m2")),
	}})
	if res.Superseded != 1 {
		t.Errorf("superseded %d, want 1", res.Superseded)
	}
	e2 := event("acme", "e2", "1")
	again := item(e, route, "m1") // the identity of an item that is there
	res = record(t, a, storage.RecordRequest{RoutesRevision: rev, Units: []storage.Unit{plain(e2, again)}})
	if res.Superseded != 0 {
		t.Errorf("superseded %d, want 0", res.Superseded)
	}
	// Superseded by hand, its identity still is taken: no second row.
	sqlExec(t, a.path, "UPDATE fencepost_outbox_state SET superseded_by = 99")
	e3 := event("acme", "e3", "1")
	again = item(e, route, items(t, a)[0].Identity.MappingVersion)
	record(t, a, storage.RecordRequest{RoutesRevision: rev, Units: []storage.Unit{plain(e3, again)}})
	if n := len(items(t, a)); n != 1 {
		t.Errorf("%d items, want 1", n)
	}
	// Nothing of it is left to stand in the way of the next one.
	e4 := event("acme", "e4", "1")
	record(t, a, storage.RecordRequest{RoutesRevision: rev, Units: []storage.Unit{plain(e4, item(e4, route, "m1"))}})
	wantIDs(t, claim(t, a, route), 2)
	checkCounts(t, a)
}

func items(t *testing.T, a *Adapter) []storage.Item {
	t.Helper()
	page, err := a.ListItems(t.Context(), storage.ItemQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

// Q25: what nobody needs to act on is born settled.
func TestQuarantinedAtEnqueue(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	route, rev := addRoute(t, a)
	e1, e2 := event("acme", "e1", "1"), event("acme", "e2", "1")
	open, settled := item(e1, route, ""), item(e2, route, "m1")
	open.QuarantineReason = "no_customer"
	settled.QuarantineReason, settled.Settled = "feature_buffered", true
	settled.Payload = []byte(`{"v":"1"}`)
	record(t, a, storage.RecordRequest{RoutesRevision: rev, Units: []storage.Unit{plain(e1, open), plain(e2, settled)}})
	if got := claim(t, a, route); len(got.Items) != 0 {
		t.Errorf("claimed %+v", got.Items)
	}
	all := items(t, a)
	if all[0].State != storage.Quarantined || !all[0].SettledAt.IsZero() || all[1].SettledAt.IsZero() || all[1].QuarantineReason != "feature_buffered" {
		t.Errorf("items %+v", all)
	}
	stats, err := a.OutboxStats(t.Context())
	want := storage.OutboxStats{Counts: []storage.ItemCount{{Exporter: "stripe", State: storage.Quarantined, Items: 2, Open: 1}}}
	if diff := cmp.Diff(want, stats); diff != "" || err != nil {
		t.Errorf("stats: %v\n%s", err, diff)
	}
	d, err := a.LoadItem(t.Context(), 2)
	if err != nil || string(d.Payload) != `{"v":"1"}` || d.Mapping.Version != "m1" {
		t.Errorf("item %+v, %v", d, err)
	}
}

// P5, S9: totals are exact beyond what a float or an int64 could hold.
func TestTotalsAreExact(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	largest := strings.Repeat("9", 26) + "." + strings.Repeat("9", 12)
	want := new(big.Rat)
	for i, q := range []string{largest, largest, "0.000000000001", "-" + largest, "12345678901234567890.123456789012", largest, "-0.1"} {
		e := event("acme", fmt.Sprint("e", i), q)
		record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(e)}})
		r, ok := new(big.Rat).SetString(q)
		if !ok {
			t.Fatal(q)
		}
		want.Add(want, r)
	}
	wantTotal(t, a, want, 7)
}

// A total is the sum of all its additions, however many.
func TestManyAdditions(t *testing.T) {
	t.Parallel()
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	a := open(t, newClock())
	want := new(big.Rat)
	for round := range rounds {
		units := make([]storage.Unit, 1000)
		for i := range units {
			n := round*len(units) + i
			q := fmt.Sprintf("%d.%012d", n*7919, (n*104729)%1_000_000_000_000)
			units[i] = plain(event("acme", strconv.Itoa(n), q))
			r, _ := new(big.Rat).SetString(q)
			want.Add(want, r)
		}
		record(t, a, storage.RecordRequest{Units: units})
	}
	wantTotal(t, a, want, int64(rounds)*1000)
}

func wantTotal(t *testing.T, a *Adapter, want *big.Rat, events int64) {
	t.Helper()
	all, err := a.LoadTotals(t.Context(), storage.TotalsQuery{Tenant: "acme", Feature: "tokens"})
	if err != nil || len(all) != 1 {
		t.Fatalf("totals %+v, %v", all, err)
	}
	got, ok := new(big.Rat).SetString(all[0].Quantity.String())
	if !ok || got.Cmp(want) != 0 || all[0].Events != events {
		t.Errorf("total %s of %d events, want %s of %d", all[0].Quantity, all[0].Events, want.FloatString(12), events)
	}
}

func TestTotalsQuery(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	for month := range 3 {
		e := event("acme", fmt.Sprint("e", month), "1")
		e.PeriodStart = period.AddDate(0, month, 0)
		f := event("acme", fmt.Sprint("f", month), "1")
		f.PeriodStart, f.Feature = e.PeriodStart, "other"
		record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(e), plain(f)}})
	}
	for name, test := range map[string]struct {
		q    storage.TotalsQuery
		want int
	}{
		"all":     {storage.TotalsQuery{Tenant: "acme"}, 6},
		"feature": {storage.TotalsQuery{Tenant: "acme", Feature: "other"}, 3},
		"from":    {storage.TotalsQuery{Tenant: "acme", From: period.AddDate(0, 1, 0)}, 4},
		"to":      {storage.TotalsQuery{Tenant: "acme", Feature: "tokens", To: period.AddDate(0, 1, 0)}, 1},
		"none":    {storage.TotalsQuery{Tenant: "zeta"}, 0},
	} {
		got, err := a.LoadTotals(t.Context(), test.q)
		if err != nil || got == nil || len(got) != test.want {
			t.Errorf("%s: %d totals, %v; want %d", name, len(got), err, test.want)
		}
		if !slices.IsSortedFunc(got, func(x, y storage.Total) int {
			return strings.Compare(x.Feature+x.PeriodStart.Format(time.RFC3339), y.Feature+y.PeriodStart.Format(time.RFC3339))
		}) {
			t.Errorf("%s: not in order", name)
		}
		for _, x := range got {
			if x.Events != 1 || x.Count != 1 {
				t.Errorf("%s counts %d, %d net", x.Feature, x.Events, x.Count)
			}
		}
	}
	_, err := a.LoadTotals(t.Context(), storage.TotalsQuery{})
	wantError(t, err, sdk.TagInvalid, "")
}
