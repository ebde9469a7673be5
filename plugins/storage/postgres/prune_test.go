package postgres

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/pgtest"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const day = 24 * time.Hour

// aged makes everything that was recorded and pruned so much older: retention
// goes by the database's clock alone.
func aged(t testing.TB, a *Adapter, by time.Duration) {
	t.Helper()
	a.execScript(t, fmt.Sprintf(`SET LOCAL session_replication_role = replica;
UPDATE {schema}.fencepost_events SET recorded_at = recorded_at - interval '%[1]d seconds';
UPDATE {schema}.fencepost_cloudevents SET recorded_at = recorded_at - interval '%[1]d seconds';
UPDATE {schema}.fencepost_tombstones SET pruned_at = pruned_at - interval '%[1]d seconds';
UPDATE {schema}.fencepost_receipts SET applied_at = applied_at - interval '%[1]d seconds'`, int(by.Seconds())))
}

func prune(t testing.TB, a *Adapter, req storage.PruneRequest) storage.PruneResult {
	t.Helper()
	if req.Age == 0 {
		req.Age = day
	}
	if req.Limit == 0 {
		req.Limit = 1000
	}
	res, err := a.Prune(t.Context(), req)
	must(t, err)
	return res
}

// wantPruned prunes twice, first as a dry run, and compares both answers: the
// predicate is one (S15).
func wantPruned(t testing.TB, a *Adapter, req storage.PruneRequest, want storage.PruneResult) {
	t.Helper()
	dry := req
	dry.DryRun = true
	for _, r := range []storage.PruneRequest{dry, dry, req} {
		if got := prune(t, a, r); got != want {
			t.Errorf("dry run %v: %+v, want %+v", r.DryRun, got, want)
		}
	}
}

func rows(t testing.TB, a *Adapter, table string) (n int) {
	t.Helper()
	must(t, a.pools[workPool].QueryRow(t.Context(), "SELECT count(*) FROM "+a.target.schema+".fencepost_"+table).Scan(&n))
	return n
}

func wantRows(t testing.TB, a *Adapter, want map[string]int) {
	t.Helper()
	for table, n := range want {
		if got := rows(t, a, table); got != n {
			t.Errorf("%d rows of %s, want %d", got, table, n)
		}
	}
}

// S15: what goes, goes with its settled items and attempts; identity, hash and
// totals stay, and a repeat is what it was before.
func TestPruneEvents(t *testing.T) {
	t.Parallel()
	a := open(t)
	route, rev := routed(t, a)
	var units []storage.Unit
	for i := range 5 {
		e := tokens("acme", fmt.Sprint("e", i), "2")
		units = append(units, plain(e, itemFor(e, route, "m1")))
	}
	first := record(t, a, storage.RecordRequest{Units: units, RoutesRevision: rev})
	cl, err := a.Claim(t.Context(), storage.ClaimRequest{Owner: "w", Routes: []int64{route}, Limit: 4, Lease: time.Minute})
	must(t, err)
	var moves []storage.Transition
	for i, it := range cl.Items {
		set := storage.Change{State: storage.Accepted, Settled: new(i != 1)} // e1 is disputed
		moves = append(moves, storage.Transition{ItemID: it.ItemID, Expect: fenced(1), Set: set, Attempt: &storage.Attempt{LeaseToken: 1}})
	}
	_, err = a.Transition(t.Context(), moves)
	must(t, err)
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneEvents}, storage.PruneResult{}) // nothing is old
	aged(t, a, 2*day)
	late := tokens("acme", "late", "1")
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(late)}, RoutesRevision: rev})
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneEvents, Limit: 2}, storage.PruneResult{Removed: 2, Kept: 1, More: true})
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneEvents}, storage.PruneResult{Removed: 1, Kept: 2})
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneEvents}, storage.PruneResult{Kept: 2})
	wantRows(t, a, map[string]int{"events": 3, "tombstones": 3, "outbox_items": 2, "outbox_state": 2, "attempts": 1})
	wantTotals(t, a, "acme", "tokens 11/6/6")
	(&outbox{t: t, Adapter: a}).checkCounts()
	again := record(t, a, storage.RecordRequest{Units: units, RoutesRevision: rev})
	for i, u := range again.Units {
		if u.Outcome != storage.Duplicate || u.Entries[0] != first.Units[i].Entries[0] {
			t.Errorf("a repeat is %+v, first %+v", u, first.Units[i])
		}
	}
	wantOutcomes(t, record(t, a, storage.RecordRequest{Mode: storage.Each, RoutesRevision: rev, Units: []storage.Unit{plain(tokens("acme", "e0", "3"))}}), "conflict")
	wantTold(t, correct(t, a, func() storage.CorrectRequest {
		c := correcting("c", "e0", "1")
		c.RoutesRevision = rev
		return c
	}()), "not_found 0")
	wantTotals(t, a, "acme", "tokens 11/6/6")
	must(t, checkEquations(t.Context(), a))
	var before time.Time
	must(t, a.pools[workPool].QueryRow(t.Context(), "SELECT before FROM "+a.target.schema+".fencepost_pruned").Scan(&before))
	if want := late.OccurredAt.Add(time.Microsecond); !before.Equal(want) {
		t.Errorf("pruned before %v, want %v", before, want)
	}
	// A build starts with what was removed. // B38
	begin(t, a)
	must(t, replay(t.Context(), a, 2, func() error { return checkEquations(t.Context(), a) }))
	wantTotals(t, a, "acme", "tokens 11/6/6")
	// Identities are forgotten when told to: a repeat is new usage after that.
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneTombstones}, storage.PruneResult{})
	aged(t, a, 2*day)
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneTombstones, Limit: 2}, storage.PruneResult{Removed: 2, More: true})
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneTombstones, Limit: 1}, storage.PruneResult{Removed: 1})
	wantOutcomes(t, record(t, a, storage.RecordRequest{Units: units[:1], RoutesRevision: rev}), "inserted e0")
}

