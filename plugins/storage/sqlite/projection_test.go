package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// batchOf adds up the events in (after, to], as the engine does.
func batchOf(t testing.TB, a *Adapter, generation, after, to int64) storage.ProjectionBatch {
	t.Helper()
	page, err := a.StreamEvents(t.Context(), storage.StreamQuery{After: after, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	b := storage.ProjectionBatch{Generation: generation, After: after, Cursor: to}
	for _, ev := range page.Events {
		if ev.Seq > to {
			break
		}
		d := storage.TotalDelta{
			Tenant: ev.Tenant, Feature: ev.Feature, PeriodStart: ev.PeriodStart, PeriodEnd: ev.PeriodEnd,
			Quantity: ev.Effect, Events: 1,
		}
		switch {
		case ev.Kind == storage.Usage:
			d.Count = 1
		case ev.Reverses:
			d.Count = -1
		}
		b.Totals = append(b.Totals, d)
	}
	return b
}

func begin(t testing.TB, a *Adapter, settings string) storage.ProjectionState {
	t.Helper()
	state, err := a.BeginProjection(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// tenants records one event of each of n tenants.
func tenants(t testing.TB, a *Adapter, n int, id string) {
	t.Helper()
	var units []storage.Unit
	for i := range n {
		units = append(units, plain(event(fmt.Sprintf("t%02d", i), id, "5")))
	}
	record(t, a, storage.RecordRequest{Units: units})
}

// B38-B45: a build from begin to its removal, with records and corrections in
// between, in slices.
func TestProjection(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	tenants(t, a, 5, "e1")
	state := begin(t, a, "settings 1")
	if state.Active != 1 || state.Building != 2 || state.Seed != -2 || state.Watermark != 5 || state.Resumed ||
		state.BuildingSettings != "settings 1" || !state.BegunAt.Equal(c.t) {
		t.Fatalf("begun %+v", state)
	}
	if again := begin(t, a, "settings 2"); !again.Resumed || again.Building != 2 || again.BuildingSettings != "settings 1" { // B39
		t.Errorf("begun again %+v", again)
	}
	tenants(t, a, 5, "e2")
	// Below the watermark and not scanned: as the active one would. // F57
	undo := correction("c1", "e1", "5")
	undo.Event.Tenant = "t03"
	if got := answer(correct(t, a, undo)); got != "inserted left 0" {
		t.Fatal(got)
	}
	conflict := func(err error, code string) {
		t.Helper()
		wantError(t, err, sdk.TagConflict, code)
	}
	drain := func(limit int) (int, error) { return a.DrainSeed(t.Context(), 2, limit) }
	_, err := drain(10)
	conflict(err, "cursor")
	_, err = a.ActivateProjection(t.Context(), 2)
	conflict(err, "not_drained")
	for after := int64(0); after < 4; after += 2 {
		if err := a.WriteProjection(t.Context(), batchOf(t, a, 2, after, after+2)); err != nil {
			t.Fatal(err)
		}
	}
	conflict(a.WriteProjection(t.Context(), batchOf(t, a, 2, 0, 2)), "cursor")
	conflict(a.WriteProjection(t.Context(), batchOf(t, a, 3, 4, 5)), "not_building")
	if _, err := a.PauseProjection(t.Context(), 2, true); err != nil {
		t.Fatal(err)
	}
	conflict(a.WriteProjection(t.Context(), batchOf(t, a, 2, 4, 5)), "paused")
	if state, err := a.PauseProjection(t.Context(), 2, false); err != nil || state.Paused {
		t.Fatalf("%+v, %v", state, err)
	}
	if err := a.WriteProjection(t.Context(), batchOf(t, a, 2, 4, 5)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{2, 2, 1, 0} { // B42: each row once
		if n, err := drain(2); err != nil || n != want {
			t.Errorf("drained %d, %v; want %d", n, err, want)
		}
	}
	if diff, err := a.CompareProjections(t.Context(), 1, 2, 10); err != nil || diff.Total != 0 || diff.Differences == nil {
		t.Errorf("differences %+v, %v", diff, err)
	}
	c.advance(time.Hour)
	for range 2 { // once active, it is left so
		state, err = a.ActivateProjection(t.Context(), 2)
		if err != nil || state.Active != 2 || state.Building != 0 || state.Previous != 1 || state.ActiveSettings != "settings 1" ||
			state.BuildingSettings != "" || !state.ActivatedAt.Equal(c.t) {
			t.Fatalf("activated %+v, %v", state, err)
		}
		c.advance(0)
	}
	if got := totals(t, a, "t03"); got != "tokens 5/3" {
		t.Errorf("totals %s", got)
	}
	_, err = a.PruneProjection(t.Context(), 2, 1)
	conflict(err, "active")
	for _, want := range []int{3, 2, 0} {
		if n, err := a.PruneProjection(t.Context(), 1, 3); err != nil || n != want {
			t.Errorf("pruned %d, %v; want %d", n, err, want)
		}
	}
	if state, err := a.ProjectionState(t.Context()); err != nil || state.Previous != 0 {
		t.Errorf("%+v, %v", state, err)
	}
}

// A build that finds the totals wrong: the differences are listed in the order
// of their keys, and a batch whose delta is below zero by itself is added (B45).
func TestProjectionMends(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	tenants(t, a, 5, "e1")
	sqlExec(t, a.path, "UPDATE fencepost_totals SET quantity = '7', count = 2 WHERE tenant_key >= 't02'")
	state := begin(t, a, "")
	undo := correction("c1", "e1", "2.5")
	undo.Event.Tenant = "t04"
	correct(t, a, undo)
	if err := a.WriteProjection(t.Context(), batchOf(t, a, 2, 0, state.Watermark)); err != nil {
		t.Fatal(err)
	}
	less := storage.TotalDelta{Tenant: "t00", Feature: "tokens", PeriodStart: period, PeriodEnd: period.AddDate(0, 1, 0)}
	less.Quantity = less.Quantity.Sub(event("x", "x", "0.5").Quantity)
	if err := a.WriteProjection(t.Context(), storage.ProjectionBatch{Generation: 2, After: 5, Cursor: 5, Totals: []storage.TotalDelta{less}}); err != nil {
		t.Fatal(err)
	}
	if n, err := a.DrainSeed(t.Context(), 2, 100); err != nil || n != 5 {
		t.Fatal(n, err)
	}
	diff, err := a.CompareProjections(t.Context(), 1, 2, 3)
	var got []string
	for _, d := range diff.Differences {
		got = append(got, fmt.Sprintf("%s %s/%d %s/%d", d.Tenant, d.Active.Quantity, d.Active.Count, d.Built.Quantity, d.Built.Count))
	}
	if err != nil || diff.Total != 4 || fmt.Sprint(got) != "[t00 5/1 4.5/1 t02 7/2 5/1 t03 7/2 5/1]" {
		t.Errorf("%d differences: %q, %v", diff.Total, got, err)
	}
	if _, err := a.ActivateProjection(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if got := totals(t, a, "t04"); got != "tokens 2.5/2" {
		t.Errorf("totals %s", got)
	}
}

// A scan must be able to come to the watermark: the last event that is there,
// not the last one that was.
func TestWatermarkAfterPrune(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	tenants(t, a, 3, "e1")
	c.advance(time.Hour)
	prune(t, a, storage.PruneEvents, 0, 10)
	if state := begin(t, a, ""); state.Watermark != 0 {
		t.Errorf("%+v", state)
	}
	if _, err := a.DrainSeed(t.Context(), 2, 10); err != nil {
		t.Error(err)
	}
	if state, err := a.ActivateProjection(t.Context(), 2); err != nil || totals(t, a, "t01") != "tokens 5/1" {
		t.Errorf("%+v, %v, totals %s", state, err, totals(t, a, "t01"))
	}
}

// What retention removed is in the next build, and what a build has not scanned
// is not removed. A build that was abandoned leaves nothing to a later one.
func TestProjectionAfterPrune(t *testing.T) {
	t.Parallel()
	c := newClock()
	a := open(t, c)
	rev := putFeatures(t, a, storage.Feature{Name: "tokens", Buckets: []string{"model"}})
	rec := func(id string) {
		u := plain(event("acme", id, "5"))
		u.Entries[0].Bucket = bucketOf(storage.Feature{Buckets: []string{"model"}}, &u.Entries[0].Event)
		record(t, a, storage.RecordRequest{Units: []storage.Unit{u}, RoutesRevision: rev})
	}
	rec("e1")
	rec("e2")
	c.advance(time.Hour)
	if got := prune(t, a, storage.PruneEvents, 0, 1); got != "1 kept 0 more true" {
		t.Fatal(got)
	}
	abandoned := begin(t, a, "").Building
	if n, err := a.PruneProjection(t.Context(), abandoned, 1); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	state := begin(t, a, "")
	if state.Building != abandoned+1 || state.Resumed {
		t.Fatalf("%+v", state)
	}
	if got := prune(t, a, storage.PruneEvents, 0, 10); got != "0 kept 1 more false" {
		t.Errorf("during a build: %s", got)
	}
	b := batchOf(t, a, state.Building, 0, state.Watermark)
	e := event("acme", "e2", "5")
	b.Buckets = []storage.BucketDelta{{
		Tenant: "acme", Feature: "tokens", Key: *bucketOf(storage.Feature{Buckets: []string{"model"}}, &e), Seq: 2,
		Sum: e.Quantity, Count: 1, Min: &e.Quantity, Max: &e.Quantity,
	}}
	if err := a.WriteProjection(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if got := prune(t, a, storage.PruneEvents, 0, 10); got != "1 kept 0 more false" {
		t.Errorf("after the scan: %s", got)
	}
	if _, err := a.DrainSeed(t.Context(), state.Building, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ActivateProjection(t.Context(), state.Building); err != nil {
		t.Fatal(err)
	}
	page, err := a.LoadBuckets(t.Context(), storage.BucketQuery{Tenant: "acme", Feature: "tokens", From: period, To: period.AddDate(0, 1, 0), Limit: 9})
	if got := totals(t, a, "acme"); got != "tokens 10/2" || err != nil || len(page.Buckets) != 1 || page.Buckets[0].Sum.String() != "10" {
		t.Errorf("totals %s, buckets %+v, %v", got, page, err)
	}
	agg, err := a.Aggregate(t.Context(), storage.AggregateQuery{Tenant: "acme", Feature: "tokens", Edges: []time.Time{period, period.AddDate(0, 1, 0)}, Limit: 1})
	if want := e.OccurredAt.Add(time.Microsecond); err != nil || len(agg.Rows) != 0 || !agg.PrunedBefore.Equal(want) {
		t.Errorf("%+v, %v; want pruned before %s", agg, err, want)
	}
}
