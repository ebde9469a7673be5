package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// hostile are names and values that a statement made of text would not survive.
var hostile = []string{
	"model", `mo"del`, "mo'del", `'; DROP TABLE fencepost_events; --`, `$1`, `{schema}`, `%s`, `a\b`, "größe", "模型",
	"\u202ertl", "🐘", "__proto__", " ", "",
}

// Whatever a dimension is called and whatever its value is, it is a value to
// the server: each name groups by itself, and nothing is run (D14, T4).
func TestAggregateHostileNames(t *testing.T) {
	t.Parallel()
	a := open(t)
	var events []storage.Event
	for i, name := range hostile {
		for j, value := range hostile {
			id := fmt.Sprintf("e%d.%d", i, j)
			events = append(events, usageOf("t1", id, strconv.Itoa(j+1), november, map[string]string{name: value}))
		}
	}
	putEvents(t, a, events...)
	q := storage.AggregateQuery{
		Tenant: "t1", Feature: "calls", Edges: []time.Time{november, november.Add(time.Hour)}, Limit: 1000,
	}
	for i, name := range hostile {
		q.GroupBy, q.Filter, q.Unique = []string{name}, nil, name
		got, err := a.Aggregate(t.Context(), q)
		must(t, err)
		// One group for each value, and one for the events without the name.
		if len(got.Rows) != len(hostile)+1 || got.Rows[0].Group[0] != nil {
			t.Fatalf("name %d: %d groups", i, len(got.Rows))
		}
		var values []string
		for _, r := range got.Rows[1:] {
			values = append(values, *r.Group[0])
			want, unique := strconv.Itoa(slices.Index(hostile, *r.Group[0])+1), int64(1)
			if name == "" { // asks for no unique values
				unique = 0
			}
			if r.Sum.String() != want || r.Unique != unique {
				t.Errorf("name %d, value %q: sum %s, unique %d, want %s, %d", i, *r.Group[0], r.Sum, r.Unique, want, unique)
			}
		}
		if want := slices.Sorted(slices.Values(hostile)); !slices.Equal(values, want) {
			t.Errorf("name %d: groups %q, want %q by bytes", i, values, want)
		}
		q.GroupBy, q.Filter = nil, map[string]string{name: hostile[3]}
		if got, err = a.Aggregate(t.Context(), q); err != nil || len(got.Rows) != 1 || got.Rows[0].Count != 1 {
			t.Errorf("filter by name %d: %+v, %v", i, got.Rows, err)
		}
	}
	for field, change := range map[string]func(*storage.AggregateQuery){
		"group_by": func(q *storage.AggregateQuery) { q.GroupBy = []string{"a\x00b"} },
		"filter":   func(q *storage.AggregateQuery) { q.Filter = map[string]string{"a": "\xff"} },
		"limit":    func(q *storage.AggregateQuery) { q.Limit = 0 },
		"edges":    func(q *storage.AggregateQuery) { q.Edges = []time.Time{november, november} },
		"tenant":   func(q *storage.AggregateQuery) { q.Tenant = "" },
	} {
		bad := storage.AggregateQuery{Tenant: "t1", Feature: "calls", Edges: q.Edges, Limit: 1}
		change(&bad)
		_, err := a.Aggregate(t.Context(), bad)
		if e, ok := errors.AsType[*sdk.Error](err); !ok || e.Tag != sdk.TagInvalid || e.Field != field {
			t.Errorf("bad %s: %v", field, err)
		}
	}
	bad := storage.AggregateQuery{Tenant: "t1", Feature: "calls", Edges: q.Edges, Limit: 1, GroupBy: make([]string, 9)}
	if _, err := a.Aggregate(t.Context(), bad); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("nine groups: %v", err)
	}
}

