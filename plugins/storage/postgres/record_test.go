package postgres

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// B11, B14-B18, B20, S4-S6: inserted, duplicate and conflict, in the caller's
// order, in both modes.
func TestRecord(t *testing.T) {
	t.Parallel()
	a := open(t)
	route, rev := routed(t, a)
	e1, e2, e3 := tokens("acme", "e1", "1.5"), tokens("acme", "e2", "2"), tokens("zeta", "e1", "4")
	e1.Plan, e1.PlanVersion, e1.Metadata = "pro", "3", []byte(`{"n":1.10, "a":1e400}`)
	unit := func(e storage.Event) storage.Unit { return plain(e, itemFor(e, route, "m1")) }
	req := func(mode storage.RecordMode, units ...storage.Unit) storage.RecordRequest {
		return storage.RecordRequest{Units: units, Mode: mode, RoutesRevision: rev}
	}
	res := record(t, a, req(storage.Atomic, unit(e3), unit(e2), unit(e1)))
	wantOutcomes(t, res, "inserted e1; inserted e2; inserted e1")
	// Sorted by identity for the rows, in order for the caller.
	if seq := [...]int64{res.Units[2].Entries[0].Seq, res.Units[1].Entries[0].Seq, res.Units[0].Entries[0].Seq}; seq != [...]int64{1, 2, 3} {
		t.Errorf("seq %v", seq)
	}
	dup := record(t, a, req(storage.Atomic, unit(e2), unit(e3)))
	wantOutcomes(t, dup, "duplicate e2; duplicate e1")
	if dup.Units[0].Entries[0] != res.Units[1].Entries[0] || dup.Units[1].Entries[0] != res.Units[0].Entries[0] {
		t.Errorf("duplicates %+v are not what was inserted %+v", dup, res)
	}

	other := tokens("acme", "e2", "3") // the same id, other content
	fresh := tokens("acme", "e4", "8")
	wantOutcomes(t, record(t, a, req(storage.Atomic, unit(fresh), unit(other), unit(e1))), "; conflict; ")
	wantTotals(t, a, "acme", "tokens 3.5/2/2")
	wantOutcomes(t, record(t, a, req(storage.Each, unit(fresh), unit(other), unit(e1))), "inserted e4; conflict; duplicate e1")
	wantTotals(t, a, "acme", "tokens 11.5/3/3")
	wantTotals(t, a, "zeta", "tokens 4/1/1")
	// O20: an item for each inserted event, none for duplicates and conflicts.
	if n := sqlOne[int](t, a, "SELECT count(*) FROM {schema}.fencepost_outbox WHERE state = 'pending'"); n != 4 {
		t.Errorf("%d items, want 4", n)
	}
	stored, err := a.LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: "e1"})
	must(t, err)
	if d := time.Since(stored.RecordedAt); d < -time.Minute || d > time.Minute {
		t.Errorf("recorded %v ago", d)
	}
	want := e1
	want.Seq, want.RecordedAt, want.Effect = 1, stored.RecordedAt, e1.Quantity
	if diff := cmp.Diff(want, stored, decimals); diff != "" {
		t.Errorf("stored event\n%s", diff)
	}
	_, err = a.LoadEvent(t.Context(), storage.EventKey{Tenant: "zeta", EventID: "e2"})
	wantFailure(t, err, sdk.TagNotFound, "")
}