// B24: an original stays with a correction that stays, and goes with those that
// go; never is a correction gone and its original not.
func TestPruneCorrected(t *testing.T) {
	t.Parallel()
	a := open(t)
	route, rev := routed(t, a)
	e0 := tokens("acme", "e0", "5") // stays for its own item; so must its correction
	record(t, a, storage.RecordRequest{RoutesRevision: rev, Units: []storage.Unit{
		plain(e0, itemFor(e0, route, "m1")),
		plain(tokens("acme", "e1", "5")), plain(tokens("acme", "e2", "5")), plain(tokens("acme", "e3", "5")),
	}})
	of := func(id, original string) storage.CorrectRequest {
		c := correcting(id, original, "2")
		c.RoutesRevision = rev
		return c
	}
	correct(t, a, of("c0", "e0"))
	correct(t, a, of("c1", "e1"))
	open := of("c3", "e3") // its item is for somebody to act on
	open.Items = []storage.NewItem{itemFor(storage.Event{Tenant: "acme", EventID: "c3"}, route, "m1")}
	correct(t, a, open)
	aged(t, a, 2*day)
	correct(t, a, of("c2", "e2")) // young
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneEvents, Limit: 1}, storage.PruneResult{Removed: 1, Kept: 4, More: true})
	wantTotals(t, a, "acme", "tokens 12/8/4")
	// The correction of an original that is gone goes next.
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneEvents}, storage.PruneResult{Removed: 1, Kept: 5})
	wantTotals(t, a, "acme", "tokens 12/8/4")
	must(t, checkEquations(t.Context(), a))
	wantTold(t, correct(t, a, of("c4", "e3")), "inserted c4 1")
	a.execScript(t, "UPDATE {schema}.fencepost_outbox_state SET settled_at = now()")
	aged(t, a, 2*day)
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneEvents}, storage.PruneResult{Removed: 7})
	wantTotals(t, a, "acme", "tokens 10/9/4")
	wantRows(t, a, map[string]int{"events": 0, "tombstones": 9})
	must(t, checkEquations(t.Context(), a))
}

// B44: what a build has not scanned stays.
func TestPruneDuringBuild(t *testing.T) {
	t.Parallel()
	a := open(t)
	for i := range 4 {
		must(t, recordUsage(t.Context(), a, tokens("acme", fmt.Sprint("e", i), "5")))
	}
	st := begin(t, a)
	must(t, recordUsage(t.Context(), a, tokens("acme", "e4", "5"))) // in both generations
	b, _, err := scan(t.Context(), a, st, 1)
	must(t, err)
	must(t, a.WriteProjection(t.Context(), b))
	aged(t, a, 2*day)
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneEvents}, storage.PruneResult{Removed: 2, Kept: 3})
	must(t, replay(t.Context(), a, 2, func() error { return nil }))
	wantTotals(t, a, "acme", "tokens 25/5/5")
}

