package conformance

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func bucketCases() []Case {
	needs := caps(storage.DurableEvents, storage.Buckets)
	correct := append(corrective(), storage.Buckets)
	return []Case{
		define("bucket/sums", "Q27 S8", needs, bucketSums),
		define("bucket/only-inserted-events-count", "Q27 B16 B17", needs, bucketInsertedOnly),
		define("bucket/seal-starts-a-generation", "Q27 C34", needs, bucketSeal),
		define("bucket/pages", "Q27", needs, bucketPages),
		define("bucket/correction-marks-reversed", "Q27 Q8", correct, bucketCorrection),
		define("bucket/aggregate", "Q27", needs, bucketAggregate),
		define("race/buckets-add-up", "Q27 B35", needs, bucketRace),
	}
}

func (r *run) bucketStore() storage.BucketStore {
	return use[storage.BucketStore](r, storage.Buckets)
}

// bucketed is a usage event in the given bucket after the start of the period.
func bucketed(t, id, quantity string, bucket int, model string) storage.Unit {
	e := usage(t, id, quantity)
	e.OccurredAt = period.Add(time.Duration(bucket)*storage.BucketLength + time.Second)
	key := storage.BucketKey{Start: period.Add(time.Duration(bucket) * storage.BucketLength)}
	if model != "" {
		e.Dimensions = map[string]string{"model": model, "other": id}
		key.Dimensions = map[string]string{"model": model}
	}
	u := storage.Entry{Event: e, Bucket: &key, Signed: e.Quantity.Sign() < 0}
	return storage.Unit{Entries: []storage.Entry{u}}
}

func (r *run) buckets(q storage.BucketQuery) []storage.Bucket {
	if q.Feature == "" {
		q.Feature = "tokens"
	}
	if q.From.IsZero() {
		q.From, q.To = period, period.AddDate(0, 1, 0)
	}
	if q.Limit == 0 {
		q.Limit = 1000
	}
	page, err := r.bucketStore().LoadBuckets(r.ctx, q)
	r.must("load buckets", err)
	all := page.Buckets
	for i := 1; i < len(all); i++ {
		a, b := &all[i-1], &all[i]
		if b.Start.Before(a.Start) || b.Start.Equal(a.Start) && text(a.Dimensions) == text(b.Dimensions) && b.Generation <= a.Generation {
			r.errorf("bucket %s comes after %s", bucketLine(*b), bucketLine(*a))
		}
	}
	// The order of dimensions within one start is the adapter's.
	slices.SortStableFunc(all, func(a, b storage.Bucket) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(flat(a.Dimensions), flat(b.Dimensions)), cmp.Compare(a.Generation, b.Generation))
	})
	return all
}

// bucketLine is a bucket in short.
func bucketLine(b storage.Bucket) string {
	at := int(b.Start.Sub(period) / storage.BucketLength)
	line := decimalInt(at) + " " + b.Dimensions["model"] + " g" + decimalInt(b.Generation) + " sum " + b.Sum.String() +
		" count " + decimalInt(int(b.Count))
	if !b.Reversed {
		line += " min " + optional(b.Min) + " max " + optional(b.Max)
	} else {
		line += " reversed"
	}
	if b.Sealed {
		line += " sealed"
	}
	return line
}

func optional(d *decimal.Decimal) string {
	if d == nil {
		return "-"
	}
	return d.String()
}

func bucketLines(all []storage.Bucket) []string {
	lines := make([]string, len(all))
	for i := range all {
		lines[i] = bucketLine(all[i])
	}
	return lines
}

func bucketSums(r *run) {
	t := r.tenant("a")
	r.putUnits(bucketed(t, "1", "2", 0, "m1"), bucketed(t, "2", "-0.5", 0, "m1"), bucketed(t, "3", "7", 0, "m2"),
		bucketed(t, "4", "1", 0, ""), bucketed(t, "5", "10", 3, "m1"))
	r.putUnits(bucketed(t, "6", "5", 0, "m1"))
	r.put(func() storage.Event { e := usage(t, "7", "100"); e.Feature = "unbucketed"; return e }())
	want := []string{
		"0  g1 sum 1 count 1 min 1 max 1", "0 m1 g1 sum 6.5 count 3 min -0.5 max 5",
		"0 m2 g1 sum 7 count 1 min 7 max 7", "3 m1 g1 sum 10 count 1 min 10 max 10",
	}
	got := r.buckets(storage.BucketQuery{Tenant: t})
	r.same("buckets", bucketLines(got), want)
	for _, b := range got {
		if b.Tenant != t || b.Feature != "tokens" || b.Start.Location() != time.UTC {
			r.errorf("bucket %s: tenant, feature or zone", text(b))
		}
	}
	r.same("another tenant", len(r.buckets(storage.BucketQuery{Tenant: r.tenant("b")})), 0)
	r.same("a feature without buckets", len(r.buckets(storage.BucketQuery{Tenant: t, Feature: "unbucketed"})), 0)
}

