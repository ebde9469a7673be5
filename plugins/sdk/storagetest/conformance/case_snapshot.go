package conformance

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func snapshotCases() []Case {
	needs := caps(storage.DurableEvents, storage.Buckets)
	return []Case{
		define("snapshot/counts-what-it-confirms", "Q27 G1 G2 C37 C-T25", needs, snapshotCold),
		define("snapshot/bootstrap-and-floor", "G4 C-T3 C-T6", needs, snapshotFloor),
		define("snapshot/sealed-is-confirmed-and-not-counted", "G5 I9 C34 C-T7", needs, snapshotSealed),
		define("snapshot/receipts", "G5", needs, snapshotReceipts),
		define("snapshot/filter", "Q27 C29", needs, snapshotFilter),
		define("snapshot/unknown-tenant", "F19 C-T27", needs, snapshotUnknown),
		define("snapshot/refusals", "G4", needs, snapshotRefusals),
		define("race/snapshot-versions-rise-with-what-they-saw", "G3 C-T2", needs, snapshotRace),
		define("credit/the-same-one-again", "B-T1", needs, creditAgain),
		define("credit/reset-replaces", "C-T16", needs, creditReset),
		define("credit/a-new-period-begins-with-its-credit", "C33 C-T17", needs, creditOfSeal),
	}
}

func (r *run) snapshots() storage.SnapshotStore {
	return use[storage.SnapshotStore](r, storage.Buckets)
}

func (r *run) snapshot(q storage.SnapshotQuery) storage.Snapshot {
	q.Feature, q.Reducer = cmp.Or(q.Feature, "tokens"), cmp.Or(q.Reducer, "r_1")
	s, err := r.snapshots().Snapshot(r.ctx, q)
	r.must("snapshot", err)
	slices.Sort(s.Events)
	return s
}

// snapshotLine is what a snapshot counts, in short.
func snapshotLine(s storage.Snapshot) string {
	return "sum " + s.Sum.String() + " count " + decimalInt(int(s.Count)) + " min " + optional(s.Min) + " max " + optional(s.Max)
}

// usedAt is a usage event of a time, with its bucket.
func usedAt(t, id, quantity string, when time.Time) storage.Unit {
	u := bucketed(t, id, quantity, 0, "")
	u.Entries[0].Event.OccurredAt = when
	u.Entries[0].Bucket.Start = when.Truncate(storage.BucketLength)
	return u
}

// An event at the edge is hot, the one before it is cold, and the answer
// confirms exactly what it counts. The store's edge may pass meanwhile: then the
// question is put again.
func snapshotCold(r *run) {
	for try := range 5 {
		t := r.tenant("cold" + decimalInt(try))
		edge := r.snapshot(storage.SnapshotQuery{Tenant: t}).ColdUntil
		if edge.UnixMicro()%storage.BucketLength.Microseconds() != 0 || edge.Location() != time.UTC {
			r.fatalf("cold until %s, no start of a bucket in UTC", edge)
		}
		r.putUnits(usedAt(t, "hot", "10", edge), usedAt(t, "last", "2", edge.Add(-time.Microsecond)), bucketed(t, "old", "0.5", 3, "m"))
		got := r.snapshot(storage.SnapshotQuery{Tenant: t, Events: []string{"hot", "last", "old", "never"}})
		if !got.ColdUntil.Equal(edge) {
			continue
		}
		r.same("totals", snapshotLine(got), "sum 2.5 count 2 min 0.5 max 2")
		r.same("confirmed", got.Events, []string{"last", "old"})
		if !got.Known || got.AsOf.Before(edge) || !got.AsOf.Before(edge.Add(storage.BucketLength)) || !got.WindowStart.IsZero() {
			r.errorf("%s", text(got))
		}
		return
	}
	r.errorf("the edge passed in each of five tries")
}

func snapshotFloor(r *run) {
	for try := range 5 {
		t := r.tenant("floor" + decimalInt(try))
		edge := r.snapshot(storage.SnapshotQuery{Tenant: t}).ColdUntil
		end := edge.Add(storage.BucketLength)
		r.putUnits(usedAt(t, "hot", "10", edge), usedAt(t, "ahead", "1", end))
		ids := []string{"hot", "ahead"}
		boot := r.snapshot(storage.SnapshotQuery{Tenant: t, Bootstrap: true, Events: ids})
		floor := r.snapshot(storage.SnapshotQuery{Tenant: t, ColdFloor: end, Events: ids})
		low := r.snapshot(storage.SnapshotQuery{Tenant: t, ColdFloor: edge.Add(-time.Hour), Events: ids})
		if !low.ColdUntil.Equal(edge) || !boot.ColdUntil.Equal(end) {
			continue
		}
		for what, s := range map[string]storage.Snapshot{"bootstrap": boot, "a floor": floor} {
			r.same(what, s.ColdUntil, end)
			r.same(what+" counts", snapshotLine(s), "sum 10 count 1 min 10 max 10")
			r.same(what+" confirms", s.Events, []string{"hot"})
		}
		r.same("a low floor", snapshotLine(low), "sum 0 count 0 min - max -")
		_, err := r.snapshots().Snapshot(r.ctx, storage.SnapshotQuery{Tenant: t, Feature: "tokens", Reducer: "r_1", ColdFloor: edge.Add(time.Hour)})
		r.tagIs("a floor ahead of the clock", err, sdk.TagConflict, "cold_regressed")
		return
	}
	r.errorf("the edge passed in each of five tries")
}

