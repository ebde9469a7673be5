package sqlite

import (
	"context"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// correction takes quantity back from an event of acme.
func correction(id, original, quantity string) storage.CorrectRequest {
	ev := storage.Event{
		Tenant: "acme", EventID: id, OriginalEventID: original, Quantity: decimal.MustParse(quantity),
		Kind: storage.Correction, PayloadHash: hash("payload", id, quantity), DedupeHash: hash("dedupe", id, original, quantity),
	}
	return storage.CorrectRequest{Event: ev}
}

func correct(t testing.TB, a storage.CorrectionStore, req storage.CorrectRequest) storage.CorrectResult {
	t.Helper()
	res, err := a.RecordCorrection(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// answer is a result in one line.
func answer(res storage.CorrectResult) string {
	s := fmt.Sprintf("%s%s left %s", res.Outcome, res.Refused, res.Remaining)
	if res.Stale != nil {
		s = fmt.Sprintf("stale %v %v", res.Stale.Routes, res.Stale.Tenants)
	}
	if res.Replacement != nil {
		s += fmt.Sprintf(" with %s=%d", res.Replacement.EventID, res.Replacement.Seq)
	}
	return s
}

func netTotals(t testing.TB, a *Adapter) string {
	t.Helper()
	all, err := a.LoadTotals(t.Context(), storage.TotalsQuery{Tenant: "acme"})
	if err != nil || len(all) != 1 {
		t.Fatalf("%d totals, %v", len(all), err)
	}
	return fmt.Sprintf("%s/%d/%d", all[0].Quantity, all[0].Events, all[0].Count)
}

// B23-B33, S7, Q7, Q8: what a correction is answered, in order, on one store.
func TestCorrections(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	negative, zero := event("acme", "neg", "-4"), event("acme", "zero", "0")
	signed := plain(negative)
	signed.Entries[0].Signed = true
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(event("acme", "e1", "10")), plain(zero)}})
	with := func(req storage.CorrectRequest, change func(*storage.CorrectRequest)) storage.CorrectRequest {
		change(&req)
		return req
	}
	expect := func(sum string) func(*storage.CorrectRequest) {
		d := decimal.MustParse(sum)
		return func(r *storage.CorrectRequest) { r.ExpectCorrected = &d }
	}
	whole := func(r *storage.CorrectRequest) { r.WholeOnly = true }
	other := correction("c1", "e1", "2")
	for _, step := range []struct {
		req          storage.CorrectRequest
		want, totals string
	}{
		{correction("c1", "e1", "3"), "inserted left 7", "7/3/2"},
		{correction("c1", "e1", "3"), "duplicate left 7", "7/3/2"},
		{other, "conflict left 0", "7/3/2"},
		{correction("e1", "e1", "3"), "conflict left 0", "7/3/2"}, // the id of usage
		{correction("c2", "e9", "1"), "not_found left 0", "7/3/2"},
		{correction("c2", "c1", "1"), "not_usage left 0", "7/3/2"},
		{correction("c2", "e1", "0"), "nothing_remaining left 7", "7/3/2"},
		{correction("c2", "e1", "7.000000000001"), "exceeds_original left 7", "7/3/2"},
		{with(correction("c2", "e1", "6"), whole), "partial left 7", "7/3/2"},
		{with(correction("c2", "e1", "7"), expect("2")), "stale false []", "7/3/2"},
		{with(correction("c2", "e1", "7"), func(r *storage.CorrectRequest) { r.RoutesRevision = 9 }), "stale true []", "7/3/2"},
		{with(with(correction("c2", "e1", "7"), whole), expect("3")), "inserted left 0", "0/4/1"},
		{correction("c3", "e1", "0.1"), "exceeds_original left 0", "0/4/1"},
		{correction("c3", "zero", "1"), "exceeds_original left 0", "0/4/1"},
		{correction("c1", "e1", "3"), "duplicate left 0", "0/4/1"}, // not exceeds_original: F02
	} {
		want := step.want
		if step.req.Event.OriginalEventID == "c1" {
			want = "not_usage left 3" // what is left of the correction itself: of no use
		}
		if got := answer(correct(t, a, step.req)); got != want {
			t.Errorf("%s of %s: %s, want %s", step.req.Event.EventID, step.req.Event.OriginalEventID, got, want)
		}
		if got := netTotals(t, a); got != step.totals {
			t.Errorf("after %s: totals %s, want %s", step.req.Event.EventID, got, step.totals)
		}
	}
	record(t, a, storage.RecordRequest{Units: []storage.Unit{signed}})
	req := correction("c4", "neg", "1")
	req.Signed = true
	if got := answer(correct(t, a, req)); got != "inserted left 3" || netTotals(t, a) != "-3/6/2" {
		t.Errorf("of a negative event: %s, totals %s", got, netTotals(t, a))
	}
}

