package conformance

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func aggregateCases() []Case {
	needs := caps(storage.DurableEvents)
	return []Case{
		define("aggregate/windows-and-groups", "Q8", needs, aggregateGroups),
		define("aggregate/extremes-and-unique", "Q8", needs, aggregateExtremes),
		define("aggregate/names-are-values", "S9", needs, aggregateNames),
		define("aggregate/corrections", "Q8 B31", corrective(), aggregateCorrections),
		define("aggregate/limit", "Q8", needs, aggregateLimit),
		define("aggregate/random-against-the-reference", "Q8 S16", needs, aggregateRandom),
	}
}

func (r *run) aggregate(q storage.AggregateQuery) storage.Aggregates {
	if q.Feature == "" {
		q.Feature = "tokens"
	}
	if q.Limit == 0 {
		q.Limit = 1000
	}
	got, err := use[storage.Aggregator](r, storage.DurableEvents).Aggregate(r.ctx, q)
	r.must("aggregate", err)
	return got
}

// rowLines are rows in short.
func rowLines(rows []storage.AggregateRow) []string {
	lines := []string{}
	for _, row := range rows {
		group := make([]string, len(row.Group))
		for i, v := range row.Group {
			group[i] = "-"
			if v != nil {
				group[i] = *v
			}
		}
		line := decimalInt(row.Window) + " [" + strings.Join(group, " ") + "] sum " + row.Sum.String() + " count " + decimalInt(int(row.Count))
		if row.Min != nil || row.Max != nil {
			line += " min " + optional(row.Min) + " max " + optional(row.Max)
		}
		if row.Latest != nil {
			line += " latest " + row.Latest.String()
		}
		if row.Unique != 0 {
			line += " unique " + decimalInt(int(row.Unique))
		}
		lines = append(lines, line)
	}
	return lines
}

// hours are edges n hours apart from the start of the period.
func hours(n int) []time.Time {
	edges := make([]time.Time, n+1)
	for i := range edges {
		edges[i] = period.Add(time.Duration(i) * time.Hour)
	}
	return edges
}

// at is a usage event some time after the start of the period.
func at(t, id, quantity string, after time.Duration, dimensions map[string]string) storage.Event {
	e := usage(t, id, quantity)
	e.OccurredAt, e.Dimensions = period.Add(after), dimensions
	return e
}

func dims(pairs ...string) map[string]string {
	m := map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		m[pair[0]] = pair[len(pair)-1]
	}
	return m
}

func aggregateGroups(r *run) {
	t := r.tenant("a")
	r.put(at(t, "before", "1000", -time.Microsecond, dims("m", "1")),
		at(t, "first", "1", 0, dims("m", "1", "r", "eu")),
		at(t, "last of the first", "2", time.Hour-time.Microsecond, dims("m", "1", "r", "us")),
		at(t, "second", "4", time.Hour, dims("m", "2")),
		at(t, "bare", "8", time.Hour, nil),
		at(t, "empty", "16", time.Hour, dims("m", "")),
		at(t, "end", "2000", 3*time.Hour, dims("m", "1")))
	r.put(func() storage.Event { e := at(t, "other", "4000", 0, nil); e.Feature = "calls"; return e }())
	r.put(at(r.tenant("b"), "first", "8000", 0, nil))
	got := r.aggregate(storage.AggregateQuery{Tenant: t, Edges: hours(3)})
	r.same("half-open windows", rowLines(got.Rows), []string{"0 [] sum 3 count 2", "1 [] sum 28 count 3"})
	got = r.aggregate(storage.AggregateQuery{Tenant: t, Edges: hours(3), GroupBy: []string{"m"}})
	r.same("groups: none first, then by bytes", rowLines(got.Rows),
		[]string{"0 [1] sum 3 count 2", "1 [-] sum 8 count 1", "1 [] sum 16 count 1", "1 [2] sum 4 count 1"})
	got = r.aggregate(storage.AggregateQuery{Tenant: t, Edges: hours(3), GroupBy: []string{"r", "m"}})
	r.same("two dimensions", rowLines(got.Rows), []string{
		"0 [eu 1] sum 1 count 1", "0 [us 1] sum 2 count 1", "1 [- -] sum 8 count 1", "1 [- ] sum 16 count 1", "1 [- 2] sum 4 count 1",
	})
	got = r.aggregate(storage.AggregateQuery{Tenant: t, Edges: hours(3), Filter: dims("m", "1", "r", "us")})
	r.same("a filter", rowLines(got.Rows), []string{"0 [] sum 2 count 1"})
	got = r.aggregate(storage.AggregateQuery{Tenant: t, Edges: hours(3), Filter: dims("m", "")})
	r.same("a filter for an empty value", rowLines(got.Rows), []string{"1 [] sum 16 count 1"})
	uneven := []time.Time{period, period.Add(time.Minute), period.Add(3 * time.Hour)}
	got = r.aggregate(storage.AggregateQuery{Tenant: t, Edges: uneven})
	r.same("uneven windows", rowLines(got.Rows), []string{"0 [] sum 1 count 1", "1 [] sum 30 count 4"})
	if !got.PrunedBefore.IsZero() || got.More {
		r.errorf("pruned before %s, more %v; nothing was pruned or cut", got.PrunedBefore, got.More)
	}
}

