package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func at(minutes int) time.Time { return november.Add(time.Duration(minutes) * time.Minute) }

func model(name string) map[string]string { return map[string]string{"model": name} }

func seal(t testing.TB, a *Adapter, before time.Time) storage.Seal {
	t.Helper()
	s, err := a.SealBuckets(t.Context(), storage.Seal{Tenant: "t1", Feature: "calls", Before: before})
	must(t, err)
	return s
}

// bucketLines are the buckets of t1's calls, one line each.
func bucketLines(t testing.TB, a *Adapter, change func(*storage.BucketQuery)) (lines []string) {
	t.Helper()
	q := storage.BucketQuery{Tenant: "t1", Feature: "calls", From: at(-10_000), To: at(10_000), Limit: 2}
	if change != nil {
		change(&q)
	}
	for {
		page, err := a.LoadBuckets(t.Context(), q)
		must(t, err)
		for _, b := range page.Buckets {
			low, high := "-", "-"
			if b.Min != nil {
				low = b.Min.String()
			}
			if b.Max != nil {
				high = b.Max.String()
			}
			line := fmt.Sprintf("%d %s g%d sum %s count %d %s..%s", int(b.Start.Sub(november).Minutes()), b.Dimensions["model"],
				b.Generation, b.Sum, b.Count, low, high)
			if b.Sealed {
				line += " sealed"
			}
			if b.Reversed {
				line += " reversed"
			}
			lines = append(lines, line)
		}
		if q.Position += len(page.Buckets); !page.More {
			return lines
		}
	}
}

func wantLines(t testing.TB, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A sealed generation never changes; late usage goes to the next; a seal that
// covers less than one before changes nothing and is answered with that one
// (Q27, I9).
func TestBucketSeals(t *testing.T) {
	t.Parallel()
	a := open(t)
	ctx := t.Context()
	record := func(id, quantity string, minute int, name string) {
		t.Helper()
		must(t, recordUsage(ctx, a, usageOf("t1", id, quantity, at(minute), model(name))))
	}
	record("e1", "1", 2, "a")
	record("e2", "2.5", 4, "a")
	record("e3", "4", 4, "b")
	record("e4", "8", 5, "a") // the next bucket begins with its start
	first := seal(t, a, at(5))
	if first.Generation != 1 || !first.Before.Equal(at(5)) || first.SealedAt.IsZero() || first.Tenant != "t1" {
		t.Errorf("first seal: %+v", first)
	}
	sealed := []string{"0 a g1 sum 3.5 count 2 1..2.5 sealed", "0 b g1 sum 4 count 1 4..4 sealed"}
	wantLines(t, bucketLines(t, a, nil), append(sealed, "5 a g1 sum 8 count 1 8..8")...)

	record("late", "16", 3, "a")
	record("e5", "32", 6, "a")
	wantLines(t, bucketLines(t, a, nil), sealed[0], "0 a g2 sum 16 count 1 16..16", sealed[1], "5 a g1 sum 40 count 2 8..32")
	wantLines(t, bucketLines(t, a, func(q *storage.BucketQuery) { q.Unsealed = true }),
		"0 a g2 sum 16 count 1 16..16", "5 a g1 sum 40 count 2 8..32")
	wantLines(t, bucketLines(t, a, func(q *storage.BucketQuery) { q.From, q.To = at(5), at(10) }), "5 a g1 sum 40 count 2 8..32")
	wantLines(t, bucketLines(t, a, func(q *storage.BucketQuery) { q.To = at(0) }))

	for _, before := range []time.Time{at(5), at(4), at(-60)} {
		if diff := cmp.Diff(first, seal(t, a, before)); diff != "" {
			t.Errorf("sealed again: %s", diff)
		}
	}
	second := seal(t, a, at(10))
	if second.Generation != 2 || !second.Before.Equal(at(10)) {
		t.Errorf("second seal: %+v", second)
	}
	if diff := cmp.Diff(first, seal(t, a, at(5))); diff != "" {
		t.Errorf("a late repetition of the first: %s", diff)
	}
	record("later", "64", 3, "a")
	record("late too", "128", 8, "a")
	lines := bucketLines(t, a, nil)
	wantLines(t, lines, sealed[0], "0 a g2 sum 16 count 1 16..16 sealed", "0 a g3 sum 64 count 1 64..64", sealed[1],
		"5 a g1 sum 40 count 2 8..32 sealed", "5 a g2 sum 128 count 1 128..128")

	// A rebuild puts each event where it was. Bucket deltas name the event.
	begin(t, a)
	record("during", "256", 3, "a")
	must(t, replay(ctx, a, 2, func() error { return nil }))
	lines[2] = "0 a g3 sum 320 count 2 64..256"
	wantLines(t, bucketLines(t, a, nil), lines...)

	if _, err := a.SealBuckets(ctx, storage.Seal{Tenant: "t1", Feature: "calls"}); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("without a time: %v", err)
	}
	if _, err := a.LoadBuckets(ctx, storage.BucketQuery{Tenant: "t1", Limit: 1, Position: -1}); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("before the first: %v", err)
	}
}

