package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// usageByWindow answers the windows between edges, those without usage too.
func (e *Engine) usageByWindow(ctx context.Context, q UsageQuery, edges []time.Time) ([]UsageRow, error) {
	if len(edges) == 0 {
		return nil, nil
	}
	agg := e.aggregation(q, q.Feature)
	found, err := e.aggregate(ctx, q, agg, edges)
	if err != nil {
		return nil, err
	}
	rows := make([]UsageRow, 0, len(edges)-1)
	for w := range edges[1:] {
		base := UsageRow{Feature: q.Feature, From: edges[w], To: edges[w+1], Aggregation: agg}
		if len(found) == 0 || found[0].Window != w {
			rows = append(rows, base.with(storage.AggregateRow{}, q))
			continue
		}
		for len(found) > 0 && found[0].Window == w {
			rows = append(rows, base.with(found[0], q))
			found = found[1:]
		}
	}
	if len(found) > 0 {
		return nil, sdk.Unavailable("storage_answer", errors.New("the storage adapter answered windows out of order"))
	}
	return rows, nil
}

// with completes a row with what was found for it.
func (r UsageRow) with(a storage.AggregateRow, q UsageQuery) UsageRow {
	r.Value, r.Count = valueOf(r.Aggregation, a), &a.Count
	if len(a.Group) == len(q.GroupBy) && len(a.Group) > 0 {
		r.Group = make(map[string]*string, len(a.Group))
		for i, name := range q.GroupBy {
			r.Group[name] = a.Group[i]
		}
	}
	return r
}

// aggregate adds up the events between edges: from buckets where they say the
// same, and from the events themselves otherwise.
func (e *Engine) aggregate(ctx context.Context, q UsageQuery, agg meter.Aggregation, edges []time.Time) ([]storage.AggregateRow, error) {
	sel := storage.AggregateQuery{
		Tenant: q.Tenant, Feature: q.Feature, Edges: edges, GroupBy: q.GroupBy, Filter: q.Filter,
		Extremes: agg == meter.Min || agg == meter.Max || agg == meter.Latest, Limit: maxUsageRows,
	}
	if agg == meter.Unique {
		sel.Unique = e.cfg.feature(q.Feature).Unique
	}
	found, done, err := e.fromBuckets(ctx, sel, agg)
	if err != nil {
		return nil, err
	}
	if !done {
		events, err := need[storage.Aggregator](e.cfg.Store, storage.DurableEvents)
		if err != nil {
			return nil, err
		}
		if found, err = events.Aggregate(ctx, sel); err != nil {
			return nil, fmt.Errorf("aggregate events: %w", err)
		}
	}
	switch {
	case found.More:
		return nil, tooMany("group_by", "at most 100,000 rows in one answer")
	case edges[0].Before(found.PrunedBefore):
		return nil, prunedError{found.PrunedBefore.UTC()}
	}
	return found.Rows, nil
}

// prunedError says that retention has removed part of what is asked for.
type prunedError struct{ before time.Time }

func (e prunedError) Error() string { return e.Unwrap().Error() }

func (e prunedError) Unwrap() error {
	return &sdk.Error{
		Tag: sdk.TagUnsupported, Code: "pruned", Field: "from",
		Rule: "a time from " + e.before.Format(time.RFC3339Nano) + " on: retention has removed events before it",
		Hint: "totals by billing period, without group and filter, keep what was removed",
	}
}

// fromBuckets answers from the feature's buckets and reports whether it could:
// they are kept by these dimensions, they hold everything that was recorded, the
// edges are bucket starts, and nothing was corrected that only events can tell.
func (e *Engine) fromBuckets(ctx context.Context, sel storage.AggregateQuery, agg meter.Aggregation) (storage.Aggregates, bool, error) {
	none := storage.Aggregates{}
	if agg == meter.Latest || agg == meter.Unique || !onBuckets(sel.Edges) {
		return none, false, nil
	}
	store, err := need[storage.BucketStore](e.cfg.Store, storage.Buckets)
	if err != nil {
		return none, false, nil //nolint:nilerr // a store without buckets has events
	}
	before, err := e.bucketsOf(ctx, sel.Feature)
	if err != nil {
		return none, false, err
	}
	if !before.complete || !before.keep(sel) {
		return none, false, nil
	}
	found, err := store.AggregateBuckets(ctx, sel)
	switch {
	case errors.Is(err, sdk.ErrUnsupported):
		return none, false, nil
	case err != nil:
		return none, false, fmt.Errorf("aggregate buckets: %w", err)
	}
	// Settings that changed meanwhile may have changed what was read.
	after, err := e.bucketsOf(ctx, sel.Feature)
	if err != nil {
		return none, false, err
	}
	return found, after.complete && after.revision == before.revision && after.generation == before.generation, nil
}

// onBuckets reports whether every edge is the start of a bucket.
func onBuckets(edges []time.Time) bool {
	return !slices.ContainsFunc(edges, func(t time.Time) bool { return !t.Truncate(storage.BucketLength).Equal(t) })
}

// keep reports whether buckets tell apart what a query groups and filters by.
func (b featureBuckets) keep(sel storage.AggregateQuery) bool {
	kept := func(name string) bool { return slices.Contains(b.dimensions, name) }
	for name := range sel.Filter {
		if !kept(name) {
			return false
		}
	}
	for _, name := range sel.GroupBy {
		if !kept(name) {
			return false
		}
	}
	return true
}