// What was removed makes the windows before it incomplete, and only a question
// that reaches there is told.
func TestAggregatePruned(t *testing.T) {
	t.Parallel()
	a := open(t)
	day := func(n int) time.Time { return november.AddDate(0, 0, n) }
	sqlExec(t, a, `INSERT INTO {schema}.fencepost_pruned (tenant_key, feature, before, buckets) VALUES ('t1', 'calls', $1, -1)`, day(5))
	ask := func(tenant string, from, to int) storage.Aggregates {
		t.Helper()
		got, err := a.Aggregate(t.Context(), storage.AggregateQuery{
			Tenant: tenant, Feature: "calls", Edges: []time.Time{day(from), day(to)}, Limit: 1,
		})
		must(t, err)
		return got
	}
	if got := ask("t1", 1, 9); !got.PrunedBefore.Equal(day(5)) || len(got.Rows) != 0 {
		t.Errorf("without events: %+v", got)
	}
	putEvents(t, a, usageOf("t1", "e1", "1", day(7), nil))
	if got := ask("t1", 1, 9); !got.PrunedBefore.Equal(day(5)) || len(got.Rows) != 1 {
		t.Errorf("reaching back: %+v", got)
	}
	if got := ask("t1", 5, 9); !got.PrunedBefore.IsZero() || len(got.Rows) != 1 {
		t.Errorf("not reaching back: %+v", got)
	}
	if got := ask("t2", 1, 9); !got.PrunedBefore.IsZero() || got.Rows == nil {
		t.Errorf("another tenant: %+v", got)
	}
}

// The limit cuts in the order (window, group), and More says so.
func TestAggregateLimit(t *testing.T) {
	t.Parallel()
	a := open(t)
	for i := range 6 {
		putEvents(t, a, usageOf("t1", "e"+strconv.Itoa(i), "1", november.Add(time.Duration(5-i)*time.Hour), nil))
	}
	var edges []time.Time
	for i := range 8 {
		edges = append(edges, november.Add(time.Duration(i)*time.Hour))
	}
	for limit, more := range map[int]bool{2: true, 5: true, 6: false, 7: false} {
		got, err := a.Aggregate(t.Context(), storage.AggregateQuery{Tenant: "t1", Feature: "calls", Edges: edges, Limit: limit})
		must(t, err)
		if got.More != more || len(got.Rows) != min(limit, 6) {
			t.Errorf("limit %d: %d rows, more %t", limit, len(got.Rows), got.More)
		}
		for i, r := range got.Rows {
			if r.Window != i {
				t.Errorf("limit %d: row %d is window %d", limit, i, r.Window)
			}
		}
	}
}

// fact is an event of the reference.
type fact struct {
	ev        storage.Event
	standing  *big.Rat // nil once reversed
	corrected *big.Rat
}

// Sums, net counts and what is over single events equal those of a reference
// that adds rationals in Go, whatever was recorded and corrected (Q8, P5).
func TestAggregateAgainstReference(t *testing.T) {
	t.Parallel()
	a := open(t)
	tenant := 0
	rapid.Check(t, func(rt *rapid.T) {
		tenant++
		name := "t" + strconv.Itoa(tenant)
		facts, stored := drawFacts(rt, name)
		putEvents(t, a, stored...)
		q := drawQuestion(rt, name)
		got, err := a.Aggregate(t.Context(), q)
		if err != nil {
			rt.Fatal(err)
		}
		want := reference(q, facts, stored)
		if diff := gocmp.Diff(want, got.Rows, decimals); diff != "" {
			rt.Fatalf("%+v\n%s", q, diff)
		}
	})
}