func bucketInsertedOnly(r *run) {
	t := r.tenant("a")
	r.putUnits(bucketed(t, "1", "2", 0, "m1"))
	again, other := bucketed(t, "1", "2", 0, "m1"), bucketed(t, "1", "3", 0, "m1")
	got := r.record(storage.Each, again, bucketed(t, "2", "5", 0, "m1"))
	r.same("outcomes", outcomes(got), []storage.Outcome{storage.Duplicate, storage.Inserted})
	got = r.record(storage.Atomic, bucketed(t, "3", "9", 1, "m1"), other)
	r.same("outcomes", outcomes(got), []storage.Outcome{"", storage.Conflict})
	r.same("buckets", bucketLines(r.buckets(storage.BucketQuery{Tenant: t})), []string{"0 m1 g1 sum 7 count 2 min 2 max 5"})
}

// A sealed generation never changes; what comes late starts another, and the
// sum over them is the bucket.
func bucketSeal(r *run) {
	t := r.tenant("a")
	seal := func(bucket int) storage.Seal {
		s, err := r.bucketStore().SealBuckets(r.ctx, storage.Seal{
			Tenant: t, Feature: "tokens", Before: period.Add(time.Duration(bucket) * storage.BucketLength),
		})
		r.must("seal", err)
		return s
	}
	r.putUnits(bucketed(t, "1", "2", 0, ""), bucketed(t, "2", "3", 1, ""), bucketed(t, "3", "4", 2, ""))
	first := seal(2)
	if first.Generation != 1 || first.SealedAt.IsZero() {
		r.errorf("the first seal: %s, want generation 1 and a time", text(first))
	}
	want := []string{
		"0  g1 sum 2 count 1 min 2 max 2 sealed", "1  g1 sum 3 count 1 min 3 max 3 sealed", "2  g1 sum 4 count 1 min 4 max 4",
	}
	r.same("after the seal", bucketLines(r.buckets(storage.BucketQuery{Tenant: t})), want)
	r.putUnits(bucketed(t, "4", "50", 0, ""), bucketed(t, "5", "60", 2, ""))
	want = []string{
		want[0], "0  g2 sum 50 count 1 min 50 max 50", want[1], "2  g1 sum 64 count 2 min 4 max 60",
	}
	r.same("late usage", bucketLines(r.buckets(storage.BucketQuery{Tenant: t})), want)
	seal(2)
	seal(1)
	r.same("sealed again", bucketLines(r.buckets(storage.BucketQuery{Tenant: t})), want)
	r.same("unsealed ones", bucketLines(r.buckets(storage.BucketQuery{Tenant: t, Unsealed: true})), []string{want[1], want[3]})
	seal(3)
	r.putUnits(bucketed(t, "6", "1", 0, ""), bucketed(t, "7", "1", 2, ""))
	want = []string{
		want[0], want[1] + " sealed", "0  g3 sum 1 count 1 min 1 max 1", want[2], want[3] + " sealed", "2  g2 sum 1 count 1 min 1 max 1",
	}
	r.same("sealed further", bucketLines(r.buckets(storage.BucketQuery{Tenant: t})), want)
}

func bucketPages(r *run) {
	t := r.tenant("a")
	var all []storage.Unit
	for i := range 9 {
		all = append(all, bucketed(t, decimalInt(i), "1", i/2, "m"+decimalInt(i%2)))
	}
	r.putUnits(all...)
	q := storage.BucketQuery{
		Tenant: t, Feature: "tokens", From: period, To: period.Add(4 * storage.BucketLength), Limit: 3,
	}
	var got []storage.Bucket
	for {
		page, err := r.bucketStore().LoadBuckets(r.ctx, q)
		r.must("load buckets", err)
		got = append(got, page.Buckets...)
		q.Position += len(page.Buckets)
		if !page.More {
			break
		}
		if len(page.Buckets) != q.Limit {
			r.fatalf("a page of %d, limit %d, and more to come", len(page.Buckets), q.Limit)
		}
	}
	q.Position, q.Limit = 0, 1000
	whole, err := r.bucketStore().LoadBuckets(r.ctx, q)
	r.must("load buckets", err)
	r.same("pages of a half-open range", got, whole.Buckets)
	r.same("their number", len(got), 8)
}

