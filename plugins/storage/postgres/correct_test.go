package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// correcting asks to correct an event of acme.
func correcting(id, original, quantity string) storage.CorrectRequest {
	return storage.CorrectRequest{Event: storage.Event{
		Tenant: "acme", EventID: id, Kind: storage.Correction, Quantity: decimal.MustParse(quantity),
		OriginalEventID: original, Metadata: []byte(`{"why": "x"}`),
		PayloadHash: digestOf("payload", id, original, quantity), DedupeHash: digestOf("dedupe", id, original, quantity),
	}}
}

func correct(t testing.TB, a storage.CorrectionStore, req storage.CorrectRequest) storage.CorrectResult {
	t.Helper()
	res, err := a.RecordCorrection(t.Context(), req)
	must(t, err)
	return res
}

// told is an answer in a few words.
func told(res storage.CorrectResult) string {
	switch {
	case res.Stale != nil:
		return strings.TrimSpace(fmt.Sprint("stale ", res.Stale.Routes, res.Stale.Tenants))
	case res.Refused != "":
		return res.Refused + " " + res.Remaining.String()
	}
	s := string(res.Outcome) + " " + res.Correction.EventID + " " + res.Remaining.String()
	if res.Replacement != nil {
		s += " " + res.Replacement.EventID
	}
	return s
}

func wantTold(t testing.TB, res storage.CorrectResult, want string) {
	t.Helper()
	if got := told(res); got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
}

// B23, B26, B30, B31, Q7, Q8: a correction is a row of its own that has from
// its original what says where it counts; totals lose the quantity and gain an
// event, and the count falls with the last of it.
func TestCorrect(t *testing.T) {
	t.Parallel()
	a := open(t)
	original := tokens("acme", "e1", "5")
	original.Plan, original.PlanVersion = "pro", "3"
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(original), plain(tokens("acme", "e2", "1"))}})
	wantTotals(t, a, "acme", "tokens 6/2/2")
	res := correct(t, a, correcting("c1", "e1", "1.5"))
	wantTold(t, res, "inserted c1 3.5")
	wantTotals(t, a, "acme", "tokens 4.5/3/2")
	got, err := a.LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: "c1"})
	must(t, err)
	stored, err := a.LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: "e1"})
	must(t, err)
	if got.Kind != storage.Correction || got.OriginalEventID != "e1" || got.Quantity.String() != "1.5" || got.Effect.String() != "-1.5" ||
		got.Reverses || got.Feature != "tokens" || !got.OccurredAt.Equal(stored.OccurredAt) || !got.PeriodStart.Equal(stored.PeriodStart) ||
		!got.PeriodEnd.Equal(stored.PeriodEnd) || got.PeriodSource != stored.PeriodSource || got.Plan != "pro" || got.PlanVersion != "3" ||
		got.Dimensions["model"] != "m1" || string(got.Metadata) != `{"why": "x"}` || got.Seq != res.Correction.Seq || got.Seq <= stored.Seq ||
		got.PayloadHash != digestOf("payload", "c1", "e1", "1.5") || got.RecordedAt.Before(stored.RecordedAt) {
		t.Errorf("stored %+v", got)
	}
	wantTold(t, correct(t, a, correcting("c1", "e1", "1.5")), "duplicate c1 3.5")
	if res := correct(t, a, correcting("c1", "e1", "1")); res.Outcome != storage.Conflict || res.Correction.Seq != 0 {
		t.Errorf("answer %+v", res)
	}
	wantTold(t, correct(t, a, correcting("c2", "e1", "3.5")), "inserted c2 0")
	wantTotals(t, a, "acme", "tokens 1/4/1")
	if got, err = a.LoadEvent(t.Context(), storage.EventKey{Tenant: "acme", EventID: "c2"}); err != nil || !got.Reverses {
		t.Errorf("stored %+v, %v", got, err)
	}
	wantTold(t, correct(t, a, correcting("c1", "e1", "1.5")), "duplicate c1 0")
	found, err := a.LoadCorrectable(t.Context(), storage.EventKey{Tenant: "acme", EventID: "e1"})
	if err != nil || found.Corrected.String() != "5" || found.Original.Seq != stored.Seq || found.Items == nil {
		t.Errorf("correctable %+v, %v", found, err)
	}
	_, err = a.LoadCorrectable(t.Context(), storage.EventKey{Tenant: "zeta", EventID: "e1"})
	wantFailure(t, err, sdk.TagNotFound, "")
}

// Q7: a correction moves a negative original of a signed feature towards zero.
func TestCorrectNegative(t *testing.T) {
	t.Parallel()
	a := open(t)
	u := plain(tokens("acme", "e1", "-5"))
	u.Entries[0].Signed = true
	record(t, a, storage.RecordRequest{Units: []storage.Unit{u}})
	req := correcting("c1", "e1", "2")
	req.Signed = true
	wantTold(t, correct(t, a, req), "inserted c1 3")
	wantTotals(t, a, "acme", "tokens -3/2/1")
	req = correcting("c2", "e1", "3.000000000001")
	req.Signed = true
	wantTold(t, correct(t, a, req), "exceeds_original 3")
}