// Q1: the first receipt decides its features for good, none included.
func TestReceipts(t *testing.T) {
	t.Parallel()
	a := open(t)
	each := func(units ...storage.Unit) storage.RecordResult {
		return record(t, a, storage.RecordRequest{Units: units, Mode: storage.Each})
	}
	first := each(cloudEvent("acme", "2", "x"), cloudEvent("acme", "1", "x", "out", "in"))
	wantOutcomes(t, first, "inserted; inserted ce-1-out ce-1-in")
	// Now that meters differ: what was first recorded is answered.
	again := each(cloudEvent("acme", "1", "x", "out", "other"), cloudEvent("acme", "2", "x", "in"))
	wantOutcomes(t, again, "duplicate ce-1-out ce-1-in; duplicate")
	if diff := cmp.Diff(first.Units[1].Entries, again.Units[0].Entries); diff != "" {
		t.Error(diff)
	}
	wantOutcomes(t, each(cloudEvent("acme", "1", "y", "in", "out"), cloudEvent("acme", "3", "x", "in")), "conflict; inserted ce-3-in")
	wantTotals(t, a, "acme", "in 4/2/2, out 2/1/1")
	// An atomic repeat of all of it.
	res := record(t, a, storage.RecordRequest{Units: []storage.Unit{cloudEvent("acme", "2", "x"), cloudEvent("acme", "1", "x", "out", "in")}})
	wantOutcomes(t, res, "duplicate; duplicate ce-1-out ce-1-in")
	res = record(t, a, storage.RecordRequest{Units: []storage.Unit{cloudEvent("acme", "4", "x", "in"), cloudEvent("acme", "1", "y", "out", "in")}})
	wantOutcomes(t, res, "; conflict")

	rc, err := a.LoadReceipt(t.Context(), storage.ReceiptKey{Tenant: "acme", ReceiptID: "4:/src1"})
	if err != nil || !slices.Equal(rc.Features, []string{"out", "in"}) || string(rc.Body) != `{"id":"1"}` || rc.DedupeHash != digestOf("ce", "acme", "1", "x") {
		t.Errorf("receipt %+v, %v", rc, err)
	}
	rc, err = a.LoadReceipt(t.Context(), storage.ReceiptKey{Tenant: "acme", ReceiptID: "4:/src2"})
	if err != nil || len(rc.Features) != 0 {
		t.Errorf("unmatched receipt %+v, %v", rc, err)
	}
	_, err = a.LoadReceipt(t.Context(), storage.ReceiptKey{Tenant: "zeta", ReceiptID: "4:/src1"})
	wantFailure(t, err, sdk.TagNotFound, "")
}

// A unit is recorded or refused as a whole: a conflict in its second event
// leaves nothing of its first, and the other units stand.
func TestUnitIsWhole(t *testing.T) {
	t.Parallel()
	for _, mode := range []storage.RecordMode{storage.Atomic, storage.Each} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			a := open(t)
			record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "ce-1-out", "7"))}})
			res := record(t, a, storage.RecordRequest{Mode: mode, Units: []storage.Unit{
				cloudEvent("acme", "1", "x", "in", "out"), plain(tokens("acme", "e1", "1")),
			}})
			want, total := "conflict; ", "tokens 7/1/1"
			if mode == storage.Each {
				want, total = "conflict; inserted e1", "tokens 8/2/2"
			}
			wantOutcomes(t, res, want)
			wantTotals(t, a, "acme", total)
			_, err := a.LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: "ce-1-in"})
			wantFailure(t, err, sdk.TagNotFound, "")
			_, err = a.LoadReceipt(t.Context(), storage.ReceiptKey{Tenant: "acme", ReceiptID: "4:/src1"})
			wantFailure(t, err, sdk.TagNotFound, "")
		})
	}
}

// Q4: what was computed from old routes or subscriptions is not recorded.
func TestStale(t *testing.T) {
	t.Parallel()
	a := open(t)
	_, rev := routed(t, a)
	sub, err := a.PutSubscription(t.Context(), storage.Subscription{Tenant: "acme", Anchor: november, Interval: storage.Month, Timezone: "UTC"})
	must(t, err)
	units := []storage.Unit{plain(tokens("acme", "e1", "1"))}
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
	wantTotals(t, a, "acme", "")
	res := record(t, a, storage.RecordRequest{Units: units, RoutesRevision: rev, Subscriptions: []storage.SubscriptionRevision{
		{Tenant: "acme", Revision: sub.Revision}, {Tenant: "zeta", Revision: 0},
	}})
	wantOutcomes(t, res, "inserted e1")
}

// B18, B19: skipped and not visible is neither duplicate nor conflict.
func TestConflictUnresolved(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"fencepost_events", "fencepost_cloudevents"} {
		for name, unit := range map[string]storage.Unit{
			"receipt": cloudEvent("acme", "1", "x", "in"), "plain": plain(tokens("acme", "e1", "1")),
		} {
			if name == "plain" && table == "fencepost_cloudevents" {
				continue
			}
			t.Run(table+" "+name, func(t *testing.T) {
				t.Parallel()
				a := open(t)
				sqlExec(t, a, "CREATE FUNCTION {schema}.skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
				sqlExec(t, a, "CREATE TRIGGER skip BEFORE INSERT ON {schema}."+table+" FOR EACH ROW EXECUTE FUNCTION {schema}.skip()")
				for _, mode := range []storage.RecordMode{storage.Atomic, storage.Each} {
					_, err := a.RecordEvents(t.Context(), storage.RecordRequest{Mode: mode, Units: []storage.Unit{unit}})
					wantFailure(t, err, sdk.TagUnavailable, "conflict_unresolved")
				}
				sqlExec(t, a, "DROP TRIGGER skip ON {schema}."+table)
				wantTotals(t, a, "acme", "")
				if n := sqlOne[int](t, a, "SELECT count(*) FROM {schema}.fencepost_cloudevents"); n != 0 {
					t.Errorf("%d receipts of a unit that was not recorded", n)
				}
			})
		}
	}
}