func snapshotSealed(r *run) {
	t := r.tenant("a")
	r.putUnits(bucketed(t, "1", "2", 0, ""), bucketed(t, "2", "3", 1, ""), bucketed(t, "3", "4", 2, ""))
	before := period.Add(2 * storage.BucketLength)
	_, err := r.bucketStore().SealBuckets(r.ctx, storage.Seal{Tenant: t, Feature: "tokens", Before: before})
	r.must("seal", err)
	r.putUnits(bucketed(t, "late", "50", 0, ""))
	got := r.snapshot(storage.SnapshotQuery{Tenant: t, Events: []string{"1", "2", "3", "late"}})
	r.same("totals", snapshotLine(got), "sum 54 count 2 min 4 max 50")
	r.same("confirmed", got.Events, []string{"1", "2", "3", "late"})
	r.same("window", got.WindowStart, before)
	_, err = r.bucketStore().SealBuckets(r.ctx, storage.Seal{Tenant: t, Feature: "tokens", Before: before.Add(storage.BucketLength)})
	r.must("seal", err)
	r.same("sealed further", snapshotLine(r.snapshot(storage.SnapshotQuery{Tenant: t})), "sum 0 count 0 min - max -")
}

func snapshotReceipts(r *run) {
	t := r.tenant("a")
	r.putUnits(delivery(t, "d1", "3", "tokens"), delivery(t, "d2", "3"))
	got := r.snapshot(storage.SnapshotQuery{Tenant: t, Receipts: []string{"4:/srcd1", "4:/srcd2", "4:/srcd3"}, Events: []string{"4:/srcd1"}})
	slices.Sort(got.Receipts)
	r.same("receipts, of what fed nothing, too", got.Receipts, []string{"4:/srcd1", "4:/srcd2"})
	r.same("an id of a receipt is none of an event", got.Events, []string{})
}

func snapshotFilter(r *run) {
	t, feature := r.tenant("a"), r.prefix+"-feature"
	if r.manifest.Has(storage.Outbox) {
		_, err := r.change(storage.RouteChange{Features: []storage.Feature{{Name: feature, Buckets: []string{"model"}}}})
		r.must("declare the feature", err)
	}
	unit := func(id, quantity string, bucket int, model string) storage.Unit {
		u := bucketed(t, id, quantity, bucket, model)
		u.Entries[0].Event.Feature = feature
		return u
	}
	r.putUnits(unit("1", "2", 0, "m1"), unit("2", "3", 1, "m2"), unit("3", "4", 1, ""), unit("4", "5", 9, "m1"))
	q := storage.SnapshotQuery{Tenant: t, Feature: feature, Filter: map[string]string{"model": "m1"}, Events: []string{"1", "2"}}
	got := r.snapshot(q)
	r.same("totals", snapshotLine(got), "sum 7 count 2 min 2 max 5")
	r.same("what the filter leaves out is confirmed", got.Events, []string{"1", "2"})
	q.Filter = nil
	r.same("all", snapshotLine(r.snapshot(q)), "sum 14 count 4 min 2 max 5")
}

func snapshotUnknown(r *run) {
	t := r.tenant("nobody")
	got := r.snapshot(storage.SnapshotQuery{Tenant: t, Meters: []string{"m1", "m2"}, Events: []string{"1"}})
	r.same("zeros", snapshotLine(got), "sum 0 count 0 min - max -")
	r.same("known", got.Known, false)
	r.same("credits", got.Credited, []storage.MeterCredit{{Meter: "m1"}, {Meter: "m2"}})
	r.same("lists", len(got.Events)+len(got.Receipts), 0)
}