// B24, B33: what is refused is answered, in the order of the contract, and
// leaves nothing.
func TestCorrectRefuses(t *testing.T) {
	t.Parallel()
	a := open(t)
	zero := plain(tokens("acme", "e0", "0"))
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "5")), plain(tokens("zeta", "z", "5")), zero}})
	correct(t, a, correcting("c1", "e1", "2"))
	whole := correcting("x", "e1", "2.9")
	whole.WholeOnly = true
	expecting := correcting("x", "e1", "9")
	expecting.ExpectCorrected = new(decimal.MustParse("1"))
	routes := correcting("c1", "e1", "2") // stale comes before duplicate
	routes.RoutesRevision = 7
	for name, test := range map[string]struct {
		req  storage.CorrectRequest
		want string
	}{
		"absent":         {correcting("x", "nope", "1"), "not_found 0"},
		"other tenant's": {correcting("x", "z", "1"), "not_found 0"},
		"a correction":   {correcting("x", "c1", "1"), "not_usage 2"},
		"nothing":        {correcting("x", "e1", "0"), "nothing_remaining 3"},
		"of zero":        {correcting("x", "e0", "0"), "nothing_remaining 0"},
		"too much":       {correcting("x", "e1", "3.000000000001"), "exceeds_original 3"},
		"partly":         {whole, "partial 3"},
		"expectation":    {expecting, "stale false []"},
		"routes":         {routes, "stale true []"},
	} {
		if got := told(correct(t, a, test.req)); got != test.want {
			t.Errorf("%s: answer %q, want %q", name, got, test.want)
		}
		wantTotals(t, a, "acme", "tokens 3/3/2")
	}
	// The same within the caller's transaction, which stays usable and commits.
	err := pgx.BeginFunc(t.Context(), a.pools[workPool], func(tx pgx.Tx) error {
		s := a.WithTx(tx)
		wantTold(t, correct(t, s, correcting("x", "e1", "3.1")), "exceeds_original 3")
		wantTold(t, correct(t, s, correcting("x", "nope", "3.1")), "not_found 0")
		if res := correct(t, s, correcting("c1", "e1", "1")); res.Outcome != storage.Conflict {
			t.Errorf("answer %+v", res)
		}
		wantTold(t, correct(t, s, correcting("c2", "e1", "1")), "inserted c2 2")
		wantTold(t, correct(t, s, correcting("x", "e1", "2.1")), "exceeds_original 2")
		return nil
	})
	must(t, err)
	wantTotals(t, a, "acme", "tokens 2/4/2")
}

// A host's transaction takes the correction with it when it rolls back.
func TestCorrectInTx(t *testing.T) {
	t.Parallel()
	a := open(t)
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "5"))}})
	gone := errors.New("the host's own")
	err := pgx.BeginFunc(t.Context(), a.pools[workPool], func(tx pgx.Tx) error {
		wantTold(t, correct(t, a.WithTx(tx), correcting("c1", "e1", "5")), "inserted c1 0")
		found, err := a.WithTx(tx).LoadCorrectable(t.Context(), storage.EventKey{Tenant: "acme", EventID: "e1"})
		if err != nil || found.Corrected.String() != "5" {
			t.Errorf("correctable %+v, %v", found, err)
		}
		return gone
	})
	if !errors.Is(err, gone) {
		t.Fatal(err)
	}
	wantTotals(t, a, "acme", "tokens 5/1/1")
	wantTold(t, correct(t, a, correcting("c1", "e1", "5")), "inserted c1 0")
}

// B29: sums are taken after the lock was granted, so that 32 at once never
// take more than there is, and take all of it.
func TestCorrectorsUpToTheBound(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.Schema(t)
	a, b := openDSN(t, dsn), openDSN(t, dsn)
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "20"))}})
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	for n := range 32 {
		wg.Go(func() {
			res, err := []*Adapter{a, b}[n%2].RecordCorrection(t.Context(), correcting(fmt.Sprint("c", n), "e1", "1"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			got[string(res.Outcome)+res.Refused]++
		})
	}
	wg.Wait()
	if got["inserted"] != 20 || got[storage.RefusedExceedsOriginal] != 12 || len(got) != 2 {
		t.Errorf("answers %v", got)
	}
	wantTotals(t, a, "acme", "tokens 0/21/0")
	found, err := a.LoadCorrectable(t.Context(), storage.EventKey{Tenant: "acme", EventID: "e1"})
	if err != nil || found.Corrected.String() != "20" {
		t.Errorf("correctable %+v, %v", found, err)
	}
}

// B28: the same correction from many callers at once is inserted once, and all
// others see a duplicate; also where the bound is used up by then.
func TestIdenticalCorrections(t *testing.T) {
	t.Parallel()
	a := open(t)
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "5"))}})
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			res, err := a.RecordCorrection(t.Context(), correcting("c1", "e1", "5"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			got[told(res)]++
		})
	}
	wg.Wait()
	if got["inserted c1 0"] != 1 || got["duplicate c1 0"] != 15 {
		t.Errorf("answers %v", got)
	}
	wantTotals(t, a, "acme", "tokens 0/2/0")
}