// S15: a repeat of what retention removed is a duplicate or a conflict, and
// adds nothing.
func TestTombstones(t *testing.T) {
	t.Parallel()
	a := open(t)
	e1, ce := tokens("acme", "e1", "1"), cloudEvent("acme", "1", "x", "in")
	first := record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(e1), ce}})
	for _, text := range []string{
		`INSERT INTO {schema}.fencepost_tombstones (tenant_key, event_id, seq, feature, dedupe_hash)
SELECT tenant_key, event_id, seq, feature, dedupe_hash FROM {schema}.fencepost_events`,
		`SET session_replication_role = replica; DELETE FROM {schema}.fencepost_events; SET session_replication_role = origin`,
	} {
		a.execScript(t, text)
	}
	for _, mode := range []storage.RecordMode{storage.Atomic, storage.Each} {
		res := record(t, a, storage.RecordRequest{Mode: mode, Units: []storage.Unit{plain(e1), ce, plain(tokens("acme", "e2-"+string(mode), "2"))}})
		wantOutcomes(t, res, "duplicate e1; duplicate ce-1-in; inserted e2-"+string(mode))
		if diff := cmp.Diff(first.Units[0].Entries, res.Units[0].Entries); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(first.Units[1].Entries, res.Units[1].Entries); diff != "" {
			t.Error(diff)
		}
		wantOutcomes(t, record(t, a, storage.RecordRequest{Mode: mode, Units: []storage.Unit{plain(tokens("acme", "e1", "9"))}}), "conflict")
	}
	wantTotals(t, a, "acme", "in 2/1/1, tokens 5/3/3")
}

func (a *Adapter) execScript(t testing.TB, text string) {
	t.Helper()
	c, err := a.pools[workPool].Acquire(t.Context())
	must(t, err)
	defer c.Release()
	must(t, c.Conn().PgConn().Exec(t.Context(), withSchema(text, a.target.schema)).Close())
}

func TestRecordRefuses(t *testing.T) {
	t.Parallel()
	a := open(t)
	correction := tokens("a", "b", "1")
	correction.Kind = storage.Correction
	for name, req := range map[string]storage.RecordRequest{
		"mode":              {Units: []storage.Unit{plain(tokens("a", "b", "1"))}},
		"no entry":          {Mode: storage.Each, Units: []storage.Unit{{}}},
		"receipt unmatched": {Mode: storage.Each, Units: []storage.Unit{{Receipt: &storage.Receipt{Features: []string{"x"}}}}},
		"kind":              {Mode: storage.Each, Units: []storage.Unit{plain(correction)}},
	} {
		if _, err := a.RecordEvents(t.Context(), req); sdk.TagOf(err) != sdk.TagInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	// An item of a route that is not stored takes the whole call with it.
	e := tokens("acme", "e1", "1")
	_, err := a.RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Atomic, Units: []storage.Unit{plain(e, itemFor(e, 77, "m1"))}})
	wantFailure(t, err, sdk.TagInvalid, "constraint")
	// So does a total below zero of a feature that takes no negative quantity.
	_, err = a.RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Each, Units: []storage.Unit{plain(tokens("acme", "e1", "-1"))}})
	wantFailure(t, err, sdk.TagInvalid, "constraint")
	if strings.Contains(err.Error(), "acme") {
		t.Errorf("the error repeats a value: %v", err)
	}
	wantTotals(t, a, "acme", "")
	u := plain(tokens("acme", "e1", "-1"))
	u.Entries[0].Signed = true
	wantOutcomes(t, record(t, a, storage.RecordRequest{Units: []storage.Unit{u}}), "inserted e1")
	wantTotals(t, a, "acme", "tokens -1/1/1")
	if res := record(t, a, storage.RecordRequest{}); len(res.Units) != 0 || res.Stale != nil {
		t.Errorf("nothing recorded: %+v", res)
	}
}

