package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

const (
	qAggregate       query = "aggregate"
	qAggregateValues query = "aggregate_values"
)

const (
	// maxRows is the most rows of an answer that is no page.
	maxRows = 100_000
	// maxGroups is how many dimensions a question may group by: the columns
	// that the statements have for them.
	maxGroups = 8
)

var (
	_ storage.Aggregator = (*Adapter)(nil)
	_ storage.Aggregator = BoundStore{}
)

// Aggregate adds events up, in one statement: one snapshot, and the memory of
// the server's work_mem whatever the number of events. Windows and groups are
// formed by the server; the names of dimensions are values to it.
func (s store) Aggregate(ctx context.Context, q storage.AggregateQuery) (storage.Aggregates, error) {
	const op = "aggregate"
	args, err := aggregateArgs(q)
	if err != nil {
		return storage.Aggregates{}, fmt.Errorf("%s: %w", op, err)
	}
	statement := qAggregate
	if q.Extremes || q.Unique != "" {
		statement = qAggregateValues
		var unique *string
		if q.Unique != "" {
			unique = &q.Unique
		}
		args = append(args, unique, q.Extremes)
	}
	var all storage.Aggregates
	err = s.run.read(ctx, op, func(ctx context.Context, t *tx) error {
		all = storage.Aggregates{Rows: []storage.AggregateRow{}}
		return t.each(ctx, statement, func(r pgx.Rows) error { return aggregateRow(r, q, &all) }, args...)
	})
	if err != nil {
		return storage.Aggregates{}, err
	}
	return cutAggregates(all, q.Limit), nil
}

func cutAggregates(all storage.Aggregates, limit int) storage.Aggregates {
	if all.More = len(all.Rows) > limit; all.More {
		all.Rows = all.Rows[:limit]
	}
	return all
}

// aggregateArgs checks a question and answers the first six parameters of the
// statements that answer it.
func aggregateArgs(q storage.AggregateQuery) ([]any, error) {
	if err := checkAggregate(q); err != nil {
		return nil, err
	}
	filter, err := filterText(q.Filter)
	return []any{q.Tenant, q.Feature, q.Edges, orEmpty(q.GroupBy), filter, q.Limit + 1}, err
}

// filterText is a filter as the statements take it; nil: none.
func filterText(filter map[string]string) (*string, error) {
	if len(filter) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(filter)
	text := string(b)
	return &text, err
}

func checkAggregate(q storage.AggregateQuery) error {
	switch {
	case q.Tenant == "":
		return sdk.Invalid("tenant", "required")
	case q.Feature == "":
		return sdk.Invalid("feature", "required")
	case len(q.Edges) < 2 || len(q.Edges) > maxRows+1:
		return sdk.Invalid("edges", "2 to 100001")
	case len(q.GroupBy) > maxGroups:
		return sdk.Invalid("group_by", "at most 8 dimensions")
	case q.Limit < 1 || q.Limit > maxRows:
		return sdk.Invalid("limit", "1 to 100000")
	}
	for i := range q.Edges[1:] {
		if !q.Edges[i].Before(q.Edges[i+1]) {
			return sdk.Invalid("edges", "ascending")
		}
	}
	for _, name := range q.GroupBy {
		if !storable(name) {
			return sdk.Invalid("group_by", "UTF-8 without NUL")
		}
	}
	for name, value := range q.Filter {
		if !storable(name) || !storable(value) {
			return sdk.Invalid("filter", "UTF-8 without NUL")
		}
	}
	if !storable(q.Tenant) || !storable(q.Feature) || !storable(q.Unique) {
		return sdk.Invalid("query", "UTF-8 without NUL")
	}
	return nil
}

// storable reports whether the server can hold the text: what it cannot is in
// no event.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// aggregateRow reads one row. Without events there is one that says only what
// was pruned.
func aggregateRow(r pgx.Rows, q storage.AggregateQuery, all *storage.Aggregates) error {
	var row storage.AggregateRow
	var window, count, unique *int64
	var group [maxGroups]*string
	var before time.Time
	err := r.Scan(utcInto{&before}, &window,
		&group[0], &group[1], &group[2], &group[3], &group[4], &group[5], &group[6], &group[7],
		decimalInto{&row.Sum}, &count,
		optDecimalInto{&row.Min}, optDecimalInto{&row.Max}, optDecimalInto{&row.Latest}, &unique)
	if err != nil {
		return err
	}
	all.PrunedBefore = before
	if window == nil {
		return nil
	}
	row.Window, row.Count = int(*window), *count
	row.Group = append([]*string{}, group[:len(q.GroupBy)]...)
	if !q.Extremes {
		row.Min, row.Max, row.Latest = nil, nil, nil
	}
	if unique != nil {
		row.Unique = *unique
	}
	all.Rows = append(all.Rows, row)
	return nil
}