// Q27: buckets keep what was pruned, in the generation it was counted in.
func TestPruneBuckets(t *testing.T) {
	t.Parallel()
	a := open(t)
	set, err := a.ChangeRoutes(t.Context(), storage.RouteChange{Features: []storage.Feature{{Name: "tokens", Buckets: []string{"model"}}}})
	must(t, err)
	e := tokens("acme", "e1", "5")
	key := &storage.BucketKey{Start: e.OccurredAt.Truncate(storage.BucketLength), Dimensions: map[string]string{"model": "m1"}}
	put := func(id string) {
		u := plain(tokens("acme", id, "5"))
		u.Entries[0].Bucket = key
		record(t, a, storage.RecordRequest{Units: []storage.Unit{u}, RoutesRevision: set.Revision})
	}
	put("e1")
	_, err = a.SealBuckets(t.Context(), storage.Seal{Tenant: "acme", Feature: "tokens", Before: november.AddDate(0, 1, 0)})
	must(t, err)
	put("e2")
	c := correcting("c1", "e2", "5")
	c.Bucket, c.RoutesRevision = key, set.Revision
	correct(t, a, c)
	aged(t, a, 2*day)
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneEvents}, storage.PruneResult{Removed: 3})
	const differ = `SELECT count(*) FROM
 (SELECT * FROM {schema}.fencepost_buckets WHERE projection = 1) AS a
 FULL JOIN (SELECT * FROM {schema}.fencepost_buckets WHERE projection = 0) AS p
 USING (tenant_key, feature, bucket_start, dimensions, generation)
WHERE (a.sum, a.count, a.min, a.max, a.reversed) IS DISTINCT FROM (p.sum, p.count, p.min, p.max, p.reversed)`
	var n int
	must(t, a.pools[workPool].QueryRow(t.Context(), withSchema(differ, a.target.schema)).Scan(&n))
	if got := rows(t, a, "buckets"); n != 0 || got != 4 {
		t.Errorf("%d of %d buckets differ from what was removed", n, got)
	}
}

// Q1: a CloudEvent of which the events were removed is still a duplicate, its
// body is gone; with its identities its receipt goes.
func TestPruneCloudEvents(t *testing.T) {
	t.Parallel()
	a := open(t)
	units := []storage.Unit{cloudEvent("acme", "ce1", "x", "calls", "tokens"), cloudEvent("acme", "none", "x")}
	first := record(t, a, storage.RecordRequest{Units: units})
	aged(t, a, 2*day)
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneEvents, Limit: 1}, storage.PruneResult{Removed: 1, More: true})
	body := func(id string) int {
		rc, err := a.LoadReceipt(t.Context(), storage.ReceiptKey{Tenant: "acme", ReceiptID: "4:/src" + id})
		must(t, err)
		return len(rc.Body)
	}
	if body("ce1") == 0 {
		t.Error("the body went before the last event")
	}
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneEvents}, storage.PruneResult{Removed: 1})
	if body("ce1") != 0 || body("none") == 0 {
		t.Error("the body is here, or that of another is gone")
	}
	again := record(t, a, storage.RecordRequest{Units: units})
	wantOutcomes(t, again, "duplicate ce-ce1-calls ce-ce1-tokens; duplicate")
	if again.Units[0].Entries[1] != first.Units[0].Entries[1] {
		t.Errorf("a repeat is %+v, first %+v", again.Units[0], first.Units[0])
	}
	wantOutcomes(t, record(t, a, storage.RecordRequest{Mode: storage.Each, Units: []storage.Unit{cloudEvent("acme", "ce1", "y", "calls", "tokens")}}), "conflict")
	aged(t, a, 2*day)
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneTombstones}, storage.PruneResult{Removed: 2})
	wantRows(t, a, map[string]int{"cloudevents": 0, "tombstones": 0})
	wantOutcomes(t, record(t, a, storage.RecordRequest{Units: units}), "inserted ce-ce1-calls ce-ce1-tokens; inserted")
}

// B4: batches that were applied are forgotten after a day at the earliest.
func TestPruneReceipts(t *testing.T) {
	t.Parallel()
	a := open(t)
	for i := range 3 {
		_, err := a.FlushBatch(t.Context(), storage.FlushBatch{ID: fmt.Sprint("b", i), Owner: "h"})
		must(t, err)
	}
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneReceipts}, storage.PruneResult{})
	aged(t, a, 2*day)
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneReceipts, Limit: 2}, storage.PruneResult{Removed: 2, More: true})
	wantPruned(t, a, storage.PruneRequest{Kind: storage.PruneReceipts, Limit: 1}, storage.PruneResult{Removed: 1})
	for field, req := range map[string]storage.PruneRequest{
		"kind":  {Kind: "totals", Age: day, Limit: 1},
		"age":   {Kind: storage.PruneReceipts, Age: day - 1, Limit: 1},
		"limit": {Kind: storage.PruneEvents, Age: day, Limit: 10_001},
	} {
		_, err := a.Prune(t.Context(), req)
		if e := wantTag(t, err, sdk.TagInvalid, ""); e.Field != field {
			t.Errorf("field %q, want %q", e.Field, field)
		}
	}
}