// Q5: of two items of one subject only one is sendable, whatever the mapping;
// a repeated identity is not counted as superseded.
func TestSendableSubject(t *testing.T) {
	t.Parallel()
	a := open(t)
	route, rev := routed(t, a)
	put := func(id string, items ...storage.NewItem) storage.RecordResult {
		return record(t, a, storage.RecordRequest{RoutesRevision: rev, Units: []storage.Unit{plain(tokens("acme", id, "1"), items...)}})
	}
	e := tokens("acme", "e1", "1")
	if res := put("e1", itemFor(e, route, "m1"), itemFor(e, route, "m2")); res.Superseded != 1 {
		t.Errorf("superseded %d, want 1", res.Superseded)
	}
	mapping := sqlOne[string](t, a, "SELECT mapping_version FROM {schema}.fencepost_outbox")
	if res := put("e2", itemFor(e, route, mapping)); res.Superseded != 0 { // the identity of an item that is there
		t.Errorf("superseded %d, want 0", res.Superseded)
	}
	// Superseded by hand, its identity still is taken: no second row.
	sqlExec(t, a, "UPDATE {schema}.fencepost_outbox_state SET superseded_by = 99")
	sqlExec(t, a, "UPDATE {schema}.fencepost_outbox_items SET superseded = true")
	put("e3", itemFor(e, route, mapping))
	if n := sqlOne[int](t, a, "SELECT count(*) FROM {schema}.fencepost_outbox_items"); n != 1 {
		t.Errorf("%d items, want 1", n)
	}
	// Nothing of it is left to stand in the way of the next one.
	e4 := tokens("acme", "e4", "1")
	put("e4", itemFor(e4, route, "m1"))
	if n := sqlOne[int](t, a, "SELECT count(*) FROM {schema}.fencepost_outbox WHERE superseded_by IS NULL AND state = 'pending'"); n != 1 {
		t.Errorf("%d sendable items, want 1", n)
	}
	if n := sqlOne[int](t, a, "SELECT sum(items)::int FROM {schema}.fencepost_outbox_counts"); n != 2 {
		t.Errorf("the gauge says %d items, want 2", n)
	}
	wantTotals(t, a, "acme", "tokens 4/4/4")
}

// Q25: what nobody needs to act on is born settled.
func TestQuarantinedAtEnqueue(t *testing.T) {
	t.Parallel()
	a := open(t)
	route, rev := routed(t, a)
	e1, e2 := tokens("acme", "e1", "1"), tokens("acme", "e2", "1")
	unsettled, settled := itemFor(e1, route, ""), itemFor(e2, route, "m1")
	unsettled.QuarantineReason = "no_customer"
	settled.QuarantineReason, settled.Settled = "feature_buffered", true
	settled.Payload = []byte(`{"v":"1"}`)
	record(t, a, storage.RecordRequest{RoutesRevision: rev, Units: []storage.Unit{plain(e1, unsettled), plain(e2, settled)}})
	got := sqlOne[string](t, a, `SELECT string_agg(concat_ws(' ', state, quarantine_reason, settled_at IS NOT NULL, payload), ', ' ORDER BY item)
FROM {schema}.fencepost_outbox`)
	if want := `quarantined no_customer f, quarantined feature_buffered t {"v":"1"}`; got != want {
		t.Errorf("items %s, want %s", got, want)
	}
	if got := sqlOne[string](t, a, "SELECT concat_ws(' ', route = $1, state, items, open) FROM {schema}.fencepost_outbox_counts", route); got != "t quarantined 2 1" {
		t.Errorf("counts %s", got)
	}
}

// P5, S9: totals are exact beyond what a float or an int64 could hold (Q8).
func TestTotalsAreExact(t *testing.T) {
	t.Parallel()
	a := open(t)
	largest := strings.Repeat("9", 26) + "." + strings.Repeat("9", 12)
	want := new(big.Rat)
	for i, q := range []string{largest, largest, "0.000000000001", "-" + largest, "12345678901234567890.123456789012", largest, "-0.1"} {
		u := plain(tokens("acme", fmt.Sprint("e", i), q))
		u.Entries[0].Signed = true
		record(t, a, storage.RecordRequest{Units: []storage.Unit{u}})
		r, ok := new(big.Rat).SetString(q)
		if !ok {
			t.Fatal(q)
		}
		want.Add(want, r)
	}
	wantTotal(t, a, want, 7)
	e, err := a.LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: "e0"})
	if err != nil || e.Quantity.String() != largest {
		t.Errorf("stored %s, %v", e.Quantity, err)
	}
}

