package mysql

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// maxDistinct bounds the values that one window may hold to count them: a module
// has little memory.
const maxDistinct = 200_000

// scanUsage reads in the order of time, so that a window is complete when the
// next one begins.
const scanUsage = "SELECT e.occurred_at, e.seq, e.kind, e.quantity, e.effect, e.reverses, e.dimensions, " +
	"(SELECT COALESCE(SUM(c.quantity), 0) FROM fencepost_events AS c WHERE c.original_key = e.event_key) " +
	"FROM fencepost_events AS e WHERE "

// Aggregate implements [storage.Aggregator], at one snapshot and in pages.
func (a *Adapter) Aggregate(ctx context.Context, q storage.AggregateQuery) (storage.Aggregates, error) {
	if err := checkAggregate(&q); err != nil {
		return storage.Aggregates{}, err
	}
	g := &grouping{q: &q, groups: map[string]*group{}, decoded: map[string]map[string]string{}}
	err := a.scan(ctx, "aggregate", func(t *tx) error {
		at, seq := time.Time{}, int64(0)
		for {
			w := where("e.tenant = ? AND e.feature = ? AND e.occurred_at < ?", q.Tenant, q.Feature, q.Edges[len(q.Edges)-1])
			w.and(at.IsZero(), "e.occurred_at >= ?", q.Edges[0])
			w.and(!at.IsZero(), "e.occurred_at >= ? AND (e.occurred_at > ? OR e.seq > ?)", at, at, seq)
			n := 0
			var failed error
			err := t.query(func(r *row) {
				n++
				u := usage{at: r.time(), seq: r.int(), kind: storage.Kind(r.text()), quantity: r.decimal(), effect: r.decimal(), reverses: r.bool()}
				doc := r.text()
				u.corrected = r.decimal()
				if u.dimensions, failed = g.dimensions(doc, failed); failed != nil {
					return
				}
				at, seq = u.at, u.seq
				if r.err == nil {
					failed = g.add(&u)
				}
			}, scanUsage+w.text+" ORDER BY e.occurred_at, e.seq LIMIT ?", append(w.args, maxPage)...)
			if err != nil || failed != nil {
				return cmp.Or(failed, err)
			}
			if n < maxPage || g.full() {
				return nil
			}
		}
	})
	if err != nil {
		return storage.Aggregates{}, err
	}
	return g.answer(), nil
}

func checkAggregate(q *storage.AggregateQuery) error {
	switch {
	case q.Tenant == "":
		return sdk.Invalid("tenant", "required")
	case q.Feature == "":
		return sdk.Invalid("feature", "required")
	case len(q.Edges) < 2 || len(q.Edges) > 100_001:
		return sdk.Invalid("edges", "2 to 100,001")
	case len(q.GroupBy) > 8:
		return sdk.Invalid("group_by", "at most 8 dimensions")
	case q.Limit < 1 || q.Limit > 100_000:
		return sdk.Invalid("limit", "1 to 100,000")
	}
	for i := range q.Edges[1:] {
		if !q.Edges[i].Before(q.Edges[i+1]) {
			return sdk.Invalid("edges", "ascending")
		}
	}
	return nil
}

// usage is an event as an aggregation sees it.
type usage struct {
	at                          time.Time
	seq                         int64
	kind                        storage.Kind
	quantity, effect, corrected decimal.Decimal
	reverses                    bool
	dimensions                  map[string]string
}

// grouping collects the groups of one window after another.
type grouping struct {
	q      *storage.AggregateQuery
	window int
	groups map[string]*group // of this window, by their order
	// cut is the greatest key that can still be in the answer, if it is set.
	cut      string
	distinct int
	rows     []storage.AggregateRow
	// decoded are sets of dimensions by their JSON: usage repeats them.
	decoded map[string]map[string]string
}

// maxDecoded bounds the sets that are remembered.
const maxDecoded = 1_000

func (g *grouping) dimensions(doc string, failed error) (map[string]string, error) {
	if doc == "" || failed != nil {
		return nil, failed
	}
	if d, ok := g.decoded[doc]; ok {
		return d, nil
	}
	var d map[string]string
	if err := json.Unmarshal([]byte(doc), &d); err != nil {
		return nil, err
	}
	if len(g.decoded) == maxDecoded {
		clear(g.decoded)
	}
	g.decoded[doc] = d
	return d, nil
}

type group struct {
	storage.AggregateRow
	latestAt  time.Time
	latestSeq int64
	values    map[[16]byte]struct{}
}