func aggregateExtremes(r *run) {
	t := r.tenant("a")
	r.put(at(t, "1", "9", time.Minute, dims("value", "x")), at(t, "2", "10", 2*time.Minute, dims("value", "y")),
		at(t, "3", "-2.5", 3*time.Minute, dims("value", "x")), at(t, "4", "0", time.Hour, nil))
	r.put(at(t, "5", "1", 3*time.Minute, dims("value", "z"))) // same time as 3, later
	got := r.aggregate(storage.AggregateQuery{Tenant: t, Edges: hours(2), Extremes: true, Unique: "value"})
	r.same("by number, not by text", rowLines(got.Rows),
		[]string{"0 [] sum 17.5 count 4 min -2.5 max 10 latest 1 unique 3", "1 [] sum 0 count 1 min 0 max 0 latest 0"})
	got = r.aggregate(storage.AggregateQuery{Tenant: t, Edges: hours(2)})
	r.same("not asked for", rowLines(got.Rows), []string{"0 [] sum 17.5 count 4", "1 [] sum 0 count 1"})
}

// Names of dimensions are bound as values, whatever they look like.
func aggregateNames(r *run) {
	t := r.tenant("a")
	for i, name := range []string{`x'); DROP TABLE events; --`, `a"b`, `a.b[0]`, `$."a"`, `ключ`, `a,b`, `{}`, `%`, `a' OR '1'='1`} {
		e := at(t, "e"+decimalInt(i), "2", time.Minute, dims(name, name))
		e.Feature = "f" + decimalInt(i)
		r.put(e)
		got := r.aggregate(storage.AggregateQuery{
			Tenant: t, Feature: e.Feature, Edges: hours(1), GroupBy: []string{name}, Filter: dims(name, name), Unique: name,
		})
		r.same("a dimension named "+name, rowLines(got.Rows), []string{"0 [" + name + "] sum 2 count 1 unique 1"})
		got = r.aggregate(storage.AggregateQuery{Tenant: t, Feature: e.Feature, Edges: hours(1), Filter: dims(name, "else")})
		r.same("filtered out", len(got.Rows), 0)
	}
}