// A total is the sum of all its additions, however many.
func TestManyAdditions(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	a := open(t)
	want := new(big.Rat)
	for round := range rounds {
		units := make([]storage.Unit, 1000)
		for i := range units {
			n := round*len(units) + i
			q := fmt.Sprintf("%d.%012d", n*7919, (n*104729)%1_000_000_000_000)
			units[i] = plain(tokens("acme", strconv.Itoa(n), q))
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
	a := open(t)
	for month := range 3 {
		e := tokens("acme", fmt.Sprint("e", month), "1")
		e.PeriodStart = november.AddDate(0, month, 0)
		f := tokens("acme", fmt.Sprint("f", month), "1")
		f.PeriodStart, f.Feature = e.PeriodStart, "other"
		record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(e), plain(f)}})
	}
	for name, test := range map[string]struct {
		q    storage.TotalsQuery
		want int
	}{
		"all":     {storage.TotalsQuery{Tenant: "acme"}, 6},
		"feature": {storage.TotalsQuery{Tenant: "acme", Feature: "other"}, 3},
		"from":    {storage.TotalsQuery{Tenant: "acme", From: november.AddDate(0, 1, 0)}, 4},
		"to":      {storage.TotalsQuery{Tenant: "acme", Feature: "tokens", To: november.AddDate(0, 1, 0)}, 1},
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
	}
	_, err := a.LoadTotals(t.Context(), storage.TotalsQuery{})
	wantFailure(t, err, sdk.TagInvalid, "")
}

// B20, Q27: while a generation is built each record counts in both, in totals
// and buckets; a bucket that was sealed goes on in its next generation.
func TestRecordGenerations(t *testing.T) {
	t.Parallel()
	a := open(t)
	at := november.Add(7 * time.Minute)
	unit := func(id, quantity string) storage.Unit {
		u := plain(tokens("acme", id, quantity))
		u.Entries[0].Event.OccurredAt = at
		u.Entries[0].Bucket = &storage.BucketKey{Start: november.Add(5 * time.Minute), Dimensions: map[string]string{"b": "<", "a": "1"}}
		return u
	}
	record(t, a, storage.RecordRequest{Units: []storage.Unit{unit("e1", "5"), unit("e2", "3"), plain(tokens("acme", "e3", "1"))}})
	sqlExec(t, a, "UPDATE {schema}.fencepost_generations SET building = 2")
	// The newest seal is the third; the second ends at the bucket's start.
	sqlExec(t, a, `INSERT INTO {schema}.fencepost_bucket_seals VALUES ('acme', 'tokens', 1, $1, 0, now()),
  ('acme', 'tokens', 2, $2, 0, now()), ('acme', 'tokens', 3, $3, 0, now()), ('acme', 'other', 4, $3, 0, now())`,
		november, november.Add(5*time.Minute), november.Add(10*time.Minute))
	record(t, a, storage.RecordRequest{Units: []storage.Unit{unit("e4", "4"), unit("e5", "7")}})
	got := sqlOne[string](t, a, `SELECT string_agg(concat_ws(' ', generation, projection, trim_scale(sum), count, trim_scale(min), trim_scale(max), reversed, dimensions), ', '
  ORDER BY generation, projection) FROM {schema}.fencepost_buckets WHERE bucket_start = $1`, november.Add(5*time.Minute))
	const d = ` f {"a":"1","b":"\u003c"}`
	if want := "1 1 8 2 3 5" + d + ", 2 1 11 2 4 7" + d + ", 2 2 11 2 4 7" + d; got != want {
		t.Errorf("buckets\n%s, want\n%s", got, want)
	}
	got = sqlOne[string](t, a, `SELECT string_agg(concat_ws(' ', generation, trim_scale(quantity), events, count), ', ' ORDER BY generation) FROM {schema}.fencepost_totals`)
	if want := "1 20 5 5, 2 11 2 2"; got != want {
		t.Errorf("totals %s, want %s", got, want)
	}
}

// O20, Q5, A-T21: items of a stored event, as a correction inserts them.
func TestInsertItems(t *testing.T) {
	t.Parallel()
	a := open(t)
	route, _ := routed(t, a)
	e := tokens("acme", "e1", "1")
	put := func(items ...storage.NewItem) (superseded int) {
		all := make([]itemOf, len(items))
		for i := range items {
			all[i] = itemOf{new: &items[i], seq: 7, feature: "tokens"}
		}
		must(t, a.run.write(t.Context(), "insert", writing{}, func(ctx context.Context, x *tx) (err error) {
			done, err := insertItems(ctx, x, all)
			superseded = done.superseded
			return err
		}))
		return superseded
	}
	if n := put(itemFor(e, route, "m1")); n != 0 {
		t.Errorf("superseded %d, want 0", n)
	}
	if n := put(itemFor(e, route, "m1"), itemFor(e, route, "m2")); n != 1 {
		t.Errorf("superseded %d, want 1", n)
	}
	got := sqlOne[string](t, a, "SELECT string_agg(concat_ws(' ', event_seq, feature, customer, state, attempt_budget), ', ') FROM {schema}.fencepost_outbox")
	if want := "7 tokens cus_1 pending 3"; got != want {
		t.Errorf("items %s, want %s", got, want)
	}
}