func drawFacts(rt *rapid.T, tenant string) ([]*fact, []storage.Event) {
	quantity := rapid.SampledFrom([]string{"0", "1", "2.5", "0.000000000001", "99999999999999999999999999.999999999999", "-3", "-0.1", "7"})
	minutes := rapid.Map(rapid.IntRange(0, 40), func(n int) int { return 15 * n })
	var facts []*fact
	var stored []storage.Event
	for i := range rapid.IntRange(0, 25).Draw(rt, "events") {
		d := map[string]string{}
		for _, name := range []string{"model", "re'gion"} {
			if v := rapid.SampledFrom([]string{"", "a", "b", "B", "é"}).Draw(rt, name); v != "" {
				d[name] = v
			}
		}
		at := november.Add(time.Duration(minutes.Draw(rt, "minute")) * time.Minute)
		ev := usageOf(tenant, "e"+strconv.Itoa(i), quantity.Draw(rt, "quantity"), at, d)
		if rapid.IntRange(0, 9).Draw(rt, "other feature") == 0 {
			ev.Feature = "others"
		}
		f := &fact{ev: ev, standing: rat(ev.Quantity), corrected: new(big.Rat)}
		facts, stored = append(facts, f), append(stored, ev)
	}
	for i := range rapid.IntRange(0, 10).Draw(rt, "corrections") {
		if len(facts) == 0 {
			break
		}
		f := rapid.SampledFrom(facts).Draw(rt, "original")
		left := new(big.Rat).Sub(new(big.Rat).Abs(rat(f.ev.Quantity)), f.corrected)
		if left.Sign() == 0 {
			continue
		}
		part := decimal.MustParse("0.000000000001")
		whole := rapid.Bool().Draw(rt, "whole") || rat(part).Cmp(left) >= 0
		if whole {
			part = decimal.MustParse(left.FloatString(12))
		}
		c := correctionOf(f.ev, "c"+strconv.Itoa(i), part.String(), whole)
		f.corrected.Add(f.corrected, rat(part))
		if f.standing.Add(f.standing, rat(c.Effect)); whole {
			f.standing = nil
		}
		stored = append(stored, c)
		if whole {
			f.corrected.Abs(rat(f.ev.Quantity))
		}
	}
	return facts, stored
}

func drawQuestion(rt *rapid.T, tenant string) storage.AggregateQuery {
	q := storage.AggregateQuery{Tenant: tenant, Feature: "calls", Limit: 1000}
	for _, m := range slices.Sorted(maps.Keys(rapid.MapOfN(rapid.Map(rapid.IntRange(-2, 42), func(n int) int { return 15 * n }), rapid.Just(true), 2, 9).Draw(rt, "edges"))) {
		q.Edges = append(q.Edges, november.Add(time.Duration(m)*time.Minute))
	}
	q.GroupBy = rapid.SampledFrom([][]string{nil, {"model"}, {"re'gion", "model"}, {"absent"}}).Draw(rt, "group by")
	if rapid.Bool().Draw(rt, "filtered") {
		q.Filter = map[string]string{"model": rapid.SampledFrom([]string{"a", "é"}).Draw(rt, "filter")}
	}
	q.Extremes = rapid.Bool().Draw(rt, "extremes")
	q.Unique = rapid.SampledFrom([]string{"", "model", "re'gion"}).Draw(rt, "unique")
	return q
}

func rat(d decimal.Decimal) *big.Rat {
	r, ok := new(big.Rat).SetString(d.String())
	if !ok {
		panic(d.String())
	}
	return r
}

func exact(r *big.Rat) decimal.Decimal {
	d, err := decimal.ParseTotal(r.FloatString(12))
	if err != nil {
		panic(err)
	}
	return d
}

// answer is a row of the reference while it is made.
type answer struct {
	window   int
	group    []*string
	sum      *big.Rat
	count    int64
	standing []*fact
	values   map[string]bool
}