func snapshotRefusals(r *run) {
	t := r.tenant("a")
	good := storage.SnapshotQuery{Tenant: t, Feature: "tokens", Reducer: "r"}
	for what, change := range map[string]func(*storage.SnapshotQuery){
		"no tenant":              func(q *storage.SnapshotQuery) { q.Tenant = "" },
		"no feature":             func(q *storage.SnapshotQuery) { q.Feature = "" },
		"no reducer":             func(q *storage.SnapshotQuery) { q.Reducer = "" },
		"a long reducer":         func(q *storage.SnapshotQuery) { q.Reducer = string(make([]byte, 129)) },
		"many meters":            func(q *storage.SnapshotQuery) { q.Meters = make([]string, 101) },
		"many ids":               func(q *storage.SnapshotQuery) { q.Events, q.Receipts = make([]string, 600), make([]string, 401) },
		"a floor in a bucket":    func(q *storage.SnapshotQuery) { q.ColdFloor = period.Add(time.Second) },
		"a floor between micros": func(q *storage.SnapshotQuery) { q.ColdFloor = period.Add(time.Millisecond) },
	} {
		q := good
		change(&q)
		_, err := r.snapshots().Snapshot(r.ctx, q)
		r.tagIs(what, err, sdk.TagInvalid, "")
	}
	for what, c := range map[string]storage.Credit{
		"no meter":   {Tenant: t, ID: "1", Kind: storage.CreditGrant},
		"no id":      {Tenant: t, Meter: "m", Kind: storage.CreditGrant},
		"no tenant":  {Meter: "m", ID: "1", Kind: storage.CreditGrant},
		"other kind": {Tenant: t, Meter: "m", ID: "1", Kind: "gift"},
	} {
		_, err := r.snapshots().AddCredit(r.ctx, c)
		r.tagIs(what, err, sdk.TagInvalid, "")
	}
	_, err := r.snapshots().Credits(r.ctx, storage.CreditQuery{Tenant: t})
	r.tagIs("no limit", err, sdk.TagInvalid, "")
}

// Those that have a higher version have seen what those below it have, however
// many ask and record at once.
func snapshotRace(r *run) {
	t := r.tenant("a")
	var mu sync.Mutex
	var all []storage.Snapshot
	const recorders, askers = 3, 3
	r.together(recorders+askers, func(w int) {
		for i := range r.opts.Rounds {
			if w < recorders {
				if _, err := r.try([]storage.Unit{bucketed(t, decimalInt(w)+"-"+decimalInt(i), "1", i%7, "")}, storage.Atomic); err != nil {
					r.errorf("record: %v", err)
				}
				continue
			}
			s, err := r.snapshots().Snapshot(r.ctx, storage.SnapshotQuery{Tenant: t, Feature: "tokens", Reducer: "r_1"})
			if err != nil {
				r.errorf("snapshot: %v", err)
			}
			mu.Lock()
			all = append(all, s)
			mu.Unlock()
		}
	})
	slices.SortFunc(all, func(a, b storage.Snapshot) int { return cmp.Compare(a.Version, b.Version) })
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.Version == b.Version || b.Count < a.Count || b.ColdUntil.Before(a.ColdUntil) {
			r.fatalf("version %d saw %d events until %s, version %d saw %d until %s", a.Version, a.Count, a.ColdUntil, b.Version, b.Count, b.ColdUntil)
		}
	}
	r.same("at the end", snapshotLine(r.snapshot(storage.SnapshotQuery{Tenant: t})), "sum "+decimalInt(recorders*r.opts.Rounds)+" count "+decimalInt(recorders*r.opts.Rounds)+" min 1 max 1")
}

func (r *run) credit(t, meter, id string, kind storage.CreditKind, amount string) storage.Credit {
	c, err := r.snapshots().AddCredit(r.ctx, storage.Credit{Tenant: t, Meter: meter, ID: id, Kind: kind, Amount: dec(amount), Reason: "paid"})
	r.must("add a credit", err)
	return c
}

func (r *run) credited(t string, meters ...string) []string {
	var list []string
	for _, m := range r.snapshot(storage.SnapshotQuery{Tenant: t, Meters: meters}).Credited {
		list = append(list, m.Meter+" "+m.Amount.String())
	}
	return list
}