// left is how many rows the answer still takes, and one that says that there
// are more.
func (g *grouping) left() int { return g.q.Limit + 1 - len(g.rows) }

func (g *grouping) full() bool { return g.left() <= 0 }

func (g *grouping) add(u *usage) error {
	for k, v := range g.q.Filter {
		if got, ok := u.dimensions[k]; !ok || got != v {
			return nil
		}
	}
	for !u.at.Before(g.q.Edges[g.window+1]) {
		g.close()
		g.window++
	}
	if g.full() {
		return nil
	}
	x := g.group(u.dimensions)
	if x == nil {
		return nil
	}
	x.Sum = x.Sum.Add(u.effect)
	switch {
	case u.kind == storage.Usage:
		x.Count++
	case u.reverses:
		x.Count--
	}
	if u.kind != storage.Usage || u.corrected.Sign() > 0 && u.corrected.Equal(u.quantity.Abs()) {
		return nil
	}
	if g.q.Extremes {
		x.extremes(u)
	}
	return g.value(x, u.dimensions)
}

// group finds or makes the group of a set of dimensions; nil if it cannot be in
// the answer.
func (g *grouping) group(dimensions map[string]string) *group {
	names := make([]*string, len(g.q.GroupBy))
	var order strings.Builder
	for i, name := range g.q.GroupBy {
		v, ok := dimensions[name]
		if !ok {
			order.WriteByte(0)
			continue
		}
		names[i] = &v
		// A text ends with 0, and a 0 in it is followed by 255: keys are in
		// the order of the values.
		order.WriteByte(1)
		order.WriteString(strings.ReplaceAll(v, "\x00", "\x00\xff"))
		order.WriteByte(0)
	}
	k := order.String()
	if x := g.groups[k]; x != nil {
		return x
	}
	if g.cut != "" && k > g.cut {
		return nil
	}
	x := &group{AggregateRow: storage.AggregateRow{Window: g.window, Group: names}}
	g.groups[k] = x
	if len(g.groups) > 2*g.left() {
		all := slices.Sorted(maps.Keys(g.groups))
		for _, k := range all[g.left():] {
			g.distinct -= len(g.groups[k].values)
			delete(g.groups, k)
		}
		g.cut = all[g.left()-1]
		return g.groups[k]
	}
	return x
}

func (x *group) extremes(u *usage) {
	quantity := u.quantity.Sub(u.corrected)
	if u.quantity.Sign() < 0 {
		quantity = u.quantity.Add(u.corrected)
	}
	if x.Min == nil || quantity.Cmp(*x.Min) < 0 {
		x.Min = &quantity
	}
	if x.Max == nil || quantity.Cmp(*x.Max) > 0 {
		x.Max = &quantity
	}
	if x.Latest == nil || cmp.Or(u.at.Compare(x.latestAt), cmp.Compare(u.seq, x.latestSeq)) > 0 {
		x.Latest, x.latestAt, x.latestSeq = &quantity, u.at, u.seq
	}
}

// value counts a distinct value. What is kept of it is half its SHA-256.
func (g *grouping) value(x *group, dimensions map[string]string) error {
	v, ok := dimensions[g.q.Unique]
	if g.q.Unique == "" || !ok {
		return nil
	}
	sum := sha256.Sum256([]byte(v))
	k := [16]byte(sum[:16])
	if _, known := x.values[k]; known {
		return nil
	}
	if g.distinct++; g.distinct > maxDistinct {
		return refusal{&sdk.Error{
			Tag: sdk.TagInvalid, Code: "too_many_values", Field: "unique",
			Rule: "at most 200,000 distinct values in one window", Hint: "ask for a shorter time",
		}}
	}
	if x.values == nil {
		x.values = map[[16]byte]struct{}{}
	}
	x.values[k] = struct{}{}
	return nil
}

// close ends the window.
func (g *grouping) close() {
	for _, k := range slices.Sorted(maps.Keys(g.groups)) {
		if g.full() {
			break
		}
		x := g.groups[k]
		x.Unique = int64(len(x.values))
		g.rows = append(g.rows, x.AggregateRow)
	}
	clear(g.groups)
	g.cut, g.distinct = "", 0
}

func (g *grouping) answer() storage.Aggregates {
	g.close()
	res := storage.Aggregates{Rows: g.rows}
	if res.Rows == nil {
		res.Rows = []storage.AggregateRow{}
	}
	if res.More = len(res.Rows) > g.q.Limit; res.More {
		res.Rows = res.Rows[:g.q.Limit]
	}
	return res
}
