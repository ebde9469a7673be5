package conformance

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// groups collects the rows of an aggregation.
type groups struct {
	q    *storage.AggregateQuery
	rows map[groupKey]*groupRow
}

type groupKey struct {
	window int
	group  string
}

type groupRow struct {
	storage.AggregateRow
	latestAt  time.Time
	latestSeq int64
	distinct  map[string]bool
}

func newGroups(q *storage.AggregateQuery) *groups {
	return &groups{q: q, rows: map[groupKey]*groupRow{}}
}

// row finds or makes the row of a time and its dimensions; nil when the query
// does not select them.
func (g *groups) row(at time.Time, dimensions map[string]string) *groupRow {
	for k, v := range g.q.Filter {
		if got, ok := dimensions[k]; !ok || got != v {
			return nil
		}
	}
	window := -1
	for i := range len(g.q.Edges) - 1 {
		if !at.Before(g.q.Edges[i]) && at.Before(g.q.Edges[i+1]) {
			window = i
		}
	}
	if window < 0 {
		return nil
	}
	group := make([]*string, len(g.q.GroupBy))
	for i, name := range g.q.GroupBy {
		if v, ok := dimensions[name]; ok {
			group[i] = &v
		}
	}
	k := groupKey{window, groupText(group)}
	if g.rows[k] == nil {
		g.rows[k] = &groupRow{
			AggregateRow: storage.AggregateRow{Window: window, Group: group},
			distinct:     map[string]bool{},
		}
	}
	return g.rows[k]
}

// answer sorts the rows and cuts them at the limit.
func (g *groups) answer() storage.Aggregates {
	var all storage.Aggregates
	for _, r := range g.rows {
		r.Unique = int64(len(r.distinct))
		all.Rows = append(all.Rows, r.AggregateRow)
	}
	sortRows(all.Rows)
	if len(all.Rows) > g.q.Limit {
		all.Rows, all.More = all.Rows[:g.q.Limit], true
	}
	return all
}

func sortRows(rows []storage.AggregateRow) {
	slices.SortFunc(rows, func(a, b storage.AggregateRow) int {
		return cmp.Or(cmp.Compare(a.Window, b.Window), compareGroups(a.Group, b.Group))
	})
}

// compareGroups puts nil first, and text in the order of its bytes.
func compareGroups(a, b []*string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == nil && b[i] == nil:
		case a[i] == nil:
			return -1
		case b[i] == nil:
			return 1
		case *a[i] != *b[i]:
			return cmp.Compare(*a[i], *b[i])
		}
	}
	return 0
}

// groupText is the same for equal groups only.
func groupText(group []*string) string { return text(group) }

// Aggregate goes over all events.
func (s *Reference) Aggregate(ctx context.Context, q storage.AggregateQuery) (storage.Aggregates, error) {
	if err := s.begin(ctx); err != nil {
		return storage.Aggregates{}, err
	}
	defer s.mu.Unlock()
	if s.flaws.has(flawMergesGroups) {
		q.GroupBy = nil
	}
	g := newGroups(&q)
	for i := range s.events {
		ev := &s.events[i]
		if ev.Tenant != q.Tenant || ev.Feature != q.Feature {
			continue
		}
		row := g.row(ev.OccurredAt, ev.Dimensions)
		if row == nil {
			continue
		}
		row.Sum = row.Sum.Add(ev.Effect)
		row.Count += netCount(ev)
		if ev.Kind == storage.Usage {
			s.addUsage(&q, row, ev)
		}
	}
	answer := g.answer()
	for i := range s.gone {
		ev := &s.gone[i]
		if ev.Tenant == q.Tenant && ev.Feature == q.Feature && within(ev.OccurredAt, q.Edges[0], q.Edges[len(q.Edges)-1]) &&
			!ev.OccurredAt.Before(answer.PrunedBefore) {
			answer.PrunedBefore = ev.OccurredAt.Add(time.Microsecond)
		}
	}
	return answer, nil
}

// addUsage takes a usage event that is not fully reversed into account for
// what corrections change.
func (s *Reference) addUsage(q *storage.AggregateQuery, row *groupRow, ev *storage.Event) {
	corrected := s.corrected(ev)
	if corrected.Sign() > 0 && corrected.Equal(ev.Quantity.Abs()) {
		return
	}
	if v, ok := ev.Dimensions[q.Unique]; ok && q.Unique != "" {
		row.distinct[v] = true
	}
	if !q.Extremes {
		return
	}
	quantity := ev.Quantity.Sub(corrected)
	if ev.Quantity.Sign() < 0 {
		quantity = ev.Quantity.Add(corrected)
	}
	row.Min, row.Max = least(row.Min, &quantity), most(row.Max, &quantity)
	if row.Latest == nil || ev.OccurredAt.After(row.latestAt) || (ev.OccurredAt.Equal(row.latestAt) && ev.Seq > row.latestSeq) {
		row.latestAt, row.latestSeq = ev.OccurredAt, ev.Seq
		row.Latest = new(decimal.Decimal)
		*row.Latest = quantity
	}
}