// waits reports when a session of this store waits for a lock, in a statement
// like that; one that names no table is known by the key of the lock.
func waits(t testing.TB, a *Adapter, like string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		var n int
		must(t, a.pools[healthPool].QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'
  AND (query LIKE '%' || $2 || '%' OR pid IN (SELECT pid FROM pg_locks WHERE NOT granted AND objid = $3))`, like, a.target.schema, uint32(a.target.scope())).Scan(&n))
		if n > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody waits in %s", like)
		}
	}
}

// B27: a corrector waits for the row of the original, and for nothing else
// than that: not for a total that others move.
func TestCorrectLocksTheOriginal(t *testing.T) {
	t.Parallel()
	a := open(t)
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "5")), plain(tokens("acme", "e2", "5"))}})
	tx, err := a.pools[workPool].Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	wantTold(t, correct(t, a.WithTx(tx), correcting("c1", "e1", "4")), "inserted c1 1")
	answer := make(chan storage.CorrectResult)
	go func() {
		res, err := a.RecordCorrection(t.Context(), correcting("c2", "e1", "2"))
		if err != nil {
			t.Error(err)
		}
		answer <- res
	}()
	waits(t, a, "FOR NO KEY UPDATE")
	must(t, tx.Commit(t.Context()))
	wantTold(t, <-answer, "exceeds_original 1")
}

// B15 to B19 for the id: a skipped insert is compared with what took the id.
func TestCorrectionIDTaken(t *testing.T) {
	t.Parallel()
	a := open(t)
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "5")), plain(tokens("acme", "e2", "5"))}})
	// The id is taken by usage, not committed yet: the lock of the original
	// does not exclude that, so both looks find nothing.
	tx, err := a.pools[workPool].Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	record(t, a.WithTx(tx), storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "c1", "1"))}})
	answer := make(chan storage.CorrectResult)
	go func() {
		res, err := a.RecordCorrection(t.Context(), correcting("c1", "e1", "2"))
		if err != nil {
			t.Error(err)
		}
		answer <- res
	}()
	waits(t, a, "'correction'")
	must(t, tx.Commit(t.Context()))
	if res := <-answer; res.Outcome != storage.Conflict {
		t.Errorf("answer %+v", res)
	}
	wantTotals(t, a, "acme", "tokens 11/3/3")
}

// B32, Q18: items go in with the correction, whatever their state, and those of
// a duplicate or a refusal do not.
func TestCorrectionItems(t *testing.T) {
	t.Parallel()
	a := open(t)
	route, rev := routed(t, a)
	e := tokens("acme", "e1", "5")
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(e, itemFor(e, route, "m1"))}, RoutesRevision: rev})
	item := func(id, reason string) storage.NewItem {
		it := itemFor(storage.Event{Tenant: "acme", EventID: id}, route, "m1")
		it.Identity.SubjectKind, it.QuarantineReason, it.Payload = storage.SubjectCorrection, reason, []byte(`{"value":"-1"}`)
		return it
	}
	req := correcting("c1", "e1", "1")
	req.RoutesRevision, req.Items = rev, []storage.NewItem{item("c1", "")}
	wantTold(t, correct(t, a, req), "inserted c1 4")
	wantTold(t, correct(t, a, req), "duplicate c1 4")
	req = correcting("c2", "e1", "1")
	req.RoutesRevision, req.Items = rev, []storage.NewItem{item("c2", "original_ineligible")}
	wantTold(t, correct(t, a, req), "inserted c2 3")
	req = correcting("c3", "e1", "4")
	req.RoutesRevision, req.Items = rev, []storage.NewItem{item("c3", "")}
	wantTold(t, correct(t, a, req), "exceeds_original 3")
	page, err := a.ListItems(t.Context(), storage.ItemQuery{Limit: 10})
	must(t, err)
	var got []string
	for _, it := range page.Items {
		got = append(got, fmt.Sprint(it.Identity.SubjectKind, " ", it.Identity.SubjectRef, " ", it.State, " ", it.QuarantineReason, " ", it.Feature))
	}
	if want := []string{"event e1 pending  tokens", "correction c1 pending  tokens", "correction c2 quarantined original_ineligible tokens"}; !slices.Equal(got, want) {
		t.Errorf("items %q, want %q", got, want)
	}
	d, err := a.LoadItem(t.Context(), page.Items[1].ItemID)
	if err != nil || d.Event == nil || d.Event.EventID != "c1" || string(d.Payload) != `{"value":"-1"}` {
		t.Errorf("detail %+v, %v", d, err)
	}
	found, err := a.LoadCorrectable(t.Context(), storage.EventKey{Tenant: "acme", EventID: "e1"})
	if err != nil || len(found.Items) != 1 || found.Items[0].Identity.SubjectRef != "e1" {
		t.Errorf("correctable %+v, %v", found, err)
	}
}

// S7: a replacement is recorded with the correction or neither is.
func TestReplace(t *testing.T) {
	t.Parallel()
	a := open(t)
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "5")), plain(tokens("acme", "taken", "1"))}})
	replacing := func(correction, id, quantity string) storage.CorrectRequest {
		req := correcting(correction, "e1", "5")
		req.Replacement = &storage.Entry{Event: tokens("acme", id, quantity)}
		return req
	}
	if res := correct(t, a, replacing("c1", "taken", "2")); res.Outcome != storage.Conflict || res.Replacement != nil {
		t.Errorf("answer %+v", res)
	}
	wantTotals(t, a, "acme", "tokens 6/2/2")
	stale := replacing("c1", "e2", "7")
	stale.Subscriptions = []storage.SubscriptionRevision{{Tenant: "acme", Revision: 3}}
	wantTold(t, correct(t, a, stale), "stale false [acme]")
	wantTotals(t, a, "acme", "tokens 6/2/2")
	wantTold(t, correct(t, a, replacing("c1", "e2", "7")), "inserted c1 0 e2")
	wantTotals(t, a, "acme", "tokens 8/4/2")
	wantTold(t, correct(t, a, replacing("c1", "e2", "7")), "duplicate c1 0 e2")
	if res := correct(t, a, replacing("c1", "e2", "8")); res.Outcome != storage.Conflict {
		t.Errorf("answer %+v", res)
	}
	wantTotals(t, a, "acme", "tokens 8/4/2")
}

// Q27: buckets take corrections, and say that min and max are not to be relied
// on.
func TestCorrectBuckets(t *testing.T) {
	t.Parallel()
	a := open(t)
	e := tokens("acme", "e1", "5")
	key := &storage.BucketKey{Start: e.OccurredAt.Truncate(storage.BucketLength), Dimensions: e.Dimensions}
	u := plain(e)
	u.Entries[0].Bucket = key
	record(t, a, storage.RecordRequest{Units: []storage.Unit{u}})
	req := correcting("c1", "e1", "5")
	req.Bucket = key
	correct(t, a, req)
	page, err := a.LoadBuckets(t.Context(), storage.BucketQuery{Tenant: "acme", Feature: "tokens", From: november, To: november.AddDate(0, 1, 0), Limit: 10})
	must(t, err)
	if len(page.Buckets) != 1 || !page.Buckets[0].Sum.IsZero() || page.Buckets[0].Count != 0 || !page.Buckets[0].Reversed {
		t.Errorf("buckets %+v", page.Buckets)
	}
}

// B44: a correction of an event below the watermark, scanned or not, moves the
// active generation and the building one, and the built one is the same in the
// end. // B34 too: in the build the delta meets what it can be taken from.
func TestCorrectDuringBuild(t *testing.T) {
	t.Parallel()
	a := open(t)
	for i := range 6 {
		must(t, recordUsage(t.Context(), a, tokens("acme", fmt.Sprint("e", i), "5")))
	}
	begin(t, a)
	step := 0
	must(t, replay(t.Context(), a, 2, func() error {
		// One that is scanned, one that is not, one recorded after the mark.
		id := fmt.Sprint("n", step)
		must(t, recordUsage(t.Context(), a, tokens("acme", id, "5")))
		for i, original := range []string{"e0", "e5", id} {
			wantTold(t, correct(t, a, correcting(fmt.Sprint("c", step, "-", i), original, "1")), fmt.Sprint("inserted c", step, "-", i, " ", map[bool]int{true: 4, false: 4 - step}[original == id]))
		}
		step++
		return checkEquations(t.Context(), a)
	}))
	if step < 3 {
		t.Errorf("%d corrections while it was built", step)
	}
}

// F: the role of a correction's transaction at another isolation is refused,
// because its sum would not see what was committed before the lock (B29).
func TestCorrectIsolation(t *testing.T) {
	t.Parallel()
	a := open(t)
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "5"))}})
	tx, err := a.pools[workPool].BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = a.WithTx(tx).RecordCorrection(t.Context(), correcting("c1", "e1", "5"))
	wantFailure(t, err, sdk.TagInvalid, "isolation")
}