// B30, B32: a correction has the time, period, plan and dimensions of its
// original, and its items; the original with them is what can be corrected.
func TestCorrectionInherits(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	route, rev := addRoute(t, a)
	e := event("acme", "e1", "10")
	e.Plan, e.PlanVersion = "pro", "3"
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(e, item(e, route, "m1"))}, RoutesRevision: rev})
	req := correction("c1", "e1", "4")
	req.RoutesRevision = rev
	it := item(req.Event, route, "m1")
	it.Identity.SubjectKind = storage.SubjectCorrection
	it.QuarantineReason = "not_correctable"
	req.Items = []storage.NewItem{it}
	correct(t, a, req)
	got, err := a.LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: "c1"})
	if err != nil || got.Kind != storage.Correction || got.Feature != e.Feature || !got.OccurredAt.Equal(e.OccurredAt) ||
		!got.PeriodStart.Equal(e.PeriodStart) || !got.PeriodEnd.Equal(e.PeriodEnd) || got.PeriodSource != e.PeriodSource ||
		got.Plan != "pro" || got.PlanVersion != "3" || got.Dimensions["model"] != "m1" ||
		got.Quantity.String() != "4" || got.Effect.String() != "-4" || got.Reverses || got.OriginalEventID != "e1" || got.Seq != 2 {
		t.Errorf("stored %+v, %v", got, err)
	}
	of, err := a.LoadCorrectable(t.Context(), storage.EventKey{Tenant: "acme", EventID: "e1"})
	if err != nil || of.Corrected.String() != "4" || len(of.Items) != 1 || of.Items[0].ItemID != 1 || of.Original.EventID != "e1" {
		t.Errorf("correctable %+v, %v", of, err)
	}
	page, err := a.ListItems(t.Context(), storage.ItemQuery{Limit: 10, State: storage.Quarantined})
	if err != nil || len(page.Items) != 1 || page.Items[0].Identity.SubjectRef != "c1" {
		t.Errorf("items of the correction %+v, %v", page, err)
	}
	checkCounts(t, a)
	_, err = a.LoadCorrectable(t.Context(), storage.EventKey{Tenant: "acme", EventID: "e9"})
	wantError(t, err, sdk.TagNotFound, "")
}

// S7: a replacement is recorded with the correction or neither is.
func TestReplace(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(event("acme", "e1", "10")), plain(event("acme", "e2", "1"))}})
	replace := func(id, original, replacement, quantity string) storage.CorrectRequest {
		req := correction(id, original, "10")
		req.Replacement = &storage.Entry{Event: event("acme", replacement, quantity)}
		return req
	}
	for _, step := range []struct {
		req          storage.CorrectRequest
		want, totals string
	}{
		{replace("c1", "e1", "e2", "2"), "conflict left 0", "11/2/2"},
		{replace("c1", "e2", "e3", "12"), "exceeds_original left 1", "11/2/2"},
		{replace("c1", "e1", "e3", "12"), "inserted left 0 with e3=4", "13/4/2"},
		{replace("c1", "e1", "e3", "12"), "duplicate left 0 with e3=4", "13/4/2"},
		{replace("c1", "e1", "e3", "13"), "conflict left 0", "13/4/2"},
	} {
		if got := answer(correct(t, a, step.req)); got != step.want || netTotals(t, a) != step.totals {
			t.Errorf("%s, totals %s; want %s, %s", got, netTotals(t, a), step.want, step.totals)
		}
	}
}

// B33: a refusal and a conflict inside a caller's transaction leave what else
// it did, and it can go on.
func TestCorrectWithTx(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(event("acme", "e1", "10"))}})
	var got []string
	err := a.WithTx(t.Context(), func(tx *Tx) error {
		s := tx.Store()
		if _, err := s.RecordEvents(context.Background(), storage.RecordRequest{Mode: storage.Atomic, Units: []storage.Unit{plain(event("acme", "e2", "5"))}}); err != nil {
			return err
		}
		clash := correction("c0", "e2", "1")
		clash.Replacement = &storage.Entry{Event: event("acme", "e1", "3")}
		for _, req := range []storage.CorrectRequest{correction("c1", "e2", "6"), clash, correction("c1", "e2", "2")} {
			res, err := s.RecordCorrection(context.Background(), req)
			if err != nil {
				return err
			}
			got = append(got, answer(res))
		}
		return nil
	})
	if err != nil || fmt.Sprint(got) != "[exceeds_original left 5 conflict left 0 inserted left 3]" {
		t.Errorf("%q, %v", got, err)
	}
	if got := netTotals(t, a); got != "13/3/2" {
		t.Errorf("totals %s", got)
	}
}
