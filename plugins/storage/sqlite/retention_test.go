package sqlite

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const month = 30 * 24 * time.Hour

// prune answers a prune in one line, and that its dry run says the same.
func prune(t testing.TB, a *Adapter, kind storage.PruneKind, age time.Duration, limit int) string {
	t.Helper()
	req := storage.PruneRequest{Kind: kind, Age: age, Limit: limit, DryRun: true}
	dry, err := a.Prune(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	req.DryRun = false
	res, err := a.Prune(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if dry != res {
		t.Errorf("the dry run says %+v, the removal %+v", dry, res)
	}
	return fmt.Sprintf("%d kept %d more %v", res.Removed, res.Kept, res.More)
}

func streamed(t testing.TB, a *Adapter) string {
	t.Helper()
	page, err := a.StreamEvents(t.Context(), storage.StreamQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range page.Events {
		ids = append(ids, e.EventID)
	}
	return strings.Join(ids, " ")
}

// S15: what is old and settled goes, an original with its corrections; totals
// stay; a repeat is a duplicate or a conflict until the tombstone goes too.
func TestPruneEvents(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	route, rev := addRoute(t, a)
	open := event("acme", "open", "1")
	record(t, a, storage.RecordRequest{RoutesRevision: rev, Units: []storage.Unit{
		plain(event("acme", "e1", "1")), plain(event("acme", "e2", "2")), plain(event("acme", "e3", "4")), plain(open, item(open, route, "m1")),
	}})
	undo := func(id, original, quantity string) storage.CorrectRequest {
		req := correction(id, original, quantity)
		req.RoutesRevision = rev
		return req
	}
	correct(t, a, undo("c2", "e2", "1"))
	correct(t, a, undo("c4", "open", "0.5")) // stays with its original
	c.advance(month)
	correct(t, a, undo("c3", "e3", "3")) // young: e3 stays
	record(t, a, storage.RecordRequest{RoutesRevision: rev, Units: []storage.Unit{plain(event("acme", "young", "8"))}})
	before := netTotals(t, a)
	if got := prune(t, a, storage.PruneEvents, month, 10); got != "0 kept 0 more false" {
		t.Errorf("at the age itself: %s", got)
	}
	c.advance(time.Hour)
	for _, want := range []string{"2 kept 2 more true", "1 kept 3 more false", "0 kept 3 more false"} {
		if got := prune(t, a, storage.PruneEvents, month, 2); got != want {
			t.Errorf("pruned %s, want %s", got, want)
		}
	}
	if got := streamed(t, a); got != "e3 open c4 c3 young" {
		t.Errorf("left: %s", got)
	}
	if got := netTotals(t, a); got != before {
		t.Errorf("totals %s, before %s", got, before)
	}
	move(t, a, storage.Transition{
		ItemID: 1, Expect: storage.Expect{State: storage.Pending}, Attempt: &storage.Attempt{},
		Set: storage.Change{State: storage.Confirmed, Settled: new(true)},
	})
	if got := prune(t, a, storage.PruneEvents, month, 10); got != "2 kept 1 more false" {
		t.Errorf("once settled: %s", got)
	}
	checkCounts(t, a)
	if got := items(t, a); len(got) != 0 {
		t.Errorf("items left: %+v", got)
	}
	repeat := storage.RecordRequest{RoutesRevision: rev, Mode: storage.Each, Units: []storage.Unit{
		plain(event("acme", "e1", "1")), plain(event("acme", "e2", "9")), plain(event("acme", "fresh", "1")),
	}}
	wantOutcomes(t, record(t, a, repeat), "duplicate e1=1; conflict; inserted fresh=9")
	for want, req := range map[string]storage.CorrectRequest{
		"duplicate left 0": undo("c2", "e2", "1"), "conflict left 0": undo("c2", "e2", "0.5"), "not_found left 0": undo("c9", "e1", "1"),
	} {
		if got := answer(correct(t, a, req)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	c.advance(month + time.Hour)
	if got := prune(t, a, storage.PruneTombstones, month, 3); got != "3 kept 0 more true" {
		t.Errorf("tombstones: %s", got)
	}
	if got := prune(t, a, storage.PruneTombstones, month, 3); got != "2 kept 0 more false" {
		t.Errorf("tombstones: %s", got)
	}
	repeat.Units = repeat.Units[:1]
	wantOutcomes(t, record(t, a, repeat), "inserted e1=10")
}

// A CloudEvent is known until the first of its events is forgotten; what is
// still known of the others is not counted again. Its body goes with the last of
// its events; one that fed nothing goes by its own age.
func TestPruneCloudEvents(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	each := func(units ...storage.Unit) storage.RecordResult {
		return record(t, a, storage.RecordRequest{Units: units, Mode: storage.Each})
	}
	each(cloudEvent("acme", "1", "x", "in", "out"), cloudEvent("acme", "2", "x"))
	body := func() string {
		t.Helper()
		rc, err := a.LoadReceipt(t.Context(), storage.ReceiptKey{Tenant: "acme", ReceiptID: "4:/src1"})
		if err != nil {
			t.Fatal(err)
		}
		return string(rc.Body)
	}
	c.advance(time.Hour)
	prune(t, a, storage.PruneEvents, 0, 1)
	if got := body(); got == "" {
		t.Error("the body went before the second event")
	}
	prune(t, a, storage.PruneEvents, 0, 1)
	if got := body(); got != "" {
		t.Errorf("body %s", got)
	}
	wantOutcomes(t, each(cloudEvent("acme", "1", "x", "in", "out"), cloudEvent("acme", "1", "y"), cloudEvent("acme", "2", "x", "in")),
		"duplicate ce-1-in=1 ce-1-out=2; conflict; duplicate")
	c.advance(time.Hour)
	prune(t, a, storage.PruneTombstones, 0, 1)
	wantOutcomes(t, each(cloudEvent("acme", "1", "y", "in", "out"), cloudEvent("acme", "2", "x", "in")), "conflict; inserted ce-2-in=3")
	wantOutcomes(t, each(cloudEvent("acme", "1", "x", "in", "out")), "inserted ce-1-in=4 ce-1-out=2")
}

// Only retention removes history: nobody else on the adapter's connection, and
// nobody after it (P6).
func TestPruningEnds(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(event("acme", "e1", "1")), plain(event("acme", "e2", "1"))}})
	c.advance(time.Hour)
	prune(t, a, storage.PruneEvents, 0, 1)
	w := <-a.writer
	defer func() { a.writer <- w }()
	for _, sql := range []string{
		"DELETE FROM fencepost_events", "DELETE FROM fencepost_tombstones", "UPDATE fencepost_tombstones SET feature = 'x'",
	} {
		if _, err := w.pragma(sql); err == nil || !strings.Contains(err.Error(), "immutable") {
			t.Errorf("%s: %v", sql, err)
		}
		if err := trySQL(a.path, sql); err == nil {
			t.Errorf("%s: was done by another program", sql)
		}
	}
}

func TestPruneRefuses(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	for field, req := range map[string]storage.PruneRequest{
		"kind":  {Kind: "mappings", Limit: 1},
		"age":   {Kind: storage.PruneReceipts, Limit: 1, Age: 24*time.Hour - 1},
		"limit": {Kind: storage.PruneEvents, Limit: 10_001},
	} {
		_, err := a.Prune(t.Context(), req)
		if e := wantError(t, err, sdk.TagInvalid, ""); e == nil || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for i := range 3 {
		if _, err := a.FlushBatch(t.Context(), storage.FlushBatch{ID: strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
	}
	c.advance(24*time.Hour + 1000)
	if got := prune(t, a, storage.PruneReceipts, 24*time.Hour, 2); got != "2 kept 0 more true" {
		t.Errorf("receipts: %s", got)
	}
	res, err := a.FlushBatch(t.Context(), storage.FlushBatch{ID: "0"})
	if err != nil || !res.Applied {
		t.Errorf("a forgotten batch: %+v, %v", res, err)
	}
}
