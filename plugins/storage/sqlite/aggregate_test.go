package sqlite

import (
	"cmp"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// oddName would end a string or a JSON path if it were part of a statement.
const oddName = `a"]'); DROP TABLE fencepost_events;--`

// fact is an event of the naive aggregation, with all that was taken back.
type fact struct {
	storage.Event
	corrected *big.Rat
}

func rat(d decimal.Decimal) *big.Rat {
	r, _ := new(big.Rat).SetString(d.String())
	return r
}

// naive answers what Aggregate must, in text, from all events in memory.
func naive(facts []*fact, q storage.AggregateQuery) []string {
	type key struct {
		window int
		group  string
	}
	rows := map[key][]*fact{}
	for _, f := range facts {
		if f.Dimensions["keep"] != q.Filter["keep"] {
			continue
		}
		for i := range q.Edges[1:] {
			if !f.OccurredAt.Before(q.Edges[i]) && f.OccurredAt.Before(q.Edges[i+1]) {
				group := "nil"
				if v, ok := f.Dimensions[oddName]; ok {
					group = "v" + v
				}
				rows[key{i, group}] = append(rows[key{i, group}], f)
			}
		}
	}
	var lines []string
	for k, all := range rows {
		sum, count, unique := new(big.Rat), 0, map[string]bool{}
		var low, high, latest *big.Rat
		slices.SortFunc(all, func(a, b *fact) int {
			return cmp.Or(a.OccurredAt.Compare(b.OccurredAt), cmp.Compare(a.Seq, b.Seq))
		})
		for _, f := range all {
			q := rat(f.Quantity) // never negative here
			left := new(big.Rat).Sub(q, f.corrected)
			sum.Add(sum, left)
			if left.Sign() == 0 && q.Sign() > 0 {
				continue
			}
			count++
			if latest = left; low == nil || left.Cmp(low) < 0 {
				low = left
			}
			if high == nil || left.Cmp(high) > 0 {
				high = left
			}
			unique[f.Dimensions["model"]] = true
		}
		lines = append(lines, fmt.Sprintf("%02d %s %s/%d %v %v %v %d", k.window, k.group, sum.RatString(), count, low, high, latest, len(unique)))
	}
	slices.Sort(lines)
	return lines
}

func rowText(r storage.AggregateRow) string {
	group := "nil"
	if r.Group[0] != nil {
		group = "v" + *r.Group[0]
	}
	of := func(d *decimal.Decimal) *big.Rat {
		if d == nil {
			return nil
		}
		return rat(*d)
	}
	return fmt.Sprintf("%02d %s %s/%d %v %v %v %d", r.Window, group, rat(r.Sum).RatString(), r.Count, of(r.Min), of(r.Max), of(r.Latest), r.Unique)
}

// aggregateStore records events of two tenants with corrections, part and
// whole, and answers those of acme.
func aggregateStore(t *testing.T, a *Adapter, rng *rand.Rand) []*fact {
	t.Helper()
	var facts []*fact
	for i := range 400 {
		e := event("acme", fmt.Sprintf("e%03d", i), fmt.Sprintf("%d.%012d", rng.IntN(5), rng.IntN(2)))
		e.OccurredAt = period.Add(time.Duration(rng.IntN(12)) * 10 * time.Minute)
		e.Dimensions = map[string]string{"model": strconv.Itoa(rng.IntN(9)), "keep": strconv.Itoa(rng.IntN(2))}
		if g := rng.IntN(7); g > 0 {
			e.Dimensions[oddName] = strings.Repeat("\x00", g%3) + fmt.Sprint("'", g)
		}
		other := e
		other.Tenant = "zeta"
		res := record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(e), plain(other)}})
		e.Seq = res.Units[0].Entries[0].Seq
		facts = append(facts, &fact{e, new(big.Rat)})
		f := facts[rng.IntN(len(facts))]
		left := new(big.Rat).Sub(rat(f.Quantity), f.corrected)
		if left.Sign() == 0 {
			continue
		}
		q := left.FloatString(12)
		if rng.IntN(2) == 0 && left.Cmp(big.NewRat(1, 2)) > 0 {
			q = "0.5"
		}
		if got := correct(t, a, correction(fmt.Sprintf("c%03d", i), f.EventID, q)); got.Outcome != storage.Inserted {
			t.Fatal(answer(got))
		}
		f.corrected.Add(f.corrected, rat(decimal.MustParse(q)))
	}
	return facts
}