func reference(q storage.AggregateQuery, facts []*fact, stored []storage.Event) []storage.AggregateRow {
	answers := map[string]*answer{}
	seqs := map[*fact]int{}
	of := func(ev storage.Event) *answer {
		w := -1
		for i := range q.Edges[1:] {
			if !ev.OccurredAt.Before(q.Edges[i]) && ev.OccurredAt.Before(q.Edges[i+1]) {
				w = i
			}
		}
		for name, value := range q.Filter {
			if ev.Dimensions[name] != value {
				w = -1
			}
		}
		if w < 0 || ev.Feature != q.Feature {
			return nil
		}
		key := strconv.Itoa(w)
		group := []*string{}
		for _, name := range q.GroupBy {
			v, ok := ev.Dimensions[name]
			if key += fmt.Sprintf("/%t %q", ok, v); ok {
				group = append(group, &v)
			} else {
				group = append(group, nil)
			}
		}
		if answers[key] == nil {
			answers[key] = &answer{window: w, group: group, sum: new(big.Rat), values: map[string]bool{}}
		}
		return answers[key]
	}
	for i, ev := range stored {
		if a := of(ev); a != nil {
			a.sum.Add(a.sum, rat(ev.Effect))
			if ev.Kind == storage.Usage {
				a.count++
			} else if ev.Reverses {
				a.count--
			}
		}
		if i < len(facts) {
			seqs[facts[i]] = i
		}
	}
	for _, f := range facts {
		if a := of(f.ev); a != nil && f.standing != nil {
			a.standing = append(a.standing, f)
			if v, ok := f.ev.Dimensions[q.Unique]; ok {
				a.values[v] = true
			}
		}
	}
	rows := []storage.AggregateRow{}
	for _, a := range answers {
		r := storage.AggregateRow{Window: a.window, Group: a.group, Sum: exact(a.sum), Count: a.count}
		if q.Unique != "" {
			r.Unique = int64(len(a.values))
		}
		if q.Extremes && len(a.standing) > 0 {
			byValue := func(x, y *fact) int { return x.standing.Cmp(y.standing) }
			least, most := exact(slices.MinFunc(a.standing, byValue).standing), exact(slices.MaxFunc(a.standing, byValue).standing)
			last := exact(slices.MaxFunc(a.standing, func(x, y *fact) int {
				return cmp.Or(x.ev.OccurredAt.Compare(y.ev.OccurredAt), cmp.Compare(seqs[x], seqs[y]))
			}).standing)
			r.Min, r.Max, r.Latest = &least, &most, &last
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(x, y storage.AggregateRow) int {
		return cmp.Or(cmp.Compare(x.Window, y.Window), slices.CompareFunc(x.Group, y.Group, func(x, y *string) int {
			if x == nil || y == nil {
				return cmp.Compare(btoi(x != nil), btoi(y != nil))
			}
			return cmp.Compare(*x, *y)
		}))
	})
	return rows
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A question about one tenant reads the events of that tenant, not the table.
func TestAggregatePlan(t *testing.T) {
	t.Parallel()
	a := open(t)
	var events []storage.Event
	for i := range 20_000 {
		tenant := "big"
		if i%200 == 0 {
			tenant = "small"
		}
		events = append(events, usageOf(tenant, "e"+strconv.Itoa(i), "1", november.Add(time.Duration(i)*time.Second), nil))
	}
	putEvents(t, a, events...)
	sqlExec(t, a, `ANALYZE {schema}.fencepost_events`)
	args, err := aggregateArgs(storage.AggregateQuery{
		Tenant: "small", Feature: "calls", Edges: []time.Time{november, november.AddDate(0, 0, 1)}, Limit: 10,
	})
	must(t, err)
	for q, args := range map[query][]any{qAggregate: args, qAggregateValues: append(slices.Clone(args), nil, true)} {
		text, err := a.texts.text(q)
		must(t, err)
		rows, err := a.pools[workPool].Query(t.Context(), "EXPLAIN "+text, args...)
		must(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		must(t, err)
		plan := strings.Join(lines, "\n")
		if strings.Contains(plan, "Seq Scan on fencepost_events") || !strings.Contains(plan, "tenant_key = 'small'") {
			t.Errorf("%s:\n%s", q, plan)
		}
	}
}