func bucketCorrection(r *run) {
	t := r.tenant("a")
	u := bucketed(t, "1", "10", 0, "m1")
	e := u.Entries[0].Event
	r.putUnits(u, bucketed(t, "2", "3", 0, "m1"), bucketed(t, "3", "4", 1, "m1"))
	req := r.correctRequest(correction(&e, "c1", "4"))
	req.Bucket = u.Entries[0].Bucket
	r.same("a part", r.correct(req).Outcome, storage.Inserted)
	r.same("buckets", bucketLines(r.buckets(storage.BucketQuery{Tenant: t})),
		[]string{"0 m1 g1 sum 9 count 2 reversed", "1 m1 g1 sum 4 count 1 min 4 max 4"})
	req = r.correctRequest(correction(&e, "c2", "6"))
	req.Bucket = u.Entries[0].Bucket
	r.same("the rest", r.correct(req).Outcome, storage.Inserted)
	r.same("buckets", bucketLines(r.buckets(storage.BucketQuery{Tenant: t})),
		[]string{"0 m1 g1 sum 3 count 1 reversed", "1 m1 g1 sum 4 count 1 min 4 max 4"})
	q := storage.AggregateQuery{
		Tenant: t, Feature: "tokens", Limit: 10,
		Edges: []time.Time{period, period.Add(storage.BucketLength), period.Add(2 * storage.BucketLength)},
	}
	got, err := r.bucketStore().AggregateBuckets(r.ctx, q)
	r.must("aggregate", err)
	r.same("sums", rowLines(got.Rows), []string{"0 [] sum 3 count 1", "1 [] sum 4 count 1"})
	q.Extremes = true
	_, err = r.bucketStore().AggregateBuckets(r.ctx, q)
	r.tagIs("extremes where an event was corrected", err, sdk.TagUnsupported, "reversed")
	q.Edges = q.Edges[1:]
	got, err = r.bucketStore().AggregateBuckets(r.ctx, q)
	r.must("extremes elsewhere", err)
	r.same("extremes", rowLines(got.Rows), []string{"0 [] sum 4 count 1 min 4 max 4"})
}

func bucketAggregate(r *run) {
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
	r.putUnits(unit("1", "2", 0, "m1"), unit("2", "3", 1, "m1"), unit("3", "4", 1, "m2"), unit("4", "5", 1, ""), unit("5", "6", 12, "m1"))
	_, err := r.bucketStore().SealBuckets(r.ctx, storage.Seal{Tenant: t, Feature: feature, Before: period.Add(time.Hour)})
	r.must("seal", err)
	r.putUnits(unit("6", "10", 1, "m1"))
	q := storage.AggregateQuery{
		Tenant: t, Feature: feature, GroupBy: []string{"model"}, Limit: 10,
		Edges: []time.Time{period, period.Add(time.Hour), period.Add(2 * time.Hour)},
	}
	ask := func(what string, want ...string) {
		got, err := r.bucketStore().AggregateBuckets(r.ctx, q)
		r.must(what, err)
		r.same(what, rowLines(got.Rows), want)
	}
	ask("by hour and dimension, over generations", `0 [-] sum 5 count 1`, `0 [m1] sum 15 count 3`, `0 [m2] sum 4 count 1`, `1 [m1] sum 6 count 1`)
	q.Filter = map[string]string{"model": "m1"}
	ask("with a filter", `0 [m1] sum 15 count 3`, `1 [m1] sum 6 count 1`)
	q.Filter, q.GroupBy, q.Extremes = nil, nil, true
	ask("with extremes", `0 [] sum 24 count 5 min 2 max 10`, `1 [] sum 6 count 1 min 6 max 6`)
	q.Unique = "model"
	_, err = r.bucketStore().AggregateBuckets(r.ctx, q)
	r.tagIs("distinct values", err, sdk.TagUnsupported, "")
}

func bucketRace(r *run) {
	t := r.tenant("a")
	const workers, buckets = 6, 10
	r.together(workers, func(w int) {
		for i := range r.opts.Rounds {
			var all []storage.Unit
			for b := range buckets {
				at := b
				if w%2 == 1 {
					at = buckets - 1 - b
				}
				all = append(all, bucketed(t, decimalInt(100+b)+"-"+decimalInt(w)+"-"+decimalInt(i), "0.1", at, "m"))
			}
			if _, err := r.try(all, storage.Atomic); err != nil {
				r.errorf("record: %v", err)
			}
		}
	})
	n := workers * r.opts.Rounds
	want := dec(decimalInt(n) + "e-1")
	got := r.buckets(storage.BucketQuery{Tenant: t})
	r.same("buckets", len(got), buckets)
	for _, b := range got {
		r.same("sum and count", []any{b.Sum, b.Count}, []any{want, n})
	}
}

// cloneKey copies a bucket's key.
func cloneKey(k *storage.BucketKey) *storage.BucketKey {
	if k == nil {
		return nil
	}
	return &storage.BucketKey{Start: k.Start, Dimensions: maps.Clone(k.Dimensions)}
}