// Q8: windows and groups are exact, in order, with
// corrections at the time of their original; names of dimensions are values.
// Both ways to find the events answer the same.
func TestAggregate(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	facts := aggregateStore(t, a, rand.New(rand.NewPCG(1, 2)))
	q := storage.AggregateQuery{
		Tenant: "acme", Feature: "tokens", GroupBy: []string{oddName}, Filter: map[string]string{"keep": "1"},
		Extremes: true, Unique: "model", Limit: 1000,
	}
	for i := range 5 {
		q.Edges = append(q.Edges, period.Add(time.Duration(i)*20*time.Minute))
	}
	want := naive(facts, q)
	for _, limit := range []int{1, 3, len(want) - 1, len(want), len(want) + 1} {
		q.Limit = limit
		res, err := a.Aggregate(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range res.Rows {
			got = append(got, rowText(r))
		}
		if !slices.Equal(got, want[:min(limit, len(want))]) || res.More != (limit < len(want)) || !res.PrunedBefore.IsZero() {
			t.Errorf("limit %d, more %v:\n%s\nwant\n%s", limit, res.More, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if got := statementOf(t, a, q); got != qAggregateScan {
		t.Errorf("a tenant with a large part of the events is read by %s", queryFiles[got])
	}
	units := make([]storage.Unit, 5000)
	for i := range units {
		units[i] = plain(event("big", strconv.Itoa(i), "1"))
	}
	record(t, a, storage.RecordRequest{Units: units})
	if got := statementOf(t, a, q); got != qAggregateTenant {
		t.Errorf("a tenant with a small part of the events is read by %s", queryFiles[got])
	}
	res, err := a.Aggregate(t.Context(), q)
	if err != nil || len(res.Rows) != len(want) {
		t.Fatalf("%d rows, %v", len(res.Rows), err)
	}
	for i, r := range res.Rows {
		if rowText(r) != want[i] {
			t.Errorf("by tenant: %s, want %s", rowText(r), want[i])
		}
	}
}

func statementOf(t *testing.T, a *Adapter, q storage.AggregateQuery) (statement query) {
	t.Helper()
	err := a.read(t.Context(), "look", func(c *conn) error {
		g, err := newCells(&q)
		if err != nil {
			return err
		}
		statement, err = g.statement(c)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return statement
}

// Groups are in the order of their values whatever bytes these hold, and the
// answer says that there are more when what is over the limit was dropped early.
func TestAggregateGroups(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	groups := [][]string{{"", ""}, {"a"}, {"a", "x"}, {"a\x00", "b"}, {"a\x00\x01b", ""}, {"ab", "\x00"}}
	for k := range 2 * len(groups) { // in their order for tokens, backwards for chars
		i, feature := k, "tokens"
		if k >= len(groups) {
			i, feature = 2*len(groups)-1-k, "chars"
		}
		g, e := groups[i], event("acme", feature+strconv.Itoa(i), strconv.Itoa(i+1))
		e.Feature = feature
		e.Dimensions = map[string]string{}
		for j, v := range g {
			e.Dimensions[strconv.Itoa(j)] = v
		}
		record(t, a, storage.RecordRequest{Units: []storage.Unit{plain(e)}})
	}
	for k := range 8 {
		limit, feature := []int{1, 2, 5, 6}[k/2], []string{"tokens", "chars"}[k%2]
		res, err := a.Aggregate(t.Context(), storage.AggregateQuery{
			Tenant: "acme", Feature: feature, Edges: []time.Time{period, period.AddDate(0, 1, 0)}, GroupBy: []string{"0", "1"}, Limit: limit,
		})
		if err != nil || len(res.Rows) != limit || res.More != (limit < 6) {
			t.Fatalf("limit %d: %d rows, more %v, %v", limit, len(res.Rows), res.More, err)
		}
		for i, r := range res.Rows {
			if r.Sum.String() != strconv.Itoa(i+1) {
				t.Errorf("row %d is group %s", i+1, r.Sum)
			}
		}
	}
}

func TestAggregateRefuses(t *testing.T) {
	t.Parallel()
	a := open(t, newClock())
	edges := []time.Time{period, period.Add(time.Hour)}
	good := storage.AggregateQuery{Tenant: "acme", Feature: "tokens", Edges: edges, Limit: 1}
	if res, err := a.Aggregate(t.Context(), good); err != nil || len(res.Rows) != 0 || res.Rows == nil {
		t.Errorf("of nothing: %+v, %v", res, err)
	}
	for field, change := range map[string]func(*storage.AggregateQuery){
		"tenant":   func(q *storage.AggregateQuery) { q.Tenant = "" },
		"feature":  func(q *storage.AggregateQuery) { q.Feature = "" },
		"edges":    func(q *storage.AggregateQuery) { q.Edges = []time.Time{edges[1], edges[0]} },
		"group_by": func(q *storage.AggregateQuery) { q.GroupBy = make([]string, 9) },
		"limit":    func(q *storage.AggregateQuery) { q.Limit = 100_001 },
	} {
		q := good
		change(&q)
		_, err := a.Aggregate(t.Context(), q)
		if e := wantError(t, err, sdk.TagInvalid, ""); e == nil || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