func creditAgain(r *run) {
	t := r.tenant("a")
	first := r.credit(t, "m", "1", storage.CreditGrant, "10.5")
	if first.Seq < 1 || first.CreatedAt.IsZero() || first.CreatedAt.Location() != time.UTC || first.Reason != "paid" {
		r.errorf("%s", text(first))
	}
	r.same("the same again", r.credit(t, "m", "1", storage.CreditGrant, "10.5"), first)
	r.credit(t, "other", "1", storage.CreditGrant, "7")
	r.credit(r.tenant("b"), "m", "1", storage.CreditGrant, "1000")
	r.same("amounts", r.credited(t, "other", "m", "none"), []string{"other 7", "m 10.5", "none 0"})
	for what, c := range map[string]storage.Credit{
		"another amount": {Kind: storage.CreditGrant, Amount: dec("11"), Reason: "paid"},
		"another kind":   {Kind: storage.CreditReset, Amount: dec("10.5"), Reason: "paid"},
		"another reason": {Kind: storage.CreditGrant, Amount: dec("10.5")},
	} {
		c.Tenant, c.Meter, c.ID = t, "m", "1"
		_, err := r.snapshots().AddCredit(r.ctx, c)
		r.tagIs(what, err, sdk.TagConflict, "credit_exists")
	}
	q := storage.CreditQuery{Tenant: t, Limit: 1}
	var ids []string
	for range 5 {
		page, err := r.snapshots().Credits(r.ctx, q)
		r.must("credits", err)
		for _, c := range page.Credits {
			ids = append(ids, c.Meter+"/"+c.ID)
		}
		if q.After = page.Next; !page.More {
			break
		}
	}
	r.same("pages", ids, []string{"m/1", "other/1"})
	q = storage.CreditQuery{Tenant: t, Meter: "other", Limit: 9}
	page, err := r.snapshots().Credits(r.ctx, q)
	r.must("credits of a meter", err)
	r.same("credits of a meter", len(page.Credits), 1)
}

func creditReset(r *run) {
	t := r.tenant("a")
	r.credit(t, "m", "1", storage.CreditGrant, "10")
	r.credit(t, "m", "2", storage.CreditGrant, "-2.5")
	r.same("grants add up", r.credited(t, "m"), []string{"m 7.5"})
	r.credit(t, "m", "3", storage.CreditReset, "100")
	r.credit(t, "m", "4", storage.CreditGrant, "1")
	r.same("since the reset", r.credited(t, "m"), []string{"m 101"})
	r.credit(t, "m", "5", storage.CreditReset, "0")
	r.same("to zero", r.credited(t, "m"), []string{"m 0"})
}

// A seal and the credit of the new period are one transaction, and happen once.
func creditOfSeal(r *run) {
	t := r.tenant("a")
	r.putUnits(bucketed(t, "1", "30", 0, ""))
	r.credit(t, "m", "start", storage.CreditReset, "100")
	seal := storage.Seal{
		Tenant: t, Feature: "tokens", Before: period.Add(storage.BucketLength),
		Credits: []storage.Credit{{Tenant: t, Meter: "m", ID: "renewed", Kind: storage.CreditReset, Amount: dec("50"), Reason: "period"}},
	}
	// Whoever asks meanwhile sees both or neither.
	var seen []string
	r.together(2, func(w int) {
		if w == 0 {
			if _, err := r.bucketStore().SealBuckets(r.ctx, seal); err != nil {
				r.errorf("seal: %v", err)
			}
			return
		}
		for range 20 {
			s, err := r.snapshots().Snapshot(r.ctx, storage.SnapshotQuery{Tenant: t, Feature: "tokens", Reducer: "r_1", Meters: []string{"m"}})
			if err != nil {
				r.errorf("snapshot: %v", err)
				return
			}
			seen = append(seen, s.Sum.String()+" of "+s.Credited[0].Amount.String())
		}
	})
	for _, s := range seen {
		if s != "30 of 100" && s != "0 of 50" {
			r.errorf("seen: %s", s)
		}
	}
	seal.Credits[0].ID, seal.Credits[0].Kind = "renewed twice", storage.CreditGrant
	again, err := r.bucketStore().SealBuckets(r.ctx, seal)
	r.must("seal again", err)
	r.same("credits of an answer", len(again.Credits), 0)
	r.same("sealed again", r.credited(t, "m"), []string{"m 50"})
	r.same("used of it", r.snapshot(storage.SnapshotQuery{Tenant: t}).Sum, decimal.Decimal{})
	last, err := r.snapshots().LastSeals(r.ctx, "tokens", []string{t, r.tenant("nobody")})
	r.must("last seals", err)
	if len(last) != 1 || last[0].Tenant != t || last[0].Feature != "tokens" || !last[0].Before.Equal(seal.Before) || last[0].Generation != 1 || last[0].SealedAt.IsZero() {
		r.errorf("the last seal: %s", text(last))
	}
	seal.Before, seal.Credits[0].Tenant = seal.Before.Add(storage.BucketLength), r.tenant("b")
	_, err = r.bucketStore().SealBuckets(r.ctx, seal)
	r.tagIs("a credit of another tenant", err, sdk.TagInvalid, "")
	seal.Credits = []storage.Credit{{Tenant: t, Meter: "m", ID: "start", Kind: storage.CreditGrant, Amount: dec("1")}}
	_, err = r.bucketStore().SealBuckets(r.ctx, seal)
	r.tagIs("a credit that is another one", err, sdk.TagConflict, "credit_exists")
	r.same("nothing of a refused seal", r.snapshot(storage.SnapshotQuery{Tenant: t}).WindowStart, period.Add(storage.BucketLength))
}