// The buckets that retention set aside are in a build from its start.
func TestBucketsOfPrunedEvents(t *testing.T) {
	t.Parallel()
	a := open(t)
	must(t, recordUsage(t.Context(), a, usageOf("t1", "e1", "1", at(2), model("a"))))
	sqlExec(t, a, `INSERT INTO {schema}.fencepost_buckets
SELECT tenant_key, feature, bucket_start, dimensions, generation, 0, 5, 3, 0.5, 4, false FROM {schema}.fencepost_buckets`)
	wantLines(t, bucketLines(t, a, nil), "0 a g1 sum 1 count 1 1..1")
	begin(t, a)
	must(t, replay(t.Context(), a, 10, func() error { return nil }))
	wantLines(t, bucketLines(t, a, nil), "0 a g1 sum 6 count 4 0.5..4")
}

// While buckets are sealed again and again nothing is lost between generations:
// their sums are those of the events (I9).
func TestBucketsUnderSeals(t *testing.T) {
	t.Parallel()
	a := open(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l := &load{a: a, turns: make(chan struct{}), failed: make(chan error, 8)}
	for w := range 3 {
		l.loop(ctx, func(r *rand.Rand, n int) error {
			e := usageOf("t1", fmt.Sprintf("e%d.%d", w, n), strconv.Itoa(1+r.IntN(9)), at(r.IntN(60)), model("a"))
			if err := recordUsage(ctx, a, e); err != nil {
				return err
			}
			l.usage.Store(e.EventID, e)
			return nil
		})
	}
	l.loop(ctx, func(r *rand.Rand, n int) error { return l.correct(ctx, r, "c"+strconv.Itoa(n)) })
	sealedLines := map[string]string{}
	for n := range 12 {
		for range 8 {
			select {
			case l.turns <- struct{}{}:
			case err := <-l.failed:
				t.Fatal(err)
			}
		}
		if n == 6 { // from here on a build is written to as well
			begin(t, a)
		}
		seal(t, a, at(5*n))
		if off := bucketsOffEvents(t, a); len(off) > 0 {
			t.Fatalf("after seal %d: %v", n, off)
		}
		for key, line := range sealedBuckets(t, a) {
			if before, ok := sealedLines[key]; ok && before != line {
				t.Fatalf("a sealed generation changed: %s: %s became %s", key, before, line)
			}
			sealedLines[key] = line
		}
	}
	stop()
	l.wg.Wait()
	must(t, replay(t.Context(), a, 7, func() error { return nil }))
	if off := bucketsOffEvents(t, a); len(off) > 0 {
		t.Errorf("after the rebuild: %v", off)
	}
	for key, line := range sealedBuckets(t, a) {
		if sealedLines[key] != "" && sealedLines[key] != line {
			t.Errorf("the rebuild changed a sealed generation: %s: %s became %s", key, sealedLines[key], line)
		}
	}
	if len(sealedLines) == 0 {
		t.Error("nothing was sealed")
	}
}

func sums(t testing.TB, a *Adapter, text string) map[string]string {
	t.Helper()
	rows, err := a.pools[workPool].Query(t.Context(), withSchema(text, a.target.schema))
	must(t, err)
	all := map[string]string{}
	var key, line string
	_, err = pgx.ForEachRow(rows, []any{&key, &line}, func() error {
		all[key] = line
		return nil
	})
	must(t, err)
	return all
}

// bucketsOffEvents are the buckets whose generations do not add up to their
// events, in one snapshot.
func bucketsOffEvents(t testing.TB, a *Adapter) map[string]string {
	t.Helper()
	return sums(t, a, `
WITH e AS (
  SELECT date_bin('5 minutes', occurred_at, 'epoch') AS start, sum(effect) AS sum,
    count(*) FILTER (WHERE kind = 'usage') - count(*) FILTER (WHERE reverses) AS count
  FROM {schema}.fencepost_events GROUP BY 1
), b AS (
  SELECT bucket_start AS start, sum(sum) AS sum, sum(count) AS count FROM {schema}.fencepost_buckets
  WHERE projection = (SELECT active FROM {schema}.fencepost_generations) GROUP BY 1
)
SELECT start::text, format('events %s (%s), buckets %s (%s)', e.sum, e.count, b.sum, b.count)
FROM e FULL JOIN b USING (start) WHERE (e.sum, e.count) IS DISTINCT FROM (b.sum, b.count)`)
}

func sealedBuckets(t testing.TB, a *Adapter) map[string]string {
	t.Helper()
	return sums(t, a, `SELECT b.bucket_start || ' g' || b.generation, (b.sum, b.count, b.min, b.max, b.reversed)::text
FROM {schema}.fencepost_buckets AS b WHERE b.projection = (SELECT active FROM {schema}.fencepost_generations)
  AND b.generation <= (SELECT count(*) FROM {schema}.fencepost_bucket_seals AS s WHERE s.before > b.bucket_start)`)
}

// Buckets answer what events answer, and refuse what they do not know.
func TestAggregateBuckets(t *testing.T) {
	t.Parallel()
	a := open(t)
	ctx := t.Context()
	sqlExec(t, a, `INSERT INTO {schema}.fencepost_features (feature, signed, buckets, updated_at, revision) VALUES ('calls', false, '{model}', now(), 1)`)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		d := model(string(rune('a' + r.IntN(3))))
		if i%7 == 0 {
			d = nil
		}
		must(t, recordUsage(ctx, a, usageOf("t1", "e"+strconv.Itoa(i), strconv.Itoa(r.IntN(100))+".25", at(r.IntN(180)), d)))
		if i%20 == 10 {
			seal(t, a, at(i)) // generations add up
		}
	}
	q := storage.AggregateQuery{
		Tenant: "t1", Feature: "calls", Edges: []time.Time{at(-60), at(0), at(35), at(60), at(120)}, Limit: 100, Extremes: true,
	}
	for _, groups := range [][]string{nil, {"model"}} {
		for _, filter := range []map[string]string{nil, model("b")} {
			q.GroupBy, q.Filter = groups, filter
			want, err := a.Aggregate(ctx, q)
			must(t, err)
			for i := range want.Rows {
				want.Rows[i].Latest = nil // buckets do not know it
			}
			got, err := a.AggregateBuckets(ctx, q)
			must(t, err)
			if diff := cmp.Diff(want, got, decimals); diff != "" || len(got.Rows) == 0 {
				t.Errorf("by %v, where %v: %s", groups, filter, diff)
			}
		}
	}
	q.GroupBy, q.Filter, q.Limit = nil, nil, 2
	if got, err := a.AggregateBuckets(ctx, q); err != nil || len(got.Rows) != 2 || !got.More {
		t.Errorf("limited: %+v, %v", got, err)
	}
	q.Limit = 100
	refused := func(want sdk.Tag, what string, change func(*storage.AggregateQuery)) {
		t.Helper()
		bad := q
		change(&bad)
		_, err := a.AggregateBuckets(ctx, bad)
		code(t, err, want, what)
	}
	refused(sdk.TagInvalid, "", func(q *storage.AggregateQuery) { q.Edges = []time.Time{at(0), at(7)} })
	refused(sdk.TagUnsupported, "unique", func(q *storage.AggregateQuery) { q.Unique = "model" })
	refused(sdk.TagUnsupported, "dimension", func(q *storage.AggregateQuery) { q.GroupBy = []string{"region"} })
	refused(sdk.TagUnsupported, "dimension", func(q *storage.AggregateQuery) { q.Filter = map[string]string{"region": "x"} })

	e := usageOf("t1", "wrong", "50", at(40), model("a"))
	must(t, recordUsage(ctx, a, e))
	ok, err := correctUsage(ctx, a, e, "c1", "50")
	must(t, err)
	if !ok {
		t.Fatal("the correction was refused")
	}
	refused(sdk.TagUnsupported, "reversed", func(*storage.AggregateQuery) {})
	q.Extremes = false
	want, err := a.Aggregate(ctx, q)
	must(t, err)
	got, err := a.AggregateBuckets(ctx, q)
	must(t, err)
	if diff := cmp.Diff(want, got, decimals); diff != "" {
		t.Errorf("with a correction: %s", diff)
	}
}