// A correction counts at the time of its original.
func aggregateCorrections(r *run) {
	t := r.tenant("a")
	a, b, c := at(t, "1", "9", time.Minute, dims("value", "x")), at(t, "2", "10", 2*time.Minute, dims("value", "y")),
		at(t, "3", "5", time.Hour, dims("value", "z"))
	r.put(a, b, c)
	r.corrects(correction(&b, "c1", "4"), "6")
	got := r.aggregate(storage.AggregateQuery{Tenant: t, Edges: hours(2), Extremes: true, Unique: "value"})
	r.same("a part", rowLines(got.Rows),
		[]string{"0 [] sum 15 count 2 min 6 max 9 latest 6 unique 2", "1 [] sum 5 count 1 min 5 max 5 latest 5 unique 1"})
	r.corrects(correction(&b, "c2", "6"), "0")
	r.corrects(correction(&c, "c3", "5"), "0")
	got = r.aggregate(storage.AggregateQuery{Tenant: t, Edges: hours(2), Extremes: true, Unique: "value"})
	r.same("the whole", rowLines(got.Rows), []string{"0 [] sum 9 count 1 min 9 max 9 latest 9 unique 1", "1 [] sum 0 count 0"})
}

func aggregateLimit(r *run) {
	t := r.tenant("a")
	var all []storage.Event
	for i := range 12 {
		all = append(all, at(t, decimalInt(i), "1", time.Duration(i%3)*time.Hour, dims("m", decimalInt(i%4))))
	}
	r.put(all...)
	q := storage.AggregateQuery{Tenant: t, Edges: hours(3), GroupBy: []string{"m"}}
	whole := r.aggregate(q)
	r.same("rows", len(whole.Rows), 12)
	for _, limit := range []int{1, 5, 12} {
		q.Limit = limit
		got := r.aggregate(q)
		r.same("the first "+decimalInt(limit), rowLines(got.Rows), rowLines(whole.Rows[:limit]))
		r.same("more", got.More, limit < 12)
	}
}

// random returns the generator of a case.
func (r *run) random(n uint64) *rand.Rand {
	return rand.New(rand.NewPCG(r.opts.Seed, n)) //nolint:gosec // reproducible on purpose
}

// The reference adds the same events up, for a hundred questions.
func aggregateRandom(r *run) {
	t, rng := r.tenant("a"), r.random(1)
	ref := NewReference(r.opts.Now)
	var all []storage.Event
	for i := range 300 {
		d := map[string]string{}
		for _, k := range []string{"m", "r", "value"} {
			if rng.IntN(4) > 0 {
				d[k] = decimalInt(rng.IntN(5))
			}
		}
		q := decimalInt(rng.IntN(2000)-500) + "." + decimalInt(100+rng.IntN(900))
		all = append(all, at(t, "e"+decimalInt(i), q, time.Duration(i)*97*time.Second, d))
	}
	for _, u := range units(all...) {
		u.Entries[0].Signed = true
		r.putUnits(u)
		_, err := ref.RecordEvents(r.ctx, storage.RecordRequest{Units: []storage.Unit{u}, Mode: storage.Atomic})
		r.must("record in the reference", err)
	}
	for range 100 {
		q := randomQuery(rng, t)
		want, err := ref.Aggregate(r.ctx, q)
		r.must("aggregate in the reference", err)
		got := r.aggregate(q)
		r.same("answer to "+text(q), rowLines(got.Rows), rowLines(want.Rows))
		r.same("more", got.More, want.More)
		if len(r.messages) > 0 {
			return
		}
	}
}

// randomQuery asks something about the events of a tenant.
func randomQuery(rng *rand.Rand, tenant string) storage.AggregateQuery {
	q := storage.AggregateQuery{Tenant: tenant, Feature: "tokens", Limit: 1 + rng.IntN(60), Extremes: rng.IntN(2) == 0}
	edge := period.Add(time.Duration(rng.IntN(3600)-600) * time.Second)
	for range 2 + rng.IntN(12) {
		q.Edges = append(q.Edges, edge)
		edge = edge.Add(time.Duration(1+rng.IntN(7200)) * time.Second)
	}
	for _, k := range []string{"r", "m", "absent"} {
		if rng.IntN(3) == 0 {
			q.GroupBy = append(q.GroupBy, k)
		}
	}
	if rng.IntN(3) == 0 {
		q.Filter = map[string]string{"m": decimalInt(rng.IntN(5))}
	}
	if rng.IntN(2) == 0 {
		q.Unique = "value"
	}
	return q
}