// S15: repeats that race a removal are duplicates and conflicts with proof, and
// never counted again.
func TestPruneRacesRepeats(t *testing.T) {
	t.Parallel()
	dsn, _ := pgtest.Schema(t)
	a, b := openDSN(t, dsn), openDSN(t, dsn)
	const events = 1300 // some slices
	var units, changed []storage.Unit
	for i := range events {
		units = append(units, plain(tokens("acme", fmt.Sprint("e", i), "2")))
		changed = append(changed, plain(tokens("acme", fmt.Sprint("e", i), "3")))
	}
	record(t, a, storage.RecordRequest{Units: units})
	aged(t, a, 2*day)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := w; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				n := i * 7 % (events - 10)
				res, err := b.RecordEvents(t.Context(), storage.RecordRequest{Mode: storage.Each, Units: append(append([]storage.Unit{}, units[n:n+5]...), changed[n+5:n+10]...)})
				if err != nil {
					t.Error(err)
					return
				}
				for j, u := range res.Units {
					want := storage.Duplicate
					if j >= 5 {
						want = storage.Conflict
					}
					if u.Outcome != want {
						t.Errorf("a repeat is %s, want %s", u.Outcome, want)
						return
					}
				}
			}
		})
	}
	removed, limit := int64(0), 20
	for more := true; more; {
		res := prune(t, a, storage.PruneRequest{Kind: storage.PruneEvents, Limit: limit})
		limit += 200
		removed += res.Removed
		more = res.More
	}
	close(done)
	wg.Wait()
	if removed != events {
		t.Errorf("%d of %d events are gone", removed, events)
	}
	wantTotals(t, a, "acme", "tokens 2600/1300/1300")
}

// Q25: an item that is disputed while a removal waits keeps its event.
func TestPruneWaitsForTransitions(t *testing.T) {
	t.Parallel()
	a := open(t)
	route, rev := routed(t, a)
	e := tokens("acme", "e1", "2")
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(e, itemFor(e, route, "m1"))}, RoutesRevision: rev})
	a.execScript(t, "UPDATE {schema}.fencepost_outbox_state SET state = 'accepted', settled_at = now()")
	aged(t, a, 2*day)
	tx, err := a.pools[workPool].Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), withSchema("UPDATE {schema}.fencepost_outbox_state SET settled_at = NULL", a.target.schema))
	must(t, err)
	answer := make(chan storage.PruneResult)
	go func() {
		res, err := a.Prune(t.Context(), storage.PruneRequest{Kind: storage.PruneEvents, Age: day, Limit: 10})
		if err != nil {
			t.Error(err)
		}
		answer <- res
	}()
	waits(t, a, "FOR UPDATE OF s")
	must(t, tx.Commit(t.Context()))
	if res := <-answer; res != (storage.PruneResult{Kept: 1}) {
		t.Errorf("answer %+v", res)
	}
	wantRows(t, a, map[string]int{"events": 1, "tombstones": 0, "outbox_items": 1})
}

// I1, S15: a seal, and a route, end behind what was recorded before them, also
// when retention has removed it since: in a replay it stays where it was.
func TestSealAndRouteAfterPrune(t *testing.T) {
	t.Parallel()
	a := open(t)
	record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(tokens("acme", "e1", "1")), plain(tokens("acme", "e2", "1"))}})
	last := sqlOne[int64](t, a, "SELECT max(seq) FROM {schema}.fencepost_events")
	aged(t, a, 2*day)
	if res := prune(t, a, storage.PruneRequest{Kind: storage.PruneEvents}); res.Removed != 2 {
		t.Fatalf("pruned %+v", res)
	}
	_, err := a.SealBuckets(t.Context(), storage.Seal{Tenant: "acme", Feature: "tokens", Before: november})
	must(t, err)
	if seq := sqlOne[int64](t, a, "SELECT seq FROM {schema}.fencepost_bucket_seals"); seq < last {
		t.Errorf("sealed up to seq %d, %d was recorded", seq, last)
	}
	set, err := a.ChangeRoutes(t.Context(), storage.RouteChange{
		Add: []storage.Route{{Exporter: "x", Feature: "tokens", Disposition: storage.RouteIgnore}},
	})
	must(t, err)
	if set.Routes[0].AppliesAfter < last {
		t.Errorf("the route applies after seq %d, %d was recorded", set.Routes[0].AppliesAfter, last)
	}
}
